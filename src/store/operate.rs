//! What people do: replay, resolve, cancel, confirm. Each is one transaction and one row of history; saying the same
//! thing twice is answered as done; what the state does not allow is refused with the reason and the way out.

use super::history::{Action, Entry};
use super::record::{Recorder, ended_by};
use super::{Desk, KindDesk, Store, StoreError, Tx, doubt, history, order, rows};
use crate::clock::Ms;
use crate::decide::{Now, Plan, begun_anew, next_generation, remembered};
use crate::intent::{Generation, Intent, IntentState, hex};
use crate::job::{Code, Job, JobId, NewJob, Reason, Refusal, State};
use rusqlite::{OptionalExtension, named_params};
use std::sync::Arc;

/// New content for a job of which certainly nothing happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Amendment {
    /// The new content, checked like any other.
    pub content: NewJob,
    /// Account, amount and currency may change as well.
    pub money: bool,
}

/// Which parked jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// All of them.
    All,
    /// Those whose park reason or last class is this.
    Class(String),
}

/// A change inside a transaction: an inner refusal is kept in the history where the rules say so.
pub(super) type Answer = Result<State, Refusal>;

impl Store {
    /// Puts a parked job back to work. Attempts and age begin anew; history numbers go on.
    pub fn replay(&self, id: JobId, amendment: Option<Amendment>, actor: &str) -> Result<State, StoreError> {
        self.operate(id, actor, move |work| work.replay(amendment.as_ref()))
    }

    /// Gives a job up of which certainly nothing is under way.
    pub fn cancel(&self, id: JobId, actor: &str) -> Result<State, StoreError> {
        self.operate(id, actor, |work| work.cancel())
    }

    /// Appends a remark; `reversed` is the reference of a chargeback or refund of what was settled. Nothing else changes.
    pub fn note(
        &self,
        id: JobId,
        text: &str,
        reversed: Option<String>,
        actor: &str,
    ) -> Result<State, StoreError> {
        let text = text.to_string();
        self.operate(id, actor, move |work| work.note(&text, reversed.as_deref()))
    }

    /// The numbers of parked jobs, oldest first.
    pub fn parked(&self, selection: &Selection) -> Result<Vec<JobId>, StoreError> {
        let class = match selection {
            Selection::All => None,
            Selection::Class(class) => Some(class),
        };
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(
            "SELECT id FROM onceward_jobs WHERE state = 'parked'
               AND (?1 IS NULL OR park_reason = ?1 OR error_class = ?1) ORDER BY id",
        )?;
        let ids = statement.query_map([class], |row| row.get(0).map(JobId))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    pub(super) fn operate(
        &self,
        id: JobId,
        actor: &str,
        mut change: impl FnMut(&Work<'_>) -> Result<Answer, StoreError> + Send + 'static,
    ) -> Result<State, StoreError> {
        let (desk, namespace) = (Arc::clone(&self.desk), Arc::clone(&self.namespace));
        let actor = actor.to_string();
        let answer = self.write(move |tx| {
            let Some((job, intent)) = rows::load(tx.conn(), id)? else {
                return Ok(Err(Refusal::new(Code::NotFound, format!("there is no job {id}"))));
            };
            let now = tx.present();
            change(&Work { tx, desk: desk.as_ref(), namespace: &namespace, now, job, intent, actor: &actor })
        })?;
        answer.map_err(StoreError::Refused)
    }
}

const WAITS_FOR_APP: &str =
    "UPDATE onceward_intents SET waits_for_app_ms = ?2 WHERE id = ?1 AND state <> 'settled'";
const TOLD_NO_MORE: &str =
    "UPDATE onceward_intents SET waits_for_app_ms = NULL WHERE id = ?1 AND state <> 'settled'";
/// The last millisecond that can be written as a time: nothing is due then.
const NEVER: Ms = Ms(253_402_300_799_999);

/// A refusal that answered the request itself, at a provider that stores no refusals and still remembers the key: the
/// same request goes under the same key. The fewer generations, the less doubt after a restore. What would be rendered
/// otherwise by now is another request.
pub(super) fn same_key_may_go(
    desk: &dyn Desk,
    now: &Now,
    job: &Job,
    intent: &Intent,
    kind: &KindDesk,
) -> bool {
    let g = &intent.generation;
    g.refused_directly
        && remembered(intent, &kind.terms, g, now.wall, now)
        && intent.scope.as_ref() == Some(&desk.scope(&job.kind))
        && desk.freeze(job, intent).ok() == intent.frozen
}

/// One change to one job.
pub(super) struct Work<'a> {
    pub tx: &'a Tx<'a>,
    pub desk: &'a dyn Desk,
    namespace: &'a str,
    now: Now,
    pub job: Job,
    pub intent: Intent,
    pub actor: &'a str,
}

pub(super) fn refuse(why: impl Into<String>) -> Result<Answer, StoreError> {
    Ok(Err(Refusal::new(Code::NotAllowed, why)))
}

impl Work<'_> {
    pub(super) fn kind(&self) -> Result<&KindDesk, Refusal> {
        let why = || format!("kind `{}` is not in the config: put it back first", self.job.kind);
        let known = self.desk.kind(&self.job.kind).or_else(|| self.desk.elsewhere(&self.job.kind));
        known.ok_or_else(|| Refusal::new(Code::NotAllowed, why()))
    }

