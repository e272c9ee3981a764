//! The shapes that the contract promises, from the binary itself: every field, by name and by type.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use serde_json::Value;

/// A time as the contract writes it: UTC, with milliseconds.
fn is_time(value: &Value) -> bool {
    let text = value.as_str().unwrap_or("");
    text.len() == 24 && text.ends_with('Z') && text.as_bytes()[10] == b'T' && text.as_bytes()[19] == b'.'
}

#[track_caller]
fn has_exactly(object: &Value, names: &str) {
    let mut given: Vec<&str> = object.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut wanted: Vec<&str> = names.split_whitespace().collect();
    given.sort();
    wanted.sort();
    assert_eq!(given, wanted, "{object:#}");
}

const JOB: &str = "id key kind state payload payload_sha256 account amount_minor currency group sequence priority attempts \
                   max_attempts run_after error_class last_error park_reason blocked_by created_at updated_at intent";
const INTENT: &str = "state generation wire_key provider reference requested_at confirmed_at result";
const ENTRY: &str =
    "seq action attempt from to class phase http_status error detail run_after started_at at actor";

#[test]
fn a_settled_job_shows_each_promised_field_and_the_list_leaves_the_history_out() {
    let h = Scene::new(Family::B).start();
    let key = key(1);
    let asked = h.enqueue("payout", &payout(1), &["--group", "till-3", "--priority", "4"]).ok().json();
    assert_eq!(
        (&asked["outcome"], &asked["id"], &asked["state"]),
        (&"created".into(), &1.into(), &"ready".into())
    );
    assert_eq!(asked["key"], key.as_str());
    h.provider.script(vec![Fault::DropAfter]);
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    has_exactly(&job, &format!("{JOB} history"));
    has_exactly(&job["intent"], INTENT);
    for (name, wanted) in [
        ("kind", Value::from("payout")),
        ("payload", serde_json::from_str(&payout(1)).expect("JSON")),
        ("account", "1".into()),
        ("amount_minor", 1001.into()),
        ("currency", "EUR".into()),
        ("group", "till-3".into()),
        ("sequence", 1.into()),
        ("priority", 4.into()),
        ("attempts", 2.into()),
        ("max_attempts", 10.into()),
        ("park_reason", Value::Null),
        ("blocked_by", Value::Null),
    ] {
        assert_eq!(job[name], wanted, "{name}: {job:#}");
    }
    assert_eq!(job["payload_sha256"].as_str().map(str::len), Some(64));
    assert_eq!((&job["intent"]["provider"], &job["intent"]["generation"]), (&"bank".into(), &1.into()));
    for time in [&job["created_at"], &job["updated_at"], &job["run_after"]] {
        assert!(is_time(time), "{time}");
    }
    for time in ["requested_at", "confirmed_at"] {
        assert!(is_time(&job["intent"][time]), "{time}: {job:#}");
    }
    assert!(job["intent"]["result"].is_object(), "{job:#}");

    assert_eq!(actions(&job), ["enqueue", "request", "request"]);
    for entry in job["history"].as_array().expect("a history") {
        has_exactly(entry, ENTRY);
        assert!(is_time(&entry["at"]), "{entry:#}");
    }
    let first = &job["history"][1];
    assert_eq!(
        (&first["attempt"], &first["from"], &first["to"]),
        (&1.into(), &"running".into(), &"unknown".into())
    );
    assert_eq!((&first["class"], &first["http_status"]), (&"interrupted".into(), &Value::Null));
    assert!(
        is_time(&first["run_after"]) && is_time(&first["started_at"]) && first["error"].is_string(),
        "{first:#}"
    );
    assert!(first["actor"].as_str().is_some_and(|a| a.starts_with("worker:")), "{first:#}");
    assert_eq!((&job["history"][2]["class"], &job["history"][2]["to"]), (&"ok".into(), &"settled".into()));

    let listed = h.list(&[]);
    assert_eq!(listed.len(), 1);
    has_exactly(&listed[0], JOB);
}

#[test]
fn a_lease_is_shown_while_the_job_runs_and_only_then() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldBefore(LIMIT * 10)]);
    let worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.requests.len() == 1, LIMIT));
    let job = h.show(&key);
    assert_eq!(job["state"], "running");
    has_exactly(&job["lease"], "owner token expires_at");
    assert_eq!(job["lease"]["token"], 1);
    assert!(is_time(&job["lease"]["expires_at"]), "{job:#}");
    assert_eq!(h.stats()["providers"]["bank"]["in_flight"], 1);
    h.provider.release();
    let job = h.show_until(&key, |job| job["state"] == "settled");
    assert!(job.get("lease").is_none(), "{job:#}");
    drop(worker);
}

#[test]
fn the_figures_have_each_promised_name_and_say_what_happened() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.enqueue("payout", &payout(1), &[]).ok();
    let other = payout(1).replace("1001", "1002");
    h.enqueue("payout", &other, &[]).refused("key_mismatch", 4);
    h.work_until_idle();
    for n in [2, 3] {
        h.enqueue("payout", &payout(n), &["--group", "g"]).ok();
    }
    h.provider.script(vec![Fault::Answer(Answer::json(422, "{}"))]);
    h.work_until_idle();
    h.enqueue("payout", &payout(4), &["--delay", "1h"]).ok();
    let stats = h.stats();
    for name in
        "oldest_ready_age_s oldest_unknown_age_s duplicate_keys key_mismatches suppressed unconfirmed \
                 double_effects wal_bytes busy_waits log_lines_dropped"
            .split_whitespace()
    {
        assert!(stats[name].is_number(), "{name}: {stats:#}");
    }
    has_exactly(&stats["jobs"], "scheduled ready waiting running unknown settled parked cancelled");
    for (state, count) in [("settled", 1), ("parked", 1), ("waiting", 1), ("scheduled", 1), ("ready", 0)] {
        assert_eq!(stats["jobs"][state], count, "{state}: {stats:#}");
    }
    for (name, count) in
        [("duplicate_keys", 1), ("key_mismatches", 1), ("double_effects", 0), ("unconfirmed", 0)]
    {
        assert_eq!(stats[name], count, "{name}: {stats:#}");
    }
    assert_eq!(stats["attempts_by_class"], serde_json::json!({"ok": 1, "rejected": 1}));
    assert_eq!(stats["parked_by_reason"], serde_json::json!({"rejected": 1}));
    has_exactly(&stats["confirmation_gap_s"], "count p50 p95 max");
    assert_eq!(stats["confirmation_gap_s"]["count"], 1);
    let blocked = &stats["blocked_groups"][0];
    has_exactly(blocked, "group head since waiting");
    assert_eq!(
        (&blocked["group"], &blocked["head"], &blocked["waiting"]),
        (&"g".into(), &key(2).into(), &1.into())
    );
    assert!(is_time(&blocked["since"]), "{blocked:#}");
    has_exactly(&stats["providers"], "bank");
    has_exactly(&stats["providers"]["bank"], "state since why in_flight");
    assert_eq!(stats["providers"]["bank"]["state"], "ok");
    assert_eq!(stats["oldest_ready_age_s"].as_f64(), Some(0.0), "nothing could run now");
    assert_eq!(stats["unclaimed_kinds"], serde_json::json!([]));
}
