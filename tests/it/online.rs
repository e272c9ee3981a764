//! `check --online`: what can be reached and what cannot, without anything that could have an effect.

use crate::harness::certs::Authority;
use crate::harness::wire::{Fault, Wire, fault, http};
use crate::harness::*;
use crate::wire::scene;
use onceward::demo::provider::Family;
use serde_json::Value;
use std::sync::Arc;

const TOKEN: &str = "c4nary-0nline";

/// Answers GET with this status; a POST is answered too, and must not come.
fn answers(status: &'static str) -> Fault {
    fault(move |conn| {
        let asked = conn.request();
        let said = asked.header("authorization").unwrap_or_default().to_string();
        conn.say(http(status, "", &said));
    })
}

fn found(output: &Output) -> Vec<(String, bool, String)> {
    let of = |v: &Value, name: &str| v[name].as_str().unwrap_or_default().to_string();
    let lines = output.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|v| v["what"] == "online")
        .map(|v| (of(&v, "step"), v["ok"] == true, of(&v, "finding")))
        .collect()
}

#[track_caller]
fn steps(output: &Output, expected: &[(&str, bool)]) {
    let found = found(output);
    let found: Vec<(&str, bool)> = found.iter().map(|(step, ok, _)| (step.as_str(), *ok)).collect();
    assert_eq!(found, expected, "{output}");
    assert!(!output.to_string().contains(TOKEN), "{output}");
}

fn start(wire: &Wire, more: &str) -> Harness {
    let h = scene(Family::B, wire, "20s")
        .set(|s| s.provider += &format!("\nauth = {{ bearer = {{ env = \"TOKEN\" }} }}\n{more}"))
        .start();
    h.env("TOKEN", TOKEN);
    h
}

#[test]
fn a_provider_that_answers_is_found_well_and_only_a_get_is_sent() {
    let wire = Wire::start(Vec::new(), answers("200 OK"), None);
    let h = start(&wire, "health = \"/v1/balance?x=1\"");
    h.payout(1);
    steps(
        &h.run(&["check", "--online"]).ok(),
        &[("dns", true), ("tcp", true), ("tls", true), ("read", true)],
    );
    let asked = wire.asked();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].head.starts_with("GET /v1/balance?x=1 HTTP/1.1"), "{}", asked[0].head);
    assert_eq!(asked[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    assert_eq!(asked[0].header("idempotency-key"), None);
    assert_eq!(h.show(&key(1))["state"], "ready");
    // Without the flag nobody is asked.
    h.run(&["check"]).ok();
    assert_eq!(wire.asked().len(), 1);
}

#[test]
fn without_a_harmless_read_the_credential_is_not_tried_and_nothing_is_sent() {
    let wire = Wire::start(Vec::new(), answers("200 OK"), None);
    let output = start(&wire, "").run(&["check", "--online"]).ok();
    steps(&output, &[("dns", true), ("tcp", true), ("tls", true), ("read", true)]);
    assert!(found(&output)[3].2.contains("not tried"), "{output}");
    assert_eq!(wire.asked().len(), 0);
}

#[test]
fn a_read_that_is_not_answered_well_is_named_with_what_to_do() {
    for (status, says) in [
        ("401 Unauthorized", "the credential is refused"),
        ("403 Forbidden", "the credential is refused"),
        ("404 Not Found", "correct base_url or `health`"),
        ("302 Found", "redirects are not followed"),
        ("500 Oh", "own state"),
        ("garbage", "was not answered"),
    ] {
        let wire = Wire::start(Vec::new(), answers(status), None);
        let output = start(&wire, "health = \"/me\"").run(&["check", "--online"]);
        assert_eq!(output.code, Some(1), "{status}: {output}");
        steps(&output, &[("dns", true), ("tcp", true), ("tls", true), ("read", false)]);
        assert!(found(&output)[3].2.contains(says), "{status}: {output}");
        assert_eq!(wire.asked().len(), 1);
    }
}

#[test]
fn what_cannot_be_reached_is_named_by_how_far_one_gets() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let wire = Wire::start(Vec::new(), answers("200 OK"), None);
    for (base_url, expected) in [
        ("https://onceward-nowhere.invalid".to_string(), vec![("dns", false)]),
        (format!("http://{closed}"), vec![("dns", true), ("tcp", false)]),
        (wire.base_url().replace("http:", "https:"), vec![("dns", true), ("tcp", true), ("tls", false)]),
    ] {
        let mut h = start(&wire, "");
        h.reconfigure(|s| s.base_url = base_url);
        let output = h.run(&["check", "--online"]);
        assert_eq!(output.code, Some(1), "{output}");
        steps(&output, &expected);
    }
}

