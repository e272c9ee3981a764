//! `pause`, `resume`, `group` and `note`, as a person meets them.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn a_paused_provider_is_sent_nothing_until_it_is_resumed() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    let pause = ["pause", "provider", "bank", "--why", "the bank moves house"];
    assert_eq!(h.run(&pause).ok().json()["changed"], true);
    assert_eq!(h.run(&pause).ok().json()["changed"], false, "already paused");
    h.work_until_idle();
    assert_eq!(h.posts().len(), 0);
    let stats = h.stats();
    let bank = &stats["providers"]["bank"];
    assert_eq!((&bank["state"], &bank["why"]), (&json!("paused"), &json!("the bank moves house")));
    assert_eq!(stats["oldest_ready_age_s"], 0.0);
    assert_eq!(h.run(&["resume", "provider", "bank"]).ok().json()["changed"], true);
    assert_eq!(h.run(&["resume", "provider", "bank"]).ok().json()["changed"], false);
    h.work_until_idle();
    h.assert_settled_once(&key);
    h.assert_laws();
}

#[test]
fn a_pause_lets_the_call_in_flight_end_and_a_resume_wakes_the_running_worker() {
    let h = Scene::new(Family::B).start();
    h.provider.script(vec![Fault::HoldBefore(Duration::from_secs(60))]);
    let first = h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.requests.len() == 1, LIMIT));
    h.run(&["pause", "kind", "payout"]).ok();
    let second = h.payout(2);
    h.provider.release();
    h.show_until(&first, |job| job["state"] == "settled");
    assert_eq!(h.show(&second)["state"], "ready");
    assert_eq!(h.stats()["paused"][0]["name"], "payout");
    h.run(&["resume", "kind", "payout"]).ok();
    h.show_until(&second, |job| job["state"] == "settled");
    worker.term();
    assert!(worker.wait().success());
    h.assert_laws();
}

#[test]
fn what_the_config_does_not_know_cannot_be_paused() {
    let h = Scene::new(Family::B).start();
    for what in ["provider", "kind"] {
        for command in ["pause", "resume"] {
            h.run(&[command, what, "nope"]).refused("not_found", 3);
        }
    }
    h.run(&["group", "show", "nope"]).refused("not_found", 3);
    h.run(&["group", "skip", "nope", "--sequence", "1"]).refused("not_found", 3);
}

fn numbered(h: &Harness, n: u32, sequence: &str) -> Output {
    h.enqueue("payout", &payout(n), &["--group", "g", "--sequence", sequence])
}

#[test]
fn a_group_shows_what_it_waits_for_and_goes_on_past_a_place_that_was_given_up() {
    let h = Scene::new(Family::B).start();
    numbered(&h, 1, "1").ok();
    numbered(&h, 3, "3").ok();
    h.run(&["pause", "group", "g", "--why", "stocktaking"]).ok();
    h.work_until_idle();
    assert_eq!(h.posts().len(), 0);
    let group = h.run(&["group", "show", "g"]).ok().json();
    assert_eq!(group["paused"]["why"], "stocktaking");
    h.run(&["resume", "group", "g"]).ok();
    h.work_until_idle();
    let group = h.run(&["group", "show", "g"]).ok().json();
    let wanted = json!({
        "group": "g", "numbering": "app", "next": 2, "passed": 1, "head": key(3),
        "blocked_by": "sequence 2 has not arrived", "waiting": 1, "paused": Value::Null,
        "jobs": [{"sequence": 3, "key": key(3), "state": "waiting"}],
    });
    assert_eq!(group, wanted);
    h.run(&["group", "skip", "g", "--sequence", "1"]).refused("stale_sequence", 4);
    h.run(&["group", "skip", "g", "--sequence", "3"]).refused("sequence_taken", 4);
    assert_eq!(h.run(&["group", "skip", "g", "--sequence", "2"]).ok().json()["changed"], true);
    assert_eq!(h.run(&["group", "skip", "g", "--sequence", "2"]).ok().json()["changed"], false);
    numbered(&h, 2, "2").refused("stale_sequence", 4);
    h.work_until_idle();
    h.assert_settled_once(&key(3));
    assert_eq!(h.count("SELECT count(*) FROM onceward_events WHERE action = 'skip' AND sequence = 2"), 1);
    h.assert_laws();
}

#[test]
fn a_chargeback_is_noted_and_the_intent_stays_settled() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.run(&["note", &key, "lost", "--reversed", "cb_1"]).refused("not_allowed", 4);
    h.work_until_idle();
    let before = h.assert_settled_once(&key);
    h.run(&["note", &key, "the customer disputes it", "--reversed", "cb_1"]).ok();
    let after = h.assert_settled_once(&key);
    assert_eq!(before["intent"], after["intent"]);
    let last = after["history"].as_array().and_then(|rows| rows.last()).expect("a row");
    assert_eq!(
        (&last["action"], &last["detail"]),
        (&json!("note"), &json!("reversed cb_1: the customer disputes it"))
    );
    h.assert_laws();
}
