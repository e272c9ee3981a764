//! What is written down of a request that may have left: how often, and since when by both clocks.

use super::Now;
use crate::clock::{Ms, millis};
use crate::intent::Generation;
use crate::job::Job;
use crate::outcome::{Class, Outcome};

/// The boot clock when the attempt began, or before. Its claim has it on record; reckoned back by the wall clock it would be
/// wrong if that was set since. A crash may be found after the next boot, whose clock began anew: then the earlier of the
/// two holds, and earlier is the safe side.
pub(super) fn began(job: &Job, outcome: &Outcome, now: &Now) -> i64 {
    let reckoned = now.boot.saturating_sub(millis(now.wall.since(outcome.started)));
    match job.lease.as_ref().and_then(|lease| lease.boot) {
        // This boot is younger than the attempt.
        Some(boot) if boot > now.boot => reckoned.min(0),
        Some(boot) if outcome.class == Class::Crashed => reckoned.min(boot),
        Some(boot) => boot,
        None => reckoned,
    }
}

/// When it began, by the wall clock as it is now: one that was set back meanwhile, if only by a moment, must not put the send
/// into the future, where its window counts as over. What a crash left may be another boot's.
fn began_at(job: &Job, outcome: &Outcome, now: &Now) -> Ms {
    match job.lease.as_ref().and_then(|lease| lease.boot) {
        Some(boot) if outcome.class != Class::Crashed => {
            outcome.started.min(Ms(now.wall.0.saturating_sub(now.boot.saturating_sub(boot).max(0))))
        }
        Some(_) | None => outcome.started,
    }
}

/// A request of this generation may have left.
pub(super) fn note_send(g: &mut Generation, job: &Job, outcome: &Outcome, now: &Now) {
    g.sends = g.sends.saturating_add(1);
    if g.first_sent.is_none() {
        g.first_sent = Some(began_at(job, outcome, now));
        g.first_sent_boot = Some(began(job, outcome, now));
    }
    // What was not there before this request proves nothing about it.
    (g.not_found, g.not_found_at, g.not_found_boot) = (0, None, None);
    (g.proved, g.refused_directly) = (false, false);
    // A crashed call may have gone on until it was found.
    g.last_sent = Some(if outcome.class == Class::Crashed { now.wall } else { outcome.started });
    // Later than it was, never earlier: how long the call took may have been measured by a clock that was set meanwhile.
    g.last_sent_boot = Some(now.boot);
}
