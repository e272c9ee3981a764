//! The file itself: made from schema.sql, or checked. An older schema is brought forward (`migrate`); a newer one is
//! refused before anything is written.

use super::{StoreError, WRITABLE, foreign, identity, migrate};
use crate::clock::Ms;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const SCHEMA: &str = include_str!("../../schema.sql");

/// The schema that this program knows: one more than there are steps to it.
pub const VERSION: i64 = 1 + migrate::STEPS.len() as i64;

/// The oldest SQLite whose WAL does not lose commits when a write and a checkpoint race.
const SQLITE_MIN: i32 = 3_051_003;

/// How long a write waits for whoever holds the lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the write connection with every setting that durability rests on, each read back.
pub fn connect(path: &Path) -> Result<Connection, StoreError> {
    let fresh = !path.exists();
    if rusqlite::version_number() < SQLITE_MIN {
        return Err(unusable(path, format!("SQLite {} is older than 3.51.3", rusqlite::version())));
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)
        .map_err(|e| unusable(path, format!("{e}: check that the folder exists and may be written")))?;
    conn.busy_timeout(PATIENCE)?;
    conn.set_prepared_statement_cache_capacity(128);
    stable_plans(&conn)?;
    let mode = write_ahead(&conn, fresh).map_err(|e| match busy(&e) {
        true => StoreError::Busy,
        false => unusable(path, open_trouble(&e)),
    })?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(unusable(
            path,
            format!("its journal mode stays `{mode}`; write-ahead logging is needed"),
        ));
    }
    conn.execute_batch("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON;")?;
    for (pragma, want) in [("synchronous", 2), ("foreign_keys", 1), ("recursive_triggers", 1)] {
        let got: i64 = conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))?;
        if got != want {
            return Err(unusable(path, format!("PRAGMA {pragma} is {got}, not {want}")));
        }
    }
    Ok(conn)
}

/// A statement keeps the plan that it was first given, whatever is bound to it. Without this SQLite plans most of them anew
/// at each call, which doubles the cost of a job.
pub fn stable_plans(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Folds the log into the file and empties it. `false`: somebody reads or writes, and `wait` was not long enough.
///
/// Until then the log may begin with what a failed sync left in the system's memory alone: what is written behind that
/// would be lost with the power.
pub fn fold(conn: &Connection, wait: Duration) -> Result<bool, rusqlite::Error> {
    let folded = conn
        .busy_timeout(wait)
        .and_then(|()| conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)));
    conn.busy_timeout(PATIENCE)?;
    match folded {
        Ok(blocked) => Ok(blocked == 0),
        Err(e) if busy(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Turns write-ahead logging on. SQLite does not wait here while another process makes the same new file, so this does.
fn write_ahead(conn: &Connection, fresh: bool) -> Result<String, rusqlite::Error> {
    let start = Instant::now();
    loop {
        let mode = if fresh { shrinkable(conn) } else { Ok(()) }
            .and_then(|()| conn.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)));
        match mode {
            Err(e) if busy(&e) && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5 + fastrand::u64(..20)));
            }
            other => return other,
        }
    }
}

/// What lets `prune` give room back must be there before the first page is.
fn shrinkable(conn: &Connection) -> Result<(), rusqlite::Error> {
    match conn.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))? {
        0 => conn.execute_batch("PRAGMA auto_vacuum=INCREMENTAL"),
        _ => Ok(()),
    }
}

