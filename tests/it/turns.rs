//! Other programs that write to the file beside a busy worker.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::{Connection, TransactionBehavior};
use std::time::{Duration, Instant};

const ROW: &str = "INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', ?1)";

/// A worker that drains a full inbox holds the file's write lock most of the time, and whoever waits for it by looking
/// again and again, as SQLite's busy time-out does, must find it free now and then.
#[test]
fn other_programs_write_while_a_full_inbox_is_drained() {
    let h = Scene::new(Family::B).start();
    h.payout(0);
    let mut app = Connection::open(h.dir.path().join("onceward.db")).expect("the file");
    app.busy_timeout(Duration::from_secs(5)).expect("as Python's sqlite3 has it");
    let fill = app.transaction().expect("a transaction");
    for n in 1..=4000 {
        fill.execute(ROW, [payout(n)]).expect("a row");
    }
    fill.commit().expect("a full inbox");
    let _worker = h.spawn_worker(&[]);
    let left = |app: &Connection| -> i64 {
        let count = "SELECT count(*) FROM onceward_inbox WHERE id <= 4000";
        app.query_row(count, [], |row| row.get(0)).expect("a count")
    };
    let start = Instant::now();
    while left(&app) == 4000 {
        assert!(start.elapsed() < LIMIT, "the worker takes nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut waits, mut n) = (Vec::new(), 4000);
    while left(&app) > 0 {
        n += 1;
        let begun = Instant::now();
        let tx = app.transaction_with_behavior(TransactionBehavior::Immediate).expect("its turn comes");
        tx.execute(ROW, [payout(n)]).expect("a row");
        tx.commit().expect("committed");
        waits.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    waits.sort();
    let longest = waits.last().copied().unwrap_or_default();
    eprintln!("{} writes of others in {:?}, the longest waited {longest:?}", waits.len(), start.elapsed());
}
