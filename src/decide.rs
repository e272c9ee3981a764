//! Every transition of a job is decided here, by two pure functions: no I/O, no clock, no randomness.
//!
//! [`plan`] says what a due job may do next; it runs inside the claim. [`decide`] says what an attempt's outcome makes
//! of the job; it runs inside the record. Both see the same facts, so what is promised at the one is judged again at
//! the other, when time has passed. The rules are those of the outcome table in ARCHITECTURE.md: nothing is inferred,
//! unknown is sticky, and a new generation needs proof that the old one had no effect.

use crate::clock::{Ms, millis};
use crate::intent::{Generation, Intent, IntentState, Scope};
use crate::job::{Job, Reason, Step};
use crate::outcome::{Class, Outcome, Phase};
use crate::retry::{backoff, spread, window_open};
use std::time::Duration;

mod asks;
mod doubt;
mod sends;
mod terms;

pub use doubt::{next_generation, numbers_after, remembered, still_safe};
use sends::{began, note_send};
pub use terms::{BreakerTerms, Family, LookupTerms, OnParked, OnUnknown, Terms};

/// The present, as decisions see it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Now {
    /// The wall clock.
    pub wall: Ms,
    /// The boot clock, in milliseconds.
    pub boot: i64,
    /// 0..1, drawn anew for each decision.
    pub jitter: f64,
}

/// What a due job may do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Do this.
    Go(Step),
    /// There is nothing to do before then.
    Wait(Ms),
    /// Only a person can decide.
    Park(Reason),
}

/// What an attempt's outcome makes of the job.
#[derive(Clone, PartialEq, Debug)]
pub enum Next {
    /// Confirmed, for ever.
    Settled,
    /// Nothing of this generation is in doubt: the request goes out (again) then.
    Again {
        /// When.
        due: Ms,
    },
    /// In doubt: sent again or asked about then, as [`plan`] says.
    Unknown {
        /// When.
        due: Ms,
    },
    /// Set aside for a person.
    Parked {
        /// Why.
        reason: Reason,
        /// What is certain about the effect.
        intent: IntentState,
    },
}

/// What the outcome says about the provider itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Nothing.
    None,
    /// It answers.
    Good,
    /// A failure that counts towards the breaker.
    Failure,
    /// Stop sending at once: the credential is refused, or the address is wrong.
    Hold,
    /// Stop sending until a person says otherwise: the provider wants no more.
    Disable,
}

/// A decision: what `store::record` is to write, no more and no less.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// Where the job goes.
    pub next: Next,
    /// The facts of the generation from now on. A higher number is a new generation, with nothing sent yet.
    pub generation: Generation,
    /// The generation that is left behind may have had an effect after all.
    pub left_in_doubt: bool,
    /// The attempt is given back.
    pub refund: bool,
    /// A request left: `max_age` runs.
    pub left: bool,
    /// What it says about the provider.
    pub signal: Signal,
}

/// What may the job do, now that it is due and its provider can be called?
pub fn plan(job: &Job, intent: &Intent, terms: &Terms, scope: &Scope, now: &Now) -> Plan {
    let g = &intent.generation;
    let facts = Facts {
        job,
        intent,
        terms,
        scope,
        now,
        attempts: job.attempts,
        age_from: job.age_from,
        step: Step::Send,
    };
    if !facts.in_doubt(g) && !terms.external {
        if facts.aged(now.wall) {
            return Plan::Park(Reason::TooOld);
        }
        if job.attempts >= terms.max_attempts {
            return Plan::Park(Reason::AttemptsExhausted);
        }
        return Plan::Go(Step::Send);
    }
    match facts.ask(g, now.wall) {
        Ok(Some(step)) => Plan::Go(step),
        Ok(None) => match facts.deadline() {
            Some(deadline) => Plan::Wait(deadline),
            None => Plan::Park(Reason::UnknownOutcome),
        },
        Err(reason) => Plan::Park(reason),
    }
}

/// Job and intent as a replay leaves them: attempts and age begin anew, and the provider's answers may be better by now.
pub fn begun_anew(job: &Job, intent: &Intent) -> (Job, Intent) {
    let generation = Generation { bad_responses: 0, ..intent.generation.clone() };
    (Job { attempts: 0, age_from: None, ..job.clone() }, Intent { generation, ..intent.clone() })
}

/// Has `max_age` passed since the first request left?
pub fn has_aged(job: &Job, terms: &Terms, now: &Now) -> bool {
    job.age_from.is_some_and(|from| now.wall >= from.plus(terms.max_age))
}

