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

/// The config of a second program on the same file: it knows refunds and not payouts, and has other limits.
fn other_config(h: &Harness) -> String {
    h.scene
        .text()
        .replace("[kinds.payout]", "[kinds.refund]")
        .replace("payout:{invoice_id}", "refund:{invoice_id}")
        .replace("threads = 4", "threads = 2\nlease = \"7s\"")
        .replace("total = \"20s\"", "total = \"9s\"")
        .replace("concurrency = 16", "concurrency = 3")
}

/// Starts a worker with this config, and leaves the file's own in place. Returns once it has registered.
fn worker_of(h: &Harness, config: &str, workers: i64) -> Worker {
    h.config(config);
    let worker = h.spawn_worker(&[]);
    let start = Instant::now();
    while h.count("SELECT count(*) FROM onceward_owners WHERE gone_ms IS NULL") < workers {
        assert!(start.elapsed() < LIMIT, "the worker never registered");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    h.config(&h.scene.text());
    worker
}

#[test]
fn two_workers_with_different_configs_do_each_what_it_knows_and_what_one_lacks_is_named() {
    let h = Scene::new(Family::B).start();
    for n in 1..=5 {
        h.payout(n);
    }
    let other = other_config(&h);
    let mut second = worker_of(&h, &other, 1);
    h.config(&other);
    for n in 11..=15 {
        assert_eq!(h.enqueue("refund", &payout(n), &[]).ok().json()["outcome"], "created");
    }
    for n in 11..=15 {
        h.show_until(&format!("refund:INV-{n}"), |job| job["state"] == "settled");
    }
    // It has passed over the payouts, which were there first, and says so wherever it is asked.
    for n in 1..=5 {
        let job = h.show(&key(n));
        assert_eq!((&job["state"], &job["attempts"]), (&"ready".into(), &0.into()), "{job:#}");
    }
    assert_eq!(h.posts().len(), 5);
    assert_eq!(h.stats()["unclaimed_kinds"], serde_json::json!(["payout"]));
    // Asked by a config that knows them, too: what counts is who works.
    h.config(&h.scene.text());
    assert_eq!(h.stats()["unclaimed_kinds"], serde_json::json!(["payout"]));
    let said = h.run(&["check"]);
    assert!(said.to_string().contains("no running worker knows it"), "{said}");
    h.config(&other);
    let check = h.run(&["check"]);
    check.fails(&[1]);
    let named = |f: &serde_json::Value| {
        f["what"] == "kinds"
            && f["ok"] == false
            && f["finding"].as_str().is_some_and(|w| w.contains("payout"))
    };
    assert!(check.lines().iter().any(named), "{check}");
    // The one that knows them does them, and both do what both know, each job once.
    let mut first = worker_of(&h, &h.scene.text(), 2);
    for n in 100..140 {
        h.enqueue(
            "raw",
            &format!("{{\"amount\":1,\"reference\":\"raw-{n}\"}}"),
            &["--key", &format!("raw-{n}")],
        )
        .ok();
    }
    for n in 100..140 {
        h.show_until(&format!("raw-{n}"), |job| job["state"] == "settled");
    }
    for n in 1..=5 {
        h.show_until(&key(n), |job| job["state"] == "settled");
    }
    let done_by = |key: &str| {
        let job = h.show(key);
        let actor = tries(&job).last().expect("a try")["actor"].as_str().unwrap_or_default().to_string();
        actor.rsplit(':').next().unwrap_or_default().to_string()
    };
    assert_eq!(done_by(&key(1)), first.pid().to_string());
    assert_eq!(done_by("refund:INV-11"), second.pid().to_string());
    for worker in [&mut first, &mut second] {
        worker.term();
        assert_eq!(worker.wait().code(), Some(0));
    }
    assert_eq!(h.posts().len(), 50, "one request a job");
    h.assert_laws();
}

/// The same event under two configs that draw other content, or another key, from it.
#[test]
fn a_config_that_makes_another_job_of_the_same_event_is_refused_or_named() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let mut first = worker_of(&h, &h.scene.text(), 1);
    h.show_until(&key(1), |job| job["state"] == "settled");
    let text = h.scene.text();
    // Other content under the same key.
    h.config(&text.replace("account = \"{account_id}\"", "account = \"main\""));
    let why = h.enqueue("payout", &payout(1), &[]).refused("key_mismatch", 4);
    assert!(why.contains(&key(1)), "{why}");
    // Another key: the same event would be a second job, which only the template shows.
    let rekeyed = text.replace("payout:{invoice_id}", "payout:{account_id}:{invoice_id}");
    let mut second = worker_of(&h, &rekeyed, 2);
    let log = std::fs::read_to_string(h.dir.path().join("workers.log")).expect("a log");
    assert!(log.contains("the key template of kind payout"), "{log}");
    h.config(&rekeyed);
    let check = h.run(&["check"]);
    check.fails(&[1]);
    assert!(check.lines().iter().any(|f| f["what"] == "keys" && f["ok"] == false), "{check}");
    for worker in [&mut first, &mut second] {
        worker.term();
        assert_eq!(worker.wait().code(), Some(0));
    }
    assert_eq!(h.effects(&key(1)), 1);
    h.config(&text);
    h.assert_laws();
}

/// R36: a client of the API that stops reading its answer keeps no snapshot of the file.
#[test]
fn a_client_that_reads_no_answer_does_not_keep_the_log_from_being_emptied() {
    let h = Scene::new(Family::B).with_http().start();
    let web = h.serve();
    let big = "x".repeat(100_000);
    let lines: String = (0..150)
        .map(|n| {
            format!(
                "{{\"kind\":\"raw\",\"key\":\"k{n}\",\"delay\":\"9h\",\"payload\":{{\"a\":\"{big}\"}}}}\n"
            )
        })
        .collect();
    std::fs::write(h.dir.path().join("big.jsonl"), lines).expect("lines");
    h.run(&["import", "big.jsonl"]).ok();
    let mut stalled = web.connect();
    let request = web.head("GET", "/v1/jobs?limit=150", "");
    std::io::Write::write_all(&mut stalled, request.as_bytes()).expect("asked");
    let mut first = [0; 16];
    std::io::Read::read_exact(&mut stalled, &mut first).expect("an answer has begun");
    h.payout(1);
    h.show_until(&key(1), |job| job["state"] == "settled");
    let start = Instant::now();
    while std::fs::metadata(h.dir.path().join("onceward.db-wal")).is_ok_and(|m| m.len() > 0) {
        assert!(start.elapsed() < LIMIT, "the log is not emptied while the client holds its answer");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(stalled);
    h.assert_settled_once(&key(1));
}
