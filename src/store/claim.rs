//! The claim: due jobs, for idle threads only, in one transaction.
//!
//! Its cost does not grow with finished, parked or future rows: it promotes up to a hundred due rows by the index on
//! their time, looks at the head of each kind by the claim's index, merges the heads in memory and claims by number.
//! The claimed row *is* the record that a request may have left (law 4): it is committed before anything is sent.

use super::facts::Rendered;
use super::history::{Action, Entry};
use super::{
    Desk, KindDesk, Owner, Store, StoreError, Tx, doubt, facts, history, holds, pauses, rows, set_aside,
};
use crate::clock::Ms;
use crate::decide::{Family, Plan, has_aged, may_do_it_twice, still_safe};
use crate::intent::{Frozen, Intent, IntentState, Scope};
use crate::job::{Job, JobId, Lease, Reason, State, Step};
use rusqlite::named_params;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A worker's right to make one attempt. Only [`Store::claim`] makes one, and recording or releasing spends it:
///
/// ```compile_fail
/// fn twice(store: &onceward::store::Store, claim: onceward::store::Claim, outcome: onceward::outcome::Outcome) {
///     let _ = store.record(claim, outcome.clone());
///     let _ = store.record(claim, outcome);
/// }
/// ```
#[derive(Debug)]
pub struct Claim {
    pub(super) token: i64,
    pub(super) owner: Owner,
    pub(super) scope: Scope,
    step: Step,
    job: Job,
    intent: Intent,
    frozen: Frozen,
    started: Ms,
}

impl Claim {
    /// What to do.
    pub fn step(&self) -> Step {
        self.step
    }
    /// The job as claimed.
    pub fn job(&self) -> &Job {
        &self.job
    }
    /// Its intent.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }
    /// The request, byte for byte.
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }
    /// Where the kind's calls go, as of the claim.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
    /// When it was claimed.
    pub fn started(&self) -> Ms {
        self.started
    }

    pub(super) fn lease(&self) -> Leased {
        (self.job.id, self.token, self.owner.clone())
    }

    /// For a record that failed while the writer still held its closure; nowhere else may a claim be doubled.
    pub(super) fn copy(&self) -> Claim {
        Claim {
            token: self.token,
            owner: self.owner.clone(),
            scope: self.scope.clone(),
            step: self.step,
            job: self.job.clone(),
            intent: self.intent.clone(),
            frozen: self.frozen.clone(),
            started: self.started,
        }
    }
}

/// A lease without its claim: job, token, owner.
pub(super) type Leased = (JobId, i64, Owner);

/// What a claim brought.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The attempts to make.
    pub claims: Vec<Claim>,
    /// When something else will be due or free, as far as is known and unless as much was claimed as was asked for.
    pub next: Option<Ms>,
    /// There was more to claim than was asked for, or rows are still to be promoted.
    pub more: bool,
}

impl Store {
    /// Claims up to `most` jobs for this worker.
    pub fn claim(&self, owner: &Owner, most: usize, lease: Duration) -> Result<Claimed, StoreError> {
        self.give_back_doubtful()?;
        let leased = Arc::new(Mutex::new(Vec::new()));
        let claim_as = |careful| {
            let (desk, worker) = (Arc::clone(&self.desk), owner.clone());
            let inside = Arc::clone(&leased);
            self.write(move |tx| {
                let claimed = claim(tx, desk.as_ref(), &worker, most, lease, careful)?;
                *lock(&inside) = claimed.claims.iter().map(Claim::lease).collect();
                Ok(claimed)
            })
        };
        let claimed = match claim_as(false) {
            // One row cannot be used. With a savepoint a job it is found and set aside, and the rest is claimed.
            Err(StoreError::Row(_)) => claim_as(true),
            claimed => claimed,
        };
        if matches!(claimed, Err(StoreError::CommitUnknown(_))) {
            self.doubt(lock(&leased).drain(..));
        }
        claimed
    }

    /// These leases may stand in the file, and nobody has their claims.
    pub(super) fn doubt(&self, leases: impl IntoIterator<Item = Leased>) {
        lock(&self.doubtful).extend(leases);
    }

