//! What follows when a copy is put back: the file is marked as restored, every provider is paused, and whatever is not
//! settled is in doubt (`doubt.rs`) until it settles or a person speaks of it.
//!
//! Each restore is a row. It stays open until a person says that every app has asked again for what it had asked for.
//! While it is open, a person may also say that since the copy nobody gave up anything; both are on record.

use super::audit::{Head, head};
use super::backup::{MARK, copy_pages, marked, not_new, settle_down, trouble};
use super::events::{self, Event, EventAction, EventScope};
use super::history::{Action, Entry};
use super::life::{self, Life};
use super::newfile::NewFile;
use super::record::Recorder;
use super::set_aside::CallOut;
use super::{
    Desk, Options, Store, StoreError, Tx, doubt, history, identity, pauses, rows, schema, set_aside,
};
use crate::clock::{Clock, Ms};
use crate::decide::Plan;
use crate::job::{Code, JobId, Reason, Refusal, State, Step};
use crate::outcome::words;
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A file that was put back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// When the copy was made.
    pub copied: Ms,
    /// Jobs of the copy that are in doubt.
    pub doubtful: u64,
    /// The providers that are paused now.
    pub paused: Vec<String>,
    /// Where the copy's history ended.
    pub head: Head,
    /// Names that stood in the way and were moved aside: old, new.
    pub aside: Vec<(PathBuf, PathBuf)>,
}

/// A person's words about the time between copy and restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// Nobody amended, cancelled, rejected or called anything not applied since the copy, and providers and accounts in
    /// the config are those of then.
    pub no_words: bool,
    /// Every app has asked again for what it had asked for: keys that are new to the file from now on are new.
    pub close: bool,
}

/// How to put a file back.
#[derive(Clone, Debug, Default)]
pub struct Restoring {
    /// When the copy was made, for one that is not marked.
    pub copied_at: Option<Ms>,
    /// What a person says at once.
    pub said: Said,
    /// Who does it, for the history.
    pub actor: String,
}

/// A restore that is not closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenRestore {
    /// When the copy was made.
    pub copied: Ms,
    /// When it was put back.
    pub restored: Ms,
    /// Keys that came to the file since; 10,000 stands for more.
    pub new_keys: u64,
    /// A person has said that nobody gave up anything since the copy.
    pub no_words: bool,
}

words! {
    /// What will become of a job in doubt, once its provider goes on.
    Fate {
        /// The same request goes out under the same key.
        Send = "send",
        /// The provider is asked about it.
        LookUp = "look_up",
        /// Only a person can decide: it is parked.
        Park = "park",
        /// Nothing by itself: it stands parked or cancelled, or the app makes the call.
        Stay = "stay",
    }
}

/// Jobs in doubt since a restore: of one kind, one currency, and one fate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InDoubt {
    /// The kind.
    pub kind: String,
    /// What will become of them.
    pub fate: Fate,
    /// ISO 4217.
    pub currency: Option<String>,
    /// How many.
    pub jobs: u64,
    /// Their amounts together, in minor units.
    pub amount_minor: i128,
    /// The first one's key.
    pub example: String,
}

const RESTORED: &str =
    "INSERT INTO onceward_restores (copied_ms, restored_ms, restored_by, after_id, copy_seq)
  VALUES (?1, ?2, ?3, (SELECT seq FROM sqlite_sequence WHERE name = 'onceward_intents'), ?4) RETURNING id";
/// `?3`: of this restore alone. What is said at a restore is said of its copy, and not of the one before.
const NO_WORDS: &str = "UPDATE onceward_restores SET no_words_ms = ?1, no_words_by = ?2
  WHERE closed_ms IS NULL AND no_words_ms IS NULL AND id = coalesce(?3, id)";
const CLOSE: &str = "UPDATE onceward_restores SET closed_ms = ?1, closed_by = ?2
  WHERE closed_ms IS NULL AND id = coalesce(?3, id)";
const OPEN_ONES: &str = "SELECT copied_ms, restored_ms, no_words_ms IS NOT NULL,
    (SELECT count(*) FROM (SELECT 1 FROM onceward_intents i WHERE i.id > r.after_id LIMIT 10000))
  FROM onceward_restores r WHERE closed_ms IS NULL ORDER BY id";
pub(super) const IN_DOUBT: &str = "SELECT count(*) FROM
  (SELECT 1 FROM onceward_intents WHERE doubt_since_ms IS NOT NULL AND state <> 'settled' LIMIT 10000)";
