//! The SQL door: rows that apps wrote in their own transactions, with `sqlite3` and with Python, while a worker runs.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::Connection;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

/// An app's own file as it was before Onceward came.
const APP: &str = "CREATE TABLE invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL);
  CREATE TABLE log (what TEXT);
  PRAGMA user_version = 42; PRAGMA application_id = 1234567;";

/// Runs a script in the `sqlite3` shell on the test's file.
#[track_caller]
fn sqlite3(h: &Harness, script: &str) -> String {
    let mut child = Command::new("sqlite3")
        .args(["-bail", "-cmd", ".timeout 30000"])
        .arg(h.dir.path().join("onceward.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sqlite3 starts");
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("sqlite3 reads");
    finished(child)
}

/// Runs a Python script with the test's file as its argument.
#[track_caller]
fn python(h: &Harness, script: &str) -> String {
    let child = Command::new("python3")
        .args(["-c", script])
        .arg(h.dir.path().join("onceward.db"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    finished(child)
}

#[track_caller]
fn finished(child: std::process::Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A row for the payout of invoice `n`.
fn row(n: u32) -> String {
    format!("INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', '{}');", payout(n))
}

/// Makes the store without a job in it: a refused import creates the file.
#[track_caller]
fn make_store(h: &Harness) {
    std::fs::write(h.dir.path().join("none.jsonl"), "").expect("a file");
    h.run(&["import", "none.jsonl"]).ok();
}

/// Asks again and again until a number in the file is as wanted.
#[track_caller]
fn until(h: &Harness, sql: &str, wanted: i64) {
    let start = Instant::now();
    while h.count(sql) != wanted {
        assert!(start.elapsed() < LIMIT, "{sql} never became {wanted}: it is {}", h.count(sql));
        std::thread::yield_now();
    }
}

const SETTLED: &str = "SELECT count(*) FROM onceward_jobs WHERE state = 'settled'";
const ROWS: &str = "SELECT count(*) FROM onceward_inbox";

#[test]
fn a_row_from_plain_sqlite3_becomes_a_job_of_the_running_worker_if_its_transaction_commits() {
    let h = Scene::new(Family::B).start();
    sqlite3(&h, APP);
    make_store(&h);
    let mut worker = h.spawn_worker(&[]);
    sqlite3(&h, &format!("BEGIN; INSERT INTO invoices VALUES ('INV-1', 1001); {} ROLLBACK;", row(1)));
    sqlite3(&h, &format!("BEGIN; INSERT INTO invoices VALUES ('INV-2', 1002); {} COMMIT;", row(2)));
    until(&h, SETTLED, 1);
    worker.term();
    worker.wait();
    let job = h.assert_settled_once(&key(2));
    assert_eq!(job["history"][0]["actor"], "inbox");
    assert_eq!(h.list(&[]).len(), 1, "what was rolled back is no job");
    assert_eq!((h.count(ROWS), h.count("SELECT count(*) FROM invoices")), (0, 1));
    assert_eq!(h.count("PRAGMA user_version"), 42);
    assert_eq!(h.count("PRAGMA application_id"), 1_234_567);
    let outcome = sqlite3(&h, "SELECT key, state, intent_state FROM onceward_outcomes;");
    assert_eq!(outcome.trim(), "payout:INV-2|settled|settled");
    h.assert_laws();
}

#[test]
fn python_asks_inside_its_own_transaction_and_a_long_one_loses_nothing() {
    let h = Scene::new(Family::B).start();
    sqlite3(&h, APP);
    make_store(&h);
    let mut worker = h.spawn_worker(&[]);
    // The lock is held for three seconds, with jobs that the worker would like to record meanwhile.
    h.payout(1);
    python(
        &h,
        r#"
import json, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
def ask(n):
    payload = {"invoice_id": f"INV-{n}", "account_id": "7", "amount_minor": 1000 + n, "currency": "EUR"}
    db.execute("INSERT INTO invoices VALUES (?, ?)", (f"INV-{n}", 1000 + n))
    db.execute("INSERT INTO onceward_inbox (kind, payload, account) VALUES ('payout', ?, '7')", (json.dumps(payload),))
db.execute("BEGIN IMMEDIATE")
ask(2)
end = time.monotonic() + 3
while time.monotonic() < end:
    time.sleep(0.05)
ask(3)
db.execute("COMMIT")
db.execute("BEGIN IMMEDIATE")
ask(4)
db.execute("ROLLBACK")
"#,
    );
    until(&h, SETTLED, 3);
    assert!(worker.ended_within(std::time::Duration::ZERO).is_none());
    worker.term();
    worker.wait();
    for n in [1, 2, 3] {
        h.assert_settled_once(&key(n));
    }
    assert_eq!((h.list(&[]).len(), h.count("SELECT count(*) FROM invoices")), (3, 2));
    assert_eq!(h.count(ROWS), 0);
    h.assert_laws();
}

#[test]
fn an_apps_own_trigger_may_ask_for_work() {
    let h = Scene::new(Family::B).start();
    sqlite3(&h, APP);
    make_store(&h);
    sqlite3(
        &h,
        "CREATE TRIGGER pay AFTER INSERT ON invoices BEGIN
           INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', json_object('invoice_id', new.id,
             'account_id', '7', 'amount_minor', new.amount_minor, 'currency', 'EUR'));
         END;
         CREATE TRIGGER watch AFTER DELETE ON onceward_inbox BEGIN INSERT INTO log VALUES (old.payload); END;
         INSERT INTO invoices VALUES ('INV-1', 1001);",
    );
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    assert_eq!(h.count("SELECT count(*) FROM log"), 1, "the app's trigger on the inbox runs too");
    h.assert_laws();
}

#[test]
fn a_thousand_rows_of_one_transaction_become_jobs_in_the_order_of_their_ids() {
    let h = Scene::new(Family::B).start();
    make_store(&h);
    let rows: String = (0..1000)
        .map(|n| format!("INSERT INTO onceward_inbox (kind, payload, key) VALUES ('raw', '{{\"n\":{n}}}', 'k{n:04}');\n"))
        .collect();
    sqlite3(&h, &format!("BEGIN;\n{rows}COMMIT;"));
    h.work_until_idle();
    assert_eq!((h.count(ROWS), h.count(SETTLED)), (0, 1000), "idle means that the inbox is empty too");
    let out_of_order = "SELECT count(*) FROM onceward_intents a JOIN onceward_intents b ON b.id = a.id + 1
      WHERE b.key < a.key";
    assert_eq!(h.count(out_of_order), 0);
    h.assert_laws();
}

#[test]
fn once_takes_what_waits_in_the_inbox_before_it_ends() {
    let h = Scene::new(Family::B).start();
    make_store(&h);
    let rows: String = (1..=250).map(row).collect();
    sqlite3(&h, &format!("BEGIN; {rows} COMMIT;"));
    h.run(&["work", "--once"]).ok();
    assert_eq!((h.count(ROWS), h.count("SELECT count(*) FROM onceward_jobs")), (0, 250));
    assert_eq!(h.count(SETTLED), 250);
    h.assert_laws();
}

#[test]
fn rows_behind_a_batch_of_refused_ones_are_work_that_is_left() {
    let h = Scene::new(Family::B).start();
    make_store(&h);
    for (n, until) in [(1, "--once"), (2, "--exit-when-idle")] {
        let bad = "INSERT INTO onceward_inbox (kind, payload) VALUES ('nobody', '{}');".repeat(150);
        sqlite3(&h, &format!("BEGIN; {bad} {} COMMIT;", row(n)));
        h.run(&["work", until]).ok();
        h.assert_settled_once(&key(n));
        assert_eq!(h.stats()["inbox_refused"], 150 * n);
    }
}

#[test]
fn a_row_that_must_be_refused_stays_with_its_reason_and_holds_up_no_other() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let other = payout(1).replace("1001", "1002");
    let card = r#"{"card":"4111111111111111"}"#;
    let far = i64::MAX;
    sqlite3(
        &h,
        &format!(
            r#"BEGIN;
            INSERT INTO onceward_inbox (kind, payload) VALUES ('nobody', '{{}}');
            INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', 'no json');
            INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', '{other}');
            INSERT INTO onceward_inbox (kind, payload, key) VALUES ('raw', '{card}', 'c');
            INSERT INTO onceward_inbox (kind, payload, key) VALUES ('raw', '{{"x":"' || printf('%.*c', 400000, 'x') || '"}}', 'l');
            INSERT INTO onceward_inbox (kind, payload, key) VALUES ('raw', CAST(x'7b2261223a22ff227d' AS TEXT), 'u');
            INSERT INTO onceward_inbox (kind, payload, key, dedup) VALUES ('raw', '{{}}', 'd', 'same');
            INSERT INTO onceward_inbox (kind, payload, key, dedup_window_ms) VALUES ('raw', '{{}}', 'e', 1000);
            INSERT INTO onceward_inbox (kind, payload, key, dedup, dedup_window_ms) VALUES ('raw', '{{}}', 'f', 'a', -1);
            INSERT INTO onceward_inbox (kind, payload, key, amount_minor) VALUES ('raw', '{{}}', 'g', -5);
            INSERT INTO onceward_inbox (kind, payload, key, sequence) VALUES ('raw', '{{}}', 'h', 1);
            INSERT INTO onceward_inbox (kind, payload, key, run_after_ms) VALUES ('raw', '{{}}', 'i', {far});
            {good}
            COMMIT;"#,
            good = row(2)
        ),
    );
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.assert_settled_once(&key(2));
    let codes = sqlite3(&h, "SELECT refused FROM onceward_inbox WHERE refused_why <> '' ORDER BY id;");
    assert_eq!(
        codes.lines().collect::<Vec<_>>(),
        [
            "invalid",
            "invalid",
            "key_mismatch",
            "card_number",
            "too_large",
            "invalid",
            "invalid",
            "invalid",
            "invalid",
            "invalid",
            "invalid",
            "invalid"
        ]
    );
    assert_eq!(h.stats()["inbox_refused"], 12);
    assert_eq!(h.stats()["key_mismatches"], 1, "a refusal counts as at any other door");
    assert_eq!(h.count("SELECT value FROM onceward_counters WHERE name = 'inbox_refused'"), 12);
    let check = h.run(&["check"]);
    check.fails(&[1]);
    let named = |id: i64| {
        check.stdout.contains(&format!("row {id} of onceward_inbox is refused"))
            && check.stdout.contains(&format!("refused_why = NULL, … WHERE id = {id}, or delete it"))
    };
    assert!((1..=12).all(named), "{check}");
    assert!(check.stdout.contains("there is no kind \\\"nobody\\\""), "{check}");
    h.assert_laws();
}

#[test]
fn a_mended_row_is_taken_and_a_refused_one_is_not_looked_at_again() {
    let h = Scene::new(Family::B).start();
    make_store(&h);
    sqlite3(&h, &row(1).replace("'payout',", "'pay',"));
    h.work_until_idle();
    h.work_until_idle();
    assert_eq!(h.count("SELECT value FROM onceward_counters WHERE name = 'inbox_refused'"), 1);
    assert_eq!(h.list(&[]).len(), 0);
    sqlite3(
        &h,
        "UPDATE onceward_inbox SET refused = NULL, refused_why = NULL, kind = 'payout' WHERE id = 1;",
    );
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    assert_eq!((h.count(ROWS), h.stats()["inbox_refused"].as_i64()), (0, Some(0)));
    h.run(&["check"]).ok();
}

#[test]
fn a_row_brings_group_time_priority_money_and_window_along() {
    let h = Scene::new(Family::B).start();
    make_store(&h);
    sqlite3(
        &h,
        r#"BEGIN;
        INSERT INTO onceward_inbox (kind, payload, key, group_key, sequence, priority, account, amount_minor, currency)
          VALUES ('raw', '{"n":1}', 'full', 'g', 1, -3, '42', 9007199254740993, 'EUR');
        INSERT INTO onceward_inbox (kind, payload, key, run_after_ms) VALUES ('raw', '{"n":2}', 'later', 4102444800000);
        INSERT INTO onceward_inbox (kind, payload, key, run_after_ms) VALUES ('raw', '{"n":3}', 'past', 5);
        INSERT INTO onceward_inbox (kind, payload, key, dedup, dedup_window_ms) VALUES ('raw', '{"n":4}', 'd1', 'x', 600000);
        INSERT INTO onceward_inbox (kind, payload, key, dedup, dedup_window_ms) VALUES ('raw', '{"n":5}', 'd2', 'x', 600000);
        INSERT INTO onceward_inbox (kind, payload, key) VALUES ('raw', '{ "n": 3 }', 'past');
        COMMIT;"#,
    );
    h.run(&["work", "--once"]).ok();
    assert_eq!(h.count(ROWS), 0, "duplicate and suppressed rows are gone");
    let full = h.show("full");
    assert_eq!((full["group"].as_str(), full["sequence"].as_i64()), (Some("g"), Some(1)));
    assert_eq!((full["priority"].as_i64(), full["account"].as_str()), (Some(-3), Some("42")));
    assert_eq!(full["amount_minor"].as_i64(), Some(9_007_199_254_740_993));
    let later = h.show("later");
    assert_eq!(
        (later["state"].as_str(), later["run_after"].as_str()),
        (Some("scheduled"), Some("2100-01-01T00:00:00.000Z"))
    );
    let past = h.show("past");
    assert_eq!(past["history"][0]["run_after"], past["created_at"], "a time that has passed is now");
    h.run(&["show", "d2"]).refused("not_found", 3);
    assert_eq!((h.stats()["suppressed"].as_i64(), h.stats()["duplicate_keys"].as_i64()), (Some(1), Some(1)));
}

#[test]
fn a_worker_that_dies_among_the_rows_neither_loses_nor_doubles_one() {
    let h = Scene::new(Family::B).start();
    make_store(&h);
    let rows: String = (1..=300).map(row).collect();
    sqlite3(&h, &format!("BEGIN; {rows} COMMIT;"));
    h.kill_worker_when(|state| state.effects.len() >= 3);
    assert_eq!(
        h.count("SELECT (SELECT count(*) FROM onceward_jobs) + (SELECT count(*) FROM onceward_inbox)"),
        300
    );
    h.work_until_idle();
    assert_eq!((h.count(ROWS), h.count(SETTLED)), (0, 300));
    h.assert_laws();
}

#[test]
fn an_empty_inbox_costs_no_write() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.work_until_idle();
    let db = Connection::open(h.dir.path().join("onceward.db")).expect("the file opens");
    let version = || db.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).expect("a version");
    let store = {
        use onceward::{clock::SystemClock, config::Config, store::Store, worker::Trade};
        use std::sync::Arc;
        let config = Arc::new(Config::load(&h.config_path()).expect("a config"));
        let clock = Arc::new(SystemClock::new());
        let trade = Arc::new(Trade::new(config, clock.clone()));
        let options = onceward::store::Options { create: false, namespace: String::new(), watch: None };
        Store::open(&h.dir.path().join("onceward.db"), options, clock, trade).expect("the store opens")
    };
    let before = version();
    assert_eq!(store.take_inbox().expect("the inbox can be read"), 0);
    assert_eq!(version(), before);
    sqlite3(&h, &row(2));
    let written = version();
    assert_eq!(store.take_inbox().expect("the inbox can be read"), 1);
    assert_ne!(version(), written, "the version tells a write from none");
}
