//! Clocks that are set and processes that stand still, with the real binary: nothing runs twice at once, nothing freezes.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The library that sets a process's wall clock. `None`, and a line that says so: it is not installed.
pub fn faketime(test: &str) -> Option<PathBuf> {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = places.iter().map(|p| Path::new(p).join("faketime/libfaketime.so.1")).find(|p| p.exists());
    if found.is_none() {
        eprintln!("SKIPPED {test}: it needs libfaketime (apt-get install faketime)");
    }
    found
}

/// A wall clock for all commands to come, off by so many seconds; only the wall clock.
pub struct Wall<'a> {
    h: &'a Harness,
}

impl<'a> Wall<'a> {
    pub fn of(h: &'a Harness, library: &Path) -> Wall<'a> {
        let wall = Wall { h };
        wall.set(0);
        h.env("LD_PRELOAD", &library.display().to_string());
        h.env("FAKETIME_TIMESTAMP_FILE", &h.dir.path().join("clock").display().to_string());
        h.env("FAKETIME_NO_CACHE", "1");
        h.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        wall
    }

    pub fn set(&self, seconds: i64) {
        let passing = self.h.dir.path().join("clock.new");
        std::fs::write(&passing, format!("{seconds:+}\n")).expect("the clock");
        std::fs::rename(passing, self.h.dir.path().join("clock")).expect("the clock");
    }
}

pub const HOUR: i64 = 3600;
pub const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Steps while a worker runs and between runs; after each, new work is done and old work is finished.
#[test]
fn a_wall_clock_that_is_set_by_an_hour_a_day_a_year_freezes_nothing_and_doubles_nothing() {
    let Some(library) = faketime("a_wall_clock_that_is_set") else { return };
    let h = Scene::new(Family::B).start();
    let wall = Wall::of(&h, &library);
    let mut worker = h.spawn_worker(&[]);
    let mut n = 0;
    for step in [HOUR, -HOUR, DAY, -DAY, YEAR, 0] {
        // A retry is waiting while the clock is set.
        n += 1;
        h.provider.script(vec![Fault::ErrorBefore(500)]);
        h.payout(n);
        h.show_until(&key(n), |job| job["attempts"] != 0);
        wall.set(step);
        n += 1;
        h.payout(n);
        h.show_until(&key(n), |job| job["state"] == "settled");
        // A clock that is set in between leaves the provider's window in doubt: then it is not sent again.
        let ended = h.show_until(&key(n - 1), |job| job["state"] == "settled" || job["state"] == "parked");
        let doubted = ["unknown_outcome", "window_expired"].iter().any(|why| ended["park_reason"] == *why);
        assert!(ended["state"] == "settled" || doubted, "{ended:#}");
    }
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    for step in [-HOUR, HOUR, -YEAR, 0] {
        wall.set(step);
        n += 1;
        h.payout(n);
        h.work_until_idle();
    }
    for n in 1..=n {
        let job = h.show(&key(n));
        if job["state"] == "parked" {
            assert_eq!(job["intent"]["state"], "requested", "{job:#}");
            assert!(h.effects(&key(n)) <= 1);
        } else {
            h.assert_settled_once(&key(n));
        }
    }
    let set_back = h.count("SELECT count(*) FROM onceward_events WHERE action = 'clock'");
    // However close they are: whatever is written compares the clocks.
    assert_eq!(set_back, 5, "each step back is on record");
    h.assert_laws();
}

#[cfg(unix)]
fn signal(worker: &Worker, name: &str) {
    let pid = worker.pid().to_string();
    let status = Command::new("sh").args(["-c", "kill -$1 \"$0\"", &pid, name]).status().expect("sh runs");
    assert!(status.success(), "kill -{name} {pid}");
}

/// Stopped past its lease in the middle of a call while another worker runs: it is alive, so nobody takes its job, and no
/// second call of the key overlaps the first.
#[cfg(unix)]
#[test]
fn a_worker_that_stands_still_past_its_lease_is_not_overtaken_and_goes_on_where_it_was() {
    stands_still("onceward.db");
}

/// R41: the same, where it has the file by a symbolic link in another folder.
#[cfg(unix)]
#[test]
fn a_worker_that_has_the_file_by_a_link_is_seen_to_live_by_one_that_has_it_by_name() {
    stands_still("elsewhere/link.db");
}

/// Stops a worker while it does not hold the file's write lock: whoever stands still with that keeps everybody waiting.
#[cfg(unix)]
fn stop_between_writes(h: &Harness, worker: &Worker) {
    let start = std::time::Instant::now();
    loop {
        signal(worker, "STOP");
        let file = rusqlite::Connection::open(h.dir.path().join("onceward.db")).expect("the store opens");
        file.busy_timeout(Duration::from_millis(200)).expect("a time-out");
        if file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
            return;
        }
        signal(worker, "CONT");
        assert!(start.elapsed() < LIMIT, "it always holds the lock");
    }
}

#[cfg(unix)]
fn stands_still(name: &str) {
    let mut h = Scene::new(Family::E).start();
    h.reconfigure(|s| s.worker = "lease = \"2s\"".into());
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
    let first = h.payout(1);
    std::fs::create_dir(h.dir.path().join("elsewhere")).expect("a folder");
    std::os::unix::fs::symlink("../onceward.db", h.dir.path().join("elsewhere/link.db")).expect("a link");
    h.config(&h.scene.text().replace("\"onceward.db\"", &format!("{name:?}")));
    let mut still = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
    stop_between_writes(&h, &still);
    h.config(&h.scene.text());
    let mut other = h.spawn_worker(&[]);
    h.show_until(&first, |job| {
        let expires =
            job["lease"]["expires_at"].as_str().and_then(|t| onceward::clock::Ms::parse_rfc3339(t).ok());
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
        expires.is_some_and(|at| at.0 + 1500 < now)
    });
    h.payout(2);
    h.show_until(&key(2), |job| job["state"] == "settled");
    assert_eq!(h.show(&first)["state"], "running", "its owner lives");
    assert_eq!(h.posts().len(), 2);
    signal(&still, "CONT");
    h.provider.release();
    h.show_until(&first, |job| job["state"] == "settled");
    for worker in [&mut still, &mut other] {
        worker.term();
        assert_eq!(worker.wait().code(), Some(0));
    }
    for n in [1, 2] {
        h.assert_settled_once(&key(n));
    }
    assert_eq!(h.posts().len(), 2, "one call a key");
    h.assert_laws();
}
