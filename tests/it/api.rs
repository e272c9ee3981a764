//! The API: what each route answers, and that it is the command line's word.

use crate::harness::{Harness, Scene, key, payout};
use onceward::demo::provider::Family;
use serde_json::json;

fn scene() -> Harness {
    Scene::new(Family::A).with_lookup(true).with_http().start()
}

fn job(n: u32) -> String {
    format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n))
}

#[test]
fn a_job_that_is_asked_for_over_http_is_done_once_and_a_repeat_says_how_it_stands() {
    let harness = scene();
    let web = harness.serve();
    let created = web.post("/v1/jobs", &job(1)).is(201);
    assert_eq!((&created["outcome"], &created["key"]), (&json!("created"), &json!(key(1))));
    assert_eq!(created["generation"], 1);
    harness.show_until(&key(1), |job| job["state"] == "settled");
    let again = web.post("/v1/jobs", &job(1)).is(200);
    assert_eq!((&again["outcome"], &again["state"]), (&json!("duplicate"), &json!("settled")));
    assert_eq!(again["wire_key"], created["wire_key"]);
    assert_eq!(web.get("/v1/jobs/payout%3AINV-1").is(200), harness.show(&key(1)));
    harness.assert_settled_once(&key(1));
}
