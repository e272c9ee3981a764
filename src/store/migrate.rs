//! Bringing an older file forward: numbered steps, each from N to N + 1, all in one transaction with the new version.
//!
//! Before it a copy of the file is made beside it, so that the older program can go on with that one. While the copy is
//! made and the steps run, the file's write lock is held: the copy is exactly what the steps begin with. A kill leaves
//! the old file or the new one. No live worker of the older program has its schema pulled from under it: while an
//! owner's lock is held there is no step. Whoever else has the file open finds the new version at the beginning of the
//! next write transaction ([`schema::still_known`]); version 1 did not look, and its one statement that the steps so far
//! touch, an event without its hashes, is refused by the new table.

use super::events::{self, Event, EventAction, EventScope};
use super::life::{self, Life};
use super::newfile::sync_folder;
use super::schema::{self, Found};
use super::{StoreError, Tx, identity};
use crate::clock::Ms;
use crate::crash;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Step = fn(&Connection) -> Result<(), StoreError>;

/// The steps in their order: the first brings version 1 to 2. As released, a step is never changed; the next one follows.
pub const STEPS: &[Step] = &[chain_the_events, list_and_chart, tell_restores];

/// How long the copy waits for a page that somebody has locked.
const PATIENCE: Duration = Duration::from_secs(10);

/// Brings the file at `path` to the newest schema. The connection is given up: it has settings of its own for this.
pub fn forward(mut conn: Connection, path: &Path, namespace: &str, now: Ms) -> Result<(), StoreError> {
    // A table that is made anew under its own name keeps its rows' numbers, so nothing that points at it is broken.
    conn.execute_batch("PRAGMA foreign_keys=OFF")?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it in between.
    let Found::Older(from) = schema::found(&tx, path, namespace)? else { return Ok(()) };
    refuse_beside_workers(&tx, path, from)?;
    crash::point("migration: begun");
    let copy = copy(path, from, now).map_err(|e| failed(path, from, "be copied first", &e))?;
    crash::point("migration: the copy is in its place");
    let done = steps(&tx, from, &copy, now).map_err(|e| failed(path, from, "be changed", &e));
    if done.is_err() {
        // Nothing was changed, so the copy is of no use, and another try must find its room.
        drop(tx);
        remove(&copy);
        return done;
    }
    crash::point("migration: before its commit");
    let committed = tx.commit();
    crash::point("migration: after its commit");
    // The last connection to close folds the log into the file.
    drop(conn);
    if let Err(e) = committed {
        settle(path, namespace, from, &copy, &e.into())?;
    }
    log::warn!(
        "{} was brought from schema {from} to {}; as it was before it is kept in {}",
        path.display(),
        schema::VERSION,
        copy.display()
    );
    Ok(())
}

fn steps(conn: &Connection, from: i64, copy: &Path, now: Ms) -> Result<(), StoreError> {
    let first = usize::try_from(from - 1).unwrap_or(0);
    for step in STEPS.iter().skip(first) {
        step(conn)?;
        crash::point("migration: a step is done");
    }
    conn.execute(
        "UPDATE onceward_meta SET value = ?1 WHERE name = 'schema_version'",
        [schema::VERSION.to_string()],
    )?;
    let actor = format!("store:{}", events::here());
    let name = copy.file_name().unwrap_or_default().to_string_lossy();
    let detail = format!("schema {from} to {}; the copy is {name}", schema::VERSION);
    let event = Event::new(EventAction::Migrate, EventScope::Store, "schema", &actor);
    events::record(&Tx::new(conn, (now, 0)), Event { detail: Some(&detail), ..event })
}

/// A failed COMMIT is not a no: the file is opened anew, its log folded into it, and its version read. Old: an error, and
/// the copy goes. New: it was stored after all. Not to be read: both stay, for a person.
fn settle(path: &Path, namespace: &str, from: i64, copy: &Path, e: &StoreError) -> Result<(), StoreError> {
    let conn = schema::connect(path)?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    match schema::found(&conn, path, namespace)? {
        Found::Current => Ok(()),
        Found::Older(_) | Found::Nothing => {
            remove(copy);
            Err(failed(path, from, "be changed", e))
        }
    }
}

/// What failed, what the file is now, and what to do.
fn failed(path: &Path, from: i64, what: &str, e: &StoreError) -> StoreError {
    let size = [path.to_path_buf(), beside(path, "-wal")];
    let size: u64 = size.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|m| m.len()).sum();
    let remedy = match e {
        StoreError::Full(_) => format!("free {} MiB there and start again", size.div_ceil(1 << 20) * 2 + 1),
        _ => "mend that and start again".to_string(),
    };
    let why = format!(
        "its schema is {from}, this program's is {}, and it could not {what} ({e}): the file is as it was; {remedy}",
        schema::VERSION
    );
    StoreError::Unusable { path: path.to_path_buf(), why }
}

const NAME: &str = "SELECT name FROM onceward_owners WHERE nonce = ?1";

