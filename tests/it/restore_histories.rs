//! Histories in which a lost file went on where its copy could not know of it. Whatever the provider is and however it can
//! be asked, there is one effect, and what no machine can know is put to a person.

use crate::clock::{DAY, HOUR, Wall, faketime};
use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::Value;

/// Every family, asked in every way.
fn everywhere(history: impl Fn(Family, Look)) {
    for family in FAMILIES {
        for look in LOOKS {
            eprintln!("---- family {family:?}, {look:?}");
            history(family, look);
        }
    }
}

/// After the restore: a look-up by our key finds the payout; one by the wire key of a generation that had no effect, or
/// none at all, leaves it to a person, who is told all that there is to look for.
#[track_caller]
fn found_or_asked(shop: &Shop, key: &str, found: bool) {
    shop.bank.forget();
    let posts = shop.bank.posts();
    shop.work(&[]);
    assert_eq!(shop.bank.posts(), posts, "nothing may be sent");
    if found {
        shop.settled_once(key);
        return;
    }
    let job = shop.parked_once(key, "unknown_outcome");
    let listed: Vec<&str> = job["intent"]["doubt"]["wire_keys"]
        .as_array()
        .unwrap_or_else(|| panic!("{job:#}"))
        .iter()
        .map(|entry| entry["wire_key"].as_str().unwrap())
        .collect();
    let theirs = shop.bank.books().objects.last().unwrap().wire.clone();
    assert!(listed.contains(&theirs.as_str()), "{theirs} is not among those to look for: {job:#}");
    shop.told_that_it_happened(key);
}

/// The copy holds generation 1 in doubt, its worker dead in the call. The lost file found out that it had had no effect, by
/// itself or by a person's word, and paid under the next one.
#[test]
fn a_generation_that_only_the_lost_file_knew_is_not_sent_again() {
    everywhere(|family, look| {
        let shop = Shop::new(family, look);
        let key = shop.ask(1);
        shop.die_in_a_call(&key);
        let copy = shop.copy();
        // A repeat, where the provider knows repeats, is refused: after an unknown that ends nothing.
        shop.work(if family == Family::E { &[] } else { &[Deed::Refuse] });
        if shop.h.show(&key)["state"] == "parked" {
            shop.h.run(&["resolve", &key, "--not-applied"]).ok();
            shop.work(&[]);
        }
        let lost = shop.settled_once(&key);
        assert_eq!(lost["intent"]["generation"], 2, "{lost:#}");
        // A proof that the lost file had is one that a machine had: then nobody's word about people is enough.
        let proof = matches!(look, Look::ByKey(true) | Look::ByWire(true));
        shop.put_back_and_resume(&copy, if proof { &["--no-words"] } else { &[] });
        found_or_asked(&shop, &key, matches!(look, Look::ByKey(_)));
    });
}

/// The same, and the person says again after the restore what was true of generation 1.
#[test]
fn a_word_about_one_generation_is_a_remark_after_a_restore_and_changes_nothing() {
    for look in [Look::No, Look::ByWire(true), Look::ByWire(false)] {
        let shop = Shop::new(Family::E, look);
        let key = shop.ask(1);
        shop.die_in_a_call(&key);
        let copy = shop.copy();
        shop.work(&[]);
        if shop.h.show(&key)["state"] == "parked" {
            shop.h.run(&["resolve", &key, "--not-applied"]).ok();
            shop.work(&[]);
        }
        assert_eq!(shop.settled_once(&key)["intent"]["generation"], 2);
        shop.put_back_and_resume(&copy, &[]);
        shop.work(&[]);
        let before = shop.parked_once(&key, "unknown_outcome");
        for word in [
            &["--not-applied"][..],
            &["--not-applied", "--generation", "1"],
            &["--not-applied", "--generation", "2"],
            &["--rejected", "no"],
            &["--rejected", "no", "--generation", "1"],
        ] {
            let mut args = vec!["resolve", &key];
            args.extend(word);
            let why = shop.h.run(&args).refused("not_allowed", 4);
            assert!(why.contains("--not-applied --all-generations") && why.contains("remark"), "{why}");
        }
        let after = shop.h.show(&key);
        assert_eq!(after["intent"], before["intent"]);
        let rows = after["history"].as_array().unwrap();
        let remarks = rows.iter().filter(|row| row["action"] == "note").count();
        assert_eq!(remarks, 5, "{after:#}");
        shop.work(&[]);
        shop.parked_once(&key, "unknown_outcome");
        shop.told_that_it_happened(&key);
    }
}

