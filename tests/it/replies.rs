//! Replies that do not mean what their status says.

use crate::harness::*;
use onceward::clock::Ms;
use onceward::demo::provider::{Answer, Family, Fault};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn answer(status: u16, body: &str) -> Fault {
    Fault::Answer(Answer::json(status, body))
}

/// R52
#[test]
fn a_redirect_is_not_followed_and_is_no_success() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    let login = format!("{}/login", h.provider.base_url());
    h.provider.script(vec![Fault::Redirect(login)]);
    h.work_until_idle();
    let job = h.assert_parked(&key, "redirected", "requested");
    assert_eq!(classes(&job), ["redirected"]);
    assert_eq!(h.posts().len(), 1);
    assert_eq!(h.lookups(), 0, "a followed redirect would be a GET");
    h.assert_laws();
}

/// R13: a reply that cannot be read settles nothing; the same key is asked again and the provider repeats its answer.
#[test]
fn unreadable_successes_do_not_settle() {
    let cases = [
        (Fault::Html, vec!["bad_response"]),
        (Fault::AnswerAfter(Answer::json(200, "")), vec!["bad_response", "interrupted"]),
        (Fault::AnswerAfter(Answer::json(200, "{}")), vec!["bad_response"]),
        (Fault::AnswerAfter(Answer::json(200, r#"{"id":null}"#)), vec!["bad_response"]),
        (Fault::Truncated { length: true }, vec!["interrupted"]),
        (Fault::Truncated { length: false }, vec!["interrupted", "bad_response"]),
    ];
    for (fault, allowed) in cases {
        let h = Scene::new(Family::B).start();
        let key = h.payout(1);
        h.provider.script(vec![fault.clone()]);
        h.work_until_idle();
        let job = h.assert_settled_once(&key);
        let classes = classes(&job);
        assert!(allowed.contains(&classes[0].as_str()), "{fault:?}: {classes:?}");
        assert_eq!(classes[1..], ["ok"], "{fault:?}");
        assert_eq!(h.posts().len(), 2);
        h.assert_laws();

        let h = Scene::new(Family::E).start();
        let key = h.payout(1);
        h.provider.script(vec![fault]);
        h.work_until_idle();
        h.assert_parked(&key, "unknown_outcome", "requested");
        assert_eq!(h.posts().len(), 1);
        h.assert_laws();
    }
}

#[test]
fn a_payout_declined_inside_a_success_is_a_refusal() {
    for status in [200, 201] {
        let h = Scene::new(Family::B).start();
        let key = h.payout(1);
        h.provider.script(vec![answer(
            status,
            r#"{"id":"po_9","status":"failed","amount":1001,"currency":"EUR"}"#,
        )]);
        h.work_until_idle();
        h.assert_parked(&key, "rejected", "rejected");
        assert_eq!(h.posts().len(), 1);
        h.assert_laws();
    }
}

/// R15
#[test]
fn a_pending_payout_is_never_sent_again_and_settles_by_look_up() {
    let h = Scene::new(Family::B).with_lookup(true).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::Pending(3)]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(classes(&job)[0], "accepted");
    assert_eq!(h.posts().len(), 1);
    assert!(h.lookups() >= 3);
    h.assert_laws();
}

#[test]
fn a_pending_payout_that_fails_is_parked_as_refused() {
    let h = Scene::new(Family::B).with_lookup(true).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::Pending(1_000_000)]);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.lookups().count() >= 2, LIMIT));
    h.provider.state().set_status(&key, "failed");
    h.show_until(&key, |job| job["state"] == "parked");
    worker.kill9();
    h.assert_parked(&key, "rejected", "rejected");
    assert_eq!(h.posts().len(), 1);
}

