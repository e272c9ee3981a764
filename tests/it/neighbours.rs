//! Others on the same file: a reader that stays, an app with SQLite's own shell, a worker with another config.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::Connection;
use std::process::Command;
use std::time::Instant;

/// A reader that keeps its snapshot lets the log grow: work goes on, and the cause is named.
#[test]
fn a_reader_that_keeps_its_snapshot_holds_nobody_up_and_the_log_shrinks_when_it_lets_go() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let reader = Connection::open(h.dir.path().join("onceward.db")).expect("the file opens");
    reader.execute_batch("BEGIN; SELECT * FROM onceward_jobs").expect("a snapshot");
    let mut worker = h.spawn_worker(&[]);
    for n in 2..=30 {
        h.payout(n);
    }
    for n in 1..=30 {
        h.show_until(&key(n), |job| job["state"] == "settled");
    }
    let grown = h.stats()["wal_bytes"].as_u64().unwrap_or_default();
    assert!(grown > 100_000, "the log has grown to {grown}, and says so");
    reader.execute_batch("ROLLBACK").expect("let go");
    let start = Instant::now();
    while h.stats()["wal_bytes"] != 0 {
        assert!(start.elapsed() < LIMIT, "the log was never folded into the file");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    for n in 1..=30 {
        h.assert_settled_once(&key(n));
    }
    h.assert_laws();
}

/// SQLite's own shell on the live file, writing into the inbox while a worker runs.
#[test]
fn rows_that_the_sqlite_shell_puts_into_the_inbox_beside_a_worker_are_done_once() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    for n in 2..=10 {
        let row = payout(n);
        let sql = format!(
            "INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', '{row}');\nPRAGMA integrity_check;"
        );
        let Ok(output) = Command::new("sqlite3")
            .args(["-cmd", ".timeout 10000"])
            .arg(h.dir.path().join("onceward.db"))
            .arg(&sql)
            .output()
        else {
            eprintln!("SKIPPED rows_that_the_sqlite_shell: there is no sqlite3");
            return;
        };
        assert!(output.status.success(), "{output:?}");
    }
    let start = Instant::now();
    while h.count("SELECT count(*) FROM onceward_jobs WHERE state = 'settled'") < 10 {
        assert!(start.elapsed() < LIMIT, "the rows were not taken");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    for n in 1..=10 {
        h.assert_settled_once(&key(n));
    }
    h.assert_laws();
}

/// Another program has brought the file forward: nothing is sent or stored by the one that does not know it.
#[test]
fn a_worker_stops_when_a_newer_program_has_changed_the_file() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    h.show_until(&key(1), |job| job["state"] == "settled");
    let db = Connection::open(h.dir.path().join("onceward.db")).expect("the file opens");
    db.busy_timeout(LIMIT).expect("a time-out");
    db.execute_batch("UPDATE onceward_meta SET value = '99' WHERE name = 'schema_version'").expect("newer");
    let start = Instant::now();
    loop {
        let log = std::fs::read_to_string(h.dir.path().join("workers.log")).unwrap_or_default();
        if log.contains("its schema is 99") && log.contains("while this program had it open") {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{log}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    h.enqueue("payout", &payout(2), &[]).fails(&[1]);
    assert_eq!(h.posts().len(), 1);
    worker.kill9();
}
