//! `audit verify` and `audit export` by the real binary.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use rusqlite::Connection;

#[test]
fn a_row_changed_by_hand_makes_the_audit_fail_and_names_it() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.payout(2);
    h.work_until_idle();
    let good = h.run(&["audit", "verify"]).ok().json();
    assert_eq!(good["totals"][0]["amount_minor"], "2003");
    assert_eq!((good["ok"].as_bool(), good["rows"].as_i64()), (Some(true), Some(4)));
    let raw = Connection::open(h.dir.path().join("onceward.db")).unwrap();
    raw.execute_batch("DROP TRIGGER onceward_settled_never_changes; UPDATE onceward_intents SET amount_minor = 9 WHERE id = 2")
        .unwrap();
    let bad = h.run(&["audit", "verify"]);
    bad.fails(&[1]);
    let found = bad.json();
    let breaks = found["breaks"].as_array().unwrap();
    assert!(
        breaks.iter().any(|b| b["job"] == 2 && b["what"].as_str().unwrap().contains("amount_minor is 9")),
        "{found:#}"
    );
    assert!(
        breaks.iter().any(|b| b["what"].as_str().unwrap().contains("onceward_settled_never_changes")),
        "{found:#}"
    );
    assert!(breaks.iter().any(|b| b["what"].as_str().unwrap().contains("settled in EUR")), "{found:#}");
}

