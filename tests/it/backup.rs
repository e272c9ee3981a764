//! Copies under load, and what a restored file does: nothing is done twice that was done since the copy.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::Connection;

/// R44 for one family: 40 are done, the copy is made with two workers at it, all is done, the file is lost, the copy put
/// back, and everything is worked on and asked for again.
fn restored(scene: Scene) -> Harness {
    let h = scene.start();
    for n in 0..40 {
        h.payout(n);
    }
    h.work_until_idle();
    for n in 40..100 {
        h.payout(n);
    }
    let mut workers = [h.spawn_worker(&[]), h.spawn_worker(&[])];
    let copy = h.dir.path().join("copy.db");
    assert!(h.provider.wait_for(|state| state.effects.len() > 45, LIMIT));
    h.run(&["backup", copy.to_str().unwrap()]).ok();
    assert!(h.provider.wait_for(|state| state.effects.len() >= 100, LIMIT));
    // A key that only the lost file knows.
    h.payout(100);
    assert!(h.provider.wait_for(|state| state.effects.len() >= 101, LIMIT));
    workers.iter_mut().for_each(|worker| worker.kill9());
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(h.dir.path().join(format!("onceward.db{end}")));
    }
    let restored = h.run(&["restore", copy.to_str().unwrap()]).ok().json();
    assert!(restored["doubtful"].as_u64().unwrap() > 0, "{restored}");
    // The app asks again for what the copy does not know.
    assert_eq!(h.enqueue("payout", &payout(100), &[]).ok().json()["outcome"], "created");
    h.work_until_idle();
    let effects = h.provider.state().effects.len();
    assert_eq!(effects, 101, "as many effects as keys");
    assert_eq!(h.provider.state().doubled(), Vec::<String>::new());
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
    assert!(h.list(&[]).last().unwrap()["id"].as_i64().unwrap() > 1_000_000, "numbers are not given again");
    h
}

fn states(h: &Harness, state: &str) -> usize {
    h.list(&["--state", state]).len()
}