    pub(super) fn entry(&self, action: Action, to: State, detail: Option<String>) -> Result<(), StoreError> {
        history::append(self.tx, &self.row(action, to, detail))
    }

    fn row(&self, action: Action, to: State, detail: Option<String>) -> Entry {
        let mut entry = Entry::new(self.job.id, action, self.tx.now(), self.actor);
        (entry.from, entry.to, entry.detail) = (Some(self.job.state), Some(to), detail);
        entry.attempt = ended_by(&self.job, to);
        entry
    }

    fn replay(&self, amendment: Option<&Amendment>) -> Result<Answer, StoreError> {
        let never_sent = self.intent.requested.is_none() && self.intent.generation.sends == 0;
        let doubtful = self.intent.doubt.is_some();
        if self.job.payload.is_none() {
            return refuse(format!("{} was pruned: its payload is gone", self.job.key));
        }
        match self.job.state {
            State::Parked => {}
            State::Cancelled if (never_sent && self.intent.state == IntentState::Cancelled) || doubtful => {
                if let Err(refusal) = self.place_is_free()? {
                    return Ok(Err(refusal));
                }
            }
            other => {
                return refuse(format!(
                    "{} is {other}, not parked: only a parked job is replayed",
                    self.job.key
                ));
            }
        }
        let kind = self.kind()?;
        let amended = match amendment.map(|a| self.amend(a)).transpose()? {
            Some(Err(refusal)) => return Ok(Err(refusal)),
            Some(Ok(detail)) => Some(detail),
            None => None,
        };
        let mut g = self.intent.generation.clone();
        let in_doubt = self.intent.state == IntentState::Requested || doubtful;
        let state = if in_doubt {
            (g.not_found, g.not_found_at, g.not_found_boot, g.lookups) = (0, None, None, 0);
            // Whoever replays it has seen to what the provider says.
            g.bad_responses = 0;
            if let Err(reason) = self.askable(kind) {
                return refuse(format!(
                    "{} may have taken effect and cannot be asked about ({reason}): look at the provider, then say what \
                     happened with `onceward resolve`{}",
                    self.job.key,
                    if doubtful {
                        " (--not-applied --all-generations, for the file was restored since)"
                    } else {
                        ""
                    }
                ));
            }
            self.renew(kind, &g, false, IntentState::Requested)?;
            self.back_to_work(true)?
        } else {
            // Other bytes need another key, even if what went out under this one certainly had no effect.
            let sent = self.intent.state == IntentState::Rejected || (amended.is_some() && g.sends > 0);
            let same_key = || same_key_may_go(self.desk, &self.now, &self.job, &self.intent, kind);
            if sent && (amended.is_some() || !same_key()) {
                g = next_generation(&g, None);
            }
            self.begin(kind, g, false)?
        };
        let mut entry = self.row(Action::Replay, state, amended.clone());
        entry.content_changed = amended.is_some();
        history::append(self.tx, &entry)?;
        Ok(Ok(state))
    }

    /// Can the outcome be asked about, with attempts and age begun anew?
    fn askable(&self, kind: &KindDesk) -> Result<(), Reason> {
        let (job, intent) = begun_anew(&self.job, &self.intent);
        match doubt::plan_for(&job, &intent, kind, &self.desk.scope(&self.job.kind), &self.now) {
            Plan::Go(_) => Ok(()),
            Plan::Wait(_) => Err(Reason::UnknownOutcome),
            Plan::Park(reason) => Err(reason),
        }
    }

