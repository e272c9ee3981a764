//! Owners and what becomes of their leases.
//!
//! Each start of a worker is an owner: a nonce, a row, and an OS lock on a file beside the store that the kernel gives
//! back when the process dies, however it dies. A lease is taken over only from an owner whose lock can be had, and
//! then at once; time alone takes nothing over, so a laptop that slept or a clock that jumped is not taken for a crash.

use super::clocks::seen;
use super::events::{self, Event, EventAction, EventScope};
use super::history::Action;
use super::life::{self, Life};
use super::record::Recorder;
use super::set_aside::{CallOut, set_aside};
use super::{Store, StoreError, Tx, doubt, holds, rows, schema};
use crate::clock::Ms;
use crate::decide::Family;
use crate::intent::Intent;
use crate::job::{Job, JobId, Reason, State, Step};
use crate::outcome::{Class, Outcome, Phase};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A worker that is running. Cloned freely; the lock is held as long as the `OwnerLock` lives.
#[derive(Clone, Debug)]
pub struct Owner {
    nonce: Arc<str>,
    name: Arc<str>,
    actor: Arc<str>,
}

impl Owner {
    /// What tells this start from every other.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// `host:pid`
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name in the history: `worker:host:pid`.
    pub fn actor(&self) -> &str {
        &self.actor
    }
}

/// The OS lock that says "alive". The kernel gives it back when the process ends, however it ends.
#[derive(Debug)]
pub struct OwnerLock {
    path: PathBuf,
    file: File,
}

impl OwnerLock {
    /// A hand on the lock file for whoever is to say there how the worker is. It holds the lock too.
    pub fn voice(&self) -> Option<Voice> {
        self.file.try_clone().ok().map(|file| Voice { file, said: None })
    }
}

/// What a worker says about itself in its lock file, for `onceward check` in another process: that may look at a file of
/// the same name and another log, so the store is no place for it.
#[derive(Debug)]
pub struct Voice {
    file: File,
    said: Option<String>,
}

impl Voice {
    /// Says it, or with `None` that all is well.
    pub fn say(&mut self, words: Option<String>) {
        if words == self.said {
            return;
        }
        let text = words.as_deref().unwrap_or_default();
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(text.as_bytes()));
        if let Err(e) = written {
            log::warn!("what is wrong could not be written into the worker's lock file: {e}");
        }
        self.said = words;
    }
}

const CAN_DO: &str = "SELECT nonce, kinds FROM onceward_owners WHERE gone_ms IS NULL";

/// The kinds that the running workers know; `None`: none runs, or one has not told.
pub(super) fn kinds_of_workers(
    conn: &Connection,
    store: &Path,
) -> Result<Option<BTreeSet<String>>, StoreError> {
    let mut statement = conn.prepare_cached(CAN_DO)?;
    let mut rows = statement.query([])?;
    let mut known = None;
    while let Some(row) = rows.next()? {
        if !life::look(&life::lock_path(store, &rows::shown(row, 0)?)).may_work() {
            continue;
        }
        let told = rows::shown_if_any(row, 1)?;
        // One whose row cannot be read has not told either.
        let Some(kinds) = told.and_then(|told| serde_json::from_str::<Vec<String>>(&told).ok()) else {
            return Ok(None);
        };
        known.get_or_insert_with(BTreeSet::new).extend(kinds);
    }
    Ok(known)
}

impl Store {
    /// Registers this start of a worker and takes its lock.
    pub fn register(&self, name: &str) -> Result<(Owner, OwnerLock), StoreError> {
        let nonce = uuid::Uuid::new_v4().to_string();
        let path = life::lock_path(self.place(), &nonce);
        let file = life::make(&path)?;
        let lock = OwnerLock { path, file };
        let owner =
            Owner { nonce: nonce.as_str().into(), name: name.into(), actor: format!("worker:{name}").into() };
        let (nonce, name, actor) = (nonce, name.to_string(), Arc::clone(&owner.actor));
        let kinds: Vec<&str> = self.desk.kinds().iter().map(|kind| kind.kind.as_str()).collect();
        let kinds = serde_json::to_string(&kinds)
            .map_err(|e| StoreError::Sqlite(format!("the kinds could not be written as JSON: {e}")))?;
        let desk = Arc::clone(&self.desk);
        let written = self.write(move |tx| {
            doubt::note_scopes(tx, desk.as_ref())?;
            tx.conn().execute(
                "INSERT INTO onceward_owners (nonce, name, since_ms, seen_ms, kinds) VALUES (?1, ?2, ?3, ?3, ?4)",
                (&nonce, &name, tx.now().0, &kinds),
            )?;
            seen(tx)?;
            let event = Event::new(EventAction::Start, EventScope::Worker, &name, &actor);
            events::record(tx, Event { detail: Some(PROGRAM), ..event })
        });
        // Nobody will ever ask for it, unless a COMMIT that failed was stored after all.
        if matches!(&written, Err(e) if !matches!(e, StoreError::CommitUnknown(_))) {
            let _ = std::fs::remove_file(&lock.path);
        }
        written?;
        Ok((owner, lock))
    }

