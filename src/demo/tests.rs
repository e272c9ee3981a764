//! The comparison of the two books finds what it is there to find.

use super::*;
use provider::Fault;
use std::io::{Read, Write};
use std::net::TcpStream;

fn pay(provider: &Provider, reference: &str) {
    let body = format!(r#"{{"amount":1,"currency":"EUR","reference":"{reference}"}}"#);
    let length = body.len();
    let mut stream = TcpStream::connect(provider.address()).unwrap();
    write!(stream, "POST /v1/payouts HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

fn job(number: usize, state: &str, reference: Option<&str>) -> Listed {
    let intent = ListedIntent { reference: reference.map(str::to_string) };
    Listed { key: key(number), state: state.into(), intent }
}

fn report(provider: &Provider, jobs: &[Listed], asked: usize) -> Report {
    let options = Options {
        jobs: asked,
        seed: 1,
        keep: false,
        program: PathBuf::new(),
        enqueue: &|_, _, _| Ok(()),
        progress: &|_| {},
    };
    compare(&options, provider, jobs, 0, Duration::ZERO)
}

#[test]
fn equal_books_are_clean_and_a_parked_payout_is_not_lost() {
    let provider = Provider::start(Family::E, Faults::none()).unwrap();
    pay(&provider, &key(1));
    let found = report(&provider, &[job(1, "settled", Some("po_1")), job(2, "parked", None)], 2);
    assert!(found.is_clean(), "{found:?}");
    assert_eq!((found.asked, found.requests, found.settled, found.parked), (2, 1, 1, 1));
    assert_eq!(found.example, None);
}

#[test]
fn a_second_effect_of_one_event_is_found() {
    let provider = Provider::start(Family::E, Faults::none()).unwrap();
    pay(&provider, &key(1));
    pay(&provider, &key(1));
    let found = report(&provider, &[job(1, "settled", Some("po_2"))], 1);
    assert_eq!(found.doubled, [key(1)]);
    assert_eq!(found.example, Some(key(1)));
    assert!(!found.is_clean());
}

#[test]
fn a_payout_that_vanished_or_did_not_end_or_never_happened_is_lost() {
    let provider = Provider::start(Family::E, Faults::script(vec![Fault::DropBefore])).unwrap();
    pay(&provider, &key(1));
    let jobs = [job(1, "settled", Some("po_1")), job(2, "unknown", None)];
    assert_eq!(report(&provider, &jobs, 3).lost, [key(1), key(2), key(3)]);
}

#[test]
fn the_config_is_valid_and_its_payload_gives_the_key() {
    let text = config_text("http://127.0.0.1:1");
    let config = crate::config::Config::parse(&text, Path::new("onceward.toml")).unwrap();
    assert_eq!(config.kinds["payout"].provider.as_deref(), Some("bank"));
    let payload: serde_json::Value = serde_json::from_str(&payload(7)).unwrap();
    assert_eq!(format!("payout:{}", payload["invoice_id"].as_str().unwrap()), key(7));
}