/// Would a send now be one that may do it a second time, because the kind's `on_unknown` says so?
pub fn may_do_it_twice(intent: &Intent, terms: &Terms, now: &Now) -> bool {
    let g = &intent.generation;
    let remembered = repeatable(terms, g) && window_open(g, terms.window, now.wall, now.wall, now.boot);
    g.unknown && terms.on_unknown == OnUnknown::Resend && !remembered
}

/// What does the attempt's outcome make of the job? `job.attempts` already holds this attempt; `reference_taken` says
/// that the outcome's reference is another key's.
#[allow(clippy::too_many_arguments)] // the facts it is a function of, each by its name
pub fn decide(
    job: &Job,
    intent: &Intent,
    terms: &Terms,
    scope: &Scope,
    step: Step,
    outcome: &Outcome,
    reference_taken: bool,
    now: &Now,
) -> Decision {
    let refund = step == Step::Send
        && matches!(outcome.class, Class::NotSent | Class::Throttled | Class::InProgress | Class::Auth);
    let left = step == Step::Send
        && !matches!(outcome.class, Class::NotSent | Class::Auth)
        && !proved_unsent(terms, outcome);
    let facts = Facts {
        job,
        intent,
        terms,
        scope,
        now,
        attempts: job.attempts.saturating_sub(u32::from(refund)),
        // A clock that was ahead when the call began is set right by now.
        age_from: job.age_from.or(left.then_some(outcome.started.min(now.wall))),
        step,
    };
    let mut g = intent.generation.clone();
    let doubted = facts.in_doubt(&g);
    // What had no effect starts no window and no lag, unless something of the generation is in doubt already.
    let harmless = (outcome.class == Class::Throttled && !outcome.doubt) || not_applied(outcome);
    if left && (doubted || !harmless) {
        note_send(&mut g, job, outcome, now);
    }
    let signal = signal(step, outcome);
    let (next, generation, left_in_doubt) = match step {
        Step::Send => facts.after_send(g, doubted, outcome, reference_taken),
        Step::LookUp | Step::Fetch => facts.after_lookup(g, outcome, reference_taken),
    };
    Decision { next, generation, left_in_doubt, refund, left, signal }
}

/// A crash before the mark that precedes the first byte. Only a provider that cannot be asked again has that mark.
fn proved_unsent(terms: &Terms, outcome: &Outcome) -> bool {
    terms.family == Family::E && outcome.class == Class::Crashed && outcome.phase == Some(Phase::Claimed)
}

/// Would sending again under the same key give the first request's outcome?
fn repeatable(terms: &Terms, g: &Generation) -> bool {
    let stored_error = match terms.family {
        // The replay would be the same 5xx: ask instead, or try once and then leave it to a person.
        Family::A => g.server_errors > u32::from(terms.lookup.is_none()),
        Family::B | Family::C | Family::D => false,
        Family::E => return false,
    };
    // What answers twice in a way that cannot be read will do so again.
    !stored_error && !g.no_resend && g.bad_responses < 2
}

/// A handler's word that nothing happened.
fn not_applied(outcome: &Outcome) -> bool {
    outcome.class == Class::HandlerError && outcome.not_applied
}

fn signal(step: Step, outcome: &Outcome) -> Signal {
    if outcome.disable {
        return Signal::Disable;
    }
    match outcome.class {
        Class::Throttled if outcome.doubt => Signal::Failure,
        Class::Auth | Class::Redirected => Signal::Hold,
        Class::NotSent | Class::Timeout | Class::ServerError | Class::Interrupted => Signal::Failure,
        Class::LookupFailed if outcome.hold => Signal::Hold,
        Class::LookupFailed => match outcome.http_status {
            Some(status) if status < 500 => Signal::Good,
            _ => Signal::Failure,
        },
        Class::Crashed | Class::HandlerError | Class::HandlerPanic => Signal::None,
        Class::BadResponse if step == Step::Send => Signal::None,
        Class::Ok
        | Class::Accepted
        | Class::Throttled
        | Class::InProgress
        | Class::BadResponse
        | Class::Rejected
        | Class::KeyMismatch
        | Class::NotFound => Signal::Good,
    }
}

struct Facts<'a> {
    job: &'a Job,
    intent: &'a Intent,
    terms: &'a Terms,
    scope: &'a Scope,
    now: &'a Now,
    /// Spent so far, this attempt included unless given back.
    attempts: u32,
    age_from: Option<Ms>,
    /// What was done last; of a plan, nothing yet.
    step: Step,
}

type Verdict = (Next, Generation, bool);

