//! Turns at the file's write lock beside other programs.
//!
//! SQLite has no line for it: whoever finds the lock taken looks again after 1 ms, 2 ms, … and at last each 100 ms. A
//! writer that has work all the time, as one that drains a full inbox, frees the lock for some microseconds between two
//! transactions, and others find it taken each time they look, for seconds, until their time is over. So as long as others
//! write too, a busy writer leaves the lock free now and then for longer than the longest pause between two looks.

use std::time::{Duration, Instant};

/// Others write if they did so within this time.
const LATELY: Duration = Duration::from_secs(10);
/// How long the lock is left free: SQLite looks each 100 ms, or a little later.
const FREE: Duration = Duration::from_millis(125);
/// How often, at most.
const ROUND: Duration = Duration::from_millis(500);
/// Who held the lock for less of a round was in nobody's way.
const BUSY: Duration = Duration::from_millis(100);

/// Whose turn it is.
#[derive(Default)]
pub struct Turns {
    others: Option<Instant>,
    /// When the present round began, and for how long the lock was held in it.
    round: Option<(Instant, Duration)>,
    free_until: Option<Instant>,
}

impl Turns {
    /// Another program has written, or waits to.
    pub fn others_write(&mut self) {
        self.others = Some(Instant::now());
    }

    /// Waits until others have had their turn.
    pub fn wait(&mut self) {
        if let Some(until) = self.free_until.take() {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }

    /// The lock was held from then until now.
    pub fn held_since(&mut self, begun: Instant) {
        self.held(begun, Instant::now());
    }

    fn held(&mut self, begun: Instant, now: Instant) {
        let (since, held) = self.round.unwrap_or((begun, Duration::ZERO));
        let held = held.saturating_add(now.saturating_duration_since(begun));
        self.round = Some((since, held));
        if now.saturating_duration_since(since) < ROUND {
            return;
        }
        self.round = None;
        let others = self.others.is_some_and(|at| now.saturating_duration_since(at) < LATELY);
        if others && held >= BUSY {
            self.free_until = Some(now + FREE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of 30 ms, one after the other, for `span`; how long the lock was left free in all.
    fn busy(turns: &mut Turns, from: Instant, span: Duration) -> Duration {
        let batch = Duration::from_millis(30);
        let (mut at, mut free) = (from, Duration::ZERO);
        while at < from + span {
            turns.held(at, at + batch);
            at += batch;
            if let Some(until) = turns.free_until.take() {
                free += until - at;
                at = until;
            }
        }
        free
    }

    #[test]
    fn a_busy_writer_leaves_the_lock_free_now_and_then_where_others_write_and_else_never() {
        let (now, minute) = (Instant::now(), Duration::from_secs(9));
        assert_eq!(busy(&mut Turns::default(), now, minute), Duration::ZERO, "alone");
        let mut beside = Turns { others: Some(now), ..Turns::default() };
        let free = busy(&mut beside, now, minute);
        assert!((Duration::from_millis(1500)..Duration::from_millis(2200)).contains(&free), "{free:?}");
        let later = now + LATELY;
        assert_eq!(busy(&mut beside, later, minute), Duration::ZERO, "nobody for long");
    }

    #[test]
    fn a_writer_that_is_seldom_at_work_never_waits() {
        let now = Instant::now();
        let mut turns = Turns { others: Some(now), ..Turns::default() };
        for n in 0..100 {
            let begun = now + Duration::from_millis(50 * n);
            turns.held(begun, begun + Duration::from_millis(2));
            assert!(turns.free_until.is_none());
        }
    }
}