pub(super) fn busy(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Makes or checks the schema, and pins the namespace. A file that is there is only read, so that whoever only wants to
/// look need not wait for its write lock.
pub fn prepare(path: &Path, namespace: &str, now: Ms) -> Result<(), StoreError> {
    let fresh = !path.exists();
    foreign::refuse(path)?;
    let mut conn = connect(path)?;
    if fresh {
        keep_private(path);
    }
    let there = found(&conn, path, namespace)?;
    if there != Found::Current {
        identity::refuse_links(path)?;
    }
    match there {
        Found::Current => return Ok(()),
        Found::Older(_) => return migrate::forward(conn, path, namespace, now),
        Found::Nothing => {}
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have made it in between.
    if found(&tx, path, namespace)? == Found::Nothing {
        tx.execute_batch(SCHEMA)?;
        let facts = [
            ("schema_version", VERSION.to_string()),
            ("instance", uuid::Uuid::new_v4().to_string()),
            ("namespace", namespace.to_string()),
            ("highest_ms", now.0.to_string()),
        ];
        for (name, value) in facts {
            tx.execute("INSERT INTO onceward_meta (name, value) VALUES (?1, ?2)", (name, value))?;
        }
    }
    tx.commit()?;
    Ok(())
}

/// Which schema is in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// None yet.
    Nothing,
    /// This program's.
    Current,
    /// An older one, that the steps begin with.
    Older(i64),
}

/// Which schema is in the file? Refused: another namespace, a newer schema, and one that no release wrote.
pub fn found(conn: &Connection, path: &Path, namespace: &str) -> Result<Found, StoreError> {
    let version = match version(conn)? {
        None => return Ok(Found::Nothing),
        Some(newer) if newer > VERSION => return Err(unusable(path, newer_words(newer))),
        Some(wrong) if wrong < 1 => {
            let why = format!(
                "its schema is {wrong}, which no release of onceward wrote (this program knows {VERSION}): restore a \
                 backup, or use another file"
            );
            return Err(unusable(path, why));
        }
        Some(known) => known,
    };
    let pinned = meta(conn, "namespace")?.unwrap_or_default();
    if pinned != namespace {
        return Err(StoreError::Namespace { pinned, given: namespace.to_string() });
    }
    Ok(if version == VERSION { Found::Current } else { Found::Older(version) })
}

fn newer_words(version: i64) -> String {
    format!("its schema is {version} and this program knows {VERSION}: upgrade onceward, or use another file")
}

/// Asked at the beginning of each write transaction: a newer program may have brought the file forward since it was
/// opened here.
pub fn still_known(conn: &Connection) -> Result<(), StoreError> {
    match meta(conn, "schema_version")?.and_then(|v| v.parse().ok()).unwrap_or(i64::MAX) {
        VERSION => Ok(()),
        other => {
            let path = conn.path().unwrap_or_default();
            let words = format!("{}; it was changed while this program had it open", newer_words(other));
            Err(unusable(Path::new(path), words))
        }
    }
}

/// A value of onceward_meta.
pub fn meta(conn: &Connection, name: &str) -> Result<Option<String>, StoreError> {
    Ok(conn
        .prepare_cached("SELECT value FROM onceward_meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?)
}

fn version(conn: &Connection) -> Result<Option<i64>, StoreError> {
    let there: bool = conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'onceward_meta')",
        [],
        |row| row.get(0),
    )?;
    if !there {
        return Ok(None);
    }
    Ok(meta(conn, "schema_version")?.and_then(|v| v.parse().ok()).or(Some(i64::MAX)))
}

fn unusable(path: &Path, why: String) -> StoreError {
    StoreError::Unusable { path: path.to_path_buf(), why }
}

fn open_trouble(e: &rusqlite::Error) -> String {
    match e.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "it is not an SQLite file; name another one in [store] path".into(),
        Some(ErrorCode::ReadOnly) => "it may not be written; check its owner and mode".into(),
        Some(ErrorCode::CannotOpen) => format!("{e}: {WRITABLE}"),
        Some(ErrorCode::SystemIoFailure) => format!("{e}: is its disk full, or failing?"),
        _ => e.to_string(),
    }
}

/// Payments are nobody else's business: a new file is readable by its owner only.
#[cfg(unix)]
fn keep_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if let Err(e) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)) {
        log::warn!("the mode of {} could not be set to 0600: {e}", path.display());
    }
}

#[cfg(not(unix))]
fn keep_private(_: &Path) {}