    /// Says goodbye; nothing of this owner's is running any more.
    pub fn unregister(&self, owner: &Owner, lock: OwnerLock) -> Result<(), StoreError> {
        self.give_back_doubtful()?;
        let (nonce, owner) = (owner.nonce.to_string(), owner.clone());
        self.write(move |tx| {
            // The history and the events keep its name. A lease it still held would need the row.
            tx.conn()
                .prepare_cached(
                    "DELETE FROM onceward_owners WHERE nonce = ?1
                       AND NOT EXISTS (SELECT 1 FROM onceward_jobs WHERE lease_owner = ?1 AND state = 'running')",
                )?
                .execute([&nonce])?;
            gone(tx, &nonce)?;
            seen(tx)?;
            events::record(
                tx,
                Event::new(EventAction::Stop, EventScope::Worker, owner.name(), owner.actor()),
            )
        })?;
        // Only now: a missing file must never stand for an owner that is still in the table as alive.
        let _ = std::fs::remove_file(&lock.path);
        Ok(())
    }

    /// Renews this owner's leases, and keeps the highest time seen.
    pub fn renew(&self, owner: &Owner, lease: Duration) -> Result<(), StoreError> {
        let (nonce, desk) = (owner.nonce.to_string(), Arc::clone(&self.desk));
        self.write(move |tx| {
            doubt::note_scopes(tx, desk.as_ref())?;
            let now = tx.now();
            tx.conn()
                .prepare_cached(
                    "UPDATE onceward_jobs SET lease_expires_ms = ?2 WHERE lease_owner = ?1 AND state = 'running'",
                )?
                .execute((&nonce, now.plus(lease).0))?;
            tx.conn()
                .prepare_cached("UPDATE onceward_owners SET seen_ms = ?2 WHERE nonce = ?1")?
                .execute((&nonce, now.0))?;
            seen(tx)
        })
    }

    /// Takes over whatever dead workers left running. Returns how many jobs that were. What cannot be taken over keeps
    /// nobody from the rest; the first error is given in the end.
    ///
    /// A missing lock file is no proof that its owner is dead (somebody may have tidied up), so then the lease must
    /// have run out as well.
    pub fn recover(&self, owner: &Owner) -> Result<usize, StoreError> {
        let mut taken = 0;
        let mut failed = None;
        for stranger in life::strangers(&*self.reader()?, owner.nonce())? {
            let path = life::lock_path(self.place(), &stranger.nonce);
            let ran_out = stranger.expires < self.clock.now();
            let lock = match life::take(&path) {
                Life::Dead(lock) => Some(lock),
                Life::Missing if ran_out => None,
                Life::Unclear(why) if stranger.running > 0 => {
                    self.lives.note(&stranger, &path, Some(&why));
                    continue;
                }
                Life::Alive if stranger.running > 0 && ran_out => {
                    self.lives.note(&stranger, &path, None);
                    continue;
                }
                Life::Alive | Life::Missing | Life::Unclear(_) => continue,
            };
            let nonce = &stranger.nonce;
            self.lives.forget(nonce);
            let mut waits = false;
            let bad = match self.take_over(owner, nonce, lock.is_some()) {
                Ok((jobs, bad, programs)) => {
                    taken += jobs;
                    waits = programs;
                    bad
                }
                Err(e) => Some(e),
            };
            if let Some(bad) = bad {
                failed.get_or_insert(bad);
                continue;
            }
            // Held until the take-over is on disk, so that two workers don't do it at once.
            drop(lock);
            // It proves the rest of its jobs left alone too, once their programs are over.
            if !waits {
                let _ = std::fs::remove_file(&path);
            }
        }
        failed.map_or(Ok(taken), Err)
    }

