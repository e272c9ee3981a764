//! A disk without room: nothing is sent that could not be recorded, nothing that was sent is lost, and it is said once a
//! step and not once a job.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::time::{Duration, Instant};

/// Waits until the workers' log holds this.
#[track_caller]
fn log_until(h: &Harness, wanted: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let log = std::fs::read_to_string(h.dir.path().join("workers.log")).unwrap_or_default();
        if wanted(&log) {
            return log;
        }
        assert!(start.elapsed() < LIMIT, "the log never said so: {log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lines(log: &str, words: &str) -> usize {
    log.lines().filter(|line| line.contains(words)).count()
}

/// When a line was written, in seconds.
fn second(line: &str) -> i64 {
    let time = line.trim_start_matches('[').split(' ').next().expect("a time");
    onceward::clock::Ms::parse_rfc3339(time).expect(line).0 / 1000
}

/// A scene whose store is on this disk.
fn on(disk: &Disk, floor: &str, family: Family) -> Harness {
    let mut h = Scene::new(family).start();
    h.reconfigure(|s| s.tables = format!("[limits]\nfree_disk = \"{floor}\""));
    let path = disk.path().join("onceward.db").display().to_string();
    h.config(&h.scene.text().replace("\"onceward.db\"", &format!("{path:?}")));
    h
}

const LOW: &str = "nothing is claimed: free some space";

/// What a low disk looks like from outside, with `count` jobs waiting.
fn looks_low(h: &Harness, count: u32) {
    let check = h.run(&["check"]);
    check.fails(&[1]);
    let disk = check.lines().into_iter().find(|finding| finding["what"] == "disk").expect("a finding");
    assert_eq!(disk["ok"], false, "{check}");
    assert!(disk["finding"].as_str().is_some_and(|words| words.contains("nothing is claimed")), "{check}");
    let stats = h.stats();
    assert_eq!((&stats["jobs"]["ready"], &stats["jobs"]["running"]), (&count.into(), &0.into()), "{stats:#}");
    for n in 1..=count {
        let job = h.show(&key(n));
        assert_eq!((&job["state"], &job["attempts"]), (&"ready".into(), &0.into()), "{job:#}");
    }
    assert!(h.posts().is_empty(), "nothing was sent");
}

/// Without a disk of its own: the floor is set above all that any disk has.
#[test]
fn below_the_floor_nothing_is_sent_and_jobs_are_still_taken_in() {
    let mut h = Scene::new(Family::B).start();
    h.reconfigure(|s| s.tables = "[limits]\nfree_disk = \"8000000000GiB\"".into());
    for n in 1..=12 {
        h.payout(n);
    }
    let mut worker = h.spawn_worker(&[]);
    let log = log_until(&h, |log| lines(log, LOW) >= 4);
    let told: Vec<i64> = log.lines().filter(|line| line.contains(LOW)).map(second).collect();
    assert!(told[3] - told[2] >= 3, "a line a step, and not one a job or a look: {log}");
    assert!(log.contains("onceward.db") && log.contains("limits.free_disk"), "{log}");
    h.payout(13);
    looks_low(&h, 13);
    let once = h.run(&["work", "--once"]);
    once.fails(&[1]);
    assert!(once.stdout.contains("free_disk") || once.stderr.contains("free_disk"), "{once}");
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    h.reconfigure(|s| s.tables.clear());
    h.work_until_idle();
    for n in 1..=13 {
        h.assert_settled_once(&key(n));
    }
    h.assert_laws();
}

#[test]
fn a_worker_goes_on_by_itself_once_there_is_room_again() {
    let Some(disk) = Disk::small(16) else { return };
    let h = on(&disk, "8MiB", Family::B);
    for n in 1..=10 {
        h.payout(n);
    }
    disk.fill_but(4 << 20);
    let mut worker = h.spawn_worker(&[]);
    log_until(&h, |log| lines(log, LOW) >= 2);
    h.payout(11);
    looks_low(&h, 11);
    disk.empty();
    for n in 1..=11 {
        h.show_until(&key(n), |job| job["state"] == "settled");
        assert_eq!(h.effects(&key(n)), 1);
    }
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    let log = log_until(&h, |_| true);
    assert!(log.contains("there is room on the disk again"), "{log}");
    assert!(lines(&log, LOW) <= 5, "{log}");
    assert_eq!(h.posts().len(), 11);
}

/// R37: the disk is full to the last page while answers are on their way and jobs wait.
#[test]
fn a_full_disk_loses_no_answer_sends_nothing_and_is_no_storm_in_the_log() {
    let Some(disk) = Disk::small(8) else { return };
    let h = on(&disk, "0B", Family::E);
    for n in 1..=50 {
        h.payout(n);
    }
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600)); 4]);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.effects.len() == 4, LIMIT));
    // Whoever reads keeps the log from beginning anew, so that each write needs room.
    let path = disk.path().join("onceward.db");
    let reader = rusqlite::Connection::open(&path).expect("the file opens");
    reader.execute_batch("BEGIN").expect("a read transaction");
    let all: i64 =
        reader.query_row("SELECT count(*) FROM onceward_jobs", [], |row| row.get(0)).expect("a snapshot");
    assert_eq!(all, 50);
    disk.fill_but(0);
    h.provider.release();
    const UNWRITTEN: &str = "could not be written to";
    let log = log_until(&h, |log| lines(log, UNWRITTEN) >= 2);
    assert!(log.contains("disk is full") && log.contains("onceward.db"), "{log}");
    assert_eq!(h.posts().len(), 4, "nothing else is sent while an answer waits to be written");
    let refused = h.enqueue("payout", &payout(51), &[]);
    refused.fails(&[1]);
    reader.execute_batch("ROLLBACK").expect("let go");
    disk.empty();
    for n in 1..=50 {
        h.show_until(&key(n), |job| job["state"] == "settled");
        assert_eq!(h.effects(&key(n)), 1, "{}", key(n));
    }
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    let log = log_until(&h, |_| true);
    assert!(log.contains("every outcome that was kept is written now"), "{log}");
    let troubled = lines(&log, "ERROR") + lines(&log, "WARN");
    assert!(troubled <= 16, "{troubled} lines for one fault of some seconds, told in steps: {log}");
    assert_eq!(h.posts().len(), 50);
}

