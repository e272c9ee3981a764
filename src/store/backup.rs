//! Copies of the file, and what follows when one is put back.
//!
//! A copy is made by SQLite's backup interface from one read transaction: it holds every commit that was acknowledged
//! before it began, writers go on meanwhile, and an app's own tables come along as they are (VACUUM INTO would number the
//! rows of some anew). It is marked inside, and a marked file takes no writes until `restore`: since the copy the provider
//! may have been asked for things that the copy does not know of.

use super::audit::{Head, head};
use super::events::{self, Event, EventAction, EventScope};
use super::history::{Action, Entry};
use super::life::{self, Life};
use super::newfile::NewFile;
use super::record::Recorder;
use super::{Desk, Options, Store, StoreError, Tx, history, identity, rows, schema};
use crate::clock::{Clock, Ms};
use crate::decide::Family;
use crate::job::{Code, JobId, Refusal, State};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, named_params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
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

/// A file that was put back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// When the copy was made.
    pub copied: Ms,
    /// Jobs of the copy that may have been sent since.
    pub doubtful: u64,
    /// Where the copy's history ended.
    pub head: Head,
    /// Names that stood in the way and were moved aside: old, new.
    pub aside: Vec<(PathBuf, PathBuf)>,
}

/// How to put a file back.
#[derive(Clone, Debug, Default)]
pub struct Restoring {
    /// When the copy was made, for one that is not marked.
    pub copied_at: Option<Ms>,
    /// A person's word: no key was asked for since the copy, so new keys are new.
    pub trust_new_keys: bool,
    /// Who does it, for the history.
    pub actor: String,
}

/// Marks a copy; its value is the copy's time.
const MARK: &str = "backup_ms";
/// The time of the copy that this file was restored from.
const COPIED: &str = "restored_copy_ms";
/// Pages between two looks at the progress.
const PAGES: i32 = 2000;
/// How long new keys are in doubt where the provider has no window.
const NO_WINDOW: Duration = Duration::from_secs(24 * 3600);

fn trouble(path: &Path, why: impl std::fmt::Display) -> StoreError {
    StoreError::Copy { path: path.to_path_buf(), why: why.to_string() }
}

fn not_new(path: &Path, e: std::io::Error) -> StoreError {
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

    /// Puts a copy in place at `to`, or marks the one that was put there by hand. Nothing that is there is destroyed.
    pub fn restore(
        from: &Path,
        to: &Path,
        options: Options,
        clock: Arc<dyn Clock>,
        desk: Arc<dyn Desk>,
        how: &Restoring,
    ) -> Result<Restored, StoreError> {
        if !from.is_file() {
            return Err(StoreError::NoFile(from.to_path_buf()));
        }
        nobody_works(to)?;
        let same = match (from.canonicalize(), to.canonicalize()) {
            (Ok(from), Ok(to)) => from == to,
            _ => false,
        };
        if same {
            let store = Store::open_even_marked(to, options, clock, desk)?;
            return store.mark_restored(how, Vec::new());
        }
        if to.symlink_metadata().is_ok() {
            let why = format!(
                "{} is there already and is never overwritten: move it aside (with its -wal and -shm), then restore",
                to.display()
            );
            return Err(Refusal::new(Code::NotAllowed, why).into());
        }
        let aside = move_sidecars(to, clock.now())?;
        let (new, _) = NewFile::create(to).map_err(|e| not_new(to, e))?;
        let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .map_err(|e| trouble(from, e))?;
        let snapshot = source.unchecked_transaction()?;
        let _ = head(&snapshot).map_err(|e| trouble(from, e))?;
        let mut copy = Connection::open(new.passing()).map_err(|e| trouble(to, e))?;
        copy_pages(&snapshot, &mut copy, to, &mut |_, _| {})?;
        settle_down(&copy)?;
        copy.close().map_err(|(_, e)| trouble(to, e))?;
        let options = Options { create: false, ..options };
        let store = Store::open_even_marked(new.passing(), options, clock, desk)?;
        let restored = store.mark_restored(how, aside)?;
        drop(store);
        // All of it has to be in the one file that gets the name.
        let copy = Connection::open(new.passing()).map_err(|e| trouble(to, e))?;
        settle_down(&copy)?;
        copy.close().map_err(|(_, e)| trouble(to, e))?;
        crate::crash::point("restore is whole");
        new.finish().map_err(|e| not_new(to, e))?;
        Ok(restored)
    }

    fn mark_restored(&self, how: &Restoring, aside: Vec<(PathBuf, PathBuf)>) -> Result<Restored, StoreError> {
        let (desk, clock, namespace) =
            (Arc::clone(self.desk()), Arc::clone(self.clock()), Arc::clone(&self.namespace));
        let how = how.clone();
        self.write_even_marked(move |tx| {
            let now = Store::present(clock.as_ref());
            let recorder = Recorder { tx, desk: desk.as_ref(), namespace: &namespace, now };
            Mark { tx, recorder, how: &how, aside: aside.clone() }.apply()
        })
    }
}

fn intents(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.query_row("SELECT count(*) FROM onceward_intents", [], |row| row.get(0))?)
}

