//! The record: what an attempt's end makes of job, intent, history and provider, in one transaction.
//!
//! Every write is fenced by owner and token. An attempt whose lease is gone is a late result: a confirmed success still
//! settles the intent, anything else is written down and changes nothing.

use super::claim::lock;
use super::history::{Action, Entry};
use super::{
    Claim, Desk, KindDesk, Owner, Store, StoreError, Tx, doubt, history, holds, pauses, rows, set_aside,
};
use crate::clock::{Ms, millis};
use crate::decide::{Decision, Next, OnParked, Signal, decide};
use crate::intent::{Generation, Intent, IntentState, Scope, wire_key};
use crate::job::{Job, JobId, State, Step};
use crate::outcome::{Class, Outcome};
use rusqlite::{OptionalExtension, named_params};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a record made of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// Written as decided.
    As {
        /// The job's state now.
        state: State,
        /// When it is due next, if it is.
        due: Option<Ms>,
    },
    /// The lease was gone; the result went to the history, and settled the intent if it was good news.
    Late,
}

/// A record that could not be written. The effect may be done, so claim and outcome come back to be tried again.
#[derive(Debug)]
pub struct Unrecorded {
    /// Why.
    pub error: StoreError,
    /// The claim, still good.
    pub claim: Claim,
    /// The outcome, still unwritten.
    pub outcome: Outcome,
}

/// A thread's wish for another job.
pub struct Want {
    /// How long its lease is good for unless renewed.
    pub lease: Duration,
    /// Asked inside the transaction: does the worker still claim?
    pub still: Box<dyn Fn() -> bool + Send>,
}

impl Store {
    /// Writes down how an attempt ended, and spends the claim.
    pub fn record(&self, claim: Claim, outcome: Outcome) -> Result<Recorded, Box<Unrecorded>> {
        self.record_and_claim(claim, outcome, None).map(|(recorded, _)| recorded)
    }

    /// The same, and in the same commit the next job for the thread that is free then, if it wants one. So a job costs one
    /// sync and not two. What cannot be recorded claims nothing; where nothing can be claimed it is recorded alone.
    pub fn record_and_claim(
        &self,
        claim: Claim,
        outcome: Outcome,
        next: Option<Want>,
    ) -> Result<(Recorded, Option<Claim>), Box<Unrecorded>> {
        let shared = Arc::new((claim, outcome));
        let wanted = next.is_some();
        let mut result = self.try_to_record(&shared, next);
        // Whoever claims next for the idle threads meets the same trouble, and says so.
        if wanted && !matches!(result, Ok(_) | Err(StoreError::CommitUnknown(_))) {
            result = self.try_to_record(&shared, None);
        }
        if let Err(StoreError::Row(why)) = &result {
            result = self.record_aside(&shared, why).map(|recorded| (recorded, None));
        }
        result.map_err(|error| {
            let (claim, outcome) = match Arc::try_unwrap(shared) {
                Ok(pair) => pair,
                // The writer has dropped its closure before it answers, or is still unwinding it: copy then.
                Err(shared) => (shared.0.copy(), shared.1.clone()),
            };
            Box::new(Unrecorded { error, claim, outcome })
        })
    }

    fn try_to_record(
        &self,
        shared: &Arc<(Claim, Outcome)>,
        next: Option<Want>,
    ) -> Result<(Recorded, Option<Claim>), StoreError> {
        let (desk, namespace) = (Arc::clone(&self.desk), Arc::clone(&self.namespace));
        let inside = Arc::clone(shared);
        let leased = Arc::new(Mutex::new(None));
        let lease = Arc::clone(&leased);
        let result = self.write(move |tx| {
            let (claim, outcome) = &*inside;
            let now = tx.present();
            let recorder = Recorder { tx, desk: desk.as_ref(), namespace: &namespace, now };
            let recorded = recorder.record(claim, outcome)?;
            *lock(&lease) = None;
            let Some(want) = next.as_ref().filter(|want| (want.still)()) else { return Ok((recorded, None)) };
            let owner = &claim.owner;
            let claimed = super::claim::claim(tx, desk.as_ref(), owner, 1, want.lease, false)?;
            let next = claimed.claims.into_iter().next();
            *lock(&lease) = next.as_ref().map(Claim::lease);
            Ok((recorded, next))
        });
        if matches!(result, Err(StoreError::CommitUnknown(_))) {
            self.doubt(lock(&leased).take());
        }
        result
    }

