//! What a person may say and do, and what is refused because money may have moved.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use serde_json::Value;

fn refusal() -> Fault {
    Fault::Answer(Answer::json(422, r#"{"error":{"code":"account_closed"}}"#))
}

/// A parked unknown that nobody can be asked about; nothing happened at the provider, though nobody here knows.
fn parked_unknown() -> (Harness, String) {
    let h = Scene::new(Family::E).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropBefore]);
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    (h, key)
}

/// A job that the provider refused.
fn parked_rejected() -> (Harness, String) {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![refusal()]);
    h.work_until_idle();
    h.assert_parked(&key, "rejected", "rejected");
    (h, key)
}

/// The last row of the history with this action.
#[track_caller]
fn row<'a>(job: &'a Value, action: &str) -> &'a Value {
    let rows = job["history"].as_array().expect("a history");
    rows.iter().rfind(|row| row["action"] == action).unwrap_or_else(|| panic!("no {action} row: {job:#}"))
}

#[test]
fn a_parked_unknown_that_nobody_can_be_asked_about_is_not_replayed() {
    let (h, key) = parked_unknown();
    h.run(&["replay", &key]).refused("not_allowed", 4);
    h.run(&["replay", &key, "--payload", &payout(1)]).refused("not_allowed", 4);
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

#[test]
fn a_parked_unknown_is_not_cancelled() {
    let (h, key) = parked_unknown();
    h.run(&["cancel", &key]).refused("not_allowed", 4);
    h.assert_parked(&key, "unknown_outcome", "requested");
}

#[test]
fn a_person_s_word_that_it_settled_is_taken_once_and_a_second_reference_raises_the_alarm() {
    let (h, key) = parked_unknown();
    h.run(&["resolve", &key, "--settled", "po_77", "--note", "seen on the statement"]).ok();
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"po_77".into()), "{job:#}");
    let resolved = row(&job, "resolve");
    assert!(!resolved["actor"].as_str().unwrap_or("").is_empty(), "who said it: {resolved:#}");

    h.run(&["resolve", &key, "--settled", "po_77"]).ok();
    h.run(&["resolve", &key, "--settled", "po_78"]).refused("not_allowed", 4);
    h.run(&["resolve", &key, "--not-applied"]).refused("not_allowed", 4);
    let after = h.show(&key);
    assert_eq!(after["intent"], job["intent"]);
    assert_eq!(h.stats()["double_effects"], 1);
    h.work_until_idle();
    assert_eq!(h.posts().len(), 1);
}

#[test]
fn a_person_s_word_that_nothing_happened_starts_the_next_generation() {
    let (h, key) = parked_unknown();
    let before = h.show(&key);
    h.run(&["resolve", &key, "--not-applied"]).ok();
    let job = h.show(&key);
    assert_eq!(job["state"], "ready", "{job:#}");
    assert_eq!(job["intent"]["generation"], 2);
    assert_ne!(job["intent"]["wire_key"], before["intent"]["wire_key"]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    let posts = h.posts();
    assert_eq!(posts.len(), 2);
    assert!(carries(&posts[0], &before["intent"]["wire_key"]));
    assert!(carries(&posts[1], &job["intent"]["wire_key"]));
    h.assert_laws();
}

#[test]
fn a_person_s_word_that_it_was_refused_ends_the_job() {
    let (h, key) = parked_unknown();
    h.run(&["resolve", &key, "--rejected", " "]).refused("invalid", 4);
    assert_eq!(h.show(&key)["state"], "parked", "a word without a reason changes nothing");
    h.run(&["resolve", &key, "--rejected", "the bank says so"]).ok();
    let job = h.show(&key);
    assert_eq!(
        (&job["state"], &job["intent"]["state"]),
        (&"cancelled".into(), &"rejected".into()),
        "{job:#}"
    );
    h.run(&["resolve", &key, "--rejected", "the bank says so"]).ok();
    h.work_until_idle();
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

#[test]
fn resolve_needs_something_unknown() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    for word in [&["--settled", "po_1"][..], &["--not-applied"], &["--rejected", "x"]] {
        let mut args = vec!["resolve", key.as_str()];
        args.extend(word);
        h.run(&args).refused("not_allowed", 4);
    }
    h.run(&["resolve", &key]).fails(&[2]);
    h.work_until_idle();
    h.assert_settled_once(&key);
}

#[test]
fn a_running_job_is_neither_resolved_nor_cancelled() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldBefore(std::time::Duration::from_secs(600))]);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.requests.len() == 1, LIMIT));
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["state"]), (&"running".into(), &"requested".into()));
    assert!(job["lease"]["owner"].is_string(), "{job:#}");
    h.run(&["cancel", &key]).refused("not_allowed", 4);
    h.run(&["resolve", &key, "--not-applied"]).refused("not_allowed", 4);
    h.provider.release();
    h.show_until(&key, |job| job["state"] == "settled");
    worker.kill9();
    h.run(&["cancel", &key]).refused("not_allowed", 4);
    h.assert_settled_once(&key);
    h.assert_laws();
}

