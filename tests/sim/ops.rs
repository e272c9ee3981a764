//! The steps of a run. Each carries its own draws, so that a list of them can be cut without changing what is left.

use crate::setup::Setup;
use fastrand::Rng;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verb {
    /// A new key: alone, in a group, later, with a dedup id.
    Enqueue,
    /// A key that was asked for before, with the same content.
    Repeat,
    /// A key that was asked for before, with other content.
    Mismatch,
    Claim,
    /// One call of a worker that has a claim.
    Call,
    /// A worker dies in the middle of a call.
    CallAndDie,
    Record,
    Release,
    /// Claim, call and record.
    Work,
    /// The same, and the machine sleeps between the claim and the call.
    Doze,
    Renew,
    Recover,
    Kill,
    Start,
    Stop,
    /// SIGSTOP and SIGCONT.
    Freeze,
    Thaw,
    /// A worker is stopped with results in its hands, somebody deletes its lock file, and another takes its jobs over.
    Tidy,
    /// Seconds or minutes; a machine's sleep is no different.
    Pass,
    /// Hours or days.
    PassLong,
    /// Somebody sets the wall clock.
    SetClock,
    Replay,
    Amend,
    Resolve,
    Cancel,
    Confirm,
    Note,
    Pause,
    Resume,
    Skip,
    DiskFull,
    DiskFree,
    /// A later COMMIT fails, and nothing is stored.
    CommitFails,
    /// A later COMMIT fails, and everything is stored.
    CommitUnheard,
    /// A later statement fails, and SQLite rolls the transaction back.
    Undone,
    /// The config changes for whoever starts from now on.
    Config,
}

/// One step: what, and from what its own draws come.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub verb: Verb,
    pub roll: u64,
}

/// The steps of a seed.
pub fn draw(setup: &Setup, rng: &mut Rng) -> Vec<Op> {
    use Verb::*;
    let mut weights = vec![
        (Enqueue, 10),
        (Repeat, 3),
        (Mismatch, 1),
        (Claim, 8),
        (Call, 10),
        (CallAndDie, 3),
        (Record, 10),
        (Release, 1),
        (Work, 30),
        (Doze, 2),
        (Renew, 2),
        (Recover, 4),
        (Kill, 1),
        (Start, 5),
        (Stop, 1),
        (Freeze, 2),
        (Thaw, 3),
        (Tidy, 2),
        (Pass, 12),
        (PassLong, 2),
        (Replay, 3),
        (Amend, 1),
        (Resolve, 3),
        (Cancel, 2),
        (Confirm, 2),
        (Note, 1),
        (Pause, 1),
        (Resume, 2),
        (Skip, 1),
        (Config, 1),
    ];
    if setup.clocks {
        weights.push((SetClock, 4));
    }
    if setup.disk {
        weights.extend([(DiskFull, 2), (DiskFree, 4), (CommitFails, 3), (CommitUnheard, 3), (Undone, 2)]);
    }
    let total: u32 = weights.iter().map(|(_, w)| w).sum();
    let mut one = || {
        let mut at = rng.u32(..total);
        let verb = weights.iter().find(|(_, w)| {
            let here = at < *w;
            at = at.saturating_sub(*w);
            here
        });
        Op { verb: verb.map_or(Work, |(v, _)| *v), roll: rng.u64(..) }
    };
    (0..setup.steps).map(|_| one()).collect()
}