    /// `proved`: its lock was had. Else only what has run out by now is taken, whatever was read before: it may live.
    /// Returns how many jobs it took, and what was wrong with one that it could not.
    pub(super) fn take_over(
        &self,
        owner: &Owner,
        nonce: &str,
        proved: bool,
    ) -> Result<(usize, Option<StoreError>, bool), StoreError> {
        let programs = Arc::new(self.programs_of(nonce)?);
        if programs.all_wait() {
            return Ok((0, None, true));
        }
        let looked = Arc::clone(&programs);
        let (desk, namespace) = (Arc::clone(&self.desk), Arc::clone(&self.namespace));
        let (actor, nonce) = (owner.actor.to_string(), nonce.to_string());
        let (taken, bad) = self.write(move |tx| {
            let now = tx.present();
            let recorder = Recorder { tx, desk: desk.as_ref(), namespace: &namespace, now };
            let left: Vec<(i64, String, String, i64)> = tx
                .conn()
                .prepare_cached(LEFT)?
                .query_map((&nonce, proved, tx.now().0), |row| {
                    Ok((row.get(0)?, rows::shown(row, 1)?, rows::shown(row, 2)?, row.get(3)?))
                })?
                .collect::<Result<_, _>>()?;
            let (mut taken, mut bad) = (0, None);
            for (id, step, phase, started) in left.iter().filter(|(id, ..)| !programs.waits.contains(id)) {
                let took = tx.part(|| match programs.stays.get(id) {
                    Some(what) => recorder.outlived(JobId(*id), step, phase, Ms(*started), &actor, what),
                    None => recorder.crashed(JobId(*id), step, phase, Ms(*started), &actor),
                });
                let took = match took {
                    Err(StoreError::Row(why)) => {
                        tx.part(|| set_aside(tx, desk.as_ref(), JobId(*id), &why, &actor, CallOut::Crashed))
                    }
                    took => took,
                };
                match took {
                    Ok(()) => taken += 1,
                    // SQLite has ended the transaction: nothing of it stands.
                    Err(e) if tx.conn().is_autocommit() => return Err(e),
                    Err(e) => drop(bad.get_or_insert(e)),
                }
            }
            let more: bool = tx.conn().prepare_cached(RUNS)?.query_row([&nonce], |row| row.get(0))?;
            if !more {
                gone(tx, &nonce)?;
            }
            Ok((taken, bad))
        })?;
        looked.tidy();
        Ok((taken, bad, !looked.waits.is_empty()))
    }
}

/// This program, in the event of a worker's start.
const PROGRAM: &str = concat!("onceward ", env!("CARGO_PKG_VERSION"));
const LEFT: &str = "SELECT id, lease_step, lease_phase, lease_started_ms FROM onceward_jobs
  WHERE state = 'running' AND lease_owner = ?1 AND (?2 OR lease_expires_ms < ?3) ORDER BY id";
const RUNS: &str = "SELECT EXISTS (SELECT 1 FROM onceward_jobs WHERE state = 'running' AND lease_owner = ?1)";

fn gone(tx: &Tx<'_>, nonce: &str) -> Result<(), StoreError> {
    tx.conn()
        .prepare_cached("UPDATE onceward_owners SET gone_ms = ?2 WHERE nonce = ?1")?
        .execute((nonce, tx.now().0))?;
    Ok(())
}

