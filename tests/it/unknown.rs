//! Outcomes that nobody knows: what is sent again, what is asked, and what waits for a person.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);

fn nothing_there() -> Fault {
    Fault::Answer(Answer::json(200, r#"{"data":[]}"#))
}

fn refusal() -> Fault {
    Fault::Answer(Answer::json(400, r#"{"error":{"code":"bad_account","type":"invalid_request"}}"#))
}

/// R01: the reply is late; the same key and the same bytes go again, and the first answer comes back.
#[test]
fn a_timeout_is_unknown_and_is_sent_again_under_the_same_key_byte_for_byte() {
    let h = Scene::new(Family::B).total("400ms").start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(classes(&job), ["timeout", "ok"], "{job:#}");
    assert_eq!(
        job["history"].as_array().unwrap().iter().find(|r| r["class"] == "timeout").unwrap()["to"],
        "unknown"
    );
    assert_eq!(job["attempts"], 2);
    let posts = h.posts();
    assert_eq!(posts.len(), 2);
    assert_eq!(posts[0].request, posts[1].request);
    assert_eq!(posts[0].key.as_deref(), job["intent"]["wire_key"].as_str());
    h.assert_laws();
}

/// R02: what was deployed between two sends of one generation does not change the second.
#[test]
fn a_request_is_frozen_at_its_first_send_whatever_the_template_says_later() {
    let mut h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    h.kill_worker_when(|state| state.effects.len() == 1);
    h.reconfigure(|scene| scene.body += r#", memo = "new template""#);
    h.work_until_idle();
    h.assert_settled_once(&key);
    let posts = h.posts();
    assert_eq!(posts.len(), 2);
    assert_eq!(posts[0].request, posts[1].request);
    h.assert_laws();
}

#[test]
fn a_new_generation_renders_the_new_template_under_a_new_wire_key() {
    let mut h = Scene::new(Family::E).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropBefore]);
    h.work_until_idle();
    let parked = h.assert_parked(&key, "unknown_outcome", "requested");
    h.reconfigure(|scene| scene.body += r#", memo = "new template""#);
    h.run(&["resolve", &key, "--not-applied", "--note", "checked with the bank"]).ok();
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(job["intent"]["generation"], 2);
    assert_ne!(job["intent"]["wire_key"], parked["intent"]["wire_key"]);
    let posts = h.posts();
    assert_eq!(posts.len(), 2);
    assert!(carries(&posts[0], &parked["intent"]["wire_key"]));
    assert!(carries(&posts[1], &job["intent"]["wire_key"]));
    assert!(!String::from_utf8_lossy(&posts[0].request.body).contains("new template"));
    assert!(String::from_utf8_lossy(&posts[1].request.body).contains("new template"));
    h.assert_laws();
}

#[test]
fn a_stored_500_is_looked_up_and_not_asked_for_again_and_again() {
    let h = Scene::new(Family::A).with_lookup(false).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::ErrorAfter(500)]);
    h.work_until_idle();
    h.assert_settled_once(&key);
    assert_eq!(h.posts().len(), 1);
    assert!(h.lookups() >= 1);
    h.assert_laws();
}

#[test]
fn a_stored_500_without_a_look_up_is_sent_once_more_and_then_parked() {
    let h = Scene::new(Family::A).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::ErrorAfter(500)]);
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(h.posts().len(), 2);
    h.assert_laws();
}

#[test]
fn nothing_is_sent_again_under_a_key_that_the_provider_may_have_forgotten() {
    let h = Scene::new(Family::B)
        .set(|s| s.provider += "\nidempotency = { header = \"Idempotency-Key\", window = \"2s\" }")
        .start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    h.kill_worker_when(|state| state.effects.len() == 1);
    // The window runs by the clock, so the clock is what is waited for.
    let sent = Instant::now();
    while sent.elapsed() < Duration::from_millis(2200) {
        std::thread::sleep(Duration::from_millis(20));
    }
    h.provider.state().forget_keys();
    h.work_until_idle();
    h.assert_parked(&key, "window_expired", "requested");
    assert_eq!(h.posts().len(), 1);
    h.run(&["replay", &key]).refused("not_allowed", 4);
    h.assert_laws();
}

