//! Copies of the file.
//!
//! A copy is made by SQLite's backup interface from one read transaction: it holds every commit that was acknowledged
//! before it began, writers go on meanwhile, and an app's own tables come along as they are (VACUUM INTO would number the
//! rows of some anew). It is marked inside, and a marked file takes no writes until `restore`: since the copy the provider
//! may have been asked for things that the copy does not know of.

use super::audit::{Head, head};
use super::newfile::NewFile;
use super::{Store, StoreError, schema};
use crate::clock::Ms;
use crate::job::{Code, Refusal};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::path::Path;
use std::time::Duration;

/// A copy that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// What is on record at or before this is in it.
    pub at: Ms,
    /// Where its history ends.
    pub head: Head,
    /// Its intents.
    pub intents: u64,
    /// Its size.
    pub bytes: u64,
}

/// Marks a copy; its value is the copy's time.
pub(super) const MARK: &str = "backup_ms";
/// Pages between two looks at the progress.
const PAGES: i32 = 2000;

pub(super) fn trouble(path: &Path, why: impl std::fmt::Display) -> StoreError {
    StoreError::Copy { path: path.to_path_buf(), why: why.to_string() }
}

pub(super) fn not_new(path: &Path, e: std::io::Error) -> StoreError {
    if e.kind() == std::io::ErrorKind::AlreadyExists {
        let why = format!(
            "{} is there already and is never overwritten: move it aside, or name another",
            path.display()
        );
        return Refusal::new(Code::NotAllowed, why).into();
    }
    trouble(path, e)
}

/// When the file was copied, if it is a copy that was not restored.
pub(super) fn marked(conn: &Connection) -> Result<Option<Ms>, StoreError> {
    Ok(schema::meta(conn, MARK)?.map(|at| Ms(at.parse().unwrap_or(0))))
}

/// Why a marked file takes no writes.
pub(super) fn refusal(copied: Ms) -> StoreError {
    let why = format!(
        "this file is a backup of {copied}: what was sent since is not in it. Put it in its place with `onceward restore FILE`"
    );
    Refusal::new(Code::NotAllowed, why).into()
}

impl Store {
    /// Copies the file to a new one while everybody goes on. `progress` is told pages.
    pub fn backup(&self, path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Copied, StoreError> {
        let (new, _) = NewFile::create(path).map_err(|e| not_new(path, e))?;
        // Before the snapshot: what the copy lacks was done after this.
        let at = self.clock().now();
        let source = self.reader()?;
        let snapshot = source.unchecked_transaction()?;
        let (end, intents) = (head(&snapshot)?, intents(&snapshot)?);
        let mut copy = Connection::open(new.passing()).map_err(|e| trouble(path, e))?;
        copy_pages(&snapshot, &mut copy, path, progress)?;
        drop(snapshot);
        drop(source);
        settle_down(&copy)?;
        copy.execute(
            "INSERT OR IGNORE INTO onceward_meta (name, value) VALUES (?1, ?2)",
            (MARK, at.0.to_string()),
        )?;
        let sound: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if sound != "ok" || head(&copy)? != end || self::intents(&copy)? != intents {
            return Err(trouble(
                path,
                format!("the copy is not what was copied ({sound}): it was thrown away"),
            ));
        }
        copy.close().map_err(|(_, e)| trouble(path, e))?;
        let bytes = std::fs::metadata(new.passing()).map_err(|e| trouble(path, e))?.len();
        crate::crash::point("backup is whole");
        new.finish().map_err(|e| not_new(path, e))?;
        Ok(Copied { at, head: end, intents, bytes })
    }
}

fn intents(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.query_row("SELECT count(*) FROM onceward_intents", [], |row| row.get(0))?)
}

/// All pages out of the read transaction that is open on `source`: no write of others makes it begin anew.
pub(super) fn copy_pages(
    source: &Connection,
    copy: &mut Connection,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), StoreError> {
    let backup = Backup::new(source, copy).map_err(|e| trouble(path, e))?;
    let mut refused = 0;
    loop {
        match backup.step(PAGES).map_err(|e| trouble(path, e))? {
            StepResult::Done => return Ok(()),
            StepResult::More => {
                let seen = backup.progress();
                let (all, left) = (u64::try_from(seen.pagecount), u64::try_from(seen.remaining));
                if let (Ok(all), Ok(left)) = (all, left) {
                    progress(all.saturating_sub(left), all);
                }
            }
            _ if refused < 200 => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            _ => return Err(StoreError::Busy),
        }
    }
}

/// Out of write-ahead logging: one file is the whole of it.
pub(super) fn settle_down(conn: &Connection) -> Result<(), StoreError> {
    let mode: String = conn.query_row("PRAGMA journal_mode=DELETE", [], |row| row.get(0))?;
    conn.execute_batch("PRAGMA synchronous=FULL")?;
    if mode.eq_ignore_ascii_case("delete") { Ok(()) } else { Err(StoreError::Busy) }
}
