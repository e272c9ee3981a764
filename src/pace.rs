//! How often a fault that goes on is told: a line a step, however many threads or jobs meet it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Spaces the lines about one fault: the first at once, the next ones 1 s, 2 s, 4 s and at last 60 s apart.
#[derive(Default)]
pub struct Pace(Mutex<Option<Told>>);

#[derive(Clone, Copy)]
struct Told {
    at: Instant,
    step: Duration,
}

impl Pace {
    /// The fault is there. `true`: it is time to say so.
    pub fn due(&self) -> bool {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let step = match *told {
            Some(Told { at, step }) if now.saturating_duration_since(at) < step => return false,
            Some(Told { step, .. }) => (step * 2).min(LONGEST),
            None => FIRST,
        };
        *told = Some(Told { at: now, step });
        true
    }

    /// The fault is not there. `true`: it was, and its end is worth a line.
    pub fn over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_of_one_fault_is_some_seventy_lines_and_its_end_is_one() {
        let (pace, begun) = (Pace::default(), Instant::now());
        let told =
            (0..3600 * 16).filter(|n| pace.due_at(begun + Duration::from_millis(n * 1000 / 16))).count();
        assert!((60..=70).contains(&told), "{told}");
        assert!(pace.over());
        assert!(!pace.over());
        assert!(pace.due_at(begun), "a new fault is told at once");
    }
}