const DOUBTFUL: &str = "SELECT id FROM onceward_intents
  WHERE doubt_since_ms IS NOT NULL AND state <> 'settled' AND id > ?1 ORDER BY id LIMIT 1000";

impl Store {
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
            return Err(no_copy(from));
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
        let (desk, namespace) = (Arc::clone(self.desk()), Arc::clone(&self.namespace));
        let how = how.clone();
        self.write_even_marked(move |tx| {
            let now = tx.present();
            let recorder = Recorder { tx, desk: desk.as_ref(), namespace: &namespace, now };
            Mark { tx, recorder, how: &how, aside: aside.clone() }.apply()
        })
    }

    /// A person's words about every restore that is still open. Refused if there is none.
    pub fn say_of_restores(&self, said: Said, actor: &str) -> Result<Vec<OpenRestore>, StoreError> {
        let actor = actor.to_string();
        self.write(move |tx| {
            let open = open_restores(tx.conn())?;
            if open.is_empty() {
                let why = "no restore of this file is open: there is nothing to say of one";
                return Err(Refusal::new(Code::NotAllowed, why).into());
            }
            speak(tx, said, None, &actor)?;
            Ok(open)
        })
    }

    /// The restores that are not closed, the oldest first.
    pub fn open_restores(&self) -> Result<Vec<OpenRestore>, StoreError> {
        open_restores(&*self.reader()?)
    }

    /// What is in doubt since a restore, and what would become of it now, with sums.
    pub fn in_doubt_since_restore(&self) -> Result<Vec<InDoubt>, StoreError> {
        let conn = self.reader()?;
        let now = Store::present(self.clock().as_ref());
        let mut sums: BTreeMap<(String, Fate, Option<String>), InDoubt> = BTreeMap::new();
        let mut last = 0;
        loop {
            let ids: Vec<i64> = conn
                .prepare_cached(DOUBTFUL)?
                .query_map([last], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let Some(end) = ids.last() else { break };
            last = *end;
            for id in ids {
                let (job, intent) = match rows::must_load(&conn, JobId(id)) {
                    // It is set aside, and `check` names it.
                    Err(StoreError::Row(_)) => continue,
                    loaded => loaded?,
                };
                let fate = match (job.state, self.desk().kind(&job.kind)) {
                    (State::Parked | State::Cancelled | State::Settled, _) => Fate::Stay,
                    (_, None) => Fate::Stay,
                    (_, Some(kind)) => {
                        match doubt::plan_for(&job, &intent, kind, &self.desk().scope(&job.kind), &now) {
                            Plan::Go(Step::Send) => Fate::Send,
                            Plan::Go(Step::LookUp | Step::Fetch) => Fate::LookUp,
                            Plan::Park(_) => Fate::Park,
                            Plan::Wait(_) => Fate::Stay,
                        }
                    }
                };
                let place = (job.kind.clone(), fate, intent.currency.clone());
                let sum = sums.entry(place).or_insert_with(|| InDoubt {
                    kind: job.kind.clone(),
                    fate,
                    currency: intent.currency.clone(),
                    jobs: 0,
                    amount_minor: 0,
                    example: job.key.as_str().to_string(),
                });
                sum.jobs += 1;
                sum.amount_minor += i128::from(intent.amount_minor.unwrap_or(0));
            }
        }
        Ok(sums.into_values().collect())
    }
}

fn no_copy(from: &Path) -> StoreError {
    StoreError::Copy { path: from.to_path_buf(), why: "there is no such file".into() }
}

/// How many keys are in doubt since a restore; 10,000 stands for more.
pub(super) fn in_doubt(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.prepare_cached(IN_DOUBT)?.query_row([], |row| row.get(0))?)
}