#[test]
fn after_a_restore_a_provider_that_stores_every_answer_has_one_effect_a_key() {
    let h = restored(Scene::new(Family::A));
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_a_provider_that_stores_successes_has_one_effect_a_key() {
    let h = restored(Scene::new(Family::B));
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_jobs_are_looked_up_before_they_are_sent() {
    let h = restored(Scene::new(Family::B).with_lookup(false));
    assert_eq!(states(&h, "settled"), 101);
    // Of those that the copy had open, none was sent again: each was found.
    let open = h.list(&[]);
    let asked = open.iter().filter(|job| {
        let job = h.show(job["key"].as_str().unwrap());
        actions(&job).iter().any(|a| a == "release")
            && actions(&job).last().map(String::as_str) == Some("lookup")
    });
    assert!(asked.count() > 0, "some were looked up");
}

#[test]
fn after_a_restore_a_provider_that_names_the_first_object_has_one_effect_a_key() {
    let h = restored(Scene::new(Family::D));
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_a_provider_that_forgets_is_looked_up_and_never_asked_again() {
    let h = restored(Scene::new(Family::E).with_lookup(false));
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_what_a_provider_that_forgets_may_have_done_waits_for_a_person() {
    let h = restored(Scene::new(Family::E));
    let parked = h.list(&["--state", "parked"]);
    assert!(!parked.is_empty());
    assert!(parked.iter().all(|job| job["park_reason"] == "unknown_outcome"), "{parked:#?}");
    assert_eq!(states(&h, "settled") + parked.len(), 101);
    h.assert_parked(&key(100), "unknown_outcome", "requested");
}

#[test]
fn a_backup_is_for_reading_until_it_is_restored_and_a_restore_destroys_nothing() {
    let mut h = Scene::new(Family::B).start();
    h.payout(1);
    let copy = h.dir.path().join("copy.db");
    h.run(&["backup", "copy.db"]).ok();
    assert!(h.run(&["backup", "copy.db"]).refused("not_allowed", 4).contains("never overwritten"));
    assert!(h.run(&["restore", "copy.db"]).refused("not_allowed", 4).contains("move it aside"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // Somebody points the config at the copy.
    std::fs::rename(h.dir.path().join("onceward.db"), h.dir.path().join("old.db")).unwrap();
    std::fs::copy(&copy, h.dir.path().join("onceward.db")).unwrap();
    for args in [
        vec!["work", "--exit-when-idle"],
        vec![
            "enqueue",
            "payout",
            "--payload",
            r#"{"invoice_id":"2","account_id":"1","amount_minor":1,"currency":"EUR"}"#,
        ],
        vec!["cancel", "payout:INV-1"],
        vec!["note", "payout:INV-1", "x"],
        vec!["pause", "kind", "payout"],
    ] {
        assert!(h.run(&args).refused("not_allowed", 4).contains("restore"), "{args:?}");
    }
    assert_eq!(h.show(&key(1))["state"], "ready");
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
    assert_eq!(h.posts().len(), 0);
    h.run(&["restore", "onceward.db"]).ok();
    assert!(h.run(&["restore", "onceward.db"]).refused("not_allowed", 4).contains("--copied-at"));
    h.reconfigure(|_| {});
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.assert_laws();
}

#[test]
fn a_restore_is_refused_while_a_worker_is_alive_on_the_lost_file_and_moves_its_log_aside() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    h.show_until(&key(1), |job| job["state"] == "settled");
    h.run(&["backup", "copy.db"]).ok();
    std::fs::rename(h.dir.path().join("onceward.db"), h.dir.path().join("lost.db")).unwrap();
    assert!(h.run(&["restore", "copy.db"]).refused("not_allowed", 4).contains("a worker is at work"));
    worker.kill9();
    let restored = h.run(&["restore", "copy.db"]).ok().json();
    assert!(!restored["moved_aside"].as_array().unwrap().is_empty(), "{restored}");
    h.work_until_idle();
    assert_eq!(h.effects(&key(1)), 1);
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// R43: every copy opens, is sound, and has every job that was acknowledged before it was begun.
#[test]
fn each_of_many_backups_under_load_holds_all_that_was_acknowledged() {
    let h = Scene::new(Family::B).start();
    let mut worker = h.spawn_worker(&[]);
    for n in 0..15 {
        h.payout(n);
        let name = format!("copy-{n}.db");
        h.run(&["backup", &name]).ok();
        let copy = Connection::open(h.dir.path().join(&name)).unwrap();
        let sound: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        let keys: i64 =
            copy.query_row("SELECT count(*) FROM onceward_intents", [], |row| row.get(0)).unwrap();
        assert_eq!(keys, i64::from(n) + 1);
    }
    worker.term();
    assert!(worker.wait().success());
    let left: Vec<_> = std::fs::read_dir(h.dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(".tmp-") || name.starts_with("copy-") && !name.ends_with(".db"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "no half file is left");
}

#[test]
fn a_copy_by_hand_is_restored_with_the_word_of_when_it_was_made() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    // Nobody has it open, so it is one file.
    assert!(!h.dir.path().join("onceward.db-wal").exists());
    std::fs::copy(h.dir.path().join("onceward.db"), h.dir.path().join("hand.db")).unwrap();
    let at = onceward::clock::Clock::now(&onceward::clock::SystemClock::new()).rfc3339();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    std::fs::rename(h.dir.path().join("onceward.db"), h.dir.path().join("lost.db")).unwrap();
    assert!(h.run(&["restore", "hand.db"]).refused("not_allowed", 4).contains("--copied-at"));
    let restored = h.run(&["restore", "hand.db", "--copied-at", &at]).ok().json();
    assert_eq!(restored["doubtful"], 1);
    let job = h.show(&key(1));
    assert_eq!(
        (job["state"].as_str(), job["intent"]["state"].as_str()),
        (Some("unknown"), Some("requested"))
    );
    assert!(h.run(&["cancel", &key(1)]).refused("not_allowed", 4).contains("may have taken effect"));
    h.work_until_idle();
    h.assert_settled_once(&key(1));
}

/// R43: killed at any point, a backup or a restore leaves its whole result or nothing under the name.
#[cfg(feature = "crash-points")]
#[test]
fn a_backup_or_restore_that_is_killed_leaves_all_or_nothing() {
    let h = Scene::new(Family::B).start();
    for n in 0..5 {
        h.payout(n);
    }
    let at = |name: &str| h.dir.path().join(name);
    let whole = |name: &str| {
        let copy = Connection::open(at(name)).unwrap();
        let keys: i64 =
            copy.query_row("SELECT count(*) FROM onceward_intents", [], |row| row.get(0)).unwrap();
        keys == 5
    };
    let until_done = |args: &[&str], name: &str| {
        for n in 1..20 {
            let point = n.to_string();
            if h.run_with(args, &[("ONCEWARD_CRASH_AT", &point)]).code == Some(0) {
                return n - 1;
            }
            if !at(name).exists() {
                continue;
            }
            // Only the word of it in the events was still to come.
            assert!(args[0] == "backup" && whole(name), "{args:?} killed at point {n} left {name}");
            std::fs::remove_file(at(name)).unwrap();
        }
        panic!("{args:?} never came to its end");
    };
    assert!(until_done(&["backup", "copy.db"], "copy.db") > 0);
    assert!(whole("copy.db"));
    std::fs::rename(at("onceward.db"), at("lost.db")).unwrap();
    assert!(until_done(&["restore", "copy.db"], "onceward.db") > 0);
    assert!(whole("onceward.db"));
    h.work_until_idle();
    for n in 0..5 {
        h.assert_settled_once(&key(n));
    }
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// The program is built without full text search; an app's own SQLite has it.
#[test]
fn tables_of_an_app_that_this_program_cannot_read_stop_nothing_and_are_in_every_copy() {
    let h = Scene::new(Family::B).start();
    let app = |file: &str, sql: &str| {
        let output =
            std::process::Command::new("sqlite3").current_dir(h.dir.path()).args([file, sql]).output();
        let output = output.expect("sqlite3 is there: tests/run installs it");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    h.payout(1);
    app("onceward.db", "CREATE VIRTUAL TABLE docs USING fts5(body); INSERT INTO docs VALUES ('hello world')");
    // After a crash the whole file is looked through before the first send.
    h.spawn_worker(&[]).kill9();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.run(&["check"]).ok();
    h.run(&["audit", "verify"]).ok();
    h.run(&["backup", "copy.db"]).ok();
    assert_eq!(app("copy.db", "SELECT body FROM docs WHERE docs MATCH 'hello'"), "hello world\n");
    app("onceward.db", "INSERT INTO docs VALUES ('and more')");
    assert_eq!(app("onceward.db", "SELECT count(*) FROM docs; PRAGMA integrity_check"), "2\nok\n");
}