/// All pages out of the read transaction that is open on `source`: no write of others makes it begin anew.
fn copy_pages(
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
fn settle_down(conn: &Connection) -> Result<(), StoreError> {
    let mode: String = conn.query_row("PRAGMA journal_mode=DELETE", [], |row| row.get(0))?;
    conn.execute_batch("PRAGMA synchronous=FULL")?;
    if mode.eq_ignore_ascii_case("delete") { Ok(()) } else { Err(StoreError::Busy) }
}

/// A worker that is alive holds the lock of its file beside the store, whatever became of the store itself.
fn nobody_works(store: &Path) -> Result<(), StoreError> {
    let store = &identity::real(store);
    let all = match life::all(store) {
        // Without a folder there is nobody in it.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        all => all.map_err(|e| trouble(store, format!("whether a worker runs cannot be seen: {e}")))?,
    };
    for (_, lock, life) in all {
        let (store, lock) = (store.display(), lock.display());
        let why = match life {
            Life::Dead(_) | Life::Missing => continue,
            Life::Alive => format!("a worker is at work on {store}: stop it first ({lock})"),
            Life::Unclear(why) => format!(
                "a worker may be at work on {store}: {lock} stands for one, and {why}. Run this as its user; if that worker is \
                 certainly gone, delete that file first"
            ),
        };
        return Err(Refusal::new(Code::NotAllowed, why).into());
    }
    Ok(())
}

/// The log of a file that is gone would be taken for the new one's.
fn move_sidecars(store: &Path, now: Ms) -> Result<Vec<(PathBuf, PathBuf)>, StoreError> {
    let mut moved = Vec::new();
    for end in ["-wal", "-shm", "-journal"] {
        let with = |more: &str| {
            let mut name = store.as_os_str().to_os_string();
            name.push(more);
            PathBuf::from(name)
        };
        let (old, new) = (with(end), with(&format!("{end}.aside-{}", now.0)));
        if old.symlink_metadata().is_ok() {
            std::fs::rename(&old, &new).map_err(|e| trouble(&old, e))?;
            moved.push((old, new));
        }
    }
    Ok(moved)
}

/// Everything that being restored changes in the file, in one transaction.
struct Mark<'a> {
    tx: &'a Tx<'a>,
    recorder: Recorder<'a>,
    how: &'a Restoring,
    aside: Vec<(PathBuf, PathBuf)>,
}

/// Whatever may have been sent since: what was due by now, and what is in doubt already.
const OPEN: &str = "SELECT id FROM onceward_jobs
  WHERE state IN ('ready','waiting','unknown') OR (state = 'scheduled' AND run_after_ms <= ?1) ORDER BY id";
const RUNNING: &str =
    "SELECT id, lease_step, lease_started_ms FROM onceward_jobs WHERE state = 'running' ORDER BY id";
/// The lost file may have given numbers that nobody knows: at most a hundred a millisecond were ever written.
const BUMP: &str =
    "UPDATE sqlite_sequence SET seq = seq + 1000000 + ?1 * 100 WHERE name = 'onceward_intents'";
const SET: &str = "INSERT INTO onceward_meta (name, value) VALUES (?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value";

