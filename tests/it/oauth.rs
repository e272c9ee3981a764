//! OAuth2 client credentials: fetched, shared, renewed, kept in memory only; without a token nothing leaves.

use crate::harness::wire::{Asked, Fault, Wire, fault, http};
use crate::harness::*;
use crate::secrets::assert_nowhere;
use crate::wire::scene;
use onceward::demo::provider::Family;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECRET: &str = "s3cret/+ c4nary=";
/// What RFC 6749 (2.3.1) makes of `till 3` and the secret, in Base64.
const BASIC: &str = "dGlsbCszOnMzY3JldCUyRiUyQitjNG5hcnklM0Q=";

/// A provider with a token server.
#[derive(Default)]
struct Bank {
    /// Tokens given out; they are called tok-c4nary-1, -2 and so on.
    given: usize,
    /// The token that is good now; 0 is none.
    good: usize,
    lasts: Option<&'static str>,
    /// The token server's next answers, whole.
    refusals: Vec<String>,
    /// The provider's next replies are lost.
    losses: usize,
    basic: String,
    paid: usize,
}

impl Bank {
    fn token(&mut self, asked: &Asked) -> String {
        if !self.refusals.is_empty() {
            return self.refusals.remove(0);
        }
        if asked.header("authorization") != Some(&format!("Basic {}", self.basic)) {
            let said = asked.header("authorization").unwrap_or_default();
            return http(
                "401 Unauthorized",
                "",
                &format!(r#"{{"error":"invalid_client","error_description":"{said} {SECRET}"}}"#),
            );
        }
        self.given += 1;
        self.good = self.given;
        let lasts = self.lasts.map(|n| format!(",\"expires_in\":{n}")).unwrap_or_default();
        http(
            "200 OK",
            "",
            &format!(r#"{{"access_token":"tok-c4nary-{}","token_type":"Bearer"{lasts}}}"#, self.given),
        )
    }

    fn pay(&mut self, asked: &Asked) -> Option<String> {
        let bearer = asked.header("authorization").unwrap_or_default();
        if self.good == 0 || bearer != format!("Bearer tok-c4nary-{}", self.good) {
            return Some(http("401 Unauthorized", "", &format!(r#"{{"message":"{bearer}"}}"#)));
        }
        if self.losses > 0 {
            self.losses -= 1;
            return None;
        }
        self.paid += 1;
        let body: serde_json::Value = serde_json::from_slice(&asked.body).expect("JSON");
        Some(http(
            "200 OK",
            "",
            &format!(
                r#"{{"id":"po_{}","amount":{},"currency":"EUR","status":"paid"}}"#,
                self.paid, body["amount"]
            ),
        ))
    }
}

struct Scenery {
    h: Harness,
    wire: Wire,
    bank: Arc<Mutex<Bank>>,
}

fn start(bank: Bank, change: impl FnOnce(&mut Scene)) -> Scenery {
    let bank = Arc::new(Mutex::new(bank));
    let of_wire = Arc::clone(&bank);
    let serve: Fault = fault(move |conn| {
        let asked = conn.request();
        let answer = {
            let mut bank = of_wire.lock().expect("the bank");
            if asked.head.starts_with("POST /token ") { Some(bank.token(&asked)) } else { bank.pay(&asked) }
        };
        if let Some(answer) = answer {
            conn.say(answer);
        }
    });
    let wire = Wire::start(Vec::new(), serve, None);
    let h = scene(Family::B, &wire, "20s")
        .set(|s| {
            s.provider += &format!(
                "\nauth = {{ oauth2 = {{ token_url = \"{}/token\", client_id = {{ env = \"ID\" }}, client_secret = {{ env = \"SECRET\" }}, scope = \"pay read:all\" }} }}",
                wire.base_url()
            );
        })
        .set(change)
        .start();
    for (name, value) in [("ID", "till 3"), ("SECRET", SECRET), ("RUST_LOG", "trace")] {
        h.env(name, value);
    }
    Scenery { h, wire, bank }
}

fn bank() -> Bank {
    Bank { lasts: Some("3600"), basic: BASIC.into(), ..Bank::default() }
}

impl Scenery {
    fn given(&self) -> usize {
        self.bank.lock().expect("the bank").given
    }

    fn payouts(&self) -> Vec<Asked> {
        self.wire.asked().into_iter().filter(|a| !a.head.starts_with("POST /token ")).collect()
    }
}

#[test]
fn one_token_serves_all_threads_and_is_kept_nowhere() {
    let s = start(bank(), |_| ());
    let keys: Vec<String> = (1..=12).map(|n| s.h.payout(n)).collect();
    s.h.work_until_idle();
    for key in &keys {
        assert_eq!(s.h.show(key)["state"], "settled");
    }
    let asked = s.wire.asked();
    assert_eq!(s.given(), 1, "one fetch for all");
    let token = &asked[0];
    assert!(token.head.starts_with("POST /token HTTP/1.1"), "{}", token.head);
    assert_eq!(token.header("authorization"), Some(format!("Basic {BASIC}").as_str()));
    assert_eq!(token.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(token.body, b"grant_type=client_credentials&scope=pay+read%3Aall");
    assert!(s.payouts().iter().all(|a| a.header("authorization") == Some("Bearer tok-c4nary-1")));
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for secret in ["tok-c4nary", SECRET, BASIC] {
        assert_nowhere(&s.h, &keys, secret);
    }
}

#[test]
fn a_token_is_renewed_before_its_end() {
    // Text, as some servers write it.
    let s = start(Bank { lasts: Some("\"1\""), ..bank() }, |_| ());
    let mut worker = s.h.spawn_worker(&[]);
    let first = s.h.payout(1);
    s.h.show_until(&first, |job| job["state"] == "settled");
    let fetched = Instant::now();
    while fetched.elapsed() < Duration::from_millis(1100) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = s.h.payout(2);
    let job = s.h.show_until(&second, |job| job["state"] == "settled");
    worker.kill9();
    assert_eq!(classes(&job), ["ok"], "nobody was asked with a token that had ended: {job:#}");
    assert_eq!(s.given(), 2);
}

/// Whatever becomes of the token call, nothing has left for the provider.
#[test]
fn without_a_token_nothing_is_sent_and_no_attempt_is_spent() {
    let echo = format!(r#"{{"error":"invalid_client","error_description":"{SECRET} {BASIC}"}}"#);
    let refusals = vec![
        http("400 Bad Request", "", &echo),
        http("401 Unauthorized", "", &echo),
        http("500 Oh", "", &echo),
        http("503 No", "retry-after: 1\r\n", "<html>tok-c4nary-9</html>"),
        http("302 Found", "location: /elsewhere\r\n", ""),
        http("200 OK", "", "<html>log in</html>"),
        http("200 OK", "", "{}"),
        http("200 OK", "", r#"{"access_token":""}"#),
        http("200 OK", "", r#"{"access_token":"tok\r\nX: y"}"#),
        http("200 OK", "", r#"{"access_token":"tok-c4nary-9","token_type":"mac"}"#),
        http("200 OK", "", &"x".repeat(2 << 20)),
        "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"access_token\":\"tok-c4nary-9\"".into(),
        "garbage\r\n\r\n".into(),
        String::new(),
    ];
    let count = refusals.len();
    let s = start(Bank { refusals, ..bank() }, |_| ());
    let key = s.h.payout(1);
    s.h.work_until_idle();
    let job = s.h.show(&key);
    let mut expected = vec!["not_sent"; count];
    expected.push("ok");
    assert_eq!(classes(&job), expected, "{job:#}");
    assert_eq!((&job["attempts"], &job["state"]), (&1.into(), &"settled".into()), "{job:#}");
    assert_eq!(s.payouts().len(), 1);
    let first = tries(&job).next().expect("a try")["error"].as_str().unwrap_or_default().to_string();
    assert!(first.contains("/token gave none: it answered 400 (invalid_client)"), "{first}");
    for secret in ["tok-c4nary", SECRET, BASIC] {
        assert_nowhere(&s.h, &[&key], secret);
    }
}

#[test]
fn a_token_server_that_is_down_holds_the_provider_as_its_own_outage_would() {
    let refusals = vec![http("503 No", "", ""); 2];
    let s = start(Bank { refusals, ..bank() }, |s| {
        s.provider =
            s.provider.replace("failures = 1000, cool_down = \"100ms\"", "failures = 2, cool_down = \"1h\"");
    });
    let key = s.h.payout(1);
    s.h.work_until_idle();
    let job = s.h.show(&key);
    assert_eq!((&job["attempts"], &job["intent"]["state"]), (&0.into(), &"pending".into()), "{job:#}");
    let held = &s.h.stats()["providers"]["bank"];
    assert_eq!(held["state"], "held", "{held:#}");
    assert!(held["why"].is_string(), "{held:#}");
    assert_eq!(s.payouts().len(), 0);
}

#[test]
fn a_token_that_the_provider_revokes_is_replaced_at_the_probe() {
    let s = start(bank(), |_| ());
    let mut worker = s.h.spawn_worker(&[]);
    let first = s.h.payout(1);
    s.h.show_until(&first, |job| job["state"] == "settled");
    s.bank.lock().expect("the bank").good = 0;
    let second = s.h.payout(2);
    let job = s.h.show_until(&second, |job| job["state"] == "settled");
    worker.kill9();
    assert_eq!(classes(&job), ["auth", "ok"], "{job:#}");
    assert_eq!((&job["attempts"], s.given()), (&1.into(), 2), "{job:#}");
    for secret in ["tok-c4nary", SECRET, BASIC] {
        assert_nowhere(&s.h, &[&first, &second], secret);
    }
}

/// The secret passes; who we are stays, and with it the keys that the provider knows us by.
#[test]
fn a_rotated_client_secret_takes_effect_without_a_restart_and_what_is_in_doubt_goes_on_under_its_key() {
    let s = start(Bank { losses: 1, lasts: Some("0"), ..bank() }, |s| {
        s.provider = s.provider.replace("{ env = \"SECRET\" }", "{ file = \"secret\" }");
        s.retry =
            s.retry.replace("base = \"20ms\"", "base = \"1s\"").replace("cap = \"100ms\"", "cap = \"1s\"");
    });
    let file = s.h.dir.path().join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).expect("written");
    let mut worker = s.h.spawn_worker(&[]);
    let key = s.h.payout(1);
    s.h.show_until(&key, |job| job["state"] == "unknown");
    // till 3:new
    s.bank.lock().expect("the bank").basic = "dGlsbCszOm5ldw==".into();
    let second = s.h.payout(2);
    s.h.show_until(&second, |job| job["error_class"] == "not_sent");
    std::fs::write(&file, "new\n").expect("written");
    let job = s.h.show_until(&key, |job| job["state"] == "settled" || job["state"] == "parked");
    s.h.show_until(&second, |job| job["state"] == "settled");
    worker.kill9();
    assert_eq!(job["state"], "settled", "{job:#}");
    assert_eq!(job["intent"]["generation"], 1);
    let keys: Vec<_> =
        s.payouts().iter().filter_map(|a| a.header("idempotency-key").map(str::to_string)).collect();
    let first = job["intent"]["wire_key"].as_str().expect("a key");
    assert_eq!(keys.iter().filter(|k| *k == first).count(), 2, "{keys:?}");
}