/// Law 6: a refusal says nothing about the request before it.
#[test]
fn a_refusal_after_an_unknown_ends_nothing() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropBefore, refusal()]);
    h.work_until_idle();
    let job = h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["interrupted", "rejected"], "{job:#}");
    assert_eq!(h.posts().len(), 2);
    h.assert_laws();
}

#[test]
fn a_refusal_after_an_unknown_is_looked_up_where_that_is_possible() {
    let h = Scene::new(Family::B).with_lookup(false).start();
    let key = h.payout(1);
    // The reply to a payout that happened is lost; what answers then does not know of it.
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    h.kill_worker_when(|state| state.effects.len() == 1);
    h.provider.state().forget_keys();
    h.provider.script(vec![refusal()]);
    h.work_until_idle();
    h.assert_settled_once(&key);
    assert!(h.lookups() >= 1);
    h.assert_laws();
}

#[test]
fn a_look_up_that_finds_nothing_twice_and_is_the_authority_starts_the_next_generation() {
    let h = Scene::new(Family::E).with_lookup(true).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropBefore]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(job["intent"]["generation"], 2);
    let methods: Vec<String> =
        h.provider.state().requests.iter().map(|seen| seen.request.method.clone()).collect();
    assert_eq!(methods, ["POST", "GET", "GET", "POST"]);
    let posts = h.posts();
    assert!(!carries(&posts[0], &job["intent"]["wire_key"]));
    assert!(carries(&posts[1], &job["intent"]["wire_key"]));
    assert_eq!(classes(&job), ["interrupted", "not_found", "not_found", "ok"], "{job:#}");
    h.assert_laws();
}

#[test]
fn a_look_up_that_is_no_authority_proves_nothing_by_finding_nothing() {
    let h = Scene::new(Family::E).with_lookup(false).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropBefore]);
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(h.posts().len(), 1);
    assert_eq!(h.lookups(), 2);
    h.assert_laws();
}

/// The provider's list lags behind: nothing there at first, then the payout appears.
#[test]
fn one_look_up_that_finds_nothing_is_not_proof() {
    let h = Scene::new(Family::E).with_lookup(true).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropAfter]);
    h.provider.script_lookups(vec![nothing_there()]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(job["intent"]["generation"], 1);
    assert_eq!(h.posts().len(), 1);
    assert_eq!(classes(&job), ["interrupted", "not_found", "ok"], "{job:#}");
    h.assert_laws();
}

#[test]
fn a_look_up_waits_for_its_lag_before_nothing_counts() {
    let h = Scene::new(Family::E)
        .set(|s| s.lookup = Some(lookup(true).replace(r#"lag = "0s""#, r#"lag = "1h""#)))
        .start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropBefore]);
    let mut worker = h.spawn_worker(&[]);
    let job = h.show_until(&key, |job| job["state"] == "unknown");
    worker.kill9();
    h.run(&["work", "--once"]).ok();
    let again = h.show(&key);
    assert_eq!(again["state"], "unknown", "{again:#}");
    assert_eq!(again["intent"]["generation"], 1);
    assert_eq!(h.posts().len(), 1);
    assert_eq!(job["intent"]["wire_key"], again["intent"]["wire_key"]);
    h.assert_laws();
}

#[test]
fn a_look_up_that_fails_is_no_answer_and_is_asked_again() {
    let h = Scene::new(Family::E).with_lookup(true).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::DropAfter]);
    h.provider.script_lookups(vec![
        Fault::ErrorBefore(500),
        Fault::Html,
        Fault::DropBefore,
        Fault::Truncated { length: false },
        Fault::Answer(Answer::html(404)),
    ]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(h.posts().len(), 1);
    let classes = classes(&job);
    assert!(classes[1..6].iter().all(|c| c == "lookup_failed"), "{classes:?}");
    assert_eq!(job["attempts"], 1, "look-ups spend no attempts");
    h.assert_laws();
}

