//! Numbered crash points: with the feature `crash-points`, `ONCEWARD_CRASH_AT=N` makes the process kill itself at the
//! N-th point it passes, and `ONCEWARD_CRASH_COUNT=FILE` writes how many points a clean run passed. Without the feature
//! a point is nothing at all.

/// Passes a point.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// Passes a point.
#[cfg(feature = "crash-points")]
pub fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSED: AtomicU64 = AtomicU64::new(0);
    static AT: OnceLock<(Option<u64>, Option<std::ffi::OsString>)> = OnceLock::new();
    let (at, count) = AT.get_or_init(|| {
        let at = std::env::var("ONCEWARD_CRASH_AT").ok().and_then(|n| n.parse().ok());
        (at, std::env::var_os("ONCEWARD_CRASH_COUNT"))
    });
    let passed = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(file) = count {
        let _ = std::fs::write(file, passed.to_string());
    }
    if *at == Some(passed) {
        log::warn!("crash point {passed}: {name}");
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