impl Recorder<'_> {
    /// What a dead worker left running becomes an attempt of class `crashed`.
    pub(super) fn crashed(
        &self,
        id: JobId,
        step: &str,
        phase: &str,
        started: Ms,
        actor: &str,
    ) -> Result<(), StoreError> {
        self.crash(id, step, phase, started, actor, "the worker died while this was in flight".into())
    }

    /// The same, and something of the program goes on beyond its time: neither a look-up nor a repeat would be right, unless the
    /// program bears a repeat.
    fn outlived(
        &self,
        id: JobId,
        step: &str,
        phase: &str,
        started: Ms,
        actor: &str,
        what: &str,
    ) -> Result<(), StoreError> {
        let why = format!("the worker died, and of its program something goes on beyond its time: {what}");
        self.crash(id, step, phase, started, actor, why.clone())?;
        let (job, _) = rows::must_load(self.tx.conn(), id)?;
        let bears = self.desk.kind(&job.kind).is_some_and(|kind| kind.terms.family != Family::E);
        if bears || job.state != State::Unknown {
            return Ok(());
        }
        let why = format!("{why}. See to it that it has ended, look what it did, then resolve it");
        super::claim::park(self.tx, self.desk, &job, Reason::UnknownOutcome, &why, None, actor)
    }

    fn crash(
        &self,
        id: JobId,
        step: &str,
        phase: &str,
        started: Ms,
        actor: &str,
        why: String,
    ) -> Result<(), StoreError> {
        let (job, intent) = rows::must_load(self.tx.conn(), id)?;
        let mut outcome = Outcome::new(Class::Crashed, started);
        outcome.phase = if phase == "claimed" { Some(Phase::Claimed) } else { Some(Phase::Sending) };
        outcome.error = Some(why);
        let step = Step::parse(step).unwrap_or(Step::Send);
        let fallback = fallback_kind(&job, &intent, outcome.phase);
        let (kind, scope) = match self.desk.kind(&job.kind) {
            Some(kind) => (kind, self.desk.scope(&job.kind)),
            // Recovery needs no config: without the kind's terms the job becomes a due unknown all the same.
            None => (&fallback, intent.scope.clone().unwrap_or_default()),
        };
        self.apply(&job, &intent, kind, &scope, step, &outcome, Action::Crash, actor)?;
        // It may have been the probe of a provider that its kind goes to no more.
        holds::give_up_probe(self.tx, id)
    }
}

/// The terms of a kind that this worker does not know: whoever knows it plans anew, so only "not certain" must hold.
fn fallback_kind(job: &Job, intent: &Intent, phase: Option<Phase>) -> super::KindDesk {
    use crate::decide::{BreakerTerms, Family, LookupTerms, OnParked, OnUnknown, Terms};
    super::KindDesk {
        kind: job.kind.clone(),
        // It may have been its provider's probe.
        provider: intent.provider.clone().unwrap_or_else(|| job.kind.clone()),
        called: intent.provider.clone(),
        alerts: false,
        terms: Terms {
            // Only what marks its first byte is ever left `claimed`, which then proves that nothing was sent.
            family: if phase == Some(Phase::Claimed) { Family::E } else { Family::B },
            window: None,
            lookup: Some(LookupTerms::default()),
            external: false,
            wire_style: crate::intent::WireStyle::Uuid,
            max_attempts: u32::MAX,
            base: Duration::from_millis(1),
            cap: Duration::from_millis(1),
            max_age: Duration::from_secs(u32::MAX.into()),
            on_parked: OnParked::Block,
            on_unknown: OnUnknown::Park,
            never_doubtful: false,
            breaker: BreakerTerms { failures: u32::MAX, cool_down: Duration::ZERO },
        },
        unique: true,
    }
}

/// How long a start waits for whoever keeps the log from being folded.
const FOLD_WAIT: Duration = Duration::from_secs(2);

/// Whether any worker left without a goodbye: then the file is checked before the first send.
pub(super) fn unclean(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.query_row("SELECT EXISTS (SELECT 1 FROM onceward_owners WHERE gone_ms IS NULL)", [], |row| {
        row.get(0)
    })?)
}

impl Store {
    /// Folds the log into the file, and after an unclean stop checks it. The error says what is wrong with the file.
    pub fn check_after_crash(&self) -> Result<(), StoreError> {
        let path = self.path.clone();
        let unclean = unclean(&*self.reader()?)?;
        if !schema::fold(&schema::connect(&path)?, FOLD_WAIT)? && unclean {
            log::warn!(
                "the log of {} could not be folded into it after an unclean stop, for another program reads or writes: it is \
                 tried again",
                path.display()
            );
        }
        if !unclean {
            return Ok(());
        }
        self.check_file()?.map_err(|damage| {
            let why = format!("it is damaged ({damage}): restore a backup, nothing was sent");
            StoreError::Unusable { path, why }
        })
    }
}