/// The account of the credential, or the address, is part of what a key means.
#[test]
fn an_unknown_is_not_sent_again_to_another_address() {
    let mut h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    h.kill_worker_when(|state| state.effects.len() == 1);
    let elsewhere =
        onceward::demo::provider::Provider::start(Family::B, onceward::demo::provider::Faults::none())
            .expect("a second provider");
    h.reconfigure(|scene| scene.base_url = elsewhere.base_url());
    h.work_until_idle();
    h.assert_parked(&key, "scope_changed", "requested");
    assert_eq!(elsewhere.state().requests.len(), 0);
    h.assert_laws();
}

/// A rotated credential is the same caller where the config says whose account it acts for, and only there.
#[test]
fn a_rotated_credential_is_the_same_scope_only_where_the_config_names_the_account() {
    for (named, rotated, sends_again) in [
        ("account = \"acct_1\"", "account = \"acct_1\"", true),
        ("account = \"acct_1\"", "account = \"acct_2\"", false),
        ("account = \"acct_1\"", "", false),
        ("", "account = \"acct_1\"", false),
        ("", "", false),
    ] {
        let mut h = Scene::new(Family::B).set(|s| s.profile = "stripe").start();
        let auth = |key: &str| format!("\nauth = {{ bearer = {{ file = \"{key}\" }} }}");
        for key in ["old", "new"] {
            std::fs::write(h.dir.path().join(key), format!("sk_{key}")).expect("written");
        }
        h.reconfigure(|s| s.provider = format!("\n{named}{}", auth("old")));
        let key = h.payout(1);
        h.provider.script(vec![Fault::HoldAfter(LONG)]);
        h.kill_worker_when(|state| state.effects.len() == 1);
        h.reconfigure(|s| s.provider = format!("\n{rotated}{}", auth("new")));
        h.work_until_idle();
        if sends_again {
            h.assert_settled_once(&key);
            let credentials: Vec<_> = h
                .posts()
                .iter()
                .map(|post| post.request.header("authorization").map(str::to_string))
                .collect();
            let expected = ["Bearer sk_old", "Bearer sk_new"].map(|c| Some(c.to_string()));
            assert_eq!(credentials, expected);
        } else {
            h.assert_parked(&key, "scope_changed", "requested");
            assert_eq!(h.posts().len(), 1, "{named:?} then {rotated:?}");
        }
        h.assert_laws();
    }
}

/// A success with other content is an effect; that a look-up then finds nothing proves nothing.
#[test]
fn a_success_that_did_not_fit_is_not_followed_by_another_request() {
    let h = Scene::new(Family::E).with_lookup(true).start();
    let key = h.payout(1);
    let body = r#"{"id":"po_9","status":"paid","amount":1,"currency":"EUR"}"#;
    h.provider.script(vec![Fault::Answer(Answer::json(201, body))]);
    h.work_until_idle();
    h.assert_parked(&key, "content_differs", "requested");
    h.run(&["replay", &key]).ok();
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(h.posts().len(), 1);
    assert_eq!(h.lookups(), 2);
    h.assert_laws();
}

/// The frozen request carries no key, so a profile that promises something later must not send it again.
#[test]
fn an_unknown_that_was_sent_without_a_key_is_not_repeated_by_a_better_profile() {
    let mut h = Scene::new(Family::E).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    h.kill_worker_when(|state| state.effects.len() == 1);
    h.reconfigure(|scene| scene.profile = "generic");
    h.work_until_idle();
    h.assert_parked(&key, "scope_changed", "requested");
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

/// The app made the call itself; a profile that would have a worker make it comes too late for this one.
#[test]
fn what_the_app_may_have_done_itself_is_not_sent_by_a_worker_later() {
    let h = Scene::new(Family::B).start();
    let text = h.scene.text();
    let external = "[providers.bank]\nprofile = \"external\"\n[kinds.payout]\nprovider = \"bank\"\n\
                    key = \"payout:{invoice_id}\"\naccount = \"{account_id}\"\n\
                    amount_minor = \"{amount_minor}\"\ncurrency = \"{currency}\"\nconfirm_within = \"1ms\"\n";
    h.config(&format!("[store]\npath = \"onceward.db\"\n{external}"));
    let key = h.payout(1);
    h.config(&text);
    std::thread::sleep(Duration::from_millis(10));
    h.work_until_idle();
    h.assert_parked(&key, "scope_changed", "requested");
    assert_eq!(h.posts().len(), 0);
}
