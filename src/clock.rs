//! Time: the millisecond timestamp that the file holds, and the clock it is read from.
//!
//! Wall-clock instants are [`Ms`], UTC milliseconds since 1970, and live in columns that end in `_ms`. Waits inside
//! a process never use them: they use `std::time::Instant`. No other module reads a clock.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An instant of the wall clock: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ms(pub i64);

impl Ms {
    /// This instant and a span after it; saturates instead of overflowing.
    pub fn plus(self, span: Duration) -> Ms {
        Ms(self.0.saturating_add(millis(span)))
    }

    /// This instant and a span before it; saturates instead of overflowing.
    pub fn minus(self, span: Duration) -> Ms {
        Ms(self.0.saturating_sub(millis(span)))
    }

    /// How long after `earlier` this instant is; zero when it is not after it.
    pub fn since(self, earlier: Ms) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }

    /// RFC 3339 in UTC with milliseconds: `2026-11-29T13:00:00.000Z`.
    pub fn rfc3339(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => format!("{at:.3}"),
            // Outside the years -9999 to 9999: nothing legitimate, but a reader must not panic over it.
            Err(_) => format!("{}ms", self.0),
        }
    }

    /// Reads an RFC 3339 time with any offset. The error says what was expected.
    pub fn parse_rfc3339(text: &str) -> Result<Ms, String> {
        text.parse::<jiff::Timestamp>().map(|at| Ms(at.as_millisecond())).map_err(|_| {
            format!("`{text}` is not a time: write it as RFC 3339, before the year 9999, for example 2026-11-29T13:00:00Z")
        })
    }
}

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rfc3339())
    }
}

/// A clock that says less than this (2026-01-01) is certainly wrong: this program is younger.
pub const SANE: Ms = Ms(1_767_225_600_000);

/// A span in whole milliseconds; saturates.
pub fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Where the time comes from. Two implementations: the system's, and one that tests set.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn now(&self) -> Ms;
    /// Milliseconds of a clock that is never set and that counts a machine's sleep. Its zero is arbitrary but fixed
    /// between two boots.
    fn boot_ms(&self) -> i64;
    /// Both at one moment.
    fn both(&self) -> (Ms, i64);
    /// Names the boot whose clock that is, for every process alike. `None`: the boot clock is this process's own.
    fn boot(&self) -> Option<&str>;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    boot: Option<String>,
}

/// A thread that is put to sleep between the two readings reads again, so often.
const READINGS: u32 = 10;
/// Two readings of the boot clock that are no further apart than this are of one moment.
const MOMENT_MS: i64 = 5;

impl SystemClock {
    /// The machine's own clocks.
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now(), boot: boot_id() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Ms {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Ms(millis(since)),
            Err(before) => Ms(-millis(before.duration())),
        }
    }

    fn both(&self) -> (Ms, i64) {
        let mut before = self.boot_ms();
        for _ in 1..READINGS {
            let (now, after) = (self.now(), self.boot_ms());
            if after.saturating_sub(before) <= MOMENT_MS {
                return (now, after);
            }
            before = after;
        }
        (self.now(), self.boot_ms())
    }

    fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    #[cfg(target_os = "linux")]
    fn boot_ms(&self) -> i64 {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let _ = self.start;
        at.tv_sec.saturating_mul(1000).saturating_add(at.tv_nsec / 1_000_000)
    }

    /// Elsewhere the monotonic clock stands in: its zero is this process's start, and it may leave sleep out.
    #[cfg(not(target_os = "linux"))]
    fn boot_ms(&self) -> i64 {
        millis(self.start.elapsed())
    }
}

/// The kernel's own name of this boot, and of the time namespace that its clock is read in.
#[cfg(target_os = "linux")]
fn boot_id() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some([boot.trim(), &namespace.display().to_string()].concat())
}

#[cfg(not(target_os = "linux"))]
fn boot_id() -> Option<String> {
    None
}

/// A clock that stands still until it is set: for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(i64, i64)>,
    boot: Option<String>,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Ms) -> ManualClock {
        ManualClock::of_boot(Some("boot-1"), now, 1_000_000)
    }

    /// The same in another boot, or in one without a name.
    pub fn of_boot(boot: Option<&str>, now: Ms, boot_ms: i64) -> ManualClock {
        ManualClock { state: Mutex::new((now.0, boot_ms)), boot: boot.map(str::to_string) }
    }

    /// Time passes: both clocks move.
    pub fn advance(&self, span: Duration) {
        let mut state = self.lock();
        state.0 = state.0.saturating_add(millis(span));
        state.1 = state.1.saturating_add(millis(span));
    }

    /// Somebody sets the wall clock: only it moves.
    pub fn step(&self, by_ms: i64) {
        let mut state = self.lock();
        state.0 = state.0.saturating_add(by_ms);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (i64, i64)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Ms {
        Ms(self.lock().0)
    }

    fn boot_ms(&self) -> i64 {
        self.lock().1
    }

    fn both(&self) -> (Ms, i64) {
        let state = self.lock();
        (Ms(state.0), state.1)
    }

    fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds_and_read_with_any_offset() {
        let at = Ms::parse_rfc3339("2026-11-29T15:00:00.5+02:00").unwrap();
        assert_eq!(at.rfc3339(), "2026-11-29T13:00:00.500Z");
        assert!(Ms::parse_rfc3339("tomorrow").unwrap_err().contains("RFC 3339"));
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Ms(i64::MAX).plus(Duration::from_secs(1)), Ms(i64::MAX));
        assert_eq!(Ms(5).since(Ms(9)), Duration::ZERO);
        assert_eq!(Ms(i64::MAX).rfc3339(), format!("{}ms", i64::MAX));
    }
}
