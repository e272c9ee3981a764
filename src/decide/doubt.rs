//! What a machine may do for an intent that is in doubt since the file was restored, and when a new generation is begun.

use super::{Facts, Now, OnUnknown, Terms, Verdict, left_to_a_person, repeatable};
use crate::clock::Ms;
use crate::intent::{Doubt, Generation, Intent};
use crate::job::Reason;
use crate::outcome::Outcome;
use crate::retry::window_open;

impl Facts<'_> {
    /// May a machine send for an intent that is in doubt since the file was restored, at any generation? Only after
    /// proof that nothing happened under its key; or, where no machine can have had such a proof, under the key that the
    /// provider still remembers, if a person has said that nobody gave up an earlier generation since the copy.
    ///
    /// Every road to a generation (proof, refusal, a person's word, a replay, `retry_on`) ends here before anything is
    /// sent. Each condition stands for a history with two effects: see the simulation.
    pub(super) fn may_send_in_doubt(&self, doubt: &Doubt, g: &Generation, at: Ms) -> Result<(), Reason> {
        if self.spent() {
            return Err(Reason::UnknownOutcome);
        }
        // An outcome that is unknown since the proof needs another one.
        if g.proved {
            return if g.unknown { Err(Reason::UnknownOutcome) } else { Ok(()) };
        }
        let proof_was_possible = self.terms.lookup.is_some_and(|lookup| lookup.authoritative);
        if !doubt.no_words || proof_was_possible || !repeatable(self.terms, g) {
            return Err(Reason::UnknownOutcome);
        }
        // Never rendered in this file: it goes where the config says, as the person's word has it.
        let same_scope = self.intent.scope.as_ref().is_none_or(|sent| sent.send == self.scope.send);
        if !same_scope {
            return Err(Reason::ScopeChanged);
        }
        match remembered(self.intent, self.terms, g, at, self.now) {
            true => Ok(()),
            false => Err(Reason::WindowExpired),
        }
    }

    /// This request had no effect; what others did since the file was restored is as open as before. A look-up that can
    /// prove something was asked before this was sent; one that cannot may find what they did, and leads to no further
    /// send.
    pub(super) fn refused_in_doubt(&self, mut g: Generation, outcome: &Outcome) -> Verdict {
        if self.terms.lookup.is_none_or(|lookup| lookup.authoritative) {
            return left_to_a_person(g);
        }
        g.unknown = true;
        g.no_resend = true;
        self.doubt(g, self.retry_due(outcome), outcome)
    }

    /// Could a look-up that finds nothing prove that no generation had an effect, those that only the lost file knew
    /// included? Only if it asks by what all of them share, and lists what is not final too.
    pub(super) fn proves_for_all(&self) -> bool {
        self.terms.lookup.is_some_and(|l| l.authoritative && l.by_key && l.lists_accepted)
    }
}

/// A fresh generation after `g`: nothing sent, nothing known. For an intent that was in doubt since a restore its number is
/// the Unix second of that restore, then one more each: past any key of any file that came from the same copy.
pub fn next_generation(g: &Generation, doubt: Option<&Doubt>) -> Generation {
    let past_all = doubt.map_or(0, |d| numbers_after(d.restored));
    Generation { number: g.number.saturating_add(1).max(past_all), ..Generation::default() }
}

/// The first number that is given after a restore: its Unix second.
pub fn numbers_after(restored: Ms) -> u32 {
    u32::try_from(restored.0 / 1000).unwrap_or(u32::MAX)
}

/// Does the provider still remember the request that may have been the first under this key? After a restore that one may
/// have left as early as the copy was made.
pub fn remembered(intent: &Intent, terms: &Terms, g: &Generation, at: Ms, now: &Now) -> bool {
    let since_copy = intent.doubt.as_ref().is_none_or(|doubt| {
        let copied = Generation { first_sent: Some(doubt.since), ..Generation::default() };
        window_open(&copied, terms.window, at, now.wall, now.boot)
    });
    since_copy && window_open(g, terms.window, at, now.wall, now.boot)
}

/// May the bytes of a claim's send leave at this moment? The machine may have slept since the claim.
pub fn still_safe(intent: &Intent, terms: &Terms, now: &Now) -> bool {
    let g = &intent.generation;
    let doubtful = g.unknown || (intent.doubt.is_some() && !g.proved);
    !doubtful || terms.on_unknown == OnUnknown::Resend || remembered(intent, terms, g, now.wall, now)
}