    /// Gives a claim back of which nothing was sent: the worker stops before it could begin. What could not be given back
    /// is tried again with the next claim or at the end.
    pub fn release(&self, claim: Claim) -> Result<(), StoreError> {
        let (id, token, owner, lease) = (claim.job().id, claim.token, claim.owner.clone(), claim.lease());
        let desk = Arc::clone(&self.desk);
        self.write(move |tx| release(tx, desk.as_ref(), id, token, &owner))
            .inspect_err(|_| self.doubt([lease]))
    }
}

pub(super) struct Recorder<'a> {
    pub tx: &'a Tx<'a>,
    pub desk: &'a dyn Desk,
    pub namespace: &'a str,
    pub now: crate::decide::Now,
}

pub(super) const HELD: &str = "SELECT EXISTS (SELECT 1 FROM onceward_jobs
  WHERE id = ?1 AND state = 'running' AND lease_owner = ?2 AND lease_token = ?3)";
const LEASED: &str = "SELECT lease_step, lease_started_ms FROM onceward_jobs
  WHERE id = ?1 AND state = 'running' AND lease_owner = ?2 AND lease_token = ?3";
const RECORDED: &str = "SELECT EXISTS (SELECT 1 FROM onceward_history
  WHERE job_id = ?1 AND attempt = ?2 AND action IN ('request','lookup'))";
const LATE: &str = "SELECT EXISTS (SELECT 1 FROM onceward_history
  WHERE job_id = ?1 AND action = 'late_result' AND started_ms = ?2 AND actor = ?3)";
const TAKEN: &str = "SELECT EXISTS (SELECT 1 FROM onceward_intents WHERE provider IS ?1 AND kind = ?2
  AND reference = ?3 AND reference IS NOT NULL AND reference_shared = 0 AND id <> ?4)";