/// The same fault without a disk of its own: a trigger refuses the rows, for every thread and again and again.
#[test]
fn results_that_cannot_be_written_are_kept_and_told_once_a_step_however_many_wait() {
    let h = Scene::new(Family::E).start();
    for n in 1..=12 {
        h.payout(n);
    }
    let db = rusqlite::Connection::open(h.dir.path().join("onceward.db")).expect("the file opens");
    db.busy_timeout(LIMIT).expect("a timeout");
    db.execute_batch(
        "CREATE TRIGGER no_room BEFORE INSERT ON onceward_history WHEN new.action = 'request'
           BEGIN SELECT raise(ABORT, 'no room'); END",
    )
    .expect("the trigger");
    let mut worker = h.spawn_worker(&[]);
    const UNWRITTEN: &str = "could not be written to";
    let log = log_until(&h, |log| lines(log, UNWRITTEN) >= 3);
    let told: Vec<i64> = log.lines().filter(|line| line.contains(UNWRITTEN)).map(second).collect();
    assert!(told[2] - told[0] >= 2, "a line a step, and not one a try: {log}");
    assert!(h.posts().len() <= 4, "no more than there are threads: nothing is claimed meanwhile");
    db.execute_batch("DROP TRIGGER no_room").expect("let go");
    for n in 1..=12 {
        h.show_until(&key(n), |job| job["state"] == "settled");
        assert_eq!(h.effects(&key(n)), 1);
    }
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    let log = log_until(&h, |_| true);
    assert_eq!(lines(&log, "every outcome that was kept is written now"), 1, "{log}");
    h.assert_laws();
}
