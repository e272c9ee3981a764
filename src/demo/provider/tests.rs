//! The model keeps its families' promises, and its faults are what they say.

use super::*;
use std::io::{Read, Write};

const BODY: &str = r#"{"amount":9007199254740993,"currency":"EUR","reference":"k1"}"#;

fn call(provider: &Provider, method: &str, path: &str, key: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(provider.address()).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn post(provider: &Provider, key: &str, body: &str) -> String {
    call(provider, "POST", "/v1/payouts", key, body)
}

fn start(family: Family, faults: Vec<Fault>) -> Provider {
    Provider::start(family, Faults::script(faults)).unwrap()
}

#[test]
fn a_payout_is_made_and_found_again_with_every_digit() {
    let provider = start(Family::B, vec![]);
    let made = post(&provider, "w1", BODY);
    assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
    let object =
        r#"{"id":"po_1","status":"paid","amount":9007199254740993,"currency":"EUR","reference":"k1"}"#;
    assert!(made.ends_with(object), "{made}");
    assert!(
        call(&provider, "GET", "/v1/payouts?reference=k%31", "", "")
            .ends_with(&format!(r#"{{"data":[{object}]}}"#))
    );
    assert!(call(&provider, "GET", "/v1/payouts?reference=other", "", "").ends_with(r#"{"data":[]}"#));
    assert!(call(&provider, "GET", "/v1/payouts/po_1", "", "").ends_with(object));
    assert!(call(&provider, "GET", "/v1/payouts/po_9", "", "").starts_with("HTTP/1.1 404 "));
}

#[test]
fn each_family_answers_a_repeat_in_its_own_way() {
    let expected = [
        (Family::A, "HTTP/1.1 201 ", 1),
        (Family::B, "HTTP/1.1 201 ", 1),
        (Family::C, "HTTP/1.1 200 ", 1),
        (Family::D, "HTTP/1.1 409 ", 1),
        (Family::E, "HTTP/1.1 201 ", 2),
    ];
    for (family, status, effects) in expected {
        let provider = start(family, vec![Fault::DropAfter]);
        assert_eq!(post(&provider, "w1", BODY), "", "{family:?}");
        let again = post(&provider, "w1", BODY);
        assert!(again.starts_with(status), "{family:?}: {again}");
        assert_eq!(again.contains("Idempotent-Replayed: true"), family == Family::A, "{again}");
        assert_eq!(provider.state().effects_of("k1"), effects, "{family:?}");
        assert_eq!(provider.state().posts().count(), 2);
    }
}

#[test]
fn the_same_key_with_another_body_is_refused() {
    for (family, status) in
        [(Family::A, "HTTP/1.1 400 "), (Family::B, "HTTP/1.1 422 "), (Family::C, "HTTP/1.1 422 ")]
    {
        let provider = start(family, vec![]);
        post(&provider, "w1", BODY);
        let other = post(&provider, "w1", r#"{"amount":1,"currency":"EUR","reference":"k1"}"#);
        assert!(other.starts_with(status), "{family:?}: {other}");
        assert_eq!(provider.state().effects.len(), 1);
    }
}

#[test]
fn only_family_a_stores_its_errors() {
    for (family, again, effects) in [(Family::A, "HTTP/1.1 500 ", 0), (Family::B, "HTTP/1.1 201 ", 1)] {
        let provider = start(family, vec![Fault::ErrorBefore(500)]);
        assert!(post(&provider, "w1", BODY).starts_with("HTTP/1.1 500 "));
        assert!(post(&provider, "w1", BODY).starts_with(again), "{family:?}");
        assert_eq!(provider.state().effects.len(), effects);
    }
    let provider = start(Family::A, vec![Fault::ErrorAfter(500)]);
    post(&provider, "w1", BODY);
    assert!(post(&provider, "w1", BODY).starts_with("HTTP/1.1 500 "), "a stored error hides the effect");
    assert_eq!(provider.state().effects.len(), 1);
}

#[test]
fn a_held_request_arrives_is_seen_and_goes_on_when_released() {
    let provider = start(Family::B, vec![Fault::HoldBefore(Duration::from_secs(60))]);
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| post(&provider, "w1", BODY));
        assert!(provider.wait_for(|state| state.requests.len() == 1, Duration::from_secs(10)));
        assert_eq!(provider.state().effects.len(), 0);
        provider.release();
        assert!(caller.join().unwrap().starts_with("HTTP/1.1 201 "));
    });
}

#[test]
fn bodies_are_cut_with_and_without_a_length() {
    let provider =
        start(Family::B, vec![Fault::Truncated { length: true }, Fault::Truncated { length: false }]);
    let short = post(&provider, "w1", BODY);
    assert!(short.contains("Content-Length") && !short.ends_with('}'), "{short}");
    let open = post(&provider, "w1", BODY);
    assert!(!open.contains("Content-Length") && !open.ends_with('}'), "{open}");
}

#[test]
fn a_pending_payout_settles_after_its_look_ups() {
    let provider = start(Family::B, vec![Fault::Pending(2)]);
    assert!(post(&provider, "w1", BODY).starts_with("HTTP/1.1 202 "));
    let ask = || call(&provider, "GET", "/v1/payouts?reference=k1", "", "");
    assert!(ask().contains("processing"));
    assert!(ask().contains("processing"));
    assert!(ask().contains("paid"));
}