fn refuse_beside_workers(conn: &Connection, path: &Path, from: i64) -> Result<(), StoreError> {
    let unusable = |why: String| StoreError::Unusable { path: path.to_path_buf(), why };
    let version = schema::VERSION;
    let all = life::all(&identity::real(path)).map_err(|e| {
        unusable(format!("its schema is {from} and whether a worker runs cannot be seen in its folder: {e}"))
    })?;
    let alive: Vec<_> = all.iter().filter(|(_, _, life)| life.may_work()).collect();
    let Some((nonce, lock, life)) = alive.first() else { return Ok(()) };
    let name: Option<String> = conn.query_row(NAME, [nonce], |row| row.get(0)).optional()?;
    let name = name.unwrap_or_else(|| "of unknown name".into());
    let more = if alive.len() > 1 { format!(" and {} more", alive.len() - 1) } else { String::new() };
    let unclear = match life {
        Life::Unclear(why) => format!(", or did: of its lock file {} {why}", lock.display()),
        Life::Alive | Life::Dead(_) | Life::Missing => String::new(),
    };
    Err(unusable(format!(
        "its schema is {from} and this program's is {version}, but a worker of the older program runs on it ({name}{more}{unclear}): stop \
         it, then start again; nothing was changed"
    )))
}

/// Copies the file as it was last committed to `<store>.v<from>-<time>.copy`. It has that name only when it is whole and on
/// disk.
fn copy(path: &Path, from: i64, now: Ms) -> Result<PathBuf, StoreError> {
    // Whoever copies holds the write lock, so what a killed one left behind is nobody's.
    let unfinished = beside(path, ".copy-unfinished");
    remove(&unfinished);
    let made = fill(path, &unfinished).and_then(|()| {
        let place = free_name(path, from, now);
        std::fs::rename(&unfinished, &place).map_err(|e| io(&place, &e))?;
        sync_folder(&place).map_err(|e| io(&place, &e))?;
        Ok(place)
    });
    if made.is_err() {
        remove(&unfinished);
    }
    made
}

fn fill(path: &Path, to: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(to).map_err(|e| io(to, &e))?);
    // A read-only connection: the one with the write lock may not be the source of a backup.
    let source = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    source.busy_timeout(PATIENCE)?;
    let mut target =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // A copy that fails is deleted, so it needs no journal; it is synced once, at its end.
    target.execute_batch("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")?;
    {
        let backup = Backup::new(&source, &mut target)?;
        let begun = Instant::now();
        loop {
            match backup.step(4096)? {
                StepResult::Done => break,
                StepResult::More => crash::point("migration: a part of the copy is made"),
                _ if begun.elapsed() > PATIENCE => return Err(StoreError::Busy),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
    target.close().map_err(|(_, e)| e)?;
    // Windows syncs only what may be written.
    let whole = File::options().read(true).write(true).open(to);
    whole.and_then(|file| file.sync_all()).map_err(|e| io(to, &e))?;
    crash::point("migration: the copy is made");
    Ok(())
}

/// A name that no earlier copy has.
fn free_name(path: &Path, from: i64, now: Ms) -> PathBuf {
    let time: String = now.rfc3339().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let name = |n: u32| match n {
        0 => beside(path, &format!(".v{from}-{time}.copy")),
        n => beside(path, &format!(".v{from}-{time}-{n}.copy")),
    };
    (0..).map(name).find(|place| !place.exists()).unwrap_or_else(|| name(0))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(end);
    PathBuf::from(name)
}

fn remove(file: &Path) {
    if let Err(e) = std::fs::remove_file(file)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        log::warn!("{} could not be removed: {e}", file.display());
    }
}

fn io(file: &Path, e: &std::io::Error) -> StoreError {
    let what = format!("{}: {e}", file.display());
    match e.kind() {
        std::io::ErrorKind::StorageFull => StoreError::Full(what),
        _ => StoreError::Sqlite(what),
    }
}

const TO_2: &str = include_str!("to_2.sql");
/// What an app may have hung on the table: it goes with the table, and comes back with it.
const HUNG_ON: &str = "SELECT sql FROM sqlite_schema
  WHERE tbl_name = 'onceward_events' AND type IN ('trigger','index') AND sql IS NOT NULL AND name NOT LIKE 'onceward\\_%' ESCAPE '\\'";
const OLD_EVENTS: &str =
    "SELECT seq, at_ms, actor, action, scope, name, sequence, why FROM onceward_step ORDER BY seq";

/// 1 to 2: events get an origin, a detail and a chain.
fn chain_the_events(conn: &Connection) -> Result<(), StoreError> {
    let hung: Vec<String> =
        conn.prepare(HUNG_ON)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    conn.execute_batch(TO_2)?;
    let mut statement = conn.prepare(OLD_EVENTS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text = |i: usize| row.get::<_, String>(i);
        let (actor, action, scope, name) = (text(2)?, text(3)?, text(4)?, text(5)?);
        let why: Option<String> = row.get(7)?;
        events::Row {
            seq: row.get(0)?,
            at: row.get(1)?,
            actor: &actor,
            origin: None,
            action: &action,
            scope: &scope,
            name: &name,
            sequence: row.get(6)?,
            why: why.as_deref(),
            detail: None,
        }
        .append(conn)?;
    }
    drop(rows);
    drop(statement);
    conn.execute_batch("DROP TABLE onceward_step")?;
    for sql in hung {
        conn.execute_batch(&sql)?;
    }
    Ok(())
}

const TO_3: &str = include_str!("to_3.sql");

/// 2 to 3: what the console's lists and charts read. The hours before are not drawn.
fn list_and_chart(conn: &Connection) -> Result<(), StoreError> {
    Ok(conn.execute_batch(TO_3)?)
}

const TO_4: &str = include_str!("to_4.sql");

/// 3 to 4: what is known of restores and of generations that are over.
fn tell_restores(conn: &Connection) -> Result<(), StoreError> {
    Ok(conn.execute_batch(TO_4)?)
}
