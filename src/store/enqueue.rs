//! The door: one job and its intent in one transaction, or the answer that the key had before.

use super::clocks::Known;
use super::events::{self, Event, EventAction, EventScope};
use super::history::{Action, Entry};
use super::{Store, StoreError, Tx, backup, doubt, history, order, rows, schema};
use crate::clock::Ms;
use crate::intent::{Intent, IntentState, wire_key};
use crate::job::{Code, Job, JobId, NewJob, Refusal, State};
use rusqlite::{Connection, OptionalExtension, named_params};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What became of an enqueue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Enqueued {
    /// A new job.
    Created(Receipt),
    /// The key was there already, with this content.
    Duplicate(Receipt),
    /// Another job of the kind opened a window for this dedup id.
    Suppressed(Receipt),
    /// The app makes the call itself, and is to make it under the next generation's wire key: the one before had no effect.
    Again(Receipt),
    /// The app makes the call itself, and may have made it before the file was restored: it must not call.
    Doubtful(Receipt),
}

/// The job that an enqueue is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Its number.
    pub id: JobId,
    /// Its key.
    pub key: String,
    /// Its present state.
    pub state: State,
    /// The key as the provider sees it.
    pub wire_key: String,
    /// The present generation.
    pub generation: u32,
}

impl Enqueued {
    /// The receipt, whatever the outcome.
    pub fn receipt(&self) -> &Receipt {
        match self {
            Enqueued::Created(r)
            | Enqueued::Duplicate(r)
            | Enqueued::Suppressed(r)
            | Enqueued::Again(r)
            | Enqueued::Doubtful(r) => r,
        }
    }

    /// The outcome's word.
    pub fn word(&self) -> &'static str {
        match self {
            Enqueued::Created(_) => "created",
            Enqueued::Duplicate(_) => "duplicate",
            Enqueued::Suppressed(_) => "suppressed",
            Enqueued::Again(_) => "again",
            Enqueued::Doubtful(_) => "doubtful",
        }
    }
}

impl Store {
    /// Stores a job. `Ok` means that it is on disk.
    pub fn enqueue(&self, job: NewJob, actor: &str) -> Result<Enqueued, StoreError> {
        let namespace = Arc::clone(&self.namespace);
        let actor = actor.to_string();
        let template = self.desk.key_template(&job.kind);
        let answer =
            self.write(move |tx| kept(enqueue(tx, &job, &namespace, template.as_deref(), &actor)))?;
        answer.map_err(StoreError::Refused)
    }

    /// Stores many jobs in one transaction, an answer each in their order: a refused one spoils no other.
    pub fn enqueue_many(
        &self,
        jobs: Vec<NewJob>,
        actor: &str,
    ) -> Result<Vec<Result<Enqueued, Refusal>>, StoreError> {
        let (namespace, desk) = (Arc::clone(&self.namespace), Arc::clone(&self.desk));
        let actor = actor.to_string();
        self.write(move |tx| {
            let one = |job: &NewJob| {
                let template = desk.key_template(&job.kind);
                kept(enqueue(tx, job, &namespace, template.as_deref(), &actor))
            };
            jobs.iter().map(one).collect()
        })
    }
}

/// A refusal is counted and told in the history, so what it wrote is kept.
fn kept(enqueued: Result<Enqueued, StoreError>) -> Result<Result<Enqueued, Refusal>, StoreError> {
    match enqueued {
        Ok(enqueued) => Ok(Ok(enqueued)),
        Err(StoreError::Refused(refusal)) => Ok(Err(refusal)),
        Err(other) => Err(other),
    }
}

impl Store {
    /// Stores a job inside the transaction that an embedding app has open on its own connection to this file: the job is
    /// there exactly if the app's transaction commits, and a worker sees it then. Open it with `BEGIN IMMEDIATE`, since
    /// SQLite lets no transaction that has begun with reading write once somebody else has written.
    ///
    /// A refusal leaves the transaction usable; that it happened is counted and told in the history if the app commits.
    /// Any other error leaves the transaction as it was before the call, unless SQLite itself has ended it.
    pub fn enqueue_in(&self, conn: &Connection, job: &NewJob, actor: &str) -> Result<Enqueued, StoreError> {
        if conn.is_autocommit() {
            let why = "no transaction is open on this connection: begin one with BEGIN IMMEDIATE, for a job that is to be \
                       stored by itself is what `Store::enqueue` is for";
            return Err(Refusal::new(Code::NotAllowed, why).into());
        }
        self.is_ours(conn)?;
        schema::still_known(conn)?;
        if let Some(copied) = backup::marked(conn)? {
            return Err(backup::refusal(copied));
        }
        let tx = Tx::new(conn, self.clock.both());
        let mut clocks = Known::default();
        clocks.read(conn)?;
        let answer = tx.part(|| {
            clocks.compare(&tx, self.clock.as_ref())?;
            let answer = kept(enqueue(&tx, job, &self.namespace, None, actor))?;
            tx.flush()?;
            Ok(answer)
        })?;
        answer.map_err(StoreError::Refused)
    }