pub(super) fn open_restores(conn: &Connection) -> Result<Vec<OpenRestore>, StoreError> {
    let mut statement = conn.prepare_cached(OPEN_ONES)?;
    let rows = statement.query_map([], |row| {
        Ok(OpenRestore {
            copied: Ms(row.get(0)?),
            restored: Ms(row.get(1)?),
            no_words: row.get(2)?,
            new_keys: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Puts a person's words on record, once each: about one restore, or about all that are open.
fn speak(tx: &Tx<'_>, said: Said, restore: Option<i64>, actor: &str) -> Result<(), StoreError> {
    let words = [
        (
            said.no_words,
            NO_WORDS,
            "nobody gave anything up since the copy, and providers and accounts are those of then",
        ),
        (said.close, CLOSE, "every app has asked again for what it had asked for: new keys are new"),
    ];
    for (_, sql, what) in words.into_iter().filter(|(meant, ..)| *meant) {
        if tx.conn().prepare_cached(sql)?.execute((tx.now().0, actor, restore))? > 0 {
            let event = Event::new(EventAction::Restore, EventScope::Store, "word", actor);
            let detail = format!("{what}{}", doubt::held(tx.conn())?);
            events::record(tx, Event { detail: Some(&detail), ..event })?;
        }
    }
    Ok(())
}

fn in_doubt_since(copied: Ms) -> String {
    format!("restored from a copy of {copied}: a request of any generation may have left since")
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

/// Every intent of the copy that is not at its end for ever.
const UNSETTLED: &str =
    "SELECT id FROM onceward_intents WHERE state <> 'settled' AND id > ?1 ORDER BY id LIMIT 1000";
/// A time that an app asked for stays one.
const BY_APP: &str = "SELECT due_by_app FROM onceward_jobs WHERE id = ?1";
const KEEP_TIME: &str = "UPDATE onceward_jobs SET due_by_app = 1 WHERE id = ?1";
const RUNNING: &str =
    "SELECT id, lease_step, lease_started_ms FROM onceward_jobs WHERE state = 'running' ORDER BY id";
/// Parked for a reason by which nothing had happened: the lost file may have put it back to work.
const CERTAIN_NO_MORE: &str = "UPDATE onceward_jobs SET park_reason = 'unknown_outcome'
  WHERE id = ?1 AND state = 'parked' AND park_reason NOT IN ('unknown_outcome','window_expired','scope_changed',
    'content_differs','reference_taken','redirected','invalid')";
/// The lost file may have given numbers that nobody knows: at most a hundred a millisecond were ever written.
const BUMP: &str =
    "UPDATE sqlite_sequence SET seq = seq + 1000000 + ?1 * 100 WHERE name = 'onceward_intents'";
const SET: &str = "INSERT INTO onceward_meta (name, value) VALUES (?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value";
/// Who carries out what is not done: a provider, or a kind that stands for itself.
const CALLED: &str =
    "SELECT DISTINCT coalesce(provider, kind) FROM onceward_intents WHERE state <> 'settled'";

impl Mark<'_> {
    fn apply(&self) -> Result<Restored, StoreError> {
        let (tx, conn, now) = (self.tx, self.tx.conn(), self.tx.now());
        let copied = match (marked(conn)?, self.how.copied_at) {
            (Some(at), _) | (None, Some(at)) => at,
            (None, None) => {
                let why = "this file is no marked backup. If it was copied by hand, say when with --copied-at TIME: what may \
                           have been sent since is in doubt then";
                return Err(Refusal::new(Code::NotAllowed, why).into());
            }
        };
        if copied > now {
            let why = format!("the copy was made at {copied} and the clock says {now}: set the clock first");
            return Err(Refusal::new(Code::NotAllowed, why).into());
        }
        let end = head(conn)?;
        self.numbers(now.since(copied))?;
        self.take_over()?;
        doubt::keep_scopes(tx)?;
        let restore: i64 = conn
            .prepare_cached(RESTORED)?
            .query_row((copied.0, now.0, &self.how.actor, end.seq), |row| row.get(0))?;
        conn.execute("DELETE FROM onceward_meta WHERE name = ?1", [MARK])?;
        speak(tx, self.how.said, Some(restore), &self.how.actor)?;
        let doubtful = self.doubt_all(copied, restore)?;
        let set = |name: &str, value: String| conn.prepare_cached(SET)?.execute((name, value));
        if let Some(before) = schema::meta(conn, "instance")? {
            set("instance_before", before)?;
        }
        set("instance", uuid::Uuid::new_v4().to_string())?;
        let paused = self.pause_all(copied)?;
        tx.count("restores", 1);
        let detail = format!(
            "from a copy of {copied} that ends at row {}; {doubtful} jobs are in doubt{}",
            end.seq,
            doubt::held(conn)?
        );
        let event = Event::new(EventAction::Restore, EventScope::Store, "file", &self.how.actor);
        events::record(tx, Event { detail: Some(&detail), ..event })?;
        Ok(Restored { copied, doubtful, paused, head: end, aside: self.aside.clone() })
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
    fn take_over(&self) -> Result<(), StoreError> {
        let conn = self.tx.conn();
        let running: Vec<(i64, String, i64)> = conn
            .prepare_cached(RUNNING)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        for (id, step, started) in &running {
            // "Claimed and not yet sending" was true of the copy's moment only.
            let crashed =
                || self.recorder.crashed(JobId(*id), step, "sending", Ms(*started), &self.how.actor);
            self.or_aside(JobId(*id), CallOut::Crashed, crashed)?;
        }
        conn.execute("UPDATE onceward_owners SET gone_ms = ?1 WHERE gone_ms IS NULL", [self.tx.now().0])?;
        Ok(())
    }

    fn doubt_all(&self, copied: Ms, restore: i64) -> Result<u64, StoreError> {
        let (mut doubtful, mut last) = (0, 0);
        loop {
            let ids: Vec<i64> = self
                .tx
                .conn()
                .prepare_cached(UNSETTLED)?
                .query_map([last], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let Some(end) = ids.last() else { return Ok(doubtful) };
            last = *end;
            for id in ids {
                let doubted =
                    self.or_aside(JobId(id), CallOut::NotBegun, || self.doubt(JobId(id), copied, restore))?;
                if doubted.is_none() {
                    doubt::put(self.tx, JobId(id), copied, restore, self.tx.now(), None, true)?;
                    set_aside::note_doubt(self.tx, JobId(id), &in_doubt_since(copied), &self.how.actor)?;
                }
                doubtful += u64::from(doubted.unwrap_or(true));
            }
        }
    }

    /// A row that cannot be read is set aside for a person and keeps nobody from the rest; then there is no answer.
    fn or_aside<T>(
        &self,
        id: JobId,
        call: CallOut<'_>,
        work: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match self.tx.part(work) {
            Err(StoreError::Row(why)) => {
                set_aside::set_aside(self.tx, self.recorder.desk, id, &why, &self.how.actor, call)?;
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    fn doubt(&self, id: JobId, copied: Ms, restore: i64) -> Result<bool, StoreError> {
        let (tx, desk) = (self.tx, self.recorder.desk);
        let (job, _) = rows::must_load(tx.conn(), id)?;
        let kind = desk.kind(&job.kind).or_else(|| desk.elsewhere(&job.kind));
        if kind.is_some_and(|kind| kind.terms.never_doubtful) {
            return Ok(false);
        }
        let live = job.state != State::Cancelled;
        doubt::put(tx, id, copied, restore, tx.now(), Some(self.recorder.now.boot), live)?;
        doubt::scope_of_then(tx, id, &job.kind)?;
        let moves = matches!(job.state, State::Ready | State::Scheduled | State::Unknown);
        let external = kind.is_some_and(|kind| kind.terms.external);
        let mut state = job.state;
        if moves && !external {
            let to = rows::Move {
                state: State::Unknown,
                run_after: job.run_after.max(tx.now()),
                attempts: job.attempts,
                pauses: job.pauses,
                age_from: Some(job.run_after.max(tx.now())),
                error_class: job.error_class,
                last_error: job.last_error.as_deref(),
                park_reason: None,
            };
            let by_app: bool = tx.conn().prepare_cached(BY_APP)?.query_row([id.0], |row| row.get(0))?;
            state = rows::move_job(tx, &job, &to)?;
            if by_app {
                tx.conn().prepare_cached(KEEP_TIME)?.execute([id.0])?;
            }
        }
        if let Some(reason) = job.park_reason
            && tx.conn().prepare_cached(CERTAIN_NO_MORE)?.execute([id.0])? > 0
        {
            tx.count(format!("parked:{reason}"), -1);
            tx.count(format!("parked:{}", Reason::UnknownOutcome), 1);
        }
        let mut entry = Entry::new(id, Action::Release, tx.now(), &self.how.actor);
        (entry.from, entry.to) = (Some(job.state), Some(state));
        entry.detail = Some(in_doubt_since(copied));
        history::append(tx, &entry)?;
        Ok(true)
    }

    /// Nothing goes out before a person has seen what would. Alerts do, where their carrier does nothing else.
    fn pause_all(&self, copied: Ms) -> Result<Vec<String>, StoreError> {
        let desk = self.recorder.desk;
        let carries_alerts = |name: &str| {
            let mut kinds = desk.kinds().iter().filter(|kind| kind.provider == name).peekable();
            kinds.peek().is_some() && kinds.all(|kind| kind.alerts)
        };
        let mut names: BTreeSet<String> =
            desk.providers().iter().map(|provider| provider.name.clone()).collect();
        let mut statement = self.tx.conn().prepare_cached(CALLED)?;
        for name in statement.query_map([], |row| row.get(0))? {
            names.insert(name?);
        }
        let mut paused = Vec::new();
        for name in names.into_iter().filter(|name| !carries_alerts(name)) {
            pauses::by_restore(self.tx, &name, copied, &self.how.actor)?;
            paused.push(name);
        }
        Ok(paused)
    }
}
