//! How what is in doubt is cleared up, and when: by the same bytes again inside the provider's window, by a question, or by a
//! person.

use super::{Facts, Next, OnUnknown, Verdict, left_to_a_person, repeatable};
use crate::clock::Ms;
use crate::intent::{Generation, IntentState};
use crate::job::{Reason, Step};
use crate::outcome::{Class, Outcome};
use crate::retry::{margin, window_open};

impl Facts<'_> {
    /// How may an outcome in doubt be cleared up at `at`? `Ok(None)`: only by somebody else's word, until the deadline.
    pub(super) fn ask(&self, g: &Generation, at: Ms) -> Result<Option<Step>, Reason> {
        if self.aged(at) {
            // However long nobody could ask: one question, and its answer is the last word.
            return self.question(g).map(Some).ok_or(Reason::UnknownOutcome);
        }
        if g.named.is_some() {
            return Ok(Some(Step::Fetch));
        }
        let look_up = self.terms.lookup.map(|_| Step::LookUp);
        if g.accepted {
            return Ok(look_up);
        }
        if let (Some(doubt), false) = (&self.intent.doubt, self.terms.external) {
            return match self.may_send_in_doubt(doubt, g, at) {
                Ok(()) => Ok(Some(Step::Send)),
                Err(reason) => look_up.map(Some).ok_or(reason),
            };
        }
        if self.terms.external {
            return look_up.map(Some).ok_or(Reason::UnknownOutcome);
        }
        // Without a scope no worker has sent it: the app did, and how is not known.
        let same_scope = self.intent.scope.as_ref().is_some_and(|sent| sent.send == self.scope.send);
        let remembered = window_open(g, self.terms.window, at, self.now.wall, self.now.boot);
        let repeatable = repeatable(self.terms, g);
        if repeatable && same_scope && remembered && !self.spent() {
            return Ok(Some(Step::Send));
        }
        if look_up.is_some() {
            return Ok(look_up);
        }
        if self.terms.on_unknown == OnUnknown::Resend && same_scope && !g.no_resend && !self.spent() {
            return Ok(Some(Step::Send));
        }
        Err(if !same_scope {
            Reason::ScopeChanged
        } else if repeatable && !remembered {
            Reason::WindowExpired
        } else {
            Reason::UnknownOutcome
        })
    }

    /// The question that may be asked, if there is one.
    fn question(&self, g: &Generation) -> Option<Step> {
        match (&g.named, self.terms.lookup) {
            (Some(_), _) => Some(Step::Fetch),
            (None, Some(_)) => Some(Step::LookUp),
            (None, None) => None,
        }
    }

    /// In doubt after `outcome`: is there a way to clear it up at `due`? If not, only a person can.
    pub(super) fn doubt(&self, g: Generation, due: Ms, outcome: &Outcome) -> Verdict {
        if self.aged(self.now.wall) {
            return self.aged_in_doubt(g, due, outcome);
        }
        let due = self.within_deadline(self.inside_the_window(&g, due, outcome));
        match self.ask(&g, self.before_deadline(due)) {
            Ok(_) => (Next::Unknown { due }, g, false),
            Err(reason) => (Next::Parked { reason, intent: IntentState::Requested }, g, false),
        }
    }

    /// `max_age` is over. However long nobody could ask (the machine was off, the provider paused): one question is begun after
    /// that, and if its answer settles nothing a person decides.
    fn aged_in_doubt(&self, g: Generation, due: Ms, outcome: &Outcome) -> Verdict {
        if self.question(&g).is_none() {
            return left_to_a_person(g);
        }
        if self.step == Step::Send || !self.aged(outcome.started) {
            return (Next::Unknown { due: self.now.wall }, g, false);
        }
        // It never got there, so nothing was asked.
        if outcome.class == Class::NotSent {
            return (Next::Unknown { due }, g, false);
        }
        left_to_a_person(g)
    }

    /// The drawn pause never carries a try out of the provider's window: the last one is moved inside it, as late as is
    /// safe. The provider's own wish for a pause is kept, be the window over by then.
    pub(super) fn inside_the_window(&self, g: &Generation, due: Ms, outcome: &Outcome) -> Ms {
        let sends = |at: Ms| self.ask(g, self.before_deadline(at)) == Ok(Some(Step::Send));
        let now = self.now.wall;
        let Some(window) = self.terms.window.filter(|_| due > now && !sends(due) && sends(now)) else {
            return due;
        };
        // The last moment at which it would still be sent, by halving.
        let (mut open, mut over) = (now.0, due.0);
        while over.saturating_sub(open) > 1 {
            let between = open + (over - open) / 2;
            if sends(Ms(between)) { open = between } else { over = between }
        }
        // Whoever claims it may be a moment late.
        let last = Ms(open).minus(margin(window) / 2);
        let wished = now.plus(outcome.retry_after.unwrap_or_default());
        if last > now && last >= wished { last } else { due }
    }

    pub(super) fn within_deadline(&self, due: Ms) -> Ms {
        self.deadline().map_or(due, |deadline| due.min(deadline.max(self.now.wall)))
    }

    /// A moment at which `max_age` is not over yet: at the deadline itself only the last question is left.
    fn before_deadline(&self, at: Ms) -> Ms {
        match self.deadline() {
            Some(deadline) if at >= deadline => Ms(deadline.0.saturating_sub(1)),
            _ => at,
        }
    }
}