#[test]
fn a_job_that_was_never_sent_is_cancelled_and_may_come_back() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.run(&["cancel", &key]).ok();
    assert_eq!(h.show(&key)["state"], "cancelled");
    h.work_until_idle();
    assert_eq!(h.posts().len(), 0);
    let repeat = h.enqueue("payout", &payout(1), &[]).ok().json();
    assert_eq!((&repeat["outcome"], &repeat["state"]), (&"duplicate".into(), &"cancelled".into()));
    h.run(&["replay", &key]).ok();
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(job["intent"]["generation"], 1, "nothing was ever sent");
    assert!(actions(&job).contains(&"cancel".to_string()));
    h.assert_laws();
}

/// The refusal answered the request itself, the provider does not store it, nothing changed: the same key goes again, for
/// after a restore fewer generations are less doubt.
#[test]
fn a_refused_job_is_replayed_and_its_history_goes_on() {
    let (h, key) = parked_rejected();
    let parked = h.show(&key);
    h.run(&["replay", &key]).ok();
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!((&job["id"], &job["intent"]["generation"]), (&parked["id"], &1.into()));
    assert_eq!(job["intent"]["wire_key"], parked["intent"]["wire_key"]);
    assert_eq!(classes(&job), ["rejected", "ok"]);
    let numbers: Vec<_> = tries(&job).map(|row| row["attempt"].clone()).collect();
    assert_eq!(numbers, [1, 2], "numbers go on");
    assert_eq!(job["attempts"], 1, "the count begins anew");
    assert!(!row(&job, "replay")["actor"].as_str().unwrap_or("").is_empty());
    h.run(&["replay", &key]).refused("not_allowed", 4);
    h.assert_laws();
}

/// The generation that a refused job has after a plain replay, by what the provider is and what refused it.
#[track_caller]
fn generation_after_replay(scene: Scene, refusal: Fault, change: impl FnOnce(&mut Harness)) -> i64 {
    let mut h = scene.start();
    let key = h.payout(1);
    h.provider.script(vec![refusal]);
    h.work_until_idle();
    h.assert_parked(&key, "rejected", "rejected");
    change(&mut h);
    h.run(&["replay", &key]).ok();
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    h.assert_laws();
    job["intent"]["generation"].as_i64().expect("a generation")
}

