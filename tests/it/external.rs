//! Profile `external`: the app makes the call, Onceward is its ledger, and no worker ever sends.

use crate::harness::*;
use onceward::demo::provider::Family;

const PAYLOAD: &str = r#"{"order":"ORD-17"}"#;

fn ledger(within: &str) -> Harness {
    let h = Scene::new(Family::B).start();
    h.config(&format!(
        "[store]\npath = \"onceward.db\"\n[providers.psp]\nprofile = \"external\"\n[kinds.charge]\n\
         provider = \"psp\"\nconfirm_within = \"{within}\"\n"
    ));
    h
}

fn ask(h: &Harness, key: &str) -> serde_json::Value {
    h.enqueue("charge", PAYLOAD, &["--key", key]).ok().json()
}

#[test]
fn created_is_said_once_and_duplicate_ever_after_with_the_same_wire_key() {
    let h = ledger("1h");
    let first = ask(&h, "charge:17");
    assert_eq!((&first["outcome"], &first["state"]), (&"created".into(), &"unknown".into()));
    assert_eq!(first["generation"], 1);
    h.run(&["confirm", "charge:17", "--reference", "ch_1"]).ok();
    let again = ask(&h, "charge:17");
    assert_eq!((&again["outcome"], &again["state"]), (&"duplicate".into(), &"settled".into()));
    assert_eq!(again["wire_key"], first["wire_key"]);
    assert_eq!(h.show("charge:17")["intent"]["reference"], "ch_1");
}

/// The app calls when it is told to, once a generation.
#[test]
fn after_not_applied_the_next_time_that_the_app_asks_it_is_told_again_and_only_then() {
    let h = ledger("1h");
    let first = ask(&h, "charge:17");
    h.run(&["resolve", "charge:17", "--not-applied"]).ok();
    let next = ask(&h, "charge:17");
    assert_eq!((&next["outcome"], &next["state"]), (&"again".into(), &"unknown".into()));
    assert_eq!(next["generation"], 2);
    assert_ne!(next["wire_key"], first["wire_key"]);
    let once_more = ask(&h, "charge:17");
    assert_eq!((&once_more["outcome"], &once_more["wire_key"]), (&"duplicate".into(), &next["wire_key"]));
    h.run(&["cancel", "charge:17"]).refused("not_allowed", 4);
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

#[test]
fn what_waits_for_the_app_is_not_parked_meanwhile_and_can_be_cancelled() {
    let h = ledger("50ms");
    ask(&h, "charge:17");
    h.run(&["resolve", "charge:17", "--not-applied"]).ok();
    h.work_until_idle();
    assert_eq!(h.show("charge:17")["state"], "unknown");
    h.run(&["cancel", "charge:17"]).ok();
    assert_eq!(ask(&h, "charge:17")["outcome"], "duplicate", "nobody calls for what was given up");
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

#[test]
fn the_app_has_its_time_again_from_when_it_is_told() {
    let h = ledger("50ms");
    ask(&h, "charge:17");
    h.run(&["resolve", "charge:17", "--not-applied"]).ok();
    assert_eq!(ask(&h, "charge:17")["outcome"], "again");
    let mut worker = h.spawn_worker(&[]);
    let job = h.show_until("charge:17", |job| job["state"] == "parked");
    worker.term();
    worker.wait();
    assert_eq!(job["park_reason"], "unknown_outcome");
}

/// A word is about a generation: repeated it changes nothing, about another one it is a remark.
#[test]
fn a_word_about_a_generation_that_is_over_is_no_word_about_the_next() {
    let h = ledger("1h");
    let generation = |h: &Harness| h.show("charge:17")["intent"]["generation"].clone();
    let say = |n: &str| h.run(&["resolve", "charge:17", "--not-applied", "--generation", n]);
    ask(&h, "charge:17");
    say("2").refused("not_allowed", 4);
    for n in [1, 2, 3] {
        for _ in 0..2 {
            assert_eq!(say(&n.to_string()).ok().json()["generation"], n + 1, "the present one is named");
            assert_eq!(generation(&h), n + 1, "a repeated command begins no further generation");
        }
        assert_eq!(ask(&h, "charge:17")["outcome"], "again");
    }
    let why = h.run(&["resolve", "charge:17", "--not-applied"]).refused("invalid", 4);
    assert!(why.contains("--generation") && why.contains("present one is 4"), "{why}");
    assert_eq!(generation(&h), 4);
    say("1").ok();
    say("4294967295").refused("not_allowed", 4);
    assert_eq!(generation(&h), 4);
    h.run(&["resolve", "charge:17", "--rejected", "no", "--generation", "2"]).refused("not_allowed", 4);
    let job = h.show("charge:17");
    assert!(
        actions(&job).iter().filter(|a| *a == "note").count() >= 5,
        "words that do not count are kept: {job}"
    );
    h.run(&["resolve", "charge:17", "--settled", "ch_1", "--generation", "4"]).ok();
    assert_eq!(h.show("charge:17")["state"], "settled");
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

#[test]
fn what_is_not_heard_of_in_its_time_is_parked_and_never_sent() {
    let h = ledger("50ms");
    ask(&h, "charge:17");
    let mut worker = h.spawn_worker(&[]);
    let job = h.show_until("charge:17", |job| job["state"] == "parked");
    worker.term();
    worker.wait();
    assert_eq!(job["park_reason"], "unknown_outcome");
    assert_eq!(job["intent"]["state"], "requested");
    assert_eq!(h.posts().len(), 0);
    h.run(&["confirm", "charge:17", "--reference", "ch_1"]).ok();
    assert_eq!(h.show("charge:17")["state"], "settled");
}

#[test]
fn it_keeps_no_worker_from_being_idle_and_may_not_be_in_a_group() {
    let h = ledger("1h");
    ask(&h, "charge:17");
    h.work_until_idle();
    assert_eq!(h.show("charge:17")["state"], "unknown");
    h.enqueue("charge", PAYLOAD, &["--key", "charge:18", "--group", "g"]).refused("invalid", 4);
    h.run(&["show", "charge:18"]).refused("not_found", 3);
}
