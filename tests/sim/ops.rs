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
    /// One call of a worker.
    Call,
    Record,
    /// A claim is given back.
    Release,
    /// Claim, call and record.
    Work,
    /// The same, and the machine sleeps in between.
    Doze,
    /// A worker dies in the middle of a call.
    CallAndDie,
    /// A worker dies with a claim that it has not begun.
    Kill,
    Start,
    Stop,
    Renew,
    Recover,
    /// SIGSTOP and SIGCONT.
    Freeze,
    Thaw,
    /// A worker is stopped past its leases with results in its hands, and another looks whether it is dead.
    Overtake,
    /// The same, and somebody has deleted its lock file, so that another takes its jobs over.
    Tidy,
    /// A person acts on a job while its call is out.
    Meddle,
    /// A worker's next commit, or the one after that, fails.
    FailAt,
    /// The same for an app or a person.
    FailAtDesk,
    /// Seconds or minutes; a machine's sleep is no different.
    Pass,
    /// Hours or days.
    PassLong,
    /// To where something ends or begins.
    Edge,
    /// Somebody sets the wall clock.
    SetClock,
    /// Somebody sets the wall clock ahead, and back after a moment.
    Blink,
    /// A parked job is brought back to work, and worked.
    Revive,
    /// A job in doubt comes due, and is worked.
    ClearUp,
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
    /// The file is copied while everybody goes on.
    Backup,
    /// The file is lost, and a copy takes its place.
    Restore,
    /// An app asks again for what only a lost file knew.
    AskAgain,
    /// A person says what is true of the time between copy and restore.
    Speak,
    /// A person resumes what a restore paused.
    ResumeAll,
    /// An earlier word of a person's comes once more: a repeated request, an old page.
    LateWord,
    /// The account's credential is replaced while calls are under way.
    Swap,
}

/// One step: what, and from what its own draws come.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub verb: Verb,
    pub roll: u64,
}

/// The steps of a seed. Each seed leaves some verbs out and does others more often, so that not every run is a mixture of all.
pub fn draw(setup: &Setup, rng: &mut Rng) -> Vec<Op> {
    use Verb::*;
    // Without these nothing would go on.
    let mut weights = vec![(Enqueue, 8), (Work, 14), (Start, 3), (Recover, 3), (Resume, 1), (Thaw, 2)];
    let mut others = vec![
        (Repeat, 2),
        (Mismatch, 1),
        (Claim, 4),
        (Call, 5),
        (CallAndDie, 5),
        (Record, 6),
        (Release, 2),
        (Doze, 4),
        (Renew, 1),
        (Kill, 2),
        (Stop, 1),
        (Freeze, 1),
        (Overtake, 2),
        (Tidy, 2),
        (Meddle, 3),
        (Pass, 3),
        (PassLong, 1),
        (Edge, 6),
        (Revive, 5),
        (ClearUp, 8),
        (Replay, 1),
        (Amend, 2),
        (Resolve, 3),
        (Cancel, 2),
        (Confirm, 2),
        (Note, 1),
        (LateWord, 2),
        (Pause, 1),
        (Skip, 1),
        (Config, 2),
    ];
    if setup.restores {
        weights.extend([(Backup, 4), (Restore, 3), (AskAgain, 6), (Speak, 2), (ResumeAll, 3)]);
    }
    if setup.swaps {
        weights.push((Swap, 2));
    }
    if setup.clocks {
        others.extend([(SetClock, 4), (Blink, 3)]);
    }
    if setup.disk {
        others.extend([(DiskFull, 1), (CommitFails, 1), (CommitUnheard, 1), (Undone, 1)]);
        others.extend([(FailAt, 5), (FailAtDesk, 4)]);
        weights.push((DiskFree, 3));
    }
    weights.extend(others.into_iter().map(|(verb, weight)| (verb, weight * [0, 1, 1, 3][rng.usize(..4)])));
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