    /// Leases of which nobody has the claim, for the COMMIT failed and may have been written all the same. Their owner
    /// lives, so no other worker would ever take them over.
    pub(super) fn give_back_doubtful(&self) -> Result<(), StoreError> {
        let mut doubtful = lock(&self.doubtful);
        if doubtful.is_empty() {
            return Ok(());
        }
        let (leases, desk) = (doubtful.clone(), Arc::clone(&self.desk));
        self.write(move |tx| {
            leases.iter().try_for_each(|(id, token, owner)| {
                super::record::release(tx, desk.as_ref(), *id, *token, owner)
            })
        })?;
        doubtful.clear();
        Ok(())
    }

    /// The moment before the first byte. The lease must still be this claim's: somebody may have settled the job, or taken
    /// it over, while the connection was opened. A provider that cannot be asked again has the moment on record. What may
    /// have taken effect before is not sent again if the provider's window ended since the claim: the machine may have
    /// slept, or the process been stopped. An error says why nothing may leave.
    pub fn before_first_byte(&self, claim: &Claim) -> Result<(), String> {
        let Some(kind) = self.desk.kind(&claim.job.kind).filter(|_| claim.step == Step::Send) else {
            return Ok(());
        };
        if kind.terms.family == Family::E {
            return self.mark_sending(claim).map_err(|e| format!("the send could not be put on record: {e}"));
        }
        if !self.holds(claim).map_err(|e| format!("whether it is still to be sent could not be read: {e}"))? {
            return Err(format!(
                "the lease of job {} is gone: what was decided meanwhile stands",
                claim.job.id
            ));
        }
        if !still_safe(&claim.intent, &kind.terms, &Store::present(self.clock.as_ref())) {
            return Err("the provider's window ended before it was sent again".into());
        }
        Ok(())
    }

    /// Is this claim's lease still the job's?
    fn holds(&self, claim: &Claim) -> Result<bool, StoreError> {
        let lease = (claim.job.id.0, claim.owner.nonce(), claim.token);
        Ok(self.reader()?.prepare_cached(super::record::HELD)?.query_row(lease, |row| row.get(0))?)
    }

    pub(super) fn mark_sending(&self, claim: &Claim) -> Result<(), StoreError> {
        let (id, owner, token) = (claim.job.id, claim.owner.clone(), claim.token);
        self.write(move |tx| {
            let changed = tx
                .conn()
                .prepare_cached(
                    "UPDATE onceward_jobs SET lease_phase = 'sending'
                     WHERE id = ?1 AND state = 'running' AND lease_owner = ?2 AND lease_token = ?3",
                )?
                .execute((id.0, owner.nonce(), token))?;
            match changed {
                1 => Ok(()),
                _ => Err(StoreError::Sqlite(format!("the lease of job {id} is gone"))),
            }
        })
    }
}

/// Claims inside a transaction.
pub(super) fn claim(
    tx: &Tx<'_>,
    desk: &dyn Desk,
    owner: &Owner,
    most: usize,
    lease: Duration,
    careful: bool,
) -> Result<Claimed, StoreError> {
    Round { tx, desk, owner, now: tx.present(), lease, careful }.claim(most)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Round<'a> {
    tx: &'a Tx<'a>,
    desk: &'a dyn Desk,
    owner: &'a Owner,
    now: crate::decide::Now,
    lease: Duration,
    /// A job's row that cannot be used sets that job aside, and does not end the round. Costs a savepoint a job.
    careful: bool,
}

struct Head {
    priority: i64,
    run_after: i64,
    id: JobId,
    provider: usize,
}

/// Due rows that are not in the claim's index yet, oldest first.
pub(super) const DUE: &str = "SELECT id, state FROM onceward_jobs
  WHERE claimable = 0 AND group_paused = 0 AND state IN ('scheduled','unknown') AND run_after_ms <= ?1
  ORDER BY run_after_ms LIMIT 100";
pub(super) const PROMOTE: &str = "UPDATE onceward_jobs SET claimable = 1,
    state = CASE state WHEN 'scheduled' THEN 'ready' ELSE state END WHERE id = ?1";
/// The head of one kind.
pub(super) const HEADS: &str = "SELECT priority, run_after_ms, id FROM onceward_jobs
  WHERE claimable = 1 AND group_paused = 0 AND kind = ?1 ORDER BY priority DESC, run_after_ms, id LIMIT ?2";
pub(super) const NEXT: &str = "SELECT min(run_after_ms) FROM onceward_jobs
  WHERE claimable = 0 AND group_paused = 0 AND state IN ('scheduled','unknown')";