/// The copy held it refused and parked; the lost file's person replayed it, and it was paid.
#[test]
fn what_stood_parked_in_the_copy_and_was_replayed_in_the_lost_file_is_not_sent_as_new() {
    everywhere(|family, look| {
        let shop = Shop::new(family, look);
        let key = shop.ask(1);
        shop.work(&[Deed::Refuse]);
        shop.h.assert_parked(&key, "rejected", "rejected");
        let copy = shop.copy();
        shop.h.run(&["replay", &key]).ok();
        shop.work(&[]);
        let kept = matches!(family, Family::B | Family::C | Family::D);
        assert_eq!(shop.settled_once(&key)["intent"]["generation"], if kept { 1 } else { 2 });
        shop.put_back_and_resume(&copy, &[]);
        replay_and_see(&shop, &key, look, kept);
    });
}

/// The copy held it cancelled; the lost file's person brought it back, and it was paid.
#[test]
fn what_stood_cancelled_in_the_copy_and_came_back_in_the_lost_file_is_not_sent_as_new() {
    everywhere(|family, look| {
        let shop = Shop::new(family, look);
        let key = shop.ask(1);
        shop.h.run(&["cancel", &key]).ok();
        let copy = shop.copy();
        shop.h.run(&["replay", &key]).ok();
        shop.work(&[]);
        shop.settled_once(&key);
        shop.put_back_and_resume(&copy, &[]);
        replay_and_see(&shop, &key, look, true);
    });
}

/// It stands as it was in the copy. A replay asks if anybody can be asked, and is refused if not. `first`: the payout came
/// under generation 1, whose wire key the copy knows.
#[track_caller]
fn replay_and_see(shop: &Shop, key: &str, look: Look, first: bool) {
    shop.bank.forget();
    let posts = shop.bank.posts();
    shop.work(&[]);
    let stands = shop.h.show(key);
    assert!(stands["state"] == "parked" || stands["state"] == "cancelled", "{stands:#}");
    if look == Look::No {
        let why = shop.h.run(&["replay", key]).refused("not_allowed", 4);
        assert!(why.contains("--not-applied --all-generations"), "{why}");
        assert_eq!(shop.bank.paid(key), 1);
        shop.told_that_it_happened(key);
    } else {
        shop.h.run(&["replay", key]).ok();
        found_or_asked(shop, key, first || matches!(look, Look::ByKey(_)));
    }
    assert_eq!(shop.bank.posts(), posts, "nothing was sent since the restore");
}

/// The copy held it for later; in the lost file its time came, and it was paid.
#[test]
fn what_was_scheduled_in_the_copy_and_went_out_in_the_lost_file_is_not_sent_as_new() {
    everywhere(|family, look| {
        let shop = Shop::new(family, look);
        let key = key(1);
        shop.h.enqueue("payout", &payout(1), &["--delay", "300ms"]).ok();
        let copy = shop.copy();
        shop.work(&[]);
        shop.settled_once(&key);
        shop.put_back_and_resume(&copy, &[]);
        found_or_asked(&shop, &key, look != Look::No);
    });
}