#[test]
fn the_days_until_a_certificate_ends_are_told_and_a_bad_one_is_refused() {
    let authority = Authority::new("ours");
    for (leaf, good) in [(authority.good(), true), (authority.leaf("127.0.0.1", 2020, 2021), false)] {
        let server = leaf.server();
        let wire = Wire::start(Vec::new(), answers("200 OK"), Some(Arc::new(move |_| Arc::clone(&server))));
        let h = start(&wire, "tls = { ca_file = \"ca.pem\" }");
        std::fs::write(h.dir.path().join("ca.pem"), &authority.pem).expect("written");
        let output = h.run(&["check", "--online"]);
        assert_eq!(output.code, Some(if good { 0 } else { 1 }), "{output}");
        let lines = output.lines();
        let tls = lines.iter().find(|v| v["step"] == "tls").expect("a line about TLS");
        if good {
            // 2090-01-01, counted from now.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            let days = (3_786_912_000 - now.as_secs()) / 86_400;
            assert_eq!(tls["certificate_days"].as_u64(), Some(days), "{tls:#}");
        } else {
            assert!(tls["finding"].as_str().is_some_and(|f| f.contains("expired")), "{tls:#}");
        }
    }
}

#[test]
fn a_token_is_tried_where_one_is_needed() {
    for (status, ok) in [("200 OK", true), ("401 Unauthorized", false)] {
        let tokens = Wire::start(
            Vec::new(),
            fault(move |conn| {
                conn.request();
                conn.say(http(status, "", &format!(r#"{{"access_token":"{TOKEN}","token_type":"bearer"}}"#)));
            }),
            None,
        );
        let wire = Wire::start(Vec::new(), answers("200 OK"), None);
        let h = scene(Family::B, &wire, "20s")
            .set(|s| {
                let (url, secret) = (tokens.base_url(), "{ env = \"TOKEN\" }");
                s.provider += &format!("\nhealth = \"/me\"\nauth = {{ oauth2 = {{ token_url = \"{url}/t\", client_id = {secret}, client_secret = {secret} }} }}");
            })
            .start();
        h.env("TOKEN", TOKEN);
        let output = h.run(&["check", "--online"]);
        let mut expected = vec![("dns", true), ("tcp", true), ("tls", true), ("token", ok)];
        if ok {
            expected.push(("read", true));
        }
        steps(&output, &expected);
        assert_eq!(output.code, Some(if ok { 0 } else { 1 }));
    }
}

/// `check --online` with this look-up, against a provider that answers every GET so.
fn looking_up(lookup: &str, status: &'static str, body: &'static str) -> (Wire, Output) {
    let wire = Wire::start(
        Vec::new(),
        fault(move |conn| {
            conn.request();
            conn.say(http(status, "", body));
        }),
        None,
    );
    let mut h = start(&wire, "");
    h.reconfigure(|s| s.lookup = Some(lookup.to_string()));
    let output = h.run(&["check", "--online"]);
    (wire, output)
}

#[test]
fn each_look_up_is_asked_for_a_key_that_cannot_exist_and_told_if_nothing_there_is_not_understood() {
    let list = r#"{ path = "/v1/payout?ref={$wire_key}&key={$key}", reference = "/data/0/id", authoritative = true }"#;
    let named = r#"{ path = "/p/{$wire_key}", reference = "/id", authoritative = true, not_found = { status = 404, code = "/code", is = "none" } }"#;
    let one = r#"{ path = "/p/{$wire_key}", reference = "/id" }"#;
    let by_field = r#"{ path = "/p/{account_id}/{$key}", reference = "/data/*/id" }"#;
    for (lookup, status, body, ok, says) in [
        (list, "200 OK", r#"{"data":[]}"#, true, "there is nothing, as it should"),
        (
            list,
            "404 Not Found",
            r#"{"message":"no Route matched with those values"}"#,
            false,
            "no Route matched",
        ),
        (list, "404 Not Found", "<html>", false, "correct lookup.path"),
        (list, "200 OK", r#"{"items":[]}"#, false, "a null or an empty list on the way to lookup.reference"),
        (list, "200 OK", r#"{"data":[{"id":"po_1"}]}"#, false, "found an object"),
        (list, "401 Unauthorized", "{}", false, "the credential is refused"),
        (list, "400 Bad", r#"{"message":"unknown parameter"}"#, false, "unknown parameter"),
        (list, "garbage", "", false, "no answer came"),
        (named, "404 Not Found", r#"{"code":"none"}"#, true, "there is nothing, as it should"),
        (named, "404 Not Found", r#"{"code":"no route"}"#, false, "not understood"),
        (one, "404 Not Found", r#"{"code":"none"}"#, true, "for a mistyped path would too"),
        (by_field, "404 Not Found", "{}", false, "is it that {account_id} was made up too?"),
    ] {
        let (wire, output) = looking_up(lookup, status, body);
        let found = found(&output);
        let (step, good, words) = found.last().expect("a finding");
        assert_eq!((step.as_str(), *good), ("lookup", ok), "{lookup} {status} {body}: {output}");
        assert!(words.starts_with("bank, lookup: kind payout: ") && words.contains(says), "{words}");
        assert_eq!(output.code, Some(i32::from(!ok)), "{output}");
        assert!(!output.to_string().contains(TOKEN), "{output}");
        let asked = wire.asked();
        assert_eq!(asked.len(), 1, "one GET and nothing else");
        assert!(asked[0].head.starts_with("GET /") && asked[0].header("idempotency-key").is_none());
        assert_eq!(asked[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    }
}