    /// Whether our tables' names mean this store's tables on an app's connection: its main file is ours, and nothing of the
    /// connection's own has such a name.
    fn is_ours(&self, conn: &Connection) -> Result<(), StoreError> {
        self.file.check().map_err(|wrong| self.file.unusable(wrong))?;
        let refused = |why: String| Err(Refusal::new(Code::NotAllowed, why).into());
        let here = self.file.path().display();
        let same = conn.path().is_some_and(|path| self.file.is_at(Path::new(path)));
        let instance = |sql: &str, conn: &Connection| -> Result<Option<String>, rusqlite::Error> {
            conn.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()
        };
        if !same || instance(INSTANCE, conn)? != instance(INSTANCE, &*self.reader()?)? {
            let there = conn.path().filter(|path| !path.is_empty()).unwrap_or("no file");
            return refused(format!(
                "the transaction is on {there}, and this Onceward is on {here}: a job would be in another store than the one \
                 that is asked. Open the connection on {here} itself; a file that is only attached does not commit as one with it"
            ));
        }
        if let Some(name) =
            conn.prepare_cached(HIDDEN)?.query_row([], |row| row.get::<_, String>(0)).optional()?
        {
            return refused(format!(
                "the connection has {name} among its TEMP tables, views and triggers, which stands before or on one of ours: \
                 drop it, or use another connection"
            ));
        }
        Ok(())
    }
}

const INSTANCE: &str = "SELECT value FROM main.onceward_meta WHERE name = 'instance'";
/// A TEMP table is found before a table of the file that has its name.
const HIDDEN: &str = "SELECT name FROM temp.sqlite_schema
  WHERE name LIKE 'onceward!_%' ESCAPE '!' OR tbl_name LIKE 'onceward!_%' ESCAPE '!' LIMIT 1";

const KNOWN: &str = "SELECT id, content_hash, earlier_hashes FROM onceward_intents WHERE key = ?1";
const SUPPRESSOR: &str = "SELECT id FROM onceward_jobs
  WHERE kind = ?1 AND dedup = ?2 AND dedup IS NOT NULL AND dedup_until_ms > ?3 ORDER BY dedup_until_ms DESC LIMIT 1";

