//! What a replay would do now, so that a person can be told before it is done. Reads only; `operate` decides again.

use super::operate::same_key_may_go;
use super::{Store, StoreError, Story, doubt};
use crate::decide::{Plan, begun_anew};
use crate::intent::IntentState;
use crate::job::{Reason, State, Step};

/// What a replay would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preview {
    /// Nothing ever left: the request goes out for the first time.
    FirstSend,
    /// It was refused, and the provider does not keep refusals: the same request, under the same key.
    SameKey,
    /// It certainly had no effect: a new request, under the next generation's key.
    NextGeneration,
    /// It may have taken effect: the same bytes under the same key, to a provider that answers repeats from memory.
    SameAgain,
    /// It may have taken effect: the provider is asked, nothing is sent.
    LookUp,
    /// It may have taken effect and cannot be asked about, for this reason.
    CannotAsk(Reason),
    /// The config does not know the kind.
    UnknownKind,
    /// The app makes the call itself: it has the word again.
    AppsTurn,
    /// Nothing: the job is not one that is replayed.
    NotNow,
}

impl Store {
    /// What a replay of this job would do now.
    pub fn preview_replay(&self, story: &Story) -> Result<Preview, StoreError> {
        let (job, intent) = (&story.job, &story.intent);
        let never_sent = intent.requested.is_none() && intent.generation.sends == 0;
        let again = job.state == State::Parked
            || (job.state == State::Cancelled
                && ((never_sent && intent.state == IntentState::Cancelled) || intent.doubt.is_some()));
        if !again {
            return Ok(Preview::NotNow);
        }
        let Some(kind) = self.desk.kind(&job.kind).or_else(|| self.desk.elsewhere(&job.kind)) else {
            return Ok(Preview::UnknownKind);
        };
        if intent.state != IntentState::Requested && intent.doubt.is_none() {
            return Ok(match (kind.terms.external, intent.state) {
                (true, _) => Preview::AppsTurn,
                (false, IntentState::Rejected) => {
                    let now = Store::present(self.clock.as_ref());
                    match same_key_may_go(self.desk.as_ref(), &now, job, intent, kind) {
                        true => Preview::SameKey,
                        false => Preview::NextGeneration,
                    }
                }
                (false, _) => Preview::FirstSend,
            });
        }
        let (anew, intent) = begun_anew(job, intent);
        let now = Store::present(self.clock.as_ref());
        Ok(match doubt::plan_for(&anew, &intent, kind, &self.desk.scope(&job.kind), &now) {
            Plan::Go(Step::Send) => Preview::SameAgain,
            Plan::Go(Step::LookUp | Step::Fetch) => Preview::LookUp,
            Plan::Wait(_) => Preview::CannotAsk(Reason::UnknownOutcome),
            Plan::Park(reason) => Preview::CannotAsk(reason),
        })
    }
}
