//! Somebody else holds the file's write lock: nothing is lost, nothing is dropped without a word.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// Another program on the same file.
fn stranger(h: &Harness) -> Connection {
    let db = Connection::open(h.dir.path().join("onceward.db")).expect("the file opens");
    db.busy_timeout(LIMIT).expect("a timeout");
    db
}

/// The lock is held by the clock, so the clock is what is waited for.
fn hold(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// R35: an answer that has arrived is kept until it can be written.
#[test]
fn an_answer_that_arrives_while_the_file_is_locked_is_not_dropped() {
    let h = Scene::new(Family::E).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
    let db = stranger(&h);
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    h.provider.release();
    assert!(h.provider.wait_for(|state| state.requests[0].answered.is_some(), LIMIT));
    hold(Duration::from_secs(2));
    assert!(worker.ended_within(Duration::ZERO).is_none());
    db.execute_batch("ROLLBACK").expect("let go");
    h.show_until(&key, |job| job["state"] == "settled" || job["state"] == "parked");
    worker.term();
    worker.wait();
    h.assert_settled_once(&key);
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

#[test]
fn an_enqueue_meets_a_locked_file_with_patience_or_with_a_word() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let db = stranger(&h);
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut command = h.plain_command(&["enqueue", "payout", "--payload", &payout(2)]);
    let asking = std::thread::spawn(move || command.output().expect("the binary runs"));
    hold(Duration::from_secs(2));
    db.execute_batch("ROLLBACK").expect("let go");
    let output = asking.join().expect("no panic");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => assert_eq!(h.show(&key(2))["state"], "ready"),
        Some(1) => assert!(said.contains("\"busy\""), "{said}"),
        other => panic!("{other:?}: {said}"),
    }
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.assert_laws();
}

/// Whoever only looks does not wait for the write lock.
#[test]
fn a_locked_file_can_be_looked_at_at_once() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    let db = stranger(&h);
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let start = Instant::now();
    for args in [&["list"][..], &["show", &key], &["stats"], &["check"]] {
        h.run(args).ok();
    }
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    db.execute_batch("ROLLBACK").expect("let go");
}

/// Many programs make the same new file at once: every one of them gets an answer.
#[test]
fn many_first_enqueues_at_once_make_one_file_and_one_job() {
    for _ in 0..3 {
        let h = Scene::new(Family::B).start();
        let asking: Vec<_> = (0..24)
            .map(|_| {
                let mut command = h.plain_command(&["enqueue", "payout", "--payload", &payout(1)]);
                std::thread::spawn(move || command.output().expect("the binary runs"))
            })
            .collect();
        let answers: Vec<_> = asking.into_iter().map(|t| t.join().expect("no panic")).collect();
        let mut created = 0;
        for answer in &answers {
            let said = String::from_utf8_lossy(&answer.stdout);
            assert_eq!(answer.status.code(), Some(0), "{said}");
            created += usize::from(said.contains("\"created\""));
        }
        assert_eq!(created, 1);
        h.work_until_idle();
        h.assert_settled_once(&key(1));
    }
}