#[test]
fn the_export_is_whole_filtered_and_safe_in_a_spreadsheet() {
    let h = Scene::new(Family::B).start();
    let one = h.payout(1);
    h.payout(2);
    h.work_until_idle();
    h.run(&["note", &one, "=HYPERLINK(\"http://x\")"]).ok();
    let rows = h.run(&["audit", "export"]).ok().lines();
    assert_eq!(rows.iter().map(|r| r["seq"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(rows[4]["detail"], "=HYPERLINK(\"http://x\")");
    assert_eq!(h.run(&["audit", "export", "--key", &one]).ok().lines().len(), 3);
    assert_eq!(h.run(&["audit", "export", "--until", "2020-01-01T00:00:00Z"]).ok().stdout, "");
    assert_eq!(h.run(&["audit", "export", "--since", "2020-01-01T00:00:00Z"]).ok().lines().len(), 5);
    h.run(&["audit", "export", "--format", "csv", "--output", "out.csv"]).ok();
    let mut table = csv::Reader::from_path(h.dir.path().join("out.csv")).unwrap();
    let detail = table.headers().unwrap().iter().position(|name| name == "detail").unwrap();
    let rows: Vec<_> = table.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 5);
    assert_eq!(&rows[4][detail], "'=HYPERLINK(\"http://x\")");
    assert!(
        h.run(&["audit", "export", "--output", "out.csv"])
            .refused("not_allowed", 4)
            .contains("never overwritten")
    );
}

/// R54: five failures of different sorts, parked, replayed twice at once; every attempt stays, with who, when and why.
#[test]
fn a_parked_job_keeps_all_its_attempts_and_of_two_replays_at_once_one_wins() {
    let h = Scene::new(Family::B)
        .set(|s| s.retry = s.retry.replace("max_attempts = 10", "max_attempts = 5"))
        .start();
    let key = h.payout(1);
    h.provider.script(vec![
        Fault::Answer(Answer::json(500, "{}")),
        Fault::DropBefore,
        Fault::Answer(Answer::json(502, "oops")),
        Fault::DropBefore,
        Fault::Answer(Answer::json(503, "{}")),
    ]);
    h.work_until_idle();
    let parked = h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(
        classes(&parked),
        ["server_error", "interrupted", "server_error", "interrupted", "server_error"]
    );
    let rows: Vec<_> = tries(&parked).collect();
    assert!(
        rows.iter()
            .all(|row| row["started_at"].is_string() && row["at"].is_string() && row["actor"].is_string())
    );
    assert!(parked["payload"].is_object());
    let mut command = h.plain_command(&["replay", &key]);
    let first = std::thread::spawn(move || command.output().unwrap().status.code());
    let second = h.plain_command(&["replay", &key]).output().unwrap().status.code();
    let mut ends = [first.join().unwrap(), second];
    ends.sort();
    assert_eq!(ends, [Some(0), Some(4)], "one wins, the other hears that it is not parked");
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(tries(&job).last().unwrap()["attempt"], 6, "numbers go on");
    assert_eq!(job["intent"]["wire_key"], parked["intent"]["wire_key"]);
    assert_eq!(h.count("SELECT count(*) FROM onceward_jobs"), 1);
    assert_eq!(actions(&job).iter().filter(|a| *a == "replay").count(), 1);
    h.assert_laws();
}

fn anchored() -> Harness {
    Scene::new(Family::B)
        .set(|s| s.tables = "[audit]\nanchor = { file = \"anchor.jsonl\", every = \"1s\" }".into())
        .start()
}

#[test]
fn a_history_that_was_made_anew_with_a_chain_of_its_own_is_found_by_the_anchor() {
    let h = anchored();
    h.payout(1);
    h.work_until_idle();
    let good = h.run(&["audit", "verify"]).ok().json();
    assert!(good["anchors"]["agree"].as_i64().unwrap() >= 1, "{good:#}");
    assert_eq!(good["anchors"]["last_seq"], 2);
    // The same event, done by a file of its own: sound in itself.
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(h.dir.path().join(format!("onceward.db{end}")));
    }
    h.payout(1);
    h.run(&["cancel", &key(1)]).ok();
    let bad = h.run(&["audit", "verify"]);
    bad.fails(&[1]);
    let found = bad.json();
    assert!(
        found["breaks"].as_array().unwrap().iter().all(|b| b["what"].as_str().unwrap().contains("rewritten")),
        "{found:#}"
    );
}

#[test]
fn a_file_that_was_put_back_by_hand_is_not_worked_on_until_it_is_restored() {
    let h = anchored();
    h.payout(1);
    // Nobody has it open, so it is one file.
    assert!(!h.dir.path().join("onceward.db-wal").exists());
    std::fs::copy(h.dir.path().join("onceward.db"), h.dir.path().join("old.db")).unwrap();
    let at = onceward::clock::Clock::now(&onceward::clock::SystemClock::new()).rfc3339();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    let _ = std::fs::remove_file(h.dir.path().join("onceward.db-shm"));
    std::fs::copy(h.dir.path().join("old.db"), h.dir.path().join("onceward.db")).unwrap();
    assert!(h.run(&["work", "--exit-when-idle"]).refused("not_allowed", 4).contains("--copied-at"));
    h.run(&["audit", "verify"]).fails(&[1]);
    h.run(&["restore", "--copied-at", &at, "--no-words"]).ok();
    h.run(&["resume", "--all"]).ok();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    let audit = h.run(&["audit", "verify"]).ok().json();
    assert!(audit["anchors"]["lost_by_restore"].as_i64().unwrap() >= 1, "{audit:#}");
}

/// A full disk or a power cut leaves part of a line; the next one is a line of its own.
#[test]
fn a_line_of_the_anchor_that_was_cut_off_is_passed_over_and_spoils_no_other() {
    use std::io::Write;
    let h = anchored();
    h.payout(1);
    h.work_until_idle();
    let path = h.dir.path().join("anchor.jsonl");
    let lines = |text: &str| text.lines().count();
    let before = lines(&std::fs::read_to_string(&path).unwrap());
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"at\":\"2026-11-").unwrap();
    h.run(&["audit", "verify"]).ok();
    h.payout(2);
    h.work_until_idle();
    let good = h.run(&["audit", "verify"]).ok().json();
    assert_eq!(good["anchors"]["last_seq"], 4, "{good:#}");
    assert!(lines(&std::fs::read_to_string(&path).unwrap()) > before + 1);
}