/// A key that only the lost file had is asked for again when the provider has long forgotten it: it is as doubtful as on
/// the first day. When a person has closed the restore, what is new is new, and what was in doubt stays so.
#[test]
fn time_never_ends_the_doubt_of_keys_that_are_new_to_the_restored_file() {
    let Some(library) = faketime("time_never_ends_the_doubt") else { return };
    for family in [Family::A, Family::B, Family::E] {
        for look in LOOKS {
            let shop = Shop::new(family, look);
            let wall = Wall::of(&shop.h, &library);
            let copy_of_nothing = {
                shop.h.enqueue("payout", &payout(9), &["--delay", "100d"]).ok();
                shop.copy()
            };
            let key = shop.ask(1);
            shop.h.run(&["work", "--once"]).ok();
            shop.settled_once(&key);
            shop.put_back_and_resume(&copy_of_nothing, &["--no-words"]);
            shop.bank.forget();
            let posts = shop.bank.posts();
            wall.set(40 * DAY);
            let told = shop.h.enqueue("payout", &payout(1), &[]).ok().json();
            assert_eq!((&told["outcome"], &told["state"]), (&"created".into(), &"unknown".into()));
            until_ended(&shop, &key);
            assert_eq!(shop.bank.posts(), posts, "nothing was sent");
            match look {
                Look::No => drop(shop.parked_once(&key, no_way(family))),
                _ => drop(shop.settled_once(&key)),
            }
            shop.h.run(&["restore", "--close"]).ok();
            shop.h.enqueue("payout", &payout(2), &[]).ok();
            shop.h.run(&["work", "--once"]).ok();
            shop.settled_once("payout:INV-2");
            if look == Look::No {
                assert!(shop.h.show(&key)["intent"]["doubt"].is_object());
                shop.h.run(&["replay", &key]).refused("not_allowed", 4);
                shop.told_that_it_happened(&key);
            }
        }
    }
}

/// Why a job is parked when its provider might have remembered, and by now has not.
fn no_way(family: Family) -> &'static str {
    if family == Family::E { "unknown_outcome" } else { "window_expired" }
}

/// Lets workers work until the job is settled or parked.
#[track_caller]
fn until_ended(shop: &Shop, key: &str) -> Value {
    let mut worker = shop.h.spawn_worker(&[]);
    let job = shop.h.show_until(key, |job| job["state"] == "settled" || job["state"] == "parked");
    worker.term();
    worker.wait();
    job
}

/// A copy of a restored file is put back: the first copy's time counts for what stood in the first copy, and each restore
/// needs its own word.
#[test]
fn a_second_restore_keeps_the_first_copys_time_and_needs_a_word_for_each() {
    let Some(library) = faketime("a_second_restore") else { return };
    for words in [&["--no-words"][..], &[]] {
        let shop = Shop::with(Family::B, Look::No, |s| {
            s.provider += "\nidempotency = { window = \"24h\", header = \"Idempotency-Key\" }\n"
        });
        let wall = Wall::of(&shop.h, &library);
        let key = shop.ask(1);
        let first = shop.copy();
        shop.work(&[]);
        shop.settled_once(&key);
        wall.set(23 * HOUR);
        shop.put_back(&first, words);
        let since = shop.h.show(&key)["intent"]["doubt"]["since"].clone();
        let second = shop.copy();
        wall.set(if words.is_empty() { 23 * HOUR + 60 } else { 25 * HOUR });
        shop.put_back_and_resume(&second, &["--no-words"]);
        let doubt = shop.h.show(&key)["intent"]["doubt"].clone();
        assert_eq!(doubt["since"], since, "the first copy's time");
        assert_eq!(doubt["no_words"], !words.is_empty(), "a word about the second says nothing of the first");
        shop.bank.forget();
        until_ended(&shop, &key);
        // By the second copy's time the window is open still.
        shop.parked_once(&key, if words.is_empty() { "unknown_outcome" } else { "window_expired" });
        assert_eq!(shop.bank.posts(), 1);
        shop.told_that_it_happened(&key);
    }
}

