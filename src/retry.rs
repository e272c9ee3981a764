//! When to try again: pauses and the provider's window. Pure; randomness and time are arguments.

use crate::clock::{Ms, millis};
use crate::intent::Generation;
use std::time::Duration;

/// The longest pause that a provider's wish can set.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// The most that jitter adds to it.
const SPREAD_MAX: Duration = Duration::from_secs(300);

/// The pause before try `n` + 1, with full jitter: between 1 ms and `min(cap, base * 2^(n-1))`, drawn by `jitter` in
/// 0..1. Never overflows and never exceeds `cap`, whatever `n` is.
pub fn backoff(n: u32, base: Duration, cap: Duration, jitter: f64) -> Duration {
    let cap = millis(cap).max(1);
    let base = millis(base).max(1);
    let doublings = n.saturating_sub(1).min(62);
    let ceiling = base.checked_mul(1i64 << doublings).unwrap_or(cap).min(cap);
    let share = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
    // The product is at most the ceiling, so it fits.
    let pause = ((ceiling as f64) * share) as i64;
    Duration::from_millis(pause.clamp(1, ceiling).unsigned_abs())
}

/// The provider's wish, with jitter that only adds to it: up to half as long again, and no more than five minutes. Jobs
/// that were all told the same time would otherwise all come back in the same moment. Never beyond
/// [`RETRY_AFTER_MAX`], unless the wish itself is.
pub fn spread(wish: Duration, jitter: f64) -> Duration {
    let share = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
    let more = (wish / 2).min(SPREAD_MAX).mul_f64(share);
    wish.saturating_add(more).min(wish.max(RETRY_AFTER_MAX))
}

/// How long before its end the window counts as over: a tenth of it, at least a second, at most five minutes.
pub fn margin(window: Duration) -> Duration {
    (window / 10).clamp(Duration::from_secs(1), Duration::from_secs(300))
}

/// Whether the provider still remembers a generation's key at `at`.
///
/// The window runs from the *first* send. It counts as over as soon as the wall clock or the boot clock says so, or if
/// the first send lies in the future: a clock that was set back must not reopen it. The boot clock may be of a later
/// boot than the send's; it then only shows less than has really passed, so it can't be wrong in the unsafe direction.
pub fn window_open(
    generation: &Generation,
    window: Option<Duration>,
    at: Ms,
    now: Ms,
    boot_now: i64,
) -> bool {
    let (Some(window), Some(first)) = (window, generation.first_sent) else { return true };
    let safe = millis(window.saturating_sub(margin(window)));
    let later = at.0.saturating_sub(now.0).max(0);
    let by_wall = at.0.saturating_sub(first.0);
    let by_boot =
        generation.first_sent_boot.map_or(0, |boot| boot_now.saturating_sub(boot).saturating_add(later));
    first <= now && by_wall < safe && by_boot < safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_positive_and_within_the_cap_for_every_count_base_and_jitter() {
        let cap = Duration::from_secs(3600);
        for n in (0..=10_000).chain([u32::MAX]) {
            for base in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(86_400), Duration::MAX]
            {
                for jitter in [0.0, 0.3, 1.0, f64::NAN, -5.0, 7.0] {
                    let pause = backoff(n, base, cap, jitter);
                    assert!(pause > Duration::ZERO && pause <= cap, "{n} {base:?} {jitter}: {pause:?}");
                }
            }
        }
    }

    #[test]
    fn the_ceiling_doubles_until_the_cap_and_jitter_is_full() {
        let second = Duration::from_secs(1);
        let top = |n| backoff(n, second, Duration::from_secs(10), 1.0).as_secs();
        assert_eq!([top(1), top(2), top(3), top(4), top(5), top(60)], [1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff(4, second, Duration::from_secs(10), 0.5), Duration::from_secs(4));
    }

    #[test]
    fn jitter_only_adds_to_the_providers_wish_and_never_without_bound() {
        let seconds = |wish: u64, jitter| spread(Duration::from_secs(wish), jitter).as_secs_f64();
        assert_eq!([seconds(60, 0.0), seconds(60, 0.5), seconds(60, 1.0)], [60.0, 75.0, 90.0]);
        assert_eq!(seconds(7200, 1.0), 7500.0, "five minutes at most");
        assert_eq!(seconds(86_400, 1.0), 86_400.0, "a day is the longest pause");
        for wish in [Duration::ZERO, Duration::from_millis(1), RETRY_AFTER_MAX, Duration::MAX] {
            for jitter in [-1.0, 0.0, 0.9, 7.0, f64::NAN, f64::INFINITY] {
                assert!(spread(wish, jitter) >= wish, "{wish:?} {jitter}");
            }
        }
    }

    #[test]
    fn the_window_runs_from_the_first_send_by_either_clock_and_a_future_send_closes_it() {
        let day = Some(Duration::from_secs(86_400));
        let generation =
            Generation { first_sent: Some(Ms(1000)), first_sent_boot: Some(50), ..Generation::default() };
        let open = |now: i64, boot: i64| window_open(&generation, day, Ms(now), Ms(now), boot);
        let edge = 86_400_000 - 300_000;
        assert!(open(1000, 50));
        assert!(open(1000 + edge - 1, 50));
        assert!(!open(1000 + edge, 50), "by the wall clock, less the margin");
        assert!(!open(1000, 50 + edge), "by the boot clock: the wall clock was set back");
        assert!(!open(999, 50), "sent in the future");
        assert!(window_open(&generation, None, Ms(i64::MAX), Ms(i64::MAX), 0), "for ever");
        assert_eq!(margin(Duration::from_secs(2)), Duration::from_secs(1));
        assert_eq!(margin(Duration::from_secs(86_400 * 30)), Duration::from_secs(300));
    }
}
