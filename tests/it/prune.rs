//! Retention: what ended long ago loses its payload and words, and nothing that keeps effects single is lost.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use std::time::{Duration, Instant};

/// A payout whose payload takes up room.
fn big(n: u32) -> String {
    payout(n).replacen('{', &format!("{{\"memo\":{:?},", "m".repeat(3000)), 1)
}

fn size(h: &Harness) -> u64 {
    std::fs::metadata(h.dir.path().join("onceward.db")).unwrap().len()
}

/// Work enough that the file has room to give back.
fn work_much(h: &Harness) {
    let lines: String =
        (0..300).map(|n| format!("{{\"kind\":\"payout\",\"payload\":{}}}\n", big(n))).collect();
    std::fs::write(h.dir.path().join("many.jsonl"), lines).unwrap();
    h.run(&["import", "many.jsonl"]).ok();
    h.work_until_idle();
}

fn keeping_nothing() -> Scene {
    Scene::new(Family::B).set(|s| s.kind = "keep = \"1ms\"".into())
}

#[test]
fn a_pruned_key_is_still_a_duplicate_with_its_reference_and_the_archive_can_be_verified() {
    let mut h = keeping_nothing().start();
    let done = h.payout(1);
    h.work_until_idle();
    let reference = h.assert_settled_once(&done)["intent"]["reference"].clone();
    h.provider.script(vec![Fault::Answer(Answer::json(400, r#"{"error":{"code":"bad"}}"#))]);
    let parked = h.payout(2);
    h.work_until_idle();
    let given_up = h.payout(3);
    h.run(&["cancel", &given_up]).ok();
    let open = h.payout(4);
    assert!(h.run(&["prune"]).refused("not_allowed", 4).contains("365 days"));
    let dry = h.run(&["prune", "--force", "--dry-run", "--archive", "old.jsonl"]).ok().json();
    assert_eq!(dry["pruned"], 2);
    assert!(!h.dir.path().join("old.jsonl").exists());
    assert_eq!(h.list(&[]).len(), 4);
    let pruned = h.run(&["prune", "--force", "--archive", "old.jsonl"]).ok().json();
    assert_eq!(pruned["pruned"], 2);
    let again = h.enqueue("payout", &payout(1), &[]).ok().json();
    assert_eq!((again["outcome"].as_str(), again["state"].as_str()), (Some("duplicate"), Some("settled")));
    let job = h.show(&done);
    assert_eq!(job["pruned"], true);
    assert_eq!(job["payload"], serde_json::Value::Null);
    assert_eq!(job["intent"]["reference"], reference);
    assert_eq!(job["intent"]["result"], serde_json::Value::Null);
    assert!(
        job["history"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["detail"].is_null() && row["error"].is_null())
    );
    assert!(h.run(&["replay", &given_up]).refused("not_allowed", 4).contains("pruned"));
    let mut other = payout(1);
    other = other.replace("1001", "1002");
    h.enqueue("payout", &other, &[]).refused("key_mismatch", 4);
    let stats = h.stats();
    assert_eq!((stats["jobs"]["settled"].as_i64(), stats["jobs"]["cancelled"].as_i64()), (Some(0), Some(0)));
    assert_eq!((stats["jobs"]["parked"].as_i64(), stats["jobs"]["ready"].as_i64()), (Some(1), Some(1)));
    let audit = h.run(&["audit", "verify"]).ok().json();
    assert_eq!((audit["pruned"].as_i64(), audit["broken"].as_i64()), (Some(2), Some(0)), "{audit:#}");
    let archive = h.run(&["audit", "verify", "--archive", "old.jsonl"]).ok().json();
    assert_eq!((archive["jobs"].as_i64(), archive["ok"].as_bool()), (Some(2), Some(true)), "{archive:#}");
    // The archive has what the file has not any more, and is found out if it is changed.
    let text = std::fs::read_to_string(h.dir.path().join("old.jsonl")).unwrap();
    assert!(text.contains("INV-1") && text.contains("po_1"));
    for (from, to) in [
        ("\"class\":\"ok\"", "\"class\":\"timeout\""),
        ("paid", "void"),
        ("\"key\":\"payout:INV-3", "\"key\":\"payout:INV-9"),
        ("amount_minor\\\":1001", "amount_minor\\\":9"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(h.dir.path().join("forged.jsonl"), text.replacen(from, to, 1)).unwrap();
        h.run(&["audit", "verify", "--archive", "forged.jsonl"]).fails(&[1]);
    }
    h.reconfigure(|_| {});
    h.work_until_idle();
    h.assert_settled_once(&open);
    assert_eq!(h.show(&parked)["state"], "parked");
    assert_eq!(h.effects(&done), 1);
}

#[test]
fn a_cancelled_place_that_its_group_has_not_passed_is_never_pruned() {
    let h = keeping_nothing().start();
    let job = |n: u32| {
        let n = n.to_string();
        h.enqueue("payout", &payout(n.parse().unwrap()), &["--group", "g", "--sequence", &n]).ok();
    };
    job(1);
    job(3);
    job(2);
    h.run(&["cancel", &key(2)]).ok();
    assert_eq!(h.run(&["prune", "--force"]).ok().json()["pruned"], 0);
    h.work_until_idle();
    h.assert_settled_once(&key(3));
    assert_eq!(h.run(&["prune", "--force"]).ok().json()["pruned"], 3);
    assert!(
        h.enqueue("payout", &payout(9), &["--group", "g", "--sequence", "2"])
            .refused("stale_sequence", 4)
            .contains("passed")
    );
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

#[test]
fn a_worker_goes_on_while_thousands_are_pruned() {
    let h = keeping_nothing().start();
    let lines: String =
        (0..600).map(|n| format!("{{\"kind\":\"payout\",\"payload\":{}}}\n", big(n))).collect();
    std::fs::write(h.dir.path().join("many.jsonl"), lines).unwrap();
    h.run(&["import", "many.jsonl"]).ok();
    h.work_until_idle();
    let before = size(&h);
    let mut worker = h.spawn_worker(&[]);
    let pruned = std::thread::scope(|scope| {
        let mut command = h.plain_command(&["prune", "--force"]);
        let pruning = scope.spawn(move || command.output().unwrap());
        for n in 1000..1010 {
            h.payout(n);
        }
        pruning.join().unwrap()
    });
    assert!(pruned.status.success(), "{pruned:?}");
    let view: serde_json::Value = serde_json::from_slice(&pruned.stdout).unwrap();
    let shrunk = view["shrunk_bytes"].as_u64().unwrap();
    assert!(shrunk > 100_000, "{view}");
    for n in 1000..1010 {
        h.show_until(&key(n), |job| job["state"] == "settled");
    }
    // The worker folds the log into the file once nothing is written for a while.
    let start = Instant::now();
    while size(&h) >= before {
        assert!(start.elapsed() < LIMIT, "the file has {} bytes still, and had {before}", size(&h));
        std::thread::sleep(Duration::from_millis(20));
    }
    worker.term();
    assert!(worker.wait().success());
    assert!(h.count("SELECT count(*) FROM onceward_jobs") <= 10);
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

#[test]
fn a_file_that_onceward_made_is_shorter_after_a_prune_by_what_the_prune_says() {
    let h = keeping_nothing().start();
    work_much(&h);
    let before = size(&h);
    let dry = h.run(&["prune", "--force", "--dry-run"]).ok().json();
    assert_eq!((&dry["shrunk_bytes"], size(&h)), (&0.into(), before));
    let pruned = h.run(&["prune", "--force"]).ok().json();
    assert_eq!((&pruned["pruned"], &pruned["free_bytes"]), (&300.into(), &0.into()));
    // Nobody else has the file open, so its log is folded by now.
    let after = size(&h);
    assert!(after < before - 100_000, "{before} bytes before, {after} after");
    assert!(pruned["shrunk_bytes"].as_u64() >= Some(before - after), "{pruned}, {before}, {after}");
    let free: i64 = h.sqlite().query_row("PRAGMA freelist_count", [], |row| row.get(0)).unwrap();
    assert_eq!(free, 0);
    h.assert_laws();
}

/// How somebody else's file is kept is theirs to choose: nothing of it changes, and the room in it is used again.
#[test]
fn a_file_that_somebody_else_made_keeps_its_length_and_its_settings() {
    for mode in [0, 1] {
        let h = keeping_nothing().start();
        let db = rusqlite::Connection::open(h.dir.path().join("onceward.db")).unwrap();
        db.execute_batch(&format!("PRAGMA auto_vacuum = {mode}; CREATE TABLE orders (id)")).unwrap();
        drop(db);
        work_much(&h);
        let before = size(&h);
        let pruned = h.run(&["prune", "--force"]).ok().json();
        let kept: i64 = h.sqlite().query_row("PRAGMA auto_vacuum", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, mode);
        if mode == 0 {
            assert_eq!((&pruned["shrunk_bytes"], size(&h)), (&0.into(), before), "{pruned}");
            assert!(pruned["free_bytes"].as_u64() > Some(100_000), "{pruned}");
            let mut plain = h.plain_command(&["prune", "--force"]);
            let args: Vec<_> = plain.get_args().filter(|a| *a != "--json").map(|a| a.to_owned()).collect();
            plain = {
                let mut again = std::process::Command::new(plain.get_program());
                again.args(args).current_dir(h.dir.path());
                again
            };
            let said = String::from_utf8(plain.output().unwrap().stdout).unwrap();
            assert!(said.contains("will be used again"), "{said}");
        }
        h.assert_laws();
    }
}