#[test]
fn a_replay_begins_the_next_generation_unless_the_same_request_may_go_under_the_same_key() {
    let failed = || Fault::Answer(Answer::json(201, r#"{"id":"po_0","status":"failed"}"#));
    let same = |_: &mut Harness| {};
    for family in [Family::B, Family::C, Family::D] {
        assert_eq!(generation_after_replay(Scene::new(family), refusal(), same), 1, "{family:?}");
        assert_eq!(generation_after_replay(Scene::new(family), failed(), same), 2, "an object was made");
    }
    assert_eq!(generation_after_replay(Scene::new(Family::A), refusal(), same), 2, "the refusal is stored");
    assert_eq!(generation_after_replay(Scene::new(Family::E), refusal(), same), 2, "nothing is remembered");
    let other_template = |h: &mut Harness| h.reconfigure(|s| s.body += r#", memo = "new""#);
    assert_eq!(generation_after_replay(Scene::new(Family::B), refusal(), other_template), 2, "other bytes");
    let other_place = |h: &mut Harness| {
        h.env("BANK_TOKEN", "another-credential");
        h.reconfigure(|s| s.provider += "\nauth = { bearer = { env = \"BANK_TOKEN\" } }\n");
    };
    assert_eq!(generation_after_replay(Scene::new(Family::B), refusal(), other_place), 2, "another account");
    let short = Scene::new(Family::B)
        .set(|s| s.provider += "\nidempotency = { window = \"2s\", header = \"Idempotency-Key\" }\n");
    let late = |_: &mut Harness| std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(generation_after_replay(short, refusal(), late), 2, "the window is over");
}

/// R54
#[test]
fn a_job_that_is_replayed_by_two_at_once_goes_back_once() {
    let (h, key) = parked_rejected();
    let codes: Vec<Option<i32>> = std::thread::scope(|scope| {
        let both: Vec<_> = (0..2)
            .map(|_| {
                let mut command = h.plain_command(&["replay", &key]);
                scope.spawn(move || command.output().expect("the binary runs").status.code())
            })
            .collect();
        both.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    assert!(codes.contains(&Some(0)), "{codes:?}");
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(actions(&job).iter().filter(|action| *action == "replay").count(), 1, "{codes:?} {job:#}");
    assert_eq!(h.posts().len(), 2);
}

#[test]
fn replay_all_and_by_class_take_what_may_be_replayed() {
    let h = Scene::new(Family::B).start();
    h.provider.script(vec![refusal(), refusal(), refusal()]);
    let keys: Vec<String> = (1..=3).map(|n| h.payout(n)).collect();
    h.work_until_idle();
    h.run(&["replay", "--class", "timeout"]).fails(&[0, 3]);
    assert_eq!(h.list(&["--state", "parked"]).len(), 3, "none is of that class");
    h.run(&["replay", "--class", "rejected"]).ok();
    h.work_until_idle();
    for key in &keys {
        h.assert_settled_once(key);
    }
    h.assert_laws();
}

#[test]
fn content_is_amended_only_when_certainly_nothing_happened_and_money_only_when_said_so() {
    let (h, key) = parked_rejected();
    let other_account = payout(1).replace(r#""account_id":"1""#, r#""account_id":"9""#);
    let other_amount = payout(1).replace("1001", "999");
    let remark = payout(1).replace('}', r#","remark":"second try"}"#);
    h.run(&["replay", &key, "--payload", &other_account]).refused("not_allowed", 4);
    h.run(&["replay", &key, "--payload", &other_amount]).refused("not_allowed", 4);
    h.assert_parked(&key, "rejected", "rejected");

    h.provider.script(vec![refusal()]);
    h.run(&["replay", &key, "--payload", &remark]).ok();
    h.work_until_idle();
    h.assert_parked(&key, "rejected", "rejected");
    h.run(&["replay", &key, "--payload", &other_amount, "--amend-money"]).ok();
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!((&job["amount_minor"], &job["intent"]["generation"]), (&999.into(), &3.into()), "{job:#}");
    let amounts: Vec<bool> =
        h.posts().iter().map(|seen| String::from_utf8_lossy(&seen.request.body).contains("999")).collect();
    assert_eq!(amounts, [false, false, true]);
    for earlier in [payout(1), remark, other_amount] {
        assert_eq!(h.enqueue("payout", &earlier, &[]).ok().json()["outcome"], "duplicate", "{earlier}");
    }
    h.enqueue("payout", &other_account, &[]).refused("key_mismatch", 4);
    h.assert_laws();
}

#[test]
fn a_payload_that_gives_another_key_is_no_amendment() {
    let (h, key) = parked_rejected();
    h.run(&["replay", &key, "--payload", &payout(2), "--amend-money"]).fails(&[4]);
    assert_eq!(h.list(&[]).len(), 1);
    h.assert_parked(&key, "rejected", "rejected");
}

#[test]
fn the_provider_s_own_confirmation_settles_what_was_parked_unknown() {
    let (h, key) = parked_unknown();
    h.run(&["confirm", &key, "--reference", "po_5"]).ok();
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"po_5".into()));
    assert!(actions(&job).contains(&"confirm".to_string()));
    h.run(&["confirm", &key, "--reference", "po_5"]).ok();
    h.run(&["confirm", &key, "--reference", "po_6"]).refused("not_allowed", 4);
    assert_eq!(h.stats()["double_effects"], 1);
    h.work_until_idle();
    assert_eq!(h.posts().len(), 1);
}

#[test]
fn a_confirmation_is_taken_for_a_refused_job_and_stops_its_next_generation() {
    let (h, key) = parked_rejected();
    h.run(&["replay", &key]).ok();
    h.run(&["confirm", &key, "--reference", "po_5"]).ok();
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"po_5".into()), "{job:#}");
    assert_eq!(h.posts().len(), 1, "the next generation is not sent");
}

#[test]
fn a_confirmation_of_what_was_never_sent_is_refused() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.run(&["confirm", &key, "--reference", "po_5"]).refused("not_allowed", 4);
    h.work_until_idle();
    h.assert_settled_once(&key);
}

#[test]
fn a_confirmation_that_differs_from_the_settled_reference_raises_the_alarm() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.work_until_idle();
    h.run(&["confirm", &key, "--reference", "po_1"]).ok();
    h.run(&["confirm", &key, "--reference", "po_2"]).refused("not_allowed", 4);
    assert_eq!(h.stats()["double_effects"], 1);
    h.assert_settled_once(&key);
}

#[test]
fn a_remark_is_kept_and_changes_nothing() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.work_until_idle();
    let before = h.show(&key);
    h.run(&["note", &key, "the customer called"]).ok();
    h.run(&["note", &key, "charged back", "--reversed", "re_1"]).ok();
    let after = h.assert_settled_once(&key);
    assert_eq!(before["intent"], after["intent"]);
    assert_eq!(actions(&after).iter().filter(|action| *action == "note").count(), 2);
    h.assert_laws();
}