impl Recorder<'_> {
    /// Is the lease still this owner's?
    pub(super) fn holds(tx: &Tx<'_>, id: JobId, owner: &Owner, token: i64) -> Result<bool, StoreError> {
        Ok(tx.conn().prepare_cached(HELD)?.query_row((id.0, owner.nonce(), token), |row| row.get(0))?)
    }

    fn record(&self, claim: &Claim, outcome: &Outcome) -> Result<Recorded, StoreError> {
        let id = claim.job().id;
        let held = Recorder::holds(self.tx, id, &claim.owner, claim.token)?;
        let (job, intent) = rows::must_load(self.tx.conn(), id)?;
        if held {
            let action = if claim.step() == Step::Send { Action::Request } else { Action::Lookup };
            let kind = self.known(&job)?;
            return self.apply(
                &job,
                &intent,
                kind,
                &claim.scope,
                claim.step(),
                outcome,
                action,
                claim.owner.actor(),
            );
        }
        // A commit whose end was not known may have been written after all.
        let written: bool = self
            .tx
            .conn()
            .prepare_cached(RECORDED)?
            .query_row((id.0, claim.job().tries), |row| row.get(0))?;
        if written {
            return Ok(Recorded::As { state: job.state, due: None });
        }
        // So may the commit of a late result: its alarm is raised once.
        let told: bool = self
            .tx
            .conn()
            .prepare_cached(LATE)?
            .query_row((id.0, outcome.started.0, claim.owner.actor()), |row| row.get(0))?;
        if !told {
            self.late(&job, &intent, claim, outcome)?;
        }
        Ok(Recorded::Late)
    }

    fn known(&self, job: &Job) -> Result<&KindDesk, StoreError> {
        let missing =
            || StoreError::Sqlite(format!("kind `{}` of job {} is not in the config", job.kind, job.id));
        self.desk.kind(&job.kind).ok_or_else(missing)
    }

    /// Decides and writes.
    #[allow(clippy::too_many_arguments)] // one call, one transition: a struct would only name the same eight again
    pub(super) fn apply(
        &self,
        job: &Job,
        intent: &Intent,
        kind: &KindDesk,
        scope: &Scope,
        step: Step,
        outcome: &Outcome,
        action: Action,
        actor: &str,
    ) -> Result<Recorded, StoreError> {
        let taken = self.taken(job, intent, kind, outcome)?;
        let decision = decide(job, intent, &kind.terms, scope, step, outcome, taken, &self.now);
        let due = self.write(job, intent, kind, outcome, &decision)?;
        let (state, run_after) = due;
        let mut entry = Entry::new(job.id, action, self.tx.now(), actor);
        entry.attempt = Some(job.tries);
        entry.from = Some(State::Running);
        entry.to = Some(state);
        entry.class = Some(outcome.class);
        entry.phase = outcome.phase;
        entry.http_status = outcome.http_status;
        entry.error = outcome.differs.clone().or_else(|| outcome.error.clone());
        entry.detail = outcome.result.clone();
        entry.run_after = run_after;
        entry.started = Some(outcome.started);
        history::append(self.tx, &entry)?;
        self.tx.count(format!("class:{}", outcome.class), 1);
        // Names have no blanks, so one parts them.
        self.tx.count(format!("attempts:{} {} {}", job.kind, kind.provider, outcome.class), 1);
        let why = outcome.error.as_deref().unwrap_or(outcome.class.as_str());
        holds::note(self.tx, &kind.provider, job.id, decision.signal, kind.terms.breaker, why)?;
        if decision.signal == Signal::Disable {
            pauses::by_the_provider(self.tx, &kind.provider, why, actor)?;
        }
        tell(self.tx, job, outcome, state, run_after);
        Ok(Recorded::As { state, due: run_after })
    }

    fn taken(
        &self,
        job: &Job,
        intent: &Intent,
        kind: &KindDesk,
        outcome: &Outcome,
    ) -> Result<bool, StoreError> {
        match (&outcome.reference, outcome.class) {
            (Some(reference), Class::Ok) if kind.unique => Ok(self
                .tx
                .conn()
                .prepare_cached(TAKEN)?
                .query_row((&intent.provider, &job.kind, reference, job.id.0), |row| row.get(0))?),
            _ => Ok(false),
        }
    }

    /// Writes exactly what was decided.
    fn write(
        &self,
        job: &Job,
        intent: &Intent,
        kind: &KindDesk,
        outcome: &Outcome,
        decision: &Decision,
    ) -> Result<(State, Option<Ms>), StoreError> {
        if let (Some(reference), true) = (&outcome.reference, decision.next != Next::Settled) {
            doubt::keep_generation(self.tx, job.id, intent, Some(reference))?;
        }
        self.write_generation(job, intent, kind, &decision.generation, decision.left_in_doubt)?;
        let (state, run_after, reason, intent_state) = match &decision.next {
            Next::Settled => (State::Settled, job.run_after, None, IntentState::Settled),
            Next::Again { due } => (State::Scheduled, *due, None, IntentState::Pending),
            Next::Unknown { due } => (State::Unknown, *due, None, IntentState::Requested),
            Next::Parked { reason, intent } => (State::Parked, job.run_after, Some(*reason), *intent),
        };
        if decision.next == Next::Settled {
            settle(
                self.tx,
                job,
                intent,
                intent.generation.number,
                outcome.reference.as_deref(),
                outcome.result.as_deref(),
                kind.unique,
            )?;
        } else {
            self.write_intent_state(job.id, intent_state, decision)?;
        }
        let on_its_way = matches!(state, State::Scheduled | State::Unknown);
        let to = rows::Move {
            state,
            run_after,
            attempts: job.attempts.saturating_sub(u32::from(decision.refund)),
            pauses: job.pauses.saturating_add(u32::from(on_its_way)),
            age_from: job.age_from.or(decision.left.then_some(outcome.started.min(self.now.wall))),
            error_class: (state != State::Settled).then_some(outcome.class),
            last_error: if state == State::Settled {
                None
            } else {
                outcome.differs.as_deref().or(outcome.error.as_deref())
            },
            park_reason: reason,
        };
        let state = pass_over(self.tx, self.desk, job, intent_state, &to)?;
        let due = matches!(state, State::Scheduled | State::Ready | State::Unknown).then_some(run_after);
        Ok((state, due))
    }

    pub(super) fn write_generation(
        &self,
        job: &Job,
        intent: &Intent,
        kind: &KindDesk,
        generation: &Generation,
        left_in_doubt: bool,
    ) -> Result<(), StoreError> {
        if generation.number == intent.generation.number {
            return rows::write_generation(self.tx, job.id, generation, &intent.wire_key);
        }
        doubt::keep_generation(self.tx, job.id, intent, None)?;
        let wire = wire_key(kind.terms.wire_style, self.namespace, &job.key, generation.number);
        rows::write_generation(self.tx, job.id, generation, &wire)?;
        rows::thaw(self.tx, job.id)?;
        if left_in_doubt {
            self.tx
                .conn()
                .prepare_cached("UPDATE onceward_intents SET earlier_unknown = 1 WHERE id = ?1")?
                .execute([job.id.0])?;
        }
        Ok(())
    }

    /// What never left leaves no trace of a request either: `requested_ms` goes back to what it was before the claim.
    fn write_intent_state(
        &self,
        id: JobId,
        state: IntentState,
        decision: &Decision,
    ) -> Result<(), StoreError> {
        self.tx.conn().prepare_cached(INTENT_STATE)?.execute(named_params! {
            ":id": id.0, ":state": state.as_str(), ":left": decision.left,
        })?;
        Ok(())
    }

    fn late(&self, job: &Job, intent: &Intent, claim: &Claim, outcome: &Outcome) -> Result<(), StoreError> {
        let kind = self.known(job)?;
        let good = outcome.class == Class::Ok && outcome.differs.is_none();
        let mut entry = Entry::new(job.id, Action::LateResult, self.tx.now(), claim.owner.actor());
        (entry.from, entry.to) = (Some(job.state), Some(job.state));
        (entry.class, entry.phase) = (Some(outcome.class), outcome.phase);
        (entry.http_status, entry.error) = (outcome.http_status, outcome.error.clone());
        (entry.detail, entry.started) = (outcome.result.clone(), Some(outcome.started));
        if good && intent.state == IntentState::Settled {
            if intent.reference != outcome.reference {
                let (first, second) = (intent.reference.as_deref(), outcome.reference.as_deref());
                alarm(self.tx, job, first, second);
                entry.error = Some(format!("a second, different reference: {}", second.unwrap_or("none")));
            }
        } else if good && !self.taken(job, intent, kind, outcome)? {
            let newer_sent = intent.generation.number > claim.intent().generation.number
                && (intent.generation.sends > 0 || job.state == State::Running);
            if newer_sent {
                alarm(self.tx, job, outcome.reference.as_deref(), None);
            }
            settle(
                self.tx,
                job,
                intent,
                claim.intent().generation.number,
                outcome.reference.as_deref(),
                outcome.result.as_deref(),
                kind.unique,
            )?;
            move_to_settled(self.tx, job)?;
            (entry.to, entry.attempt) = (Some(State::Settled), ended_by(job, State::Settled));
        }
        let (id, key) = (job.id, job.key.as_str().to_string());
        let (class, state) = (outcome.class.as_str(), job.state);
        self.tx.say(move || {
            log::warn!(key = key.as_str(), class, state:% = state; "late result of {id} {key}: {class}");
        });
        history::append(self.tx, &entry)
    }
}