#[test]
fn an_accepted_payout_that_is_then_nowhere_to_be_found_is_not_sent_again() {
    let h = Scene::new(Family::B).with_lookup(true).start();
    let key = h.payout(1);
    h.provider
        .script(vec![answer(202, r#"{"id":"po_9","status":"processing","amount":1001,"currency":"EUR"}"#)]);
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

#[test]
fn another_amount_or_currency_in_the_reply_is_for_a_person() {
    for body in [
        r#"{"id":"{id}","status":"paid","amount":1,"currency":"EUR"}"#,
        r#"{"id":"{id}","status":"paid","amount":1001,"currency":"USD"}"#,
    ] {
        let h = Scene::new(Family::B).start();
        let key = h.payout(1);
        h.provider.script(vec![Fault::AnswerAfter(Answer::json(201, body))]);
        h.work_until_idle();
        let job = h.show(&key);
        assert_eq!((&job["state"], &job["park_reason"]), (&"parked".into(), &"content_differs".into()));
        assert_eq!(h.posts().len(), 1);
        h.assert_laws();
    }
}

#[test]
fn a_currency_in_lower_case_is_the_same_currency() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::AnswerAfter(Answer::json(
        201,
        r#"{"id":"{id}","status":"paid","amount":1001,"currency":"eur"}"#,
    ))]);
    h.work_until_idle();
    h.assert_settled_once(&key);
}

#[test]
fn a_reference_that_belongs_to_another_key_is_for_a_person() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.work_until_idle();
    let key = h.payout(2);
    h.provider.script(vec![answer(201, r#"{"id":"po_1","status":"paid","amount":1002,"currency":"EUR"}"#)]);
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!(
        (&job["state"], &job["park_reason"]),
        (&"parked".into(), &"reference_taken".into()),
        "{job:#}"
    );
    h.assert_settled_once(&crate::harness::key(1));
    h.assert_laws();
}

/// R12: one status, three meanings.
#[test]
fn a_409_that_says_the_key_is_in_use_waits_for_the_first_request() {
    let h = Scene::new(Family::A).start();
    let key = h.payout(1);
    let running = || answer(409, r#"{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}"#);
    h.provider.script(vec![Fault::DropAfter, running(), running()]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(classes(&job), ["interrupted", "in_progress", "in_progress", "ok"], "{job:#}");
    assert_eq!(job["attempts"], 2, "waiting for our own request spends nothing");
    h.assert_laws();
}

#[test]
fn a_409_that_is_a_business_clash_is_a_refusal() {
    for family in [Family::A, Family::B] {
        let h = Scene::new(family).start();
        let key = h.payout(1);
        h.provider.script(vec![answer(409, r#"{"error":{"code":"duplicate_invoice"}}"#)]);
        h.work_until_idle();
        let job = h.assert_parked(&key, "rejected", "rejected");
        assert_eq!(classes(&job), ["rejected"]);
        assert_eq!(h.posts().len(), 1);
        h.assert_laws();
    }
}

#[test]
fn a_key_that_the_provider_knows_with_other_content_is_never_answered_by_a_new_key() {
    let h = Scene::new(Family::A).start();
    let key = h.payout(1);
    h.provider.script(vec![answer(400, r#"{"error":{"type":"idempotency_error"}}"#)]);
    h.work_until_idle();
    let job = h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["key_mismatch"]);
    assert_eq!(job["intent"]["generation"], 1);
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

/// R23: the provider's wish is kept, spends no attempt and survives restarts.
#[test]
fn retry_after_is_honoured_and_spends_nothing() {
    for status in [429, 503] {
        let h = Scene::new(Family::B).start();
        let key = h.payout(1);
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        h.provider.script(vec![Fault::Answer(Answer::json(status, "{}").with("Retry-After", "3600"))]);
        h.run(&["work", "--once"]).ok();
        let job = h.show(&key);
        let due = Ms::parse_rfc3339(job["run_after"].as_str().expect("a time")).expect("RFC 3339");
        let least = before + Duration::from_secs(3600);
        assert!(u128::try_from(due.0).expect("after 1970") >= least.as_millis(), "{job:#}");
        if status == 429 {
            assert_eq!((&job["attempts"], &job["error_class"]), (&0.into(), &"throttled".into()), "{job:#}");
            assert_eq!((&job["state"], &job["intent"]["state"]), (&"scheduled".into(), &"pending".into()));
        } else {
            assert_eq!(
                (&job["attempts"], &job["error_class"]),
                (&1.into(), &"server_error".into()),
                "{job:#}"
            );
            assert_eq!(job["state"], "unknown");
        }
        h.run(&["work", "--once"]).ok();
        h.run(&["work", "--once"]).ok();
        assert_eq!(h.show(&key)["run_after"], job["run_after"]);
        assert_eq!(h.posts().len(), 1);
        h.assert_laws();
    }
}

/// R23: rubbish in Retry-After neither stops nor hurries anything.
#[test]
fn a_retry_after_that_cannot_be_read_is_left_out() {
    for rubbish in ["", "-5", "soon", "Wed, 99 Foo 2026", "NaN"] {
        let h = Scene::new(Family::B).start();
        let key = h.payout(1);
        h.provider.script(vec![Fault::Throttle(Some(rubbish.into()))]);
        h.work_until_idle();
        let job = h.assert_settled_once(&key);
        assert_eq!(classes(&job), ["throttled", "ok"], "{rubbish:?}");
    }
}

/// R23: an absurd pause is cut at a day.
#[test]
fn a_retry_after_beyond_a_day_is_cut() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::Throttle(Some("99999999999999999999".into()))]);
    let mut worker = h.spawn_worker(&[]);
    let job = h.show_until(&key, |job| job["error_class"] == "throttled" || job["state"] == "settled");
    worker.kill9();
    if job["state"] == "scheduled" {
        let due = Ms::parse_rfc3339(job["run_after"].as_str().expect("a time")).expect("RFC 3339");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        assert!(u128::try_from(due.0).expect("after 1970") <= now + 86_400_000, "{job:#}");
    }
}