    /// A cancelled place may have been taken by another job meanwhile.
    fn place_is_free(&self) -> Result<Result<(), Refusal>, StoreError> {
        let (Some(group), Some(sequence)) = (&self.job.group, self.job.sequence) else { return Ok(Ok(())) };
        let taken: bool = self.tx.conn().query_row(
            "SELECT EXISTS (SELECT 1 FROM onceward_jobs WHERE group_name = ?1 AND sequence = ?2 AND state <> 'cancelled')",
            (group, sequence),
            |row| row.get(0),
        )?;
        Ok(if taken {
            Err(Refusal::new(
                Code::SequenceTaken,
                format!("another job has taken place {sequence} of group `{group}`"),
            ))
        } else {
            Ok(())
        })
    }

    /// New content, only when certainly nothing happened. Returns the words for the history: old and new stay there.
    fn amend(&self, amendment: &Amendment) -> Result<Result<String, Refusal>, StoreError> {
        let new = &amendment.content;
        let no = |why: &str| Ok(Err(Refusal::new(Code::NotAllowed, why)));
        if self.intent.doubt.is_some() {
            return no(
                "its content cannot be amended: it is in doubt since the file was restored. Resolve it first",
            );
        }
        if !matches!(self.intent.state, IntentState::Pending | IntentState::Rejected | IntentState::Cancelled)
        {
            return no("its content cannot be amended: a request may have taken effect. Resolve it first");
        }
        let money_changes = new.account != self.intent.account
            || new.amount_minor != self.intent.amount_minor
            || new.currency != self.intent.currency;
        if money_changes && !amendment.money {
            return no(
                "the amendment changes account, amount or currency: say --amend-money if that is meant",
            );
        }
        let (old, mut hashes): (Vec<u8>, Vec<u8>) = self.tx.conn().query_row(
            "SELECT content_hash, earlier_hashes FROM onceward_intents WHERE id = ?1",
            [self.job.id.0],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        hashes.extend_from_slice(&old);
        self.tx.conn().execute(
            "UPDATE onceward_intents SET earlier_hashes = :earlier, content_hash = :hash, payload_hash = :payload, account = :account, amount_minor = :amount, currency = :currency
             WHERE id = :id AND state <> 'settled'",
            named_params! {
                ":id": self.job.id.0, ":earlier": hashes, ":hash": new.content_hash.as_slice(), ":payload": new.payload_hash.as_slice(),
                ":account": new.account, ":amount": new.amount_minor, ":currency": new.currency,
            },
        )?;
        self.tx
            .conn()
            .execute("UPDATE onceward_jobs SET payload = ?2 WHERE id = ?1", (self.job.id.0, &new.payload))?;
        rows::thaw(self.tx, self.job.id)?;
        Ok(Ok(format!(
            "amended: sha256 {} is now {}; the old payload was {}",
            hex(&old),
            hex(&new.content_hash),
            self.job.payload.as_deref().unwrap_or("pruned")
        )))
    }

    fn renew(
        &self,
        kind: &KindDesk,
        g: &Generation,
        left_in_doubt: bool,
        state: IntentState,
    ) -> Result<(), StoreError> {
        let recorder = Recorder { tx: self.tx, desk: self.desk, namespace: self.namespace, now: self.now };
        recorder.write_generation(&self.job, &self.intent, kind, g, left_in_doubt)?;
        self.write_intent_state(state)
    }

    pub(super) fn write_intent_state(&self, state: IntentState) -> Result<(), StoreError> {
        self.tx
            .conn()
            .prepare_cached("UPDATE onceward_intents SET state = ?2 WHERE id = ?1 AND state <> 'settled'")?
            .execute((self.job.id.0, state.as_str()))?;
        Ok(())
    }

    /// Back to work with nothing in doubt. A generation of an external call is in doubt from the start, and the app makes
    /// the call when it next asks: until then it waits for the app, without a limit.
    pub(super) fn begin(
        &self,
        kind: &KindDesk,
        mut g: Generation,
        left_in_doubt: bool,
    ) -> Result<State, StoreError> {
        if !kind.terms.external {
            self.renew(kind, &g, left_in_doubt, IntentState::Pending)?;
            return self.back_to_work(false);
        }
        g.unknown = true;
        self.renew(kind, &g, left_in_doubt, IntentState::Requested)?;
        self.tx.conn().prepare_cached(WAITS_FOR_APP)?.execute((self.job.id.0, self.tx.now().0))?;
        self.move_to(State::Unknown, NEVER, None)
    }

    /// Due now, with attempts and age begun anew; in its group, when its turn comes.
    fn back_to_work(&self, in_doubt: bool) -> Result<State, StoreError> {
        // What was never due is not due now either: a restore puts in doubt what an app wants later too. What was claimed
        // was due, whatever a clock that was ahead has left there since.
        let never_due = self.intent.doubt.is_some() && self.job.tries == 0;
        let due = if never_due { self.job.run_after.max(self.tx.now()) } else { self.tx.now() };
        // What is in doubt has left, so it grows old even if it is only asked about from now on.
        let age_from = in_doubt.then_some(due);
        let Some(group) = &self.job.group else {
            let state = if in_doubt { State::Unknown } else { State::Scheduled };
            return self.move_to(state, due, age_from);
        };
        self.move_to(State::Waiting, due, age_from)?;
        order::advance(self.tx, group)?;
        Ok(rows::must_load(self.tx.conn(), self.job.id)?.0.state)
    }

    fn move_to(&self, state: State, run_after: Ms, age_from: Option<Ms>) -> Result<State, StoreError> {
        let to = rows::Move {
            state,
            run_after,
            attempts: 0,
            pauses: 0,
            age_from,
            error_class: self.job.error_class,
            last_error: self.job.last_error.as_deref(),
            park_reason: None,
        };
        rows::move_job(self.tx, &self.job, &to)
    }

    /// Given up: cancelled, with what was spent on it still to be seen.
    pub(super) fn end(&self) -> Result<State, StoreError> {
        let to = rows::Move {
            state: State::Cancelled,
            run_after: self.job.run_after,
            attempts: self.job.attempts,
            pauses: self.job.pauses,
            age_from: self.job.age_from,
            error_class: self.job.error_class,
            last_error: self.job.last_error.as_deref(),
            park_reason: None,
        };
        rows::move_job(self.tx, &self.job, &to)
    }

    fn note(&self, text: &str, reversed: Option<&str>) -> Result<Answer, StoreError> {
        if text.trim().is_empty() || reversed.is_some_and(|reference| reference.trim().is_empty()) {
            return Ok(Err(Refusal::new(Code::Invalid, "the remark or the reference is empty")));
        }
        if reversed.is_some() && self.intent.state != IntentState::Settled {
            return refuse(format!(
                "{}: its intent is {}, and only what was settled can be reversed",
                self.job.key, self.intent.state
            ));
        }
        let detail = match reversed {
            Some(reference) => format!("reversed {reference}: {text}"),
            None => text.to_string(),
        };
        // A command that was repeated because nobody heard its answer leaves one remark.
        let last = self.last_word()?;
        if last.is_none_or(|(action, said)| action != Action::Note.as_str() || said.as_ref() != Some(&detail))
        {
            self.entry(Action::Note, self.job.state, Some(detail))?;
        }
        Ok(Ok(self.job.state))
    }

    /// Action and detail of the last row of this job's history.
    pub(super) fn last_word(&self) -> Result<Option<(String, Option<String>)>, StoreError> {
        Ok(self
            .tx
            .conn()
            .query_row(
                "SELECT action, detail FROM onceward_history WHERE job_id = ?1 ORDER BY seq DESC LIMIT 1",
                [self.job.id.0],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?)
    }

    fn cancel(&self) -> Result<Answer, StoreError> {
        let intent_state = match (self.job.state, self.intent.state) {
            (State::Cancelled, _) => return Ok(Ok(State::Cancelled)),
            (State::Running, _) => {
                return refuse(format!(
                    "{} is being worked on at this moment and cannot be cancelled",
                    self.job.key
                ));
            }
            (State::Settled, _) | (_, IntentState::Settled) => {
                return refuse(format!("{} is settled, for ever", self.job.key));
            }
            // Nothing went out under the present generation, and the ones before had no effect.
            (State::Unknown, _) if self.intent.waits_for_app.is_some() => IntentState::Cancelled,
            (State::Unknown, _) | (_, IntentState::Requested) => {
                return refuse(format!(
                    "{} may have taken effect: look at the provider, then say what happened with `onceward resolve`",
                    self.job.key
                ));
            }
            (_, IntentState::Rejected) => IntentState::Rejected,
            (_, IntentState::Pending | IntentState::Cancelled) => IntentState::Cancelled,
        };
        if self.intent.waits_for_app.is_some() {
            self.tx.conn().prepare_cached(TOLD_NO_MORE)?.execute([self.job.id.0])?;
        }
        self.write_intent_state(intent_state)?;
        let state = self.end()?;
        self.entry(Action::Cancel, state, None)?;
        Ok(Ok(state))
    }
}