/// The number of the try whose lease ends with this change though its call is out: the row of the change is the try's row,
/// for whatever the call still brings is a late result, or nothing if its worker dies.
pub(super) fn ended_by(job: &Job, to: State) -> Option<u32> {
    (job.state == State::Running && to != State::Running).then_some(job.tries)
}

const INTENT_STATE: &str = "UPDATE onceward_intents SET state = :state,
    requested_ms = CASE WHEN NOT :left AND sends = 0
      AND requested_ms = (SELECT lease_started_ms FROM onceward_jobs WHERE id = :id) THEN NULL ELSE requested_ms END
  WHERE id = :id AND state <> 'settled'";

const SETTLE: &str = "UPDATE onceward_intents SET state = 'settled', reference = :reference,
    reference_generation = :generation, reference_shared = :shared, confirmed_ms = :now, result = :result
  WHERE id = :id AND state <> 'settled'";

/// The edges of the confirmation gap's histogram, in seconds: from an answer at once to one the next day.
pub const GAP_EDGES_S: [f64; 15] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0];

/// Settles an intent, for ever; `generation` is the one that brought the reference.
pub(super) fn settle(
    tx: &Tx<'_>,
    job: &Job,
    intent: &Intent,
    generation: u32,
    reference: Option<&str>,
    result: Option<&str>,
    unique: bool,
) -> Result<(), StoreError> {
    tx.conn().prepare_cached(SETTLE)?.execute(named_params! {
        ":id": job.id.0, ":generation": generation, ":reference": reference, ":shared": !unique, ":now": tx.now().0, ":result": result,
    })?;
    let gap = intent.requested.map_or(Duration::ZERO, |from| tx.now().since(from));
    tx.count(format!("gap:{}", gap_bucket(gap)), 1);
    let whose = format!("{} {}", job.kind, intent.provider.as_deref().unwrap_or(&job.kind));
    let edge = GAP_EDGES_S.iter().position(|edge| gap.as_secs_f64() <= *edge).unwrap_or(GAP_EDGES_S.len());
    tx.count(format!("gaps:{whose} {edge}"), 1);
    tx.count(format!("gap_ms:{whose}"), millis(gap));
    Ok(())
}