/// Looks at the key first, then at the dedup window, then at the place in the group; stores last.
pub fn enqueue(
    tx: &Tx<'_>,
    job: &NewJob,
    namespace: &str,
    template: Option<&str>,
    actor: &str,
) -> Result<Enqueued, StoreError> {
    let conn = tx.conn();
    let known: Option<(i64, Vec<u8>, Vec<u8>)> = conn
        .prepare_cached(KNOWN)?
        .query_row([job.key.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    if let Some((id, hash, earlier)) = known {
        let same = hash == job.content_hash || earlier.chunks(32).any(|h| h == job.content_hash);
        return repeat(tx, JobId(id), same, job, &hash, actor);
    }
    if let Some((dedup, _)) = &job.dedup {
        let found: Option<i64> = conn
            .prepare_cached(SUPPRESSOR)?
            .query_row((&job.kind, dedup, tx.now().0), |row| row.get(0))
            .optional()?;
        if let Some(id) = found {
            tx.count("suppressed", 1);
            return Ok(Enqueued::Suppressed(receipt(tx, JobId(id))?));
        }
    }
    let sequence = match &job.group {
        Some(group) => match order::take_place(tx, group, job.sequence) {
            Ok(sequence) => Some(sequence),
            Err(e) => return Err(note_refusal(tx, job, group, e, actor)?),
        },
        None => None,
    };
    let id = insert_intent(tx, job, namespace)?;
    if let Some(template) = template {
        // The first one stays: `check` compares the config's with it.
        conn.prepare_cached(
            "INSERT OR IGNORE INTO onceward_meta (name, value) VALUES ('key_template:' || ?1, ?2)",
        )?
        .execute((&job.kind, template))?;
    }
    // A restored file may have lost this very key: then its request may be with the provider already.
    let open = doubt::of_new_key(tx, job)?;
    if let Some(open) = &open {
        doubt::begin(tx, id, &job.kind, open)?;
    }
    insert_job(tx, id, job, sequence, open.is_some())?;
    let (stored, intent) = rows::must_load(conn, id)?;
    let mut entry = Entry::new(id, Action::Enqueue, tx.now(), actor);
    entry.to = Some(stored.state);
    entry.run_after = Some(stored.run_after);
    history::append(tx, &entry)?;
    if let Some(group) = &job.group {
        order::advance(tx, group)?;
        return Ok(Enqueued::Created(receipt(tx, id)?));
    }
    let told = match open {
        Some(_) if job.external.is_some() => Enqueued::Doubtful,
        _ => Enqueued::Created,
    };
    Ok(told(receipt_of(&stored, intent, tx.now())))
}

/// A passed or held place is counted and kept: an app that numbers wrongly is found by it. There is no job that the
/// history could speak of.
fn note_refusal(
    tx: &Tx<'_>,
    job: &NewJob,
    group: &str,
    error: StoreError,
    actor: &str,
) -> Result<StoreError, StoreError> {
    if let (StoreError::Refused(refusal), Some(sequence)) = (&error, job.sequence) {
        tx.count(refusal.code.as_str(), 1);
        let why = format!("{} {}: {refusal}", refusal.code, job.key);
        let event = Event::new(EventAction::Refuse, EventScope::Group, group, actor);
        events::record(tx, Event { sequence: Some(sequence), why: Some(&why), ..event })?;
    }
    Ok(error)
}

fn repeat(
    tx: &Tx<'_>,
    id: JobId,
    same: bool,
    job: &NewJob,
    hash: &[u8],
    actor: &str,
) -> Result<Enqueued, StoreError> {
    if same {
        tx.count("duplicate_keys", 1);
        return match job.external {
            Some(within) => asked_by_the_app(tx, id, within, actor),
            None => Ok(Enqueued::Duplicate(receipt(tx, id)?)),
        };
    }
    tx.count("key_mismatches", 1);
    let (given, stored) = (crate::intent::hex(&job.content_hash), crate::intent::hex(hash));
    let mut entry = Entry::new(id, Action::Note, tx.now(), actor);
    entry.error = Some(format!("the key was asked for again with other content (sha256 {given}); refused"));
    history::append(tx, &entry)?;
    let why = format!(
        "key `{}` is taken by other content: the file has sha256 {stored}, this is {given}. One key is one business \
         operation: use another key for another one, or send the same content again",
        job.key
    );
    Err(Refusal::new(Code::KeyMismatch, why).into())
}

const TOLD: &str = "UPDATE onceward_intents SET waits_for_app_ms = NULL WHERE id = ?1 AND state <> 'settled'";

/// An app that makes the call itself asks again: once after a generation was called not applied it is its turn.
fn asked_by_the_app(tx: &Tx<'_>, id: JobId, within: Duration, actor: &str) -> Result<Enqueued, StoreError> {
    let (job, intent) = rows::must_load(tx.conn(), id)?;
    if intent.state == IntentState::Settled || job.state == State::Cancelled {
        return Ok(Enqueued::Duplicate(receipt_of(&job, intent, tx.now())));
    }
    if intent.doubt.is_some() {
        return Ok(Enqueued::Doubtful(receipt_of(&job, intent, tx.now())));
    }
    if intent.waits_for_app.is_none() {
        return Ok(Enqueued::Duplicate(receipt_of(&job, intent, tx.now())));
    }
    tx.conn().prepare_cached(TOLD)?.execute([id.0])?;
    let due = tx.now().plus(within);
    let to = rows::Move {
        state: State::Unknown,
        run_after: due,
        attempts: job.attempts,
        pauses: job.pauses,
        age_from: Some(due),
        error_class: job.error_class,
        last_error: job.last_error.as_deref(),
        park_reason: None,
    };
    let state = rows::move_job(tx, &job, &to)?;
    let mut entry = Entry::new(id, Action::Note, tx.now(), actor);
    (entry.from, entry.to) = (Some(job.state), Some(state));
    entry.detail =
        Some(format!("the app was told to call, under generation {}'s wire key", intent.generation.number));
    history::append(tx, &entry)?;
    Ok(Enqueued::Again(receipt_of(&job, intent, tx.now())))
}

const INTENT: &str = "INSERT INTO onceward_intents (key, kind, content_hash, payload_hash, account, amount_minor,
    currency, provider, state, wire_key, unknown, requested_ms, created_ms)
  VALUES (:key, :kind, :content, :payload, :account, :amount, :currency, :provider, :state, :wire_key, :unknown,
    :requested, :now)";

fn insert_intent(tx: &Tx<'_>, job: &NewJob, namespace: &str) -> Result<JobId, StoreError> {
    // The app makes an external call as soon as it hears `created`, so such an intent is in doubt from the start.
    let external = job.external.is_some();
    let state = if external { IntentState::Requested } else { IntentState::Pending };
    tx.conn().prepare_cached(INTENT)?.execute(named_params! {
        ":key": job.key.as_str(), ":kind": job.kind, ":content": job.content_hash.as_slice(),
        ":payload": job.payload_hash.as_slice(), ":account": job.account, ":amount": job.amount_minor,
        ":currency": job.currency, ":provider": job.provider, ":state": state.as_str(),
        ":wire_key": wire_key(job.wire_style, namespace, &job.key, 1), ":unknown": external,
        ":requested": external.then_some(tx.now().0), ":now": tx.now().0,
    })?;
    Ok(JobId(tx.conn().last_insert_rowid()))
}

const JOB: &str = "INSERT INTO onceward_jobs (id, kind, payload, state, claimable, priority, run_after_ms, due_by_app,
    max_attempts, age_from_ms, group_name, sequence, dedup, dedup_until_ms, created_ms, updated_ms)
  VALUES (:id, :kind, :payload, :state, :claimable, :priority, :run_after, :by_app, :max_attempts, :age_from, :group,
    :sequence, :dedup, :dedup_until, :now, :now)";