impl Mark<'_> {
    fn apply(&self) -> Result<Restored, StoreError> {
        let (tx, conn, now) = (self.tx, self.tx.conn(), self.tx.now());
        let copied = match (marked(conn)?, self.how.copied_at) {
            (Some(at), _) | (None, Some(at)) => at,
            (None, None) => {
                let why = "this file is no marked backup. If it was copied by hand, say when with --copied-at TIME: what was \
                           sent since is then looked up first";
                return Err(Refusal::new(Code::NotAllowed, why).into());
            }
        };
        if copied > now {
            let why = format!("the copy was made at {copied} and the clock says {now}: set the clock first");
            return Err(Refusal::new(Code::NotAllowed, why).into());
        }
        let end = head(conn)?;
        self.numbers(now.since(copied))?;
        let mut doubtful = self.take_over()?;
        for id in self.open()? {
            doubtful += u64::from(self.doubt(JobId(id), copied)?);
        }
        conn.execute("DELETE FROM onceward_meta WHERE name = ?1 OR name LIKE 'doubt_until:%'", [MARK])?;
        let set = |name: &str, value: String| conn.prepare_cached(SET)?.execute((name, value));
        set(COPIED, copied.0.to_string())?;
        set("restored_ms", now.0.to_string())?;
        set("restored_seq", end.seq.to_string())?;
        if let Some(before) = schema::meta(conn, "instance")? {
            set("instance_before", before)?;
        }
        set("instance", uuid::Uuid::new_v4().to_string())?;
        if !self.how.trust_new_keys {
            set("doubt_until:", now.plus(NO_WINDOW).0.to_string())?;
            for kind in self.recorder.desk.kinds() {
                let until = match (kind.terms.family, kind.terms.window) {
                    (_, Some(window)) => now.plus(window),
                    (Family::E, None) => now.plus(NO_WINDOW),
                    // It answers a repeat from memory for ever.
                    (_, None) => Ms(0),
                };
                set(&format!("doubt_until:{}", kind.kind), until.0.to_string())?;
            }
        }
        tx.count("restores", 1);
        let detail = format!(
            "from a copy of {copied} that ends at row {}; {doubtful} jobs may have been sent since{}",
            end.seq,
            if self.how.trust_new_keys { "; new keys are trusted, by this person's word" } else { "" }
        );
        let event = Event::new(EventAction::Restore, EventScope::Store, "file", &self.how.actor);
        events::record(tx, Event { detail: Some(&detail), ..event })?;
        log::warn!("restored from a copy of {copied}: {doubtful} jobs may have been sent since");
        Ok(Restored { copied, doubtful, head: end, aside: self.aside.clone() })
    }

    fn numbers(&self, elapsed: Duration) -> Result<(), StoreError> {
        let conn = self.tx.conn();
        let elapsed = crate::clock::millis(elapsed);
        if conn.execute(BUMP, [elapsed])? == 0 {
            conn.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES ('onceward_intents', 1000000 + ?1 * 100)",
                [elapsed],
            )?;
        }
        Ok(())
    }

    /// What the copy shows as running ended since, one way or the other; its workers are not this file's.
    fn take_over(&self) -> Result<u64, StoreError> {
        let conn = self.tx.conn();
        let running: Vec<(i64, String, i64)> = conn
            .prepare_cached(RUNNING)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        for (id, step, started) in &running {
            // "Claimed and not yet sending" was true of the copy's moment only.
            self.recorder.crashed(JobId(*id), step, "sending", Ms(*started), &self.how.actor)?;
        }
        conn.execute("UPDATE onceward_owners SET gone_ms = ?1 WHERE gone_ms IS NULL", [self.tx.now().0])?;
        Ok(running.len() as u64)
    }

    fn open(&self) -> Result<Vec<i64>, StoreError> {
        let mut statement = self.tx.conn().prepare_cached(OPEN)?;
        let ids = statement.query_map([self.tx.now().0], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    fn doubt(&self, id: JobId, copied: Ms) -> Result<bool, StoreError> {
        let (tx, desk) = (self.tx, self.recorder.desk);
        let (job, intent) = rows::must_load(tx.conn(), id)?;
        let external = desk.kind(&job.kind).is_some_and(|kind| kind.terms.external)
            || (intent.generation.unknown
                && intent.scope.is_none()
                && intent.generation.first_sent.is_none());
        if external {
            return Ok(false);
        }
        doubt(tx, id, copied, true)?;
        let in_turn = job.state == State::Waiting;
        let to = rows::Move {
            state: if in_turn { State::Waiting } else { State::Unknown },
            run_after: if in_turn { job.run_after } else { tx.now() },
            attempts: job.attempts,
            pauses: job.pauses,
            age_from: Some(tx.now()),
            error_class: job.error_class,
            last_error: job.last_error.as_deref(),
            park_reason: None,
        };
        let state = rows::move_job(tx, &job, &to)?;
        let mut entry = Entry::new(id, Action::Release, tx.now(), &self.how.actor);
        (entry.from, entry.to) = (Some(job.state), Some(state));
        entry.detail = Some(format!("restored from a copy of {copied}: a request may have left since"));
        history::append(tx, &entry)?;
        Ok(true)
    }
}

/// A request of the present generation may have left that this file does not know of, at the earliest at `copied`.
const DOUBT: &str = "UPDATE onceward_intents SET state = 'requested', unknown = 1, sends = max(sends, 1),
    first_sent_ms = coalesce(first_sent_ms, :copied), last_sent_ms = :now, ask_first = :ask_first, not_found = 0,
    not_found_ms = NULL, last_sent_boot_ms = NULL, not_found_boot_ms = NULL,
    requested_ms = coalesce(requested_ms, :copied)
  WHERE id = :id AND state <> 'settled'";

/// Puts an intent in doubt; `ask_first`: it is looked up before it is sent again, even where a repeat is safe.
pub(super) fn doubt(tx: &Tx<'_>, id: JobId, copied: Ms, ask_first: bool) -> Result<(), StoreError> {
    tx.conn().prepare_cached(DOUBT)?.execute(named_params! {
        ":id": id.0, ":copied": copied.0, ":now": tx.now().0, ":ask_first": ask_first,
    })?;
    Ok(())
}

/// May a key of this kind that is new to the file have been sent before the file was restored? Then since when.
pub(super) fn doubtful_since(tx: &Tx<'_>, kind: &str) -> Result<Option<Ms>, StoreError> {
    let conn = tx.conn();
    let number = |name: &str| -> Result<Option<i64>, StoreError> {
        Ok(schema::meta(conn, name)?.and_then(|value| value.parse().ok()))
    };
    let until = match number(&format!("doubt_until:{kind}"))? {
        Some(until) => Some(until),
        None => number("doubt_until:")?,
    };
    if until.is_none_or(|until| tx.now().0 >= until) {
        return Ok(None);
    }
    Ok(number(COPIED)?.map(Ms))
}