pub(super) const RUNNING: &str =
    "SELECT kind, count(*) FROM onceward_jobs WHERE state = 'running' GROUP BY kind";

impl Round<'_> {
    fn claim(&self, most: usize) -> Result<Claimed, StoreError> {
        let promoted = self.promote()?;
        let mut claimed = Claimed { more: promoted == 100, ..Claimed::default() };
        let in_flight = self.in_flight()?;
        let paused = pauses::kinds(self.tx.conn())?;
        let mut heads = Vec::new();
        let mut rooms = Vec::new();
        for (index, provider) in self.desk.providers().iter().enumerate() {
            let busy = in_flight.get(provider.name.as_str()).copied().unwrap_or(0);
            let room = holds::room(self.tx, provider, busy)?;
            if room.calls == 0 {
                claimed.next = earlier(claimed.next, room.again);
            }
            let want = room.calls.min(most);
            if want > 0 {
                for kind in self.desk.kinds().iter().filter(|k| k.provider == provider.name) {
                    if paused.contains(&kind.kind) {
                        continue;
                    }
                    self.heads(&kind.kind, index, want + 1, &mut heads)?;
                }
            }
            rooms.push((room, Vec::new()));
        }
        heads.sort_by_key(|h: &Head| (std::cmp::Reverse(h.priority), h.run_after, h.id));
        for head in heads {
            let (room, taken) = &mut rooms[head.provider];
            if taken.len() >= room.calls {
                claimed.next = earlier(claimed.next, room.again);
                continue;
            }
            if claimed.claims.len() >= most {
                claimed.more = true;
                break;
            }
            match self.apart(head.id, || self.take(head.id))?.flatten() {
                Some(claim) => {
                    taken.push(head.id);
                    claimed.claims.push(claim);
                }
                // Parked, set aside or put off instead: what stands behind it may go.
                None => claimed.more = true,
            }
        }
        for ((room, taken), provider) in rooms.into_iter().zip(self.desk.providers()) {
            holds::use_room(self.tx, provider, room, &taken)?;
        }
        // Who is busy does not wait for it.
        if claimed.claims.len() < most {
            let next: Option<i64> = self.tx.conn().prepare_cached(NEXT)?.query_row([], |row| row.get(0))?;
            claimed.next = earlier(claimed.next, next.map(Ms));
        }
        Ok(claimed)
    }

    fn promote(&self) -> Result<usize, StoreError> {
        let conn = self.tx.conn();
        let due: Vec<(i64, String)> = conn
            .prepare_cached(DUE)?
            .query_map([self.now.wall.0], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (id, state) in &due {
            let promote = || Ok(conn.prepare_cached(PROMOTE)?.execute([id])?);
            if self.apart(JobId(*id), promote)?.is_none() {
                continue;
            }
            if state == State::Scheduled.as_str() {
                rows::moved(self.tx, Some(State::Scheduled), Some(State::Ready));
            }
        }
        Ok(due.len())
    }

    fn apart<T>(
        &self,
        id: JobId,
        work: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        set_aside::apart(self.tx, self.desk, id, self.owner.actor(), self.careful, work)
    }

    fn in_flight(&self) -> Result<BTreeMap<&str, u32>, StoreError> {
        let mut statement = self.tx.conn().prepare_cached(RUNNING)?;
        let mut rows = statement.query([])?;
        let mut busy = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let kind = rows::shown(row, 0)?;
            if let Some(kind) = self.desk.kind(&kind) {
                *busy.entry(kind.provider.as_str()).or_default() += row.get::<_, u32>(1)?;
            }
        }
        Ok(busy)
    }

    fn heads(
        &self,
        kind: &str,
        provider: usize,
        most: usize,
        heads: &mut Vec<Head>,
    ) -> Result<(), StoreError> {
        let mut statement = self.tx.conn().prepare_cached(HEADS)?;
        let mut rows = statement.query((kind, most as i64))?;
        while let Some(row) = rows.next()? {
            heads.push(Head {
                priority: row.get(0)?,
                run_after: row.get(1)?,
                id: JobId(row.get(2)?),
                provider,
            });
        }
        Ok(())
    }

    /// Claims one job, or does what its plan says instead.
    fn take(&self, id: JobId) -> Result<Option<Claim>, StoreError> {
        let (job, mut intent) = rows::must_load(self.tx.conn(), id)?;
        let Some(kind) = self.desk.kind(&job.kind) else { return Ok(None) };
        let scope = self.desk.scope(&job.kind);
        let generation = i64::from(intent.generation.number);
        if intent.frozen.is_some() || intent.scope.is_some() {
            match facts::rendered(self.tx.conn(), id.0, generation)? {
                Rendered::AsTold => {}
                // Somebody put it there by hand, and it never left: it is rendered as if it were not there.
                Rendered::Never => (intent.frozen, intent.scope) = (None, None),
                Rendered::Otherwise if intent.in_doubt() => {
                    self.park(&job, Reason::Invalid, NOT_AS_SENT, None)?;
                    return Ok(None);
                }
                Rendered::Otherwise => {
                    self.park(&job, Reason::Invalid, NOT_AS_RENDERED, Some(IntentState::Pending))?;
                    return Ok(None);
                }
            }
        }
        // In doubt since a restore and never rendered in this file: what may have left was rendered as it would be now.
        let render = intent.doubt.is_some() && intent.frozen.is_none() && !kind.terms.external;
        let place = intent.scope.clone().unwrap_or_else(|| scope.clone());
        if render {
            match self.desk.freeze(&job, &intent) {
                Ok(frozen) => (intent.frozen, intent.scope) = (Some(frozen), Some(place.clone())),
                Err(why) => {
                    self.park(&job, Reason::Invalid, &why, None)?;
                    return Ok(None);
                }
            }
        }
        let plan = doubt::plan_for(&job, &intent, kind, &scope, &self.now);
        // Only with what brings a row of history.
        if let (true, Plan::Go(_) | Plan::Park(_), Some(frozen)) = (render, plan, &intent.frozen) {
            self.freeze(job.id, frozen, &place, None)?;
        }
        match plan {
            Plan::Go(step) => self.lease(job, intent, kind, scope, step),
            Plan::Wait(until) => {
                self.put_off(&job, until)?;
                Ok(None)
            }
            Plan::Park(reason) => {
                let intent_state = if intent.in_doubt() { None } else { Some(IntentState::Pending) };
                let aged = has_aged(&job, &kind.terms, &self.now);
                self.park(&job, reason, words(reason, aged), intent_state)?;
                Ok(None)
            }
        }
    }

    fn lease(
        &self,
        job: Job,
        mut intent: Intent,
        kind: &KindDesk,
        scope: Scope,
        step: Step,
    ) -> Result<Option<Claim>, StoreError> {
        let started = self.now.wall;
        let sent = (step == Step::Send).then_some(started);
        if sent.is_some() && !intent.in_doubt() && intent.provider != kind.called {
            self.moved(&job, &mut intent, kind)?;
        }
        if intent.frozen.is_none() {
            match self.desk.freeze(&job, &intent) {
                Ok(frozen) => {
                    self.freeze(job.id, &frozen, &scope, sent)?;
                    (intent.frozen, intent.scope) = (Some(frozen), Some(scope.clone()));
                }
                Err(why) => {
                    let state = if intent.in_doubt() { None } else { Some(IntentState::Pending) };
                    self.park(&job, Reason::Invalid, &why, state)?;
                    return Ok(None);
                }
            }
        } else if sent.is_some() {
            if !intent.in_doubt() {
                self.readdress(job.id, &mut intent, &scope)?;
            }
            self.tx.conn().prepare_cached(REQUESTED)?.execute((job.id.0, started.0))?;
        }
        // Only what will be marked before its first byte can prove by this that nothing left. Whoever recovers it may
        // have another config, so the row says it.
        let marks = step == Step::Send && kind.terms.family == Family::E;
        let expires = started.plus(self.lease);
        let token: i64 = self.tx.conn().prepare_cached(LEASE)?.query_row(
            named_params! {
                ":id": job.id.0, ":owner": self.owner.nonce(), ":rise": self.tx.rise(), ":expires": expires.0,
                ":started": started.0, ":step": step.as_str(), ":spend": i64::from(step == Step::Send),
                ":max": kind.terms.max_attempts, ":phase": if marks { "claimed" } else { "sending" }, ":boot": self.now.boot,
            },
            |row| row.get(0),
        )?;
        if step == Step::Send && may_do_it_twice(&intent, &kind.terms, &self.now) {
            let mut entry = Entry::new(job.id, Action::Note, self.tx.now(), self.owner.actor());
            entry.detail = Some(AT_LEAST_ONCE.into());
            history::append(self.tx, &entry)?;
        }
        rows::moved(self.tx, Some(job.state), Some(State::Running));
        self.tx.count(format!("wait:{}", super::record::gap_bucket(started.since(job.run_after))), 1);
        if log::log_enabled!(log::Level::Debug) {
            let (id, key, from) = (job.id, job.key.clone(), job.state);
            self.tx.say(move || log::debug!("claim {id} {key} ({step}, from {from})"));
        }
        // As the statements above have left the rows.
        if let Some(started) = sent {
            intent.state = IntentState::Requested;
            intent.requested = intent.requested.or(Some(started));
        }
        let job = Job {
            state: State::Running,
            tries: job.tries.saturating_add(1),
            attempts: job.attempts.saturating_add(u32::from(step == Step::Send)),
            max_attempts: kind.terms.max_attempts,
            updated: started,
            lease: Some(Lease {
                owner: self.owner.name().to_string(),
                token,
                expires,
                boot: Some(self.now.boot),
            }),
            ..job
        };
        let frozen = intent.frozen.clone().unwrap_or_default();
        Ok(Some(Claim { token, owner: self.owner.clone(), scope, step, job, intent, frozen, started }))
    }

    /// `sent`: the claim for a first send, which makes the intent a request.
    fn freeze(&self, id: JobId, frozen: &Frozen, scope: &Scope, sent: Option<Ms>) -> Result<(), StoreError> {
        let headers = serde_json::to_string(&frozen.headers)
            .map_err(|e| StoreError::Sqlite(format!("headers could not be written as JSON: {e}")))?;
        self.tx.conn().prepare_cached(FREEZE)?.execute(named_params! {
            ":id": id.0, ":method": frozen.method, ":path": frozen.path, ":headers": headers, ":body": frozen.body,
            ":lookup": frozen.lookup_path, ":send": scope.send, ":scope_lookup": scope.lookup, ":sent": sent.map(|at| at.0),
        })?;
        Ok(())
    }

    /// Nothing of this generation is in doubt, so it goes wherever the config now says, and is asked about there. The
    /// look-up stays the one that was rendered.
    fn readdress(&self, id: JobId, intent: &mut Intent, scope: &Scope) -> Result<(), StoreError> {
        let Some(frozen) = intent.scope.as_mut().filter(|frozen| frozen.send != scope.send) else {
            return Ok(());
        };
        frozen.send.clone_from(&scope.send);
        self.tx
            .conn()
            .prepare_cached("UPDATE onceward_intents SET scope_send = ?2 WHERE id = ?1")?
            .execute((id.0, &scope.send))?;
        Ok(())
    }

    /// The kind goes to another provider than when the job was asked for. Nothing is in doubt, so from here on the ledger
    /// names the one that is called: its references, statements and look-ups are what counts.
    fn moved(&self, job: &Job, intent: &mut Intent, kind: &KindDesk) -> Result<(), StoreError> {
        let name = |provider: &Option<String>| provider.clone().unwrap_or_else(|| "this program".into());
        self.tx
            .conn()
            .prepare_cached("UPDATE onceward_intents SET provider = ?2 WHERE id = ?1")?
            .execute((job.id.0, &kind.called))?;
        let mut entry = Entry::new(job.id, Action::Note, self.tx.now(), self.owner.actor());
        entry.detail = Some(format!(
            "goes to {} now, as its kind does; it was asked for while the kind went to {}",
            name(&kind.called),
            name(&intent.provider)
        ));
        entry.content_changed = true;
        history::append(self.tx, &entry)?;
        intent.provider.clone_from(&kind.called);
        Ok(())
    }

    fn put_off(&self, job: &Job, until: Ms) -> Result<(), StoreError> {
        self.tx
            .conn()
            .prepare_cached("UPDATE onceward_jobs SET claimable = 0, run_after_ms = ?2 WHERE id = ?1")?
            .execute((job.id.0, until.0))?;
        Ok(())
    }

    /// Parks without an attempt. `intent`: what is certain, or `None` to leave it in doubt.
    fn park(
        &self,
        job: &Job,
        reason: Reason,
        why: &str,
        intent: Option<IntentState>,
    ) -> Result<(), StoreError> {
        park(self.tx, self.desk, job, reason, why, intent, self.owner.actor())
    }
}