fn insert_job(
    tx: &Tx<'_>,
    id: JobId,
    job: &NewJob,
    sequence: Option<i64>,
    doubtful: bool,
) -> Result<(), StoreError> {
    let now = tx.now();
    let run_after = match job.external {
        Some(within) => now.plus(within),
        // Reckoned here, by a clock that was compared in this very transaction.
        None => job.run_after.unwrap_or(now.plus(job.delay.unwrap_or_default())),
    };
    let state = if job.external.is_some() {
        State::Unknown
    } else if job.group.is_some() {
        State::Waiting
    } else if doubtful {
        State::Unknown
    } else if run_after > now {
        State::Scheduled
    } else {
        State::Ready
    };
    tx.conn().prepare_cached(JOB)?.execute(named_params! {
        ":id": id.0, ":kind": job.kind, ":payload": job.payload, ":state": state.as_str(),
        ":claimable": state == State::Ready || (doubtful && state == State::Unknown && run_after <= now), ":priority": job.priority, ":run_after": run_after.0,
        ":by_app": job.run_after.is_some(), ":max_attempts": job.max_attempts,
        // Until then the app has the word; only what is asked afterwards grows old.
        ":age_from": (doubtful || job.external.is_some()).then_some(run_after.0.max(now.0)), ":group": job.group, ":sequence": sequence,
        ":dedup": job.dedup.as_ref().map(|(id, _)| id),
        ":dedup_until": job.dedup.as_ref().map(|(_, window)| now.plus(*window).0), ":now": now.0,
    })?;
    rows::moved(tx, None, Some(state));
    Ok(())
}

fn receipt(tx: &Tx<'_>, id: JobId) -> Result<Receipt, StoreError> {
    let (job, intent) = rows::must_load(tx.conn(), id)?;
    Ok(receipt_of(&job, intent, tx.now()))
}

fn receipt_of(job: &Job, intent: Intent, now: Ms) -> Receipt {
    Receipt {
        id: job.id,
        key: job.key.as_str().to_string(),
        state: super::read::seen_state(job, now),
        wire_key: intent.wire_key,
        generation: intent.generation.number,
    }
}
