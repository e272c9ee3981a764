//! Whose answer it is: what a look-up finds may be another job's, an earlier generation's, or a gateway's. Real sockets,
//! and the requests counted.

use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::{Value, json};
use std::sync::Mutex;

/// A provider that remembers no keys, and a kind `pay` that looks up.
fn harness(base_url: &str, kind: &str) -> Harness {
    let h = Scene::new(Family::B).start();
    h.config(&format!(
        r#"
[worker]
poll = "20ms"
[providers.p]
profile = "none"
base_url = "{base_url}"
breaker = {{ failures = 1000, cool_down = "100ms" }}
[kinds.pay]
provider = "p"
key = "pay:{{n}}"
amount_minor = "{{amount}}"
retry = {{ base = "10ms", cap = "20ms", max_age = "1s" }}
{kind}
"#
    ));
    h.enqueue("pay", &json!({"n": 1, "amount": 1250}).to_string(), &[]).ok();
    h
}

fn posts(server: &Script) -> usize {
    server.got().iter().filter(|got| got.method == "POST").count()
}

fn list(objects: &[Value]) -> Option<String> {
    Some(reply(200, "", &json!({"data": objects}).to_string()))
}

const BY_KEY: &str = r#"
request = { path = "/p", body = { ref = "{$key}", amount = "{$amount_minor}" } }
reply = { reference = "/id", amount = "/amount", key = "/ref", status = "/status", rejected = ["failed"] }
lookup = { path = "/p?ref={$key}", reference = "/data/0/id", amount = "/data/0/amount", key = "/data/0/ref", status = "/data/0/status", settled = ["paid"], rejected = ["failed"], lag = "0s" }
"#;

#[test]
fn another_jobs_failed_object_is_no_refusal_and_sends_nothing_again() {
    let other = json!({"id": "po_9", "amount": 1250, "ref": "pay:9", "status": "failed"});
    let server = Script::start(move |got, _| match got.method.as_str() {
        "POST" => None,
        _ => list(std::slice::from_ref(&other)),
    });
    let h = harness(&server.base_url, BY_KEY);
    h.work_until_idle();
    h.assert_parked("pay:1", "content_differs", "requested");
    h.run(&["replay", "pay:1"]);
    h.work_until_idle();
    assert_eq!(posts(&server), 1);
    assert_eq!(h.show("pay:1")["intent"]["state"], "requested");
}

/// The first generation fails and says so; the second acts, and its reply is lost. `wire`: objects carry the wire key.
/// Gives the server and the job after the second generation was looked up.
fn second_generation(status: &'static str, wire: bool) -> (Script, Harness) {
    let objects = Mutex::new(Vec::new());
    let server = Script::start(move |got, _| {
        let mut objects = objects.lock().unwrap();
        if got.method != "POST" {
            return list(&objects);
        }
        let body = got.json();
        let (id, status) =
            (format!("po_{}", objects.len() + 1), if objects.is_empty() { "failed" } else { status });
        let mut object = json!({"id": id, "amount": body["amount"], "ref": body["ref"], "status": status});
        if wire {
            object["metadata"] = json!({"key": body["wire"]});
        }
        objects.push(object.clone());
        (objects.len() == 1).then(|| reply(200, "", &object.to_string()))
    });
    let kind = if wire {
        BY_KEY.replace("ref = \"{$key}\",", "ref = \"{$key}\", wire = \"{$wire_key}\",")
    } else {
        BY_KEY.into()
    };
    let h = harness(&server.base_url, &kind);
    h.work_until_idle();
    h.assert_parked("pay:1", "rejected", "rejected");
    h.run(&["replay", "pay:1"]).ok();
    h.work_until_idle();
    (server, h)
}

#[test]
fn an_earlier_generations_failure_hides_no_payment_of_the_present_one() {
    for wire in [false, true] {
        let (server, h) = second_generation("paid", wire);
        let job = h.show("pay:1");
        assert_eq!(
            (&job["state"], &job["intent"]["reference"]),
            (&"settled".into(), &"po_2".into()),
            "{job:#}"
        );
        assert_eq!((&job["intent"]["generation"], posts(&server)), (&2.into(), 2), "{job:#}");
    }
}

#[test]
fn a_failed_object_ends_a_later_generation_only_with_that_generations_key() {
    let (server, h) = second_generation("failed", true);
    h.assert_parked("pay:1", "rejected", "rejected");
    assert_eq!(posts(&server), 2);

    // Nobody knows whose it is: asked about until a person is asked, and never sent again.
    let (server, h) = second_generation("failed", false);
    let job = h.assert_parked("pay:1", "unknown_outcome", "requested");
    assert!(classes(&job).contains(&"lookup_failed".to_string()), "{job:#}");
    h.run(&["replay", "pay:1"]);
    h.work_until_idle();
    assert_eq!(posts(&server), 2);
}

#[test]
fn a_gateways_404_proves_nothing_and_the_providers_own_does() {
    let lookups = [
        r#"path = "/by/{$wire_key}", reference = "/id""#,
        r#"path = "/list?key={$wire_key}", reference = "/data/*/id""#,
    ];
    for (lookup, (code, sent)) in lookups
        .iter()
        .flat_map(|lookup| [("no Route matched", 1), ("resource_missing", 2)].map(|row| (lookup, row)))
    {
        let server = Script::start(move |got, before| match (got.method.as_str(), before) {
            ("POST", 0) => None,
            ("POST", _) => Some(reply(200, "", r#"{"id":"po_2"}"#)),
            _ => Some(reply(404, "", &json!({"error": {"code": code}}).to_string())),
        });
        let kind = format!(
            r#"
request = {{ path = "/p", body = {{ ref = "{{$wire_key}}" }} }}
reply = {{ reference = "/id" }}
lookup = {{ {lookup}, lag = "0s", authoritative = true, not_found = {{ status = 404, code = "/error/code", is = "resource_missing" }} }}
"#
        );
        let h = harness(&server.base_url, &kind);
        h.work_until_idle();
        assert_eq!(posts(&server), sent, "{lookup} {code}");
        match sent {
            1 => drop(h.assert_parked("pay:1", "unknown_outcome", "requested")),
            _ => assert_eq!(classes(&h.show("pay:1")), ["interrupted", "not_found", "not_found", "ok"]),
        }
    }
}

#[test]
fn check_warns_of_a_look_up_that_cannot_prove_what_it_is_said_to() {
    let kind = |request: &str, path: &str, more: &str| {
        format!(
            "request = {{ path = \"/p\", {request} }}\nlookup = {{ path = \"{path}\", reference = \"/data/*/id\"{more} }}\n"
        )
    };
    let wire = "body = { key = \"{$wire_key}\" }";
    for (kind, says) in [
        (kind(wire, "/recent", ", authoritative = true"), Some("asks /recent for every job alike")),
        (kind(wire, "/p?key={$key}", ", authoritative = true"), Some("unless it carries {$wire_key}")),
        (kind(wire, "/recent", ""), None),
        (kind(wire, "/p?key={$wire_key}", ", authoritative = true"), None),
    ] {
        let h = harness("http://127.0.0.1:9", &kind);
        let said = h.run(&["check"]).ok().stdout;
        match says {
            Some(says) => assert!(said.contains("beware: kind pay") && said.contains(says), "{kind}{said}"),
            None => assert!(
                !said.contains("kind pay looks up") && !said.contains("for every job alike"),
                "{said}"
            ),
        }
    }
}