/// Moves a job to `settled`, wherever it is.
pub(super) fn move_to_settled(tx: &Tx<'_>, job: &Job) -> Result<(), StoreError> {
    let to = rows::Move {
        state: State::Settled,
        run_after: job.run_after,
        attempts: job.attempts,
        pauses: job.pauses,
        age_from: job.age_from,
        error_class: None,
        last_error: None,
        park_reason: None,
    };
    rows::move_job(tx, job, &to)?;
    // Its call may still run, but whatever that brings is a late result, which says nothing about the provider.
    holds::give_up_probe(tx, job.id)
}

/// Confirmation gaps are counted in buckets of an eighth of a doubling: a percentile is read off within 9 %.
pub(super) fn gap_bucket(gap: Duration) -> u32 {
    // At most 8 * 63.
    ((millis(gap) as f64 + 1.0).log2() * 8.0).floor() as u32
}

/// The upper edge of a bucket, in seconds.
pub(super) fn gap_seconds(bucket: u32) -> f64 {
    ((f64::from(bucket) + 1.0) / 8.0).exp2() / 1000.0 - 0.001
}

/// Moves a job; a parked one whose kind says so lets its group go on, unless its outcome is unknown.
pub(super) fn pass_over(
    tx: &Tx<'_>,
    desk: &dyn Desk,
    job: &Job,
    intent: IntentState,
    to: &rows::Move<'_>,
) -> Result<State, StoreError> {
    let skip = to.state == State::Parked
        && job.group.is_some()
        && intent != IntentState::Requested
        && desk.kind(&job.kind).is_some_and(|k| k.terms.on_parked == OnParked::Skip);
    let state = rows::move_job(tx, job, to)?;
    if skip {
        tx.conn()
            .prepare_cached("UPDATE onceward_jobs SET passed_over = 1 WHERE id = ?1 AND state = 'parked'")?
            .execute([job.id.0])?;
        super::order::after_move(tx, job, state)?;
    }
    Ok(state)
}