#[test]
fn a_paused_provider_gets_nothing_until_it_is_resumed() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.run(&["pause", "provider", "bank"]).ok();
    h.work_until_idle();
    assert_eq!(h.posts().len(), 0);
    assert_eq!(h.stats()["providers"]["bank"]["state"], "paused");
    h.run(&["resume", "provider", "bank"]).ok();
    h.work_until_idle();
    h.assert_settled_once(&key);
    h.run(&["pause", "provider", "nobody"]).fails(&[2, 3, 4]);
}

#[test]
fn a_reference_that_no_provider_gives_is_refused_from_a_person_too() {
    let h = Scene::new(Family::E).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropAfter]);
    h.work_until_idle();
    for wrong in ["", " ", "po\n1", &"x".repeat(256)] {
        h.run(&["confirm", &key, "--reference", wrong]).refused("invalid", 4);
        h.run(&["resolve", &key, "--settled", wrong]).refused("invalid", 4);
    }
    h.assert_parked(&key, "unknown_outcome", "requested");
    h.run(&["resolve", &key, "--settled", &"x".repeat(255)]).ok();
    h.assert_laws();
}

#[test]
fn what_was_spent_on_a_job_is_still_to_be_seen_when_a_person_has_ended_it() {
    let h = Scene::new(Family::E).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropBefore]);
    h.work_until_idle();
    h.run(&["resolve", &key, "--rejected", "the bank has nothing"]).ok();
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["attempts"]), (&"cancelled".into(), &1.into()), "{job:#}");
    h.assert_laws();
}

#[test]
fn another_namespace_is_a_fault_of_the_config_for_check_too() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.config(&h.scene.text().replace("[store]", "[store]\nnamespace = \"other\""));
    for command in ["check", "list"] {
        h.run(&[command]).refused("config", 2);
    }
}
