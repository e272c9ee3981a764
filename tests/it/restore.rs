//! What a restored file does: nothing goes out before a person says so, nothing is done twice that was done since the
//! copy, and what no machine can know is a person's.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::Connection;
use serde_json::{Value, json};

/// R44 for one family: 40 are done, the copy is made with two workers at it, all is done, the file is lost, the copy put
/// back, and everything is worked on and asked for again.
fn restored(scene: Scene, words: &[&str]) -> Harness {
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
    let mut args = vec!["restore", copy.to_str().unwrap()];
    args.extend(words);
    let restored = h.run(&args).ok().json();
    assert!(restored["doubtful"].as_u64().unwrap() > 0, "{restored}");
    // The app asks again for what the copy does not know.
    assert_eq!(h.enqueue("payout", &payout(100), &[]).ok().json()["outcome"], "created");
    let requests = h.provider.state().requests.len();
    h.work_until_idle();
    assert_eq!(h.provider.state().requests.len(), requests, "nothing goes out before a person says so");
    h.run(&["resume", "--all"]).ok();
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
    let h = restored(Scene::new(Family::A), &["--no-words"]);
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_a_provider_that_stores_successes_has_one_effect_a_key() {
    let h = restored(Scene::new(Family::B), &["--no-words"]);
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_jobs_are_looked_up_before_they_are_sent() {
    let h = restored(Scene::new(Family::B).with_lookup(false), &[]);
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
    let h = restored(Scene::new(Family::D), &["--no-words"]);
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_a_provider_that_forgets_is_looked_up_and_never_asked_again() {
    let h = restored(Scene::new(Family::E).with_lookup(false), &[]);
    assert_eq!(states(&h, "settled"), 101);
}

#[test]
fn after_a_restore_what_a_provider_that_forgets_may_have_done_waits_for_a_person() {
    let h = restored(Scene::new(Family::E), &["--no-words"]);
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
    h.run(&["restore", "onceward.db", "--no-words"]).ok();
    assert!(h.run(&["restore", "onceward.db"]).refused("not_allowed", 4).contains("--copied-at"));
    h.reconfigure(|_| {});
    h.run(&["resume", "--all"]).ok();
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
    h.run(&["resume", "--all"]).ok();
    h.work_until_idle();
    assert_eq!(h.effects(&key(1)), 1);
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
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
    assert_eq!((&restored["doubtful"], &restored["copied_at"]), (&1.into(), &at.as_str().into()));
    let job = h.show(&key(1));
    assert_eq!(
        (job["state"].as_str(), job["intent"]["state"].as_str()),
        (Some("unknown"), Some("requested"))
    );
    assert!(h.run(&["cancel", &key(1)]).refused("not_allowed", 4).contains("may have taken effect"));
    h.run(&["restore", "--no-words"]).ok();
    h.run(&["resume", "--all"]).ok();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
}

/// The copy was put in place by hand; it is marked there, as if it had been restored.
#[test]
fn a_copy_that_stands_in_place_already_is_restored_with_the_word_of_when_it_was_made() {
    for named in [&[][..], &["onceward.db"]] {
        let h = Scene::new(Family::E).start();
        h.payout(1);
        let file = h.dir.path().join("onceward.db");
        std::fs::copy(&file, h.dir.path().join("hand.db")).unwrap();
        let at = onceward::clock::Clock::now(&onceward::clock::SystemClock::new()).rfc3339();
        h.work_until_idle();
        h.assert_settled_once(&key(1));
        std::fs::copy(h.dir.path().join("hand.db"), &file).unwrap();
        h.run(&["restore"]).refused("usage", 2);
        h.run(&["restore", "--copied-at", "yesterday"]).refused("usage", 2);
        h.run(&["restore", "--copied-at", "2100-01-01T00:00:00Z"]).refused("not_allowed", 4);
        let mut args = vec!["restore", "--copied-at", at.as_str()];
        args.extend(named);
        let restored = h.run(&args).ok().json();
        assert_eq!((&restored["doubtful"], &restored["paused"]), (&1.into(), &json!(["bank"])));
        h.run(&["resume", "--all"]).ok();
        h.work_until_idle();
        h.assert_parked(&key(1), "unknown_outcome", "requested");
        assert_eq!(h.effects(&key(1)), 1);
        assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
    }
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
    assert_eq!(h.count("SELECT count(*) FROM onceward_restores"), 1);
    assert_eq!(h.count("SELECT count(*) FROM onceward_intents WHERE doubt_since_ms IS NULL"), 0);
    h.run(&["restore", "--no-words"]).ok();
    h.run(&["resume", "--all"]).ok();
    h.work_until_idle();
    for n in 0..5 {
        h.assert_settled_once(&key(n));
    }
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// A restored file whose one job stood `ready` in the copy; what the lost file did with it is `deeds`.
fn put_back(shop: &Shop, deeds: &[Deed], words: &[&str]) -> String {
    let key = shop.ask(1);
    let copy = shop.copy();
    if !deeds.is_empty() {
        shop.work(deeds);
    }
    shop.put_back_and_resume(&copy, words);
    key
}

#[test]
fn every_provider_is_paused_until_a_person_resumes_them_and_what_a_person_paused_stays_paused() {
    let shop = Shop::with(Family::E, Look::ByKey(false), |s| {
        s.kind += "[providers.psp]\nprofile = \"external\"\n[kinds.charge]\nprovider = \"psp\"\n\
                   [providers.other]\nprofile = \"none\"\nbase_url = \"http://127.0.0.1:1\"\n\
                   [kinds.mail]\nprovider = \"other\"\nrequest = { path = \"/mail\" }\n";
    });
    let h = &shop.h;
    let key = shop.ask(1);
    h.run(&["pause", "provider", "other", "--why", "it moves house"]).ok();
    h.run(&["pause", "kind", "raw"]).ok();
    let copy = shop.copy();
    let told = shop.put_back(&copy, &[]);
    assert_eq!(told["paused"], json!(["bank", "other", "psp"]));
    for (name, why) in [("bank", "restored"), ("psp", "restored"), ("other", "it moves house")] {
        let provider = &h.stats()["providers"][name];
        assert_eq!(provider["state"], "paused", "{name}");
        assert!(provider["why"].as_str().unwrap().contains(why), "{name}: {provider}");
    }
    h.work_until_idle();
    h.run(&["work", "--once"]).ok();
    assert_eq!(shop.bank.script.got().len(), 0, "neither a request nor a look-up");
    let told = h.run(&["resume", "--all"]).ok().json();
    let names = |list: &str| -> Vec<String> {
        let all = told[list].as_array().unwrap().iter();
        all.map(|p| format!("{} {}", p["scope"].as_str().unwrap(), p["name"].as_str().unwrap())).collect()
    };
    assert_eq!(names("resumed"), ["provider bank", "provider psp"], "{told:#}");
    assert_eq!(names("still_paused"), ["provider other", "kind raw"], "{told:#}");
    assert_eq!(h.run(&["resume", "--all"]).ok().json()["resumed"], json!([]), "said twice");
    shop.work(&[]);
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert!(!shop.bank.script.got().is_empty());
}

/// A machine that could have had a proof needs one; where none could, a person's word and the provider's memory do.
#[test]
fn what_nobody_can_look_up_goes_again_under_its_key_only_by_a_persons_word_given_then_or_later() {
    for family in [Family::A, Family::B, Family::C, Family::D] {
        for later in [false, true] {
            let shop = Shop::new(family, Look::No);
            let key = put_back(&shop, &[Deed::Pay], if later { &[] } else { &["--no-words"] });
            if later {
                shop.work(&[]);
                shop.parked_once(&key, "unknown_outcome");
                shop.h.run(&["replay", &key]).refused("not_allowed", 4);
                let told = shop.h.run(&["restore", "--no-words"]).ok().json();
                assert_eq!(told["in_doubt"][0]["will"], "stay", "it stands parked: {told:#}");
                shop.h.run(&["restore", "--no-words"]).ok();
                shop.h.run(&["replay", &key]).ok();
            }
            shop.work(&[]);
            assert_eq!(shop.settled_once(&key)["intent"]["generation"], 1);
            assert_eq!(shop.bank.posts(), 2, "sent again, and remembered");
        }
    }
    // The word is no help where a repeat is another payout, or where a look-up could have proved something.
    for (family, look) in
        [(Family::E, Look::No), (Family::B, Look::ByWire(true)), (Family::E, Look::ByKey(false))]
    {
        let shop = Shop::new(family, look);
        let key = put_back(&shop, &[Deed::Refuse], &["--no-words"]);
        let posts = shop.bank.posts();
        shop.work(&[]);
        shop.h.assert_parked(&key, "unknown_outcome", "requested");
        assert_eq!(shop.bank.posts(), posts, "{family:?} {look:?}");
    }
}

#[test]
fn words_about_restores_are_refused_where_no_restore_is_open() {
    let shop = Shop::new(Family::B, Look::No);
    for word in ["--no-words", "--close"] {
        shop.h.run(&["restore", word]).refused("not_found", 3);
    }
    let key = put_back(&shop, &[], &["--close"]);
    for word in ["--no-words", "--close"] {
        let why = shop.h.run(&["restore", word]).refused("not_allowed", 4);
        assert!(why.contains("no restore"), "{why}");
    }
    assert!(shop.h.show(&key)["intent"]["doubt"].is_object(), "closing ends no doubt");
}

/// Twice, and not before the lag after the restore; then the next generation's number is past all that the lost file had.
#[test]
fn a_look_up_by_key_that_finds_nothing_twice_after_the_lag_is_proof_and_the_number_is_the_restores_second() {
    for family in FAMILIES {
        let shop = Shop::with(family, Look::No, |s| s.lookup = look_up(Look::ByKey(true), "700ms"));
        let key = put_back(&shop, &[Deed::Refuse], &[]);
        shop.bank.next(&[]);
        shop.work(&[]);
        let job = shop.settled_once(&key);
        let restored = shop.h.count("SELECT restored_ms FROM onceward_restores");
        assert_eq!(job["intent"]["generation"].as_i64(), Some(restored / 1000), "{job:#}");
        assert!(job["intent"].get("doubt").is_none());
        let rows = job["history"].as_array().unwrap();
        let at =
            |row: &Value| onceward::clock::Ms::parse_rfc3339(row["started_at"].as_str().unwrap()).unwrap();
        let asked: Vec<i64> = rows.iter().filter(|r| r["action"] == "lookup").map(|r| at(r).0).collect();
        // One that comes a little too early is asked again: the last is what the proof rests on.
        let first = asked.iter().find(|at| **at >= restored + 700).unwrap();
        let last = asked.last().unwrap();
        assert!(last - first >= 700, "{restored}: {asked:?}");
    }
    // Then one more each.
    let shop = Shop::new(Family::E, Look::ByKey(true));
    let key = put_back(&shop, &[Deed::Refuse], &[]);
    shop.work(&[Deed::Lose]);
    let restored = shop.h.count("SELECT restored_ms FROM onceward_restores");
    let job = shop.h.show(&key);
    assert_eq!(job["intent"]["generation"].as_i64(), Some(restored / 1000 + 1), "{job:#}");
    shop.settled_once(&key);
}

/// What is merely taken is not nothing: a look-up that does not show it proves nothing.
#[test]
fn a_look_up_proves_something_only_if_it_asks_by_key_and_shows_what_is_merely_accepted() {
    let blind = r#"{ path = "/v1/payouts?reference={$key}", reference = "/data/*/id", status = "/data/*/status", settled = ["paid"], rejected = ["failed"], lag = "0s", authoritative = true }"#;
    let shop = Shop::with(Family::B, Look::No, |s| s.lookup = Some(blind.into()));
    shop.bank.books().hides_pending = true;
    let key = shop.ask(1);
    let copy = shop.copy();
    shop.bank.next(&[Deed::Take]);
    shop.h.run(&["work", "--once"]).ok();
    assert_eq!(classes(&shop.h.show(&key))[0], "accepted");
    shop.put_back_and_resume(&copy, &["--no-words"]);
    shop.bank.forget();
    shop.work(&[]);
    shop.h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(shop.bank.posts(), 1);
    shop.sound();
}

#[test]
fn failed_objects_alone_are_not_nothing_and_nothing_is_sent_after_them() {
    for look in [Look::ByKey(true), Look::ByKey(false), Look::ByWire(true)] {
        // The copy has generation 1 refused by an object that failed, and generation 2 not sent yet.
        let shop = Shop::new(Family::E, look);
        let key = shop.ask(1);
        shop.work(&[Deed::Fail]);
        shop.h.run(&["replay", &key]).ok();
        let copy = shop.copy();
        shop.put_back_and_resume(&copy, &["--no-words"]);
        shop.work(&[]);
        let job = shop.h.assert_parked(&key, "unknown_outcome", "requested");
        assert_eq!(job["intent"]["generation"], 2, "{look:?} {job:#}");
        assert_eq!(shop.bank.posts(), 1, "{look:?}");
        // And one that the lost file's next generation left.
        let shop = Shop::new(Family::E, look);
        let key = put_back(&shop, &[Deed::Fail], &["--no-words"]);
        shop.work(&[]);
        shop.h.assert_parked(&key, "unknown_outcome", "requested");
        assert_eq!(shop.bank.posts(), 1, "{look:?}");
        shop.sound();
    }
}

#[test]
fn a_word_about_all_generations_is_refused_before_the_look_ups_lag_is_over_and_counts_then() {
    let shop = Shop::with(Family::E, Look::No, |s| s.lookup = look_up(Look::ByKey(false), "3s"));
    let key = put_back(&shop, &[Deed::Lose], &[]);
    let word = ["resolve", key.as_str(), "--not-applied", "--all-generations"];
    let why = shop.h.run(&word).refused("not_allowed", 4);
    assert!(why.contains("may not be seen at the provider before"), "{why}");
    let before = shop.h.show(&key);
    assert!(before["intent"]["doubt"].is_object() && before["intent"]["generation"] == 1);
    let start = std::time::Instant::now();
    let told = loop {
        let output = shop.h.run(&word);
        if output.code == Some(0) {
            break output.json();
        }
        assert!(start.elapsed() < LIMIT, "{output}");
    };
    let restored = shop.h.count("SELECT restored_ms / 1000 FROM onceward_restores");
    assert_eq!((told["generation"].as_i64(), &told["state"]), (Some(restored), &"ready".into()));
    shop.h.run(&["resolve", &key, "--rejected", "no", "--all-generations"]).refused("usage", 2);
    shop.work(&[]);
    shop.settled_once(&key);
    // It was said, and is not said of what came after it.
    assert_eq!(shop.h.run(&word).ok().json()["state"], "settled");
}

/// Every road to a generation is closed while the doubt lasts.
#[test]
fn neither_an_amendment_nor_a_cancellation_nor_retry_on_is_a_way_past_the_doubt() {
    let shop = Shop::with(Family::B, Look::No, |s| {
        s.retry =
            r#"{ max_attempts = 10, base = "20ms", cap = "100ms", max_age = "1h", retry_on = [422] }"#.into();
    });
    let key = put_back(&shop, &[Deed::Pay], &["--no-words"]);
    let other = payout(1).replace("1001", "1002");
    shop.bank.forget();
    // Its repeat is refused, which says nothing of what the lost file did.
    shop.work(&[Deed::Refuse, Deed::Pay]);
    let job = shop.parked_once(&key, "unknown_outcome");
    assert_eq!((shop.bank.posts(), &job["intent"]["generation"]), (2, &1.into()));
    shop.h.run(&["replay", &key, "--amend-money", "--payload", &other]).refused("not_allowed", 4);
    shop.h.run(&["cancel", &key]).refused("not_allowed", 4);
    shop.told_that_it_happened(&key);
}

/// The provider's own word settles it, whichever generation it is about.
#[test]
fn good_news_under_any_generations_wire_key_settles_what_is_in_doubt() {
    use onceward::intent::{WireStyle, wire_key};
    let wire = |n| wire_key(WireStyle::Uuid, "", &onceward::job::Key::new(key(1)).unwrap(), n);
    for generation in [1, 2, 4] {
        let shop = Shop::new(Family::E, Look::No);
        let key = put_back(&shop, &[Deed::Lose], &[]);
        shop.work(&[]);
        shop.h.assert_parked(&key, "unknown_outcome", "requested");
        let csv = format!("id,amount,currency,key\nche_1,1001,EUR,{}\n", wire(generation));
        std::fs::write(shop.h.dir.path().join("s.csv"), csv).unwrap();
        let columns = "reference=id,amount=amount,currency=currency,key=key";
        let compare =
            ["reconcile", "statement", "s.csv", "--provider", "bank", "--columns", columns, "--confirm"];
        shop.h.run(&compare);
        let job = shop.h.show(&key);
        assert_eq!(
            (&job["state"], &job["intent"]["reference"]),
            (&"settled".into(), &"che_1".into()),
            "{generation}"
        );
        assert_eq!(shop.h.stats()["double_effects"], 0);
        shop.sound();
    }
    for args in [
        &["confirm", "payout:INV-1", "--reference", "che_2"][..],
        &["confirm", "payout:INV-1", "--reference", "che_2", "--generation", "7"],
        &["resolve", "payout:INV-1", "--settled", "che_2"],
        &["resolve", "payout:INV-1", "--settled", "che_2", "--generation", "3"],
    ] {
        let shop = Shop::new(Family::B, Look::No);
        put_back(&shop, &[], &[]);
        shop.h.run(args).ok();
        assert_eq!(shop.h.show(&key(1))["state"], "settled", "{args:?}");
        assert_eq!((shop.bank.posts(), &shop.h.stats()["double_effects"]), (0, &0.into()));
        shop.sound();
    }
}

/// What is behind a doubtful job of its group waits with it.
#[test]
fn a_group_waits_behind_what_is_in_doubt() {
    let shop = Shop::with(Family::E, Look::No, |s| s.kind += "group = \"account:9\"\n");
    let (first, second) = (shop.ask(1), shop.ask(2));
    let copy = shop.copy();
    shop.work(&[]);
    assert_eq!(shop.bank.posts(), 2);
    shop.put_back_and_resume(&copy, &["--no-words"]);
    shop.work(&[]);
    shop.parked_once(&first, "unknown_outcome");
    let waits = shop.h.show(&second);
    assert_eq!((&waits["state"], &waits["blocked_by"]), (&"waiting".into(), &first.as_str().into()));
    shop.told_that_it_happened(&first);
    shop.work(&[]);
    shop.parked_once(&second, "unknown_outcome");
    shop.told_that_it_happened(&second);
    assert_eq!(shop.bank.posts(), 2);
}