/// The loudest there is: one intent seems to have had two effects.
pub(super) fn alarm(tx: &Tx<'_>, job: &Job, first: Option<&str>, second: Option<&str>) {
    tx.count("double_effects", 1);
    let (id, key) = (job.id, job.key.as_str().to_string());
    let first = first.unwrap_or("none").to_string();
    let second = second.unwrap_or("another request that may take effect").to_string();
    tx.say(move || {
        log::error!(
            key = key.as_str();
            "DOUBLE EFFECT: {id} {key} has the reference {first} and now also {second}: look at the provider at once"
        );
    });
}

/// One line a decision. Key, class and next time are members of their own for programs that read the log.
fn tell(tx: &Tx<'_>, job: &Job, outcome: &Outcome, state: State, due: Option<Ms>) {
    let why = outcome.differs.clone().or_else(|| outcome.error.clone()).unwrap_or_default();
    let (id, key, class) = (job.id, job.key.as_str().to_string(), outcome.class.as_str());
    let reference = outcome.reference.clone();
    tx.say(move || match (state, due) {
        (State::Settled, _) => {
            let reference = reference.as_deref().unwrap_or("(no reference)");
            log::info!(key = key.as_str(), class, state:% = state; "settled {id} {key} as {reference}");
        }
        (State::Parked, _) => {
            log::warn!(key = key.as_str(), class, state:% = state; "parked {id} {key}: {class} {why}");
        }
        (_, Some(due)) => {
            log::info!(key = key.as_str(), class, state:% = state, next:% = due; "{state} {id} {key}: {class} {why}; next at {due}");
        }
        (_, None) => log::info!(key = key.as_str(), class, state:% = state; "{state} {id} {key}: {class} {why}"),
    });
}

/// Gives a lease back under which nothing was sent, if it is still held.
pub(super) fn release(
    tx: &Tx<'_>,
    desk: &dyn Desk,
    id: JobId,
    token: i64,
    owner: &Owner,
) -> Result<(), StoreError> {
    set_aside::apart(tx, desk, id, owner.actor(), true, || give_back(tx, id, token, owner)).map(drop)
}

fn give_back(tx: &Tx<'_>, id: JobId, token: i64, owner: &Owner) -> Result<(), StoreError> {
    let held: Option<(String, i64)> = tx
        .conn()
        .prepare_cached(LEASED)?
        .query_row((id.0, owner.nonce(), token), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((step, started)) = held else { return Ok(()) };
    let sends = step == Step::Send.as_str();
    let (job, intent) = rows::must_load(tx.conn(), id)?;
    let in_doubt = intent.in_doubt();
    if sends && !in_doubt {
        tx.conn()
            .prepare_cached(
                "UPDATE onceward_intents SET state = 'pending',
                   requested_ms = CASE WHEN sends = 0 AND requested_ms = ?2 THEN NULL ELSE requested_ms END
                 WHERE id = ?1 AND state <> 'settled'",
            )?
            .execute((id.0, started))?;
    }
    let to = rows::Move {
        state: if in_doubt { State::Unknown } else { State::Scheduled },
        run_after: job.run_after,
        attempts: job.attempts.saturating_sub(u32::from(sends)),
        pauses: job.pauses,
        age_from: job.age_from,
        error_class: job.error_class,
        last_error: job.last_error.as_deref(),
        park_reason: None,
    };
    let state = rows::move_job(tx, &job, &to)?;
    let mut entry = Entry::new(id, Action::Release, tx.now(), owner.actor());
    (entry.attempt, entry.from, entry.to) = (Some(job.tries), Some(State::Running), Some(state));
    history::append(tx, &entry)?;
    holds::give_up_probe(tx, id)
}