/// The app makes the call itself. What the lost file had licensed is not licensed again.
#[test]
fn an_external_key_that_the_lost_file_may_have_licensed_hears_doubtful_until_a_person_speaks_of_all() {
    let external = "[providers.psp]\nprofile = \"external\"\n[kinds.charge]\nprovider = \"psp\"\n";
    let shop = Shop::with(Family::B, Look::No, |s| s.kind += external);
    let ask = |key: &str| shop.h.enqueue("charge", r#"{"n":1}"#, &["--key", key]).ok().json();
    let told = |key: &str| ask(key)["outcome"].clone();
    let first = ask("in-the-copy");
    assert_eq!(first["outcome"], "created");
    let copy = shop.copy();
    let lost = ask("lost");
    assert_eq!(lost["outcome"], "created");
    let restored = shop.put_back_and_resume(&copy, &["--no-words"]);
    assert_eq!(restored["in_doubt"][0]["will"], "park", "{restored:#}");
    for key in ["lost", "in-the-copy", "never-asked"] {
        for _ in 0..2 {
            assert_eq!(told(key), "doubtful", "{key}");
        }
    }
    assert_eq!(ask("lost")["wire_key"], lost["wire_key"], "and is told what to look for");
    // One was charged, the other was not.
    shop.h.run(&["confirm", "lost", "--reference", "ch_1"]).ok();
    assert_eq!(told("lost"), "duplicate");
    let one = ["resolve", "in-the-copy", "--not-applied", "--generation", "1"];
    shop.h.run(&one).refused("not_allowed", 4);
    assert_eq!(told("in-the-copy"), "doubtful");
    let all = ["resolve", "in-the-copy", "--not-applied", "--all-generations"];
    let now = shop.h.run(&all).ok().json()["generation"].clone();
    assert_eq!(shop.h.run(&all).ok().json()["generation"], now, "said twice, done once");
    let again = ask("in-the-copy");
    assert_eq!((&again["outcome"], &again["generation"]), (&"again".into(), &now));
    assert_ne!(again["wire_key"], first["wire_key"]);
    assert_eq!(told("in-the-copy"), "duplicate");
    let second = shop.h.count("SELECT restored_ms / 1000 FROM onceward_restores");
    assert_eq!(now.as_i64(), Some(second), "the restore's Unix second");
    shop.h.run(&["restore", "--close"]).ok();
    assert_eq!((told("new"), told("never-asked")), ("created".into(), "doubtful".into()));
    shop.sound();
}

/// The copy holds generation 1 unsent. The lost file's was refused, and what was replayed was paid.
#[test]
fn a_refusal_and_a_replay_that_only_the_lost_file_saw_are_met_again_and_nothing_is_paid_twice() {
    for refusal in [Deed::Refuse, Deed::Fail] {
        everywhere(|family, look| {
            let shop = Shop::new(family, look);
            let key = shop.ask(1);
            let copy = shop.copy();
            shop.work(&[refusal]);
            shop.h.assert_parked(&key, "rejected", "rejected");
            shop.h.run(&["replay", &key]).ok();
            shop.work(&[]);
            let lost = shop.settled_once(&key)["intent"]["generation"].as_i64();
            // True: nobody amended, cancelled, rejected, or called anything not applied. The provider remembers still.
            shop.put_back_and_resume(&copy, &["--no-words"]);
            shop.work(&[]);
            let by_key = matches!(look, Look::ByKey(_));
            if shop.h.show(&key)["state"] == "settled" {
                assert!(lost == Some(1) || by_key, "nobody can know of generation {lost:?}");
                shop.settled_once(&key);
            } else {
                // The duplicate's error named the failed object, and that is what was fetched.
                let named = family == Family::D && refusal == Deed::Fail;
                assert!(!by_key || named, "it would be found");
                shop.parked_once(&key, "unknown_outcome");
                shop.told_that_it_happened(&key);
            }
        });
    }
}

/// Alerts, ticks that no lost file can have seen, and what is sent at least once by choice.
#[test]
fn alerts_later_ticks_and_kinds_that_resend_are_never_in_doubt() {
    let Some(library) = faketime("alerts_later_ticks") else { return };
    let pager = Script::start(|_, _| Some(reply(200, "", r#"{"id":"n"}"#)));
    let shop = Shop::with(Family::E, Look::No, |s| {
        s.tables = "[alerts]\nkind = \"alert\"\nevery = \"100ms\"\n[schedules.rent]\ncron = \"0 * * * *\"\n\
                    timezone = \"Europe/Berlin\"\nkind = \"sync\"\npayload = { amount = 5 }\nmissed = \"all\"\n"
            .into();
        s.kind += &format!(
            r#"
[providers.pager]
profile = "none"
base_url = "{}"
[kinds.alert]
provider = "pager"
request = {{ path = "/page" }}
[kinds.sync]
provider = "bank"
request = {{ path = "/v1/payouts", body = {{ amount = "{{amount}}", currency = "EUR", reference = "{{$key}}" }} }}
reply = {{ reference = "/id" }}
[kinds.mail]
provider = "bank"
on_unknown = "resend"
request = {{ path = "/v1/payouts", body = {{ amount = "{{amount}}", currency = "EUR", reference = "{{$key}}" }} }}
reply = {{ reference = "/id" }}
"#,
            pager.base_url
        );
    });
    let wall = Wall::of(&shop.h, &library);
    shop.h.run(&["work", "--once"]).ok();
    shop.h.enqueue("mail", r#"{"amount":1}"#, &["--key", "mail:1"]).ok();
    let key = shop.ask(1);
    let copy = shop.copy();
    let restored = shop.put_back(&copy, &[]);
    assert_eq!((&restored["doubtful"], &restored["paused"]), (&1.into(), &serde_json::json!(["bank"])));
    shop.h.run(&["alerts", "test"]).ok();
    shop.h.work_until_idle();
    assert!(!pager.got().is_empty(), "an alert goes out while everything else is paused");
    let alerts = shop.h.list(&["--kind", "alert"]);
    assert!(!alerts.is_empty() && alerts.iter().all(|job| job["state"] == "settled"), "{alerts:#?}");
    shop.h.run(&["resume", "--all"]).ok();
    shop.h.enqueue("mail", r#"{"amount":1}"#, &["--key", "mail:2"]).ok();
    shop.work(&[]);
    for mail in ["mail:1", "mail:2"] {
        shop.settled_once(mail);
    }
    shop.h.assert_parked(&key, "unknown_outcome", "requested");
    // Four hours later: the first tick may have been the lost file's too, one later than an hour after the restore not.
    wall.set(4 * HOUR);
    until_ticks(&shop, 4);
    let restored = shop.h.count("SELECT restored_ms FROM onceward_restores");
    for job in shop.h.list(&["--kind", "sync"]) {
        let tick = job["key"].as_str().unwrap().trim_start_matches("rent:").to_string();
        let tick = onceward::clock::Ms::parse_rfc3339(&tick).unwrap();
        let doubtful = tick.0 <= restored + HOUR * 1000;
        let wanted = if doubtful { "parked" } else { "settled" };
        assert_eq!(job["state"], wanted, "{job:#}");
    }
    shop.sound();
}

#[track_caller]
fn until_ticks(shop: &Shop, wanted: usize) {
    let mut worker = shop.h.spawn_worker(&[]);
    let start = std::time::Instant::now();
    let ended = |job: &Value| job["state"] == "settled" || job["state"] == "parked";
    loop {
        let ticks = shop.h.list(&["--kind", "sync"]);
        if ticks.len() >= wanted && ticks.iter().all(ended) {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{ticks:#?}");
    }
    worker.term();
    worker.wait();
}