/// Said where the file no longer has what was sent: neither may it go again, nor may its look-up be trusted.
const NOT_AS_SENT: &str = "the request in the file is not the one that was sent: somebody has changed the file (`onceward \
   audit verify`). It may have taken effect: look at the provider, then resolve it";

/// The same of a request that certainly had no effect yet.
const NOT_AS_RENDERED: &str = "the request in the file is not the one that was rendered: somebody has changed the file (`onceward \
   audit verify`). Nothing of it has taken effect: put the file right, then replay it";

/// Said in the history of each re-send that a kind's `on_unknown` brings about.
const AT_LEAST_ONCE: &str = "is to be sent again though an earlier try may have taken effect: on_unknown = \"resend\" chooses at least once";

/// Parks a job that no attempt parked.
pub(super) fn park(
    tx: &Tx<'_>,
    desk: &dyn Desk,
    job: &Job,
    reason: Reason,
    why: &str,
    intent: Option<IntentState>,
    actor: &str,
) -> Result<(), StoreError> {
    if let Some(state) = intent {
        tx.conn()
            .prepare_cached("UPDATE onceward_intents SET state = ?2 WHERE id = ?1 AND state <> 'settled'")?
            .execute((job.id.0, state.as_str()))?;
    }
    let to = rows::Move {
        state: State::Parked,
        run_after: job.run_after,
        attempts: job.attempts,
        pauses: job.pauses,
        age_from: job.age_from,
        error_class: job.error_class,
        last_error: Some(why),
        park_reason: Some(reason),
    };
    super::record::pass_over(tx, desk, job, intent.unwrap_or(IntentState::Requested), &to)?;
    let mut entry = Entry::new(job.id, Action::Park, tx.now(), actor);
    (entry.from, entry.to, entry.error) = (Some(job.state), Some(State::Parked), Some(why.to_string()));
    entry.detail = Some(reason.to_string());
    history::append(tx, &entry)?;
    let (id, key, class, why) = (job.id, job.key.as_str().to_string(), reason.as_str(), why.to_string());
    tx.say(move || {
        log::warn!(key = key.as_str(), class, state:% = State::Parked; "parked {id} {key}: {class} ({why})");
    });
    Ok(())
}

