//! A log that is not the store's own: SQLite takes any `-wal` with sound checksums that lies beside a file for the file's,
//! and at its close folds another file's pages into it. So before a file with a log is opened for writing it is asked
//! twice which file it is, without the log and with it.
//!
//! Not found: a log from an earlier time of the same file, and any log beside a file whose making stands only in its log.

use super::{StoreError, schema};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};

/// Refuses a file whose log makes another file of it, and a log without its file, which SQLite would delete. Nothing is
/// changed.
pub fn refuse(path: &Path) -> Result<(), StoreError> {
    let log = log_of(path);
    // In this order: whoever makes the file makes its log later.
    if log.exists() && !path.exists() {
        let why = format!(
            "it is not there, and the log beside it, {}, is: the file was moved or deleted without it, and what stands in \
             the log alone would be lost. Put the file back, or move the log away and start again",
            log.display()
        );
        return Err(StoreError::Unusable { path: path.to_path_buf(), why });
    }
    if std::fs::metadata(&log).map_or(0, |m| m.len()) == 0 {
        return Ok(());
    }
    // A file that cannot be read by itself (it is new, or a checkpoint is at work) tells nothing.
    let Some(alone) = alone(path) else { return Ok(()) };
    let why = match with_log(path) {
        Ok(known) if known.contains(&alone) => return Ok(()),
        Ok(_) => "is another store's",
        Err(e) if spoilt(&e) => "does not fit it",
        // Whoever opens it in earnest will tell.
        Err(_) => return Ok(()),
    };
    let why = format!(
        "the log beside it, {}, {why}: with it SQLite would make another file of it. Nothing was changed. Move that log \
         away and start again; if it is the file that is the wrong one, put the right one in its place",
        log.display()
    );
    Err(StoreError::Unusable { path: path.to_path_buf(), why })
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.canonicalize().unwrap_or_else(|_| path.to_path_buf()).into_os_string();
    name.push("-wal");
    PathBuf::from(name)
}

/// Which file it is without its log: SQLite reads no log of a file that it is told will never change.
fn alone(path: &Path) -> Option<String> {
    let name = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let conn = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags).ok()?;
    schema::meta(&conn, "instance").ok()?
}

/// Which file it is with its log, and which it was before it was restored.
fn with_log(path: &Path) -> Result<Vec<String>, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.busy_timeout(schema::PATIENCE)?;
    let mut statement =
        conn.prepare("SELECT value FROM onceward_meta WHERE name IN ('instance', 'instance_before')")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Pages that do not belong together, or somebody else's tables.
fn spoilt(e: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseCorrupt, NotADatabase, Unknown};
    matches!(e.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase | Unknown))
}
