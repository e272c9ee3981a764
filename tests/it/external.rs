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

#[test]
fn not_applied_begins_the_next_generation_in_doubt_again() {
    let h = ledger("1h");
    let first = ask(&h, "charge:17");
    h.run(&["resolve", "charge:17", "--not-applied"]).ok();
    let next = ask(&h, "charge:17");
    assert_eq!((&next["outcome"], &next["state"]), (&"duplicate".into(), &"unknown".into()));
    assert_eq!(next["generation"], 2);
    assert_ne!(next["wire_key"], first["wire_key"]);
}

/// Said again, it may be a command that was repeated, so it changes nothing; of which generation it is said tells them apart.
#[test]
fn each_generation_s_not_applied_is_taken_once_and_one_that_is_over_is_no_word_about_the_next() {
    let h = ledger("1h");
    let generation = |h: &Harness| h.show("charge:17")["intent"]["generation"].clone();
    let say = |n: &str| h.run(&["resolve", "charge:17", "--not-applied", "--generation", n]);
    ask(&h, "charge:17");
    say("2").refused("not_allowed", 4);
    for n in [1, 2, 3] {
        for _ in 0..2 {
            assert_eq!(say(&n.to_string()).ok().json()["state"], "unknown");
            assert_eq!(generation(&h), n + 1, "a repeated command begins no further generation");
        }
    }
    h.run(&["resolve", "charge:17", "--not-applied"]).ok();
    assert_eq!(generation(&h), 4, "without a number it is the word that was said last");
    let why = say("1").refused("not_allowed", 4);
    assert!(why.contains("its generation is 4 by now"), "{why}");
    say("4294967295").refused("not_allowed", 4);
    h.run(&["resolve", "charge:17", "--settled", "ch_1", "--generation", "4"]).refused("usage", 2);
    h.run(&["confirm", "charge:17", "--reference", "ch_1"]).ok();
    assert_eq!(h.show("charge:17")["state"], "settled");
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