impl Facts<'_> {
    /// When `max_age` is over; `None` while nothing has left.
    fn deadline(&self) -> Option<Ms> {
        self.age_from.map(|from| from.plus(self.terms.max_age))
    }

    fn aged(&self, at: Ms) -> bool {
        self.deadline().is_some_and(|deadline| at >= deadline)
    }

    fn spent(&self) -> bool {
        self.attempts >= self.terms.max_attempts
    }

    /// When to try again: the class's own backoff, or the provider's wish if that is later, never before it. The jitter
    /// that spreads a wish carries nothing out of the provider's window.
    fn due(&self, outcome: &Outcome, n: u32, cap: Duration) -> Ms {
        let pause = backoff(n, self.terms.base, cap, self.now.jitter);
        let wish = outcome.retry_after.unwrap_or_default();
        let after = |wish: Duration| self.now.wall.plus(pause.max(wish));
        let (plain, spread) = (after(wish), after(spread(wish, self.now.jitter)));
        let mut sent = self.intent.generation.clone();
        sent.first_sent = sent.first_sent.or(Some(outcome.started));
        let open = |at| window_open(&sent, self.terms.window, at, self.now.wall, self.now.boot);
        if open(plain) && !open(spread) { plain } else { spread }
    }

    fn retry_due(&self, outcome: &Outcome) -> Ms {
        self.due(outcome, self.job.pauses.saturating_add(1), self.terms.cap)
    }

    /// A request may have taken effect: of this generation, or of any since the file was restored.
    fn in_doubt(&self, g: &Generation) -> bool {
        g.unknown || self.intent.doubt.is_some()
    }

    fn after_send(&self, mut g: Generation, doubted: bool, outcome: &Outcome, taken: bool) -> Verdict {
        match outcome.class {
            Class::Ok => self.confirmed(g, outcome, taken),
            Class::Accepted => self.accepted(g, outcome),
            Class::NotSent => {
                // Nothing reached the provider, so nothing there needs a long rest; the breaker spaces the tries.
                let cap =
                    self.terms.cap.min(self.terms.breaker.cool_down.max(self.terms.base).saturating_mul(2));
                self.not_its_fault(g, self.due(outcome, self.job.pauses.saturating_add(1), cap), outcome)
            }
            // The provider is held: the job itself may go as soon as the hold ends.
            Class::Auth => self.not_its_fault(g, self.now.wall, outcome),
            Class::Throttled if outcome.doubt => {
                g.unknown = true;
                self.doubt(g, self.retry_due(outcome), outcome)
            }
            Class::Throttled => self.not_its_fault(g, self.retry_due(outcome), outcome),
            Class::InProgress => {
                g.unknown = true;
                g.no_resend |= outcome.again == Some(false);
                self.doubt(g, self.retry_due(outcome), outcome)
            }
            Class::Redirected if !doubted => {
                g.unknown = true;
                (Next::Parked { reason: Reason::Redirected, intent: IntentState::Requested }, g, false)
            }
            Class::Rejected if self.intent.doubt.is_some() => self.refused_in_doubt(g, outcome),
            Class::Rejected if outcome.decisive || !doubted => self.refused(g, outcome),
            Class::Rejected | Class::Redirected | Class::KeyMismatch => {
                g.unknown = true;
                g.no_resend = true;
                self.doubt(g, self.retry_due(outcome), outcome)
            }
            Class::Crashed if proved_unsent(self.terms, outcome) && !doubted => {
                if self.spent() {
                    let reason = Reason::AttemptsExhausted;
                    return (Next::Parked { reason, intent: IntentState::Pending }, g, false);
                }
                (Next::Again { due: self.now.wall }, g, false)
            }
            Class::ServerError => {
                g.unknown = true;
                // The provider itself may say that this error is not the last word, or that it is.
                if outcome.again != Some(true) {
                    g.server_errors = g.server_errors.saturating_add(1);
                }
                g.no_resend |= outcome.again == Some(false);
                self.doubt(g, self.retry_due(outcome), outcome)
            }
            Class::HandlerError if outcome.not_applied => self.not_applied(g, outcome),
            Class::Timeout
            | Class::Interrupted
            | Class::Crashed
            | Class::BadResponse
            | Class::HandlerError
            | Class::HandlerPanic
            | Class::NotFound
            | Class::LookupFailed => {
                g.unknown = true;
                g.bad_responses =
                    g.bad_responses.saturating_add(u32::from(outcome.class == Class::BadResponse));
                g.no_resend |= outcome.again == Some(false);
                self.doubt(g, self.retry_due(outcome), outcome)
            }
        }
    }

    fn after_lookup(&self, mut g: Generation, outcome: &Outcome, taken: bool) -> Verdict {
        g.unknown = true;
        g.lookups = g.lookups.saturating_add(1);
        match outcome.class {
            Class::Ok => self.confirmed(g, outcome, taken),
            Class::Accepted => self.accepted(g, outcome),
            // Since the file was restored an object that failed says nothing about the other generations, and is not
            // nothing either.
            Class::Rejected if self.intent.doubt.is_some() => left_to_a_person(g),
            Class::NotFound | Class::LookupFailed if self.intent.doubt.is_some() && outcome.failed_only => {
                left_to_a_person(g)
            }
            Class::Rejected => {
                (Next::Parked { reason: Reason::Rejected, intent: IntentState::Rejected }, g, false)
            }
            Class::NotFound => self.nothing_there(g, outcome),
            Class::NotSent
            | Class::Timeout
            | Class::Interrupted
            | Class::Crashed
            | Class::Throttled
            | Class::InProgress
            | Class::ServerError
            | Class::BadResponse
            | Class::Auth
            | Class::Redirected
            | Class::KeyMismatch
            | Class::LookupFailed
            | Class::HandlerError
            | Class::HandlerPanic => {
                let due = self.lookup_due(&g, outcome);
                self.doubt(g, due, outcome)
            }
        }
    }

    fn lookup_due(&self, g: &Generation, outcome: &Outcome) -> Ms {
        self.due(outcome, g.lookups.max(1), self.terms.cap)
    }

    /// A confirmation. Money moved, so whatever does not fit is a person's matter, never a second try.
    fn confirmed(&self, mut g: Generation, outcome: &Outcome, taken: bool) -> Verdict {
        let reason = if taken {
            Reason::ReferenceTaken
        } else if outcome.differs.is_some() {
            Reason::ContentDiffers
        } else {
            return (Next::Settled, g, false);
        };
        g.unknown = true;
        // The provider has something under our key: it is never sent again, and a look-up that finds nothing is no proof.
        g.accepted = true;
        (Next::Parked { reason, intent: IntentState::Requested }, g, false)
    }

    /// Taken, not final: asked about until it is, never sent again.
    fn accepted(&self, mut g: Generation, outcome: &Outcome) -> Verdict {
        g.unknown = true;
        g.accepted = true;
        if outcome.fetch {
            g.named = outcome.reference.clone();
        }
        if outcome.differs.is_some() {
            // Something else than was asked for is under way: waiting for its end helps nobody.
            let reason = Reason::ContentDiffers;
            return (Next::Parked { reason, intent: IntentState::Requested }, g, false);
        }
        let can_ask = self.terms.lookup.is_some() || g.named.is_some();
        let due = match (can_ask, self.deadline()) {
            (false, Some(deadline)) => deadline,
            _ => self.lookup_due(&g, outcome),
        };
        self.doubt(g, due, outcome)
    }

    /// A failure that spends no attempt. What was unknown before stays so; what never left never grows old.
    fn not_its_fault(&self, g: Generation, due: Ms, outcome: &Outcome) -> Verdict {
        if self.in_doubt(&g) {
            let due = self.within_deadline(self.inside_the_window(&g, due, outcome));
            return (Next::Unknown { due }, g, false);
        }
        if self.aged(self.now.wall) {
            return (Next::Parked { reason: Reason::TooOld, intent: IntentState::Pending }, g, false);
        }
        (Next::Again { due: self.within_deadline(due) }, g, false)
    }

    /// This attempt certainly had no effect; an earlier one of the generation may have, and then stays in doubt.
    fn not_applied(&self, g: Generation, outcome: &Outcome) -> Verdict {
        let due = self.retry_due(outcome);
        if self.in_doubt(&g) {
            return self.doubt(g, due, outcome);
        }
        let parked = |reason| Next::Parked { reason, intent: IntentState::Pending };
        if self.spent() {
            return (parked(Reason::AttemptsExhausted), g, false);
        }
        if self.aged(self.now.wall) {
            return (parked(Reason::TooOld), g, false);
        }
        (Next::Again { due: self.within_deadline(due) }, g, false)
    }

    /// A certain refusal: the end, unless the kind's `retry_on` lists the status.
    fn refused(&self, mut g: Generation, outcome: &Outcome) -> Verdict {
        g.refused_directly = !g.unknown && self.answered_itself(outcome);
        let parked = |reason| Next::Parked { reason, intent: IntentState::Rejected };
        if !outcome.retry_on {
            return (parked(Reason::Rejected), g, false);
        }
        if self.spent() {
            return (parked(Reason::AttemptsExhausted), g, false);
        }
        if self.aged(self.now.wall) {
            return (parked(Reason::TooOld), g, false);
        }
        let g = match self.terms.family {
            // The refusal is stored under this key: only the next generation gets another answer.
            Family::A => next_generation(&g, None),
            // The refusal is certain, so whatever was in doubt is not any more.
            Family::B | Family::C | Family::D | Family::E => Generation { unknown: false, ..g },
        };
        (Next::Again { due: self.within_deadline(self.retry_due(outcome)) }, g, false)
    }

    /// Did the refusal answer the request itself, leaving no object behind, and does the provider not store it? Then the
    /// same request may go again under the same key.
    fn answered_itself(&self, outcome: &Outcome) -> bool {
        let forgets_refusals = matches!(self.terms.family, Family::B | Family::C | Family::D);
        let no_object = outcome.http_status.is_some_and(|status| (400..500).contains(&status));
        forgets_refusals && no_object && !outcome.decisive
    }

    /// A look-up found nothing. That counts only after the lag, and twice; and then only an authoritative one, asked in
    /// the same place, about something that was never accepted, is a proof.
    fn nothing_there(&self, mut g: Generation, outcome: &Outcome) -> Verdict {
        // A fetch has no terms of its own: what a duplicate's error named was accepted, so it proves nothing anyway.
        let (lag, authoritative) =
            self.terms.lookup.map_or((Duration::ZERO, false), |l| (l.lag, l.authoritative));
        // One that was asked by a clock that was ahead was asked now, by the clock as it is.
        let started = outcome.started.min(self.now.wall);
        // The clock was set back since: how long ago it was is not known, so the lag begins anew, and nothing freezes.
        g.last_sent = g.last_sent.map(|at| at.min(started));
        g.not_found_at = g.not_found_at.map(|at| at.min(started));
        // Set forward, it must not end the lag: by the boot clock it has to be over as well. A boot clock that lies behind
        // what was written is another boot's, and the lag begins anew.
        let began = began(self.job, outcome, self.now);
        g.last_sent_boot = g.last_sent_boot.map(|at| at.min(self.now.boot));
        g.not_found_boot = g.not_found_boot.map(|at| at.min(self.now.boot));
        let late_enough = |from: Option<Ms>, boot: Option<i64>| {
            from.is_none_or(|from| started >= from.plus(lag))
                && boot.is_none_or(|boot| began.saturating_sub(boot) >= millis(lag))
        };
        if late_enough(g.last_sent, g.last_sent_boot) && late_enough(g.not_found_at, g.not_found_boot) {
            g.not_found = g.not_found.saturating_add(1);
            (g.not_found_at, g.not_found_boot) = (Some(started), Some(self.now.boot));
        }
        if g.not_found < 2 {
            let settled = g.not_found_at.max(g.last_sent).map_or(self.now.wall, |from| from.plus(lag));
            let left = g.not_found_boot.max(g.last_sent_boot).map_or(0, |boot| {
                millis(lag).saturating_sub(self.now.boot.saturating_sub(boot)).max(0).unsigned_abs()
            });
            let settled = settled.max(self.now.wall.plus(Duration::from_millis(left)));
            let due = self.lookup_due(&g, outcome).max(settled);
            // A proof that was begun is brought to its end, and there are two such answers at most.
            if self.aged(self.now.wall) && authoritative && !g.accepted {
                return (Next::Unknown { due }, g, false);
            }
            return self.doubt(g, due, outcome);
        }
        let same_place = self.intent.scope.as_ref() == Some(self.scope);
        if let Some(doubt) = &self.intent.doubt {
            // Too old to go out, and each further generation would be asked about once more.
            let too_late = self.spent() || self.aged(self.now.wall);
            if too_late || !self.proves_for_all() || g.accepted || !same_place || self.terms.external {
                return left_to_a_person(g);
            }
            let proved = Generation { proved: true, ..next_generation(&g, Some(doubt)) };
            return (Next::Unknown { due: self.now.wall }, proved, true);
        }
        // An external job's next generation would be nobody's to send: the app calls only when it is told `created`.
        if !authoritative || g.accepted || !same_place || self.terms.external {
            let reason = Reason::UnknownOutcome;
            return (Next::Parked { reason, intent: IntentState::Requested }, g, false);
        }
        let renewed = next_generation(&g, None);
        if self.spent() {
            let reason = Reason::AttemptsExhausted;
            return (Next::Parked { reason, intent: IntentState::Pending }, renewed, true);
        }
        (Next::Again { due: self.now.wall }, renewed, true)
    }
}

/// It may have taken effect, and no machine can find out.
fn left_to_a_person(g: Generation) -> Verdict {
    (Next::Parked { reason: Reason::UnknownOutcome, intent: IntentState::Requested }, g, false)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