/// What a reason found at the claim means, for a person.
fn words(reason: Reason, aged: bool) -> &'static str {
    match reason {
        Reason::AttemptsExhausted => {
            "max_attempts is reached and nothing is in doubt: replay it when the cause is gone"
        }
        Reason::TooOld => "max_age has passed and nothing is in doubt: replay it if it is still wanted",
        Reason::UnknownOutcome if aged => {
            "a request may have taken effect, and max_age has passed without an answer: look at the provider, then resolve it"
        }
        Reason::UnknownOutcome => {
            "a request may have taken effect, and there is no way left to ask: look at the provider, then resolve it"
        }
        Reason::WindowExpired => {
            "a request may have taken effect, and the provider may have forgotten its key: look at the provider, then resolve it"
        }
        Reason::ScopeChanged => {
            "a request may have taken effect at another address or account than the config's: look there, then resolve it"
        }
        Reason::ContentDiffers
        | Reason::ReferenceTaken
        | Reason::Invalid
        | Reason::Rejected
        | Reason::Redirected => "it needs a person",
    }
}

pub(super) const LEASE: &str = "UPDATE onceward_jobs SET state = 'running', claimable = 0, lease_owner = :owner,
    lease_token = lease_token + :rise, lease_expires_ms = :expires, lease_started_ms = :started, lease_step = :step,
    lease_phase = :phase, lease_boot_ms = :boot, tries = tries + 1, attempts = attempts + :spend, max_attempts = :max,
    updated_ms = :started
  WHERE id = :id AND claimable = 1 AND group_paused = 0 RETURNING lease_token";
const REQUESTED: &str =
    "UPDATE onceward_intents SET state = 'requested', requested_ms = coalesce(requested_ms, ?2)
  WHERE id = ?1";
const FREEZE: &str = "UPDATE onceward_intents SET frozen_method = :method, frozen_path = :path,
    frozen_headers = :headers, frozen_body = :body, frozen_lookup = :lookup, scope_send = :send,
    scope_lookup = :scope_lookup, state = CASE WHEN :sent IS NULL THEN state ELSE 'requested' END,
    requested_ms = coalesce(requested_ms, :sent)
  WHERE id = :id";

fn earlier(a: Option<Ms>, b: Option<Ms>) -> Option<Ms> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