#[test]
fn an_anchor_that_cannot_be_written_is_told_and_stops_nothing_and_one_that_is_gone_is_found() {
    let h = anchored();
    h.payout(1);
    h.work_until_idle();
    std::fs::remove_file(h.dir.path().join("anchor.jsonl")).unwrap();
    std::fs::create_dir(h.dir.path().join("anchor.jsonl")).unwrap();
    h.payout(2);
    assert!(h.work_until_idle().stderr.contains("NOT ANCHORED"));
    h.assert_settled_once(&key(2));
    h.run(&["audit", "verify"]).fails(&[1]);
    std::fs::remove_dir(h.dir.path().join("anchor.jsonl")).unwrap();
    h.run(&["audit", "verify"]).fails(&[1]);
}

/// Card numbers and codes at the doors that are people's, and the ones that pass.
#[test]
fn card_data_is_refused_in_peoples_words_too_and_nothing_of_it_reaches_the_file() {
    let h = Scene::new(Family::E).total("300ms").start();
    h.provider.script(vec![Fault::DropBefore]);
    let key = h.payout(1);
    h.work_until_idle();
    let card = "4111-1111 1111-1111";
    for args in [
        vec!["note", &key, card],
        vec!["resolve", &key, "--not-applied", "--note", card],
        vec!["resolve", &key, "--rejected", card],
        vec!["pause", "provider", "bank", "--why", card],
        vec!["resume", "provider", "bank", "--why", card],
        vec!["pause", "group", card],
        vec!["enqueue", "raw", "--key", card, "--payload", "{}"],
        vec!["enqueue", "raw", "--key", "k", "--account", card, "--payload", "{}"],
        vec!["enqueue", "raw", "--key", "k", "--payload", r#"{"card":{"cvn":"123"}}"#],
        vec!["enqueue", "raw", "--key", "k", "--payload", r#"{"memo":"paid with 378282246310005 today"}"#],
    ] {
        let said = h.run(&args).refused("card_number", 4);
        assert!(!said.contains("1111") && !said.contains("378282246310005"), "{args:?}: {said}");
    }
    h.enqueue(
        "raw",
        r#"{"ean":"4006381333931","order":"2026-0000-4711-0042","cid":"cus_17"}"#,
        &["--key", "passes"],
    )
    .ok();
    let file = std::fs::read(h.dir.path().join("onceward.db")).unwrap();
    let log = std::fs::read(h.dir.path().join("onceward.db-wal")).unwrap_or_default();
    for bytes in [file, log] {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(!text.contains("4111") && !text.contains("378282246310005"));
    }
}

#[test]
fn events_that_were_taken_away_at_their_end_are_found_by_the_anchor() {
    let h = anchored();
    h.payout(1);
    h.run(&["pause", "provider", "bank"]).ok();
    h.run(&["resume", "provider", "bank"]).ok();
    h.work_until_idle();
    h.run(&["audit", "verify"]).ok();
    let conn = rusqlite::Connection::open(h.dir.path().join("onceward.db")).unwrap();
    let guard = "SELECT sql FROM sqlite_schema WHERE name = 'onceward_events_stay'";
    let guard: String = conn.query_row(guard, [], |row| row.get(0)).unwrap();
    let cut = "DROP TRIGGER onceward_events_stay; DELETE FROM onceward_events WHERE seq > 1";
    conn.execute_batch(&format!("{cut}; {guard}")).unwrap();
    let bad = h.run(&["audit", "verify"]);
    bad.fails(&[1]);
    let breaks = bad.json()["breaks"].clone();
    let told = |b: &serde_json::Value| b["what"].as_str().unwrap().contains("the events had another chain");
    assert!(breaks.as_array().unwrap().iter().all(told), "{breaks:#}");
}

#[cfg(unix)]
#[test]
fn the_store_its_log_its_anchor_and_its_exports_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let h = anchored();
    let mode = |name: &str| std::fs::metadata(h.dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    h.show_until(&key(1), |job| job["state"] == "settled");
    h.run(&["audit", "export", "--output", "out.jsonl"]).ok();
    for name in ["onceward.db", "onceward.db-wal", "onceward.db-shm", "out.jsonl"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    worker.term();
    assert!(worker.wait().success());
    // A clean stop writes it at the latest.
    assert_eq!(mode("anchor.jsonl"), 0o600);
}
