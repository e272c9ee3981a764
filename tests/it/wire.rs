//! Broken wires: each way in which an exchange can go wrong below HTTP, with the real worker. For each: the class and
//! the phase of the attempt, what becomes of job and intent, and that nothing went out under a second key.
//!
//! A fault that has no end of its own lasts longer than any call may: a call that outlived its time would end otherwise
//! than as the timeout that is expected. TLS is in `wire_tls`, proxies in `wire_proxy`, the sweep in `wire_sweep`.

use crate::harness::wire::{Conn, Fault, Wire, fault, http, says};
use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::Value;
use std::time::Duration;

pub const GOOD: &str = r#"{"id":"po_1","amount":1001,"currency":"EUR","status":"paid"}"#;

/// What follows from the first attempt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Then {
    /// In doubt: asked again under the same key where the provider remembers it, else parked.
    Doubt,
    /// Nothing left: sent again, whoever the provider is.
    Again,
    /// Done.
    Settled,
    /// Refused.
    Refused,
}

/// One way to go wrong.
pub struct Case {
    pub name: &'static str,
    pub fault: Fault,
    pub class: &'static str,
    pub phase: &'static str,
    pub status: Option<u16>,
    pub then: Then,
    pub total: &'static str,
}

/// A case whose connection breaks before a status, or inside the head.
pub fn case(name: &'static str, fault: Fault, class: &'static str, phase: &'static str) -> Case {
    Case { name, fault, class, phase, status: None, then: Then::Doubt, total: "20s" }
}

impl Case {
    pub fn status(self, status: u16) -> Case {
        Case { status: Some(status), ..self }
    }

    pub fn then(self, then: Then) -> Case {
        Case { then, ..self }
    }

    /// For what ends only with the time: long enough for a busy machine to get that far.
    pub fn within(self, total: &'static str) -> Case {
        Case { total, ..self }
    }
}

pub fn good() -> Fault {
    says(http("200 OK", "", GOOD))
}

/// A scene whose provider is this server.
pub fn scene(family: Family, wire: &Wire, total: &'static str) -> Scene {
    Scene::new(family).total(total).set(|s| s.base_url = wire.base_url())
}

/// Runs a case against a provider that remembers keys and one that does not.
fn check(case: &Case) {
    for family in [Family::B, Family::E] {
        let wire = Wire::start(vec![case.fault.clone()], good(), None);
        check_on(case, family, &wire, scene(family, &wire, case.total).start());
    }
}

pub fn check_on(case: &Case, family: Family, wire: &Wire, h: Harness) {
    let name = case.name;
    let key = h.payout(1);
    let output = h.work_until_idle();
    assert!(!output.stderr.contains("panicked"), "{name}: {output}");
    let job = h.show(&key);
    let first = tries(&job).next().unwrap_or_else(|| panic!("{name}: no try: {job:#}"));
    let told = (first["class"].as_str(), first["phase"].as_str(), first["http_status"].as_u64());
    assert_eq!(
        told,
        (Some(case.class), Some(case.phase), case.status.map(u64::from)),
        "{name}, {family:?}: {first:#}"
    );
    assert!(case.class == "ok" || first["error"].is_string(), "{name}: {first:#}");

    let (state, intent, reason): (_, _, Value) = match (case.then, family) {
        (Then::Settled | Then::Again, _) | (Then::Doubt, Family::B) => ("settled", "settled", Value::Null),
        (Then::Doubt, _) => ("parked", "requested", "unknown_outcome".into()),
        (Then::Refused, _) => ("parked", "rejected", "rejected".into()),
    };
    let is = (job["state"].as_str(), job["intent"]["state"].as_str(), &job["park_reason"]);
    assert_eq!(is, (Some(state), Some(intent), &reason), "{name}, {family:?}: {job:#}");
    assert_eq!(job["intent"]["generation"], 1, "{name}: {job:#}");
    assert!(matches!(case.then, Then::Doubt | Then::Again) || tries(&job).count() == 1, "{name}: {job:#}");

    // Whatever was read of the requests was the same each time.
    let asked = wire.asked();
    for one in &asked {
        if family == Family::B {
            assert_eq!(one.header("idempotency-key"), job["intent"]["wire_key"].as_str(), "{name}");
        }
        assert!(one.body.starts_with(&asked[0].body) || asked[0].body.starts_with(&one.body), "{name}");
    }
    assert!(family == Family::B || case.then != Then::Doubt || asked.len() <= 1, "{name}: sent twice");
}

pub fn check_all(cases: Vec<Case>) {
    cases.iter().for_each(check);
}

#[test]
fn connections_that_end_before_a_status_are_in_doubt() {
    check_all(vec![
        // Closing a socket with bytes unread in it resets the connection.
        case("reset, nothing read", fault(|conn| conn.arrived()), "interrupted", "sent"),
        case(
            "reset, all but a byte read",
            fault(|conn| {
                conn.part(1);
            }),
            "interrupted",
            "sent",
        ),
        case(
            "closed, all read",
            fault(|conn| {
                conn.request();
            }),
            "interrupted",
            "sent",
        ),
        case(
            "half closed",
            fault(|conn| {
                conn.request();
                conn.half_close();
            }),
            "interrupted",
            "sent",
        ),
        case("never read", fault(|conn| conn.arrived_and_held()), "timeout", "sent").within("2s"),
        case(
            "never answered",
            fault(|conn| {
                conn.request();
                conn.wait_for_the_end();
            }),
            "timeout",
            "sent",
        )
        .within("2s"),
    ]);
}

#[test]
fn an_answer_that_comes_slowly_or_half_closed_is_an_answer() {
    check_all(vec![
        case(
            "taken late",
            fault(|conn| {
                conn.arrived();
                std::thread::sleep(Duration::from_millis(300));
                good()(conn);
            }),
            "ok",
            "body",
        )
        .status(200)
        .then(Then::Settled),
        case(
            "half closed after the answer",
            fault(|conn| {
                good()(conn);
                conn.half_close();
            }),
            "ok",
            "body",
        )
        .status(200)
        .then(Then::Settled),
        case("HTTP/1.0", says(format!("HTTP/1.0 200 OK\r\n\r\n{GOOD}")), "ok", "body")
            .status(200)
            .then(Then::Settled),
    ]);
}

#[test]
fn bodies_that_are_cut_short_are_in_doubt() {
    let head = "HTTP/1.1 200 OK\r\n";
    let half = &GOOD[..20];
    let cut = |name, text: String| case(name, says(text), "interrupted", "body").status(200);
    check_all(vec![
        cut("with a length", format!("{head}content-length: 500\r\n\r\n{GOOD}")),
        cut("without a length", format!("{head}\r\n{half}")),
        cut("between chunks", format!("{head}transfer-encoding: chunked\r\n\r\n14\r\n{half}\r\n")),
        cut("in a chunk", format!("{head}transfer-encoding: chunked\r\n\r\n40\r\n{half}")),
        cut("before the last chunk", format!("{head}transfer-encoding: chunked\r\n\r\n3c\r\n{GOOD}\r\n")),
        case(
            "reset in the body",
            fault(|conn| {
                conn.part(1);
                conn.say("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{");
            }),
            "interrupted",
            "body",
        )
        .status(200),
    ]);
}

#[test]
fn a_dribbling_answer_ends_with_the_time_and_is_in_doubt() {
    let dribble = |head: &'static str, byte| {
        fault(move |conn: &mut Conn| {
            conn.request();
            conn.say(head);
            conn.dribble(byte);
        })
    };
    check_all(vec![
        case("the status line", dribble("HTTP/1.1 200 ", b'O'), "timeout", "sent").within("2s"),
        case("a header", dribble("HTTP/1.1 200 OK\r\nx: ", b'a'), "timeout", "sent").within("2s"),
        case("a body", dribble("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n", b' '), "timeout", "body")
            .status(200)
            .within("2s"),
        case("no length", dribble("HTTP/1.1 200 OK\r\n\r\n", b' '), "timeout", "body")
            .status(200)
            .within("2s"),
        case(
            "a chunk's size",
            dribble("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b'0'),
            "timeout",
            "body",
        )
        .status(200)
        .within("2s"),
    ]);
}

#[test]
fn what_is_not_http_is_in_doubt() {
    let odd = |name, text: &str| case(name, says(text), "interrupted", "sent");
    check_all(vec![
        odd("another protocol", "+OK POP3 ready\r\n\r\n"),
        odd("HTTP/0.9", GOOD),
        odd("no status", "HTTP/1.1\r\n\r\n"),
        odd("a status of letters", "HTTP/1.1 abc OK\r\n\r\n"),
        odd("a status of four digits", &format!("HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n{GOOD}")),
        odd("another version", "HTTP/9.9 200 OK\r\n\r\n"),
        odd("zeros", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        odd("a header without a name", "HTTP/1.1 200 OK\r\n: x\r\n\r\n"),
        odd("a cut head", "HTTP/1.1 200 OK\r\ncontent-le"),
    ]);
}

#[test]
fn informational_answers_are_read_over_and_as_the_last_word_say_only_what_they_say() {
    let ok = http("200 OK", "", GOOD);
    let before = |name, head: &str| {
        case(name, says(format!("HTTP/1.1 {head}\r\n\r\n{ok}")), "ok", "body").status(200).then(Then::Settled)
    };
    check_all(vec![
        before("100 before", "100 Continue"),
        before("102 before", "102 Processing"),
        before("103 before", "103 Early Hints\r\nlink: </x>"),
        case("102 last", says("HTTP/1.1 102 Processing\r\n\r\n"), "in_progress", "headers").status(102),
        case(
            "101 last",
            says("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
            "in_progress",
            "body",
        )
        .status(101),
        case("100 last", says("HTTP/1.1 100 Continue\r\n\r\n"), "interrupted", "sent"),
        case("103 last", says("HTTP/1.1 103 Early Hints\r\n\r\n"), "interrupted", "sent"),
        case(
            "100 without end",
            fault(|conn| {
                conn.request();
                conn.flood(b"HTTP/1.1 100 Continue\r\n\r\n");
            }),
            "interrupted",
            "sent",
        ),
    ]);
}

#[test]
fn heads_without_measure_are_cut_off_and_in_doubt() {
    let flood = |head: &'static str, line: &'static str| {
        fault(move |conn: &mut Conn| {
            conn.request();
            conn.say(head);
            conn.flood(line.repeat(1000).as_bytes());
        })
    };
    let many: String = (0..1000).map(|n| format!("x-{n}: y\r\n")).collect();
    let huge = "y".repeat(200_000);
    check_all(vec![
        case("many headers", says(http("200 OK", &many, GOOD)), "interrupted", "sent"),
        case("a huge header", says(http("200 OK", &format!("x: {huge}\r\n"), GOOD)), "interrupted", "sent"),
        case("endless headers", flood("HTTP/1.1 200 OK\r\n", "x: y\r\n"), "interrupted", "sent"),
        case("an endless header", flood("HTTP/1.1 200 OK\r\nx: ", "yyyyyyyy"), "interrupted", "sent"),
        case("an endless reason", flood("HTTP/1.1 200 ", "OK OK OK"), "interrupted", "sent"),
    ]);
}

#[test]
fn bodies_without_measure_are_read_to_the_limit_and_are_in_doubt_unless_the_status_refuses() {
    let flood = |head: &'static str, bytes: &'static [u8]| {
        fault(move |conn: &mut Conn| {
            conn.request();
            conn.say(head);
            conn.flood(&bytes.repeat(1000));
        })
    };
    let refused =
        |name, status, fault| case(name, fault, "rejected", "body").status(status).then(Then::Refused);
    check_all(vec![
        case("endless", flood("HTTP/1.1 200 OK\r\n\r\n", b"xxxxxxxx"), "bad_response", "body").status(200),
        case(
            "endless chunks",
            flood("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"8\r\nxxxxxxxx\r\n"),
            "bad_response",
            "body",
        )
        .status(200),
        case(
            "white space after a whole answer",
            flood("HTTP/1.1 200 OK\r\n\r\n{\"id\":\"po_1\",\"amount\":1001,\"currency\":\"EUR\",\"status\":\"paid\"}", b"        "),
            "bad_response",
            "body",
        )
        .status(200),
        refused("a refusal", 400, flood("HTTP/1.1 400 Bad Request\r\n\r\n", b"xxxxxxxx")),
        case("a server's trouble", flood("HTTP/1.1 500 Oh\r\n\r\n", b"xxxxxxxx"), "server_error", "body")
            .status(500),
    ]);
}

/// Where the profile tells the meanings of a status apart by a code in the body, a body that cannot be read leaves both
/// open: the key may be known with other content.
#[test]
fn a_refusal_whose_code_cannot_be_read_refuses_nothing() {
    let flood = fault(|conn| {
        conn.request();
        conn.say("HTTP/1.1 400 Bad Request\r\n\r\n");
        conn.flood(&b"xxxxxxxx".repeat(1000));
    });
    let bomb = zeros(1000);
    let head =
        format!("HTTP/1.1 400 Bad\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bomb.len());
    let encoded = says([head.as_bytes(), &bomb].concat());
    let below = says(b"HTTP/1.1 400 Bad\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\n\xff\r\n0\r\n\r\n");
    for fault in [flood, encoded, below] {
        let wire = Wire::start(vec![fault], good(), None);
        let h = scene(Family::A, &wire, "20s").start();
        let key = h.payout(1);
        h.work_until_idle();
        let job = h.show(&key);
        assert_eq!(classes(&job), ["bad_response", "ok"], "{job:#}");
        assert_eq!((&job["state"], &job["intent"]["generation"]), (&"settled".into(), &1.into()), "{job:#}");
        let keys: Vec<_> =
            wire.asked().iter().map(|a| a.header("idempotency-key").map(str::to_string)).collect();
        assert_eq!(keys[0], keys[1]);
    }
}

/// Nothing is decompressed, so that no small answer can become a large one.
#[test]
fn encodings_that_nobody_asked_for_are_not_undone() {
    let encoded = |name, coding: &str, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        case(name, says([head.as_bytes(), body].concat()), "bad_response", "body").status(200)
    };
    // Some 77 MB of zeros in half a megabyte.
    let bomb = zeros(300_000);
    let gzip = [&b"\x1f\x8b\x08\0\0\0\0\0\0\xff"[..], &bomb].concat();
    check_all(vec![
        encoded("gzip bomb", "gzip", &gzip),
        encoded("deflate", "deflate", &zeros(1000)),
        encoded("twice", "gzip, gzip", &gzip),
        encoded("thrice", "gzip, deflate, br", &zeros(10)),
    ]);
    let wire = Wire::start(Vec::new(), good(), None);
    let h = scene(Family::B, &wire, "20s").start();
    h.payout(1);
    h.work_until_idle();
    let asked = wire.asked();
    assert_eq!(asked[0].header("accept-encoding"), Some("identity"), "{}", asked[0].head);
}

/// A deflate stream of `runs` times 258 zeros: a literal, and then copies of it, in the fixed code (RFC 1951, 3.2.6).
fn zeros(runs: usize) -> Vec<u8> {
    let mut bits: Vec<bool> = vec![true, true, false];
    // The literal 0, then length 258 at distance 1, then the end; codes go most significant bit first.
    let code = |bits: &mut Vec<bool>, code: u16, length: u32| {
        bits.extend((0..length).rev().map(|i| code >> i & 1 == 1));
    };
    code(&mut bits, 0b0011_0000, 8);
    for _ in 0..runs {
        code(&mut bits, 0b1100_0101, 8);
        code(&mut bits, 0, 5);
    }
    code(&mut bits, 0, 7);
    bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |n, bit| n << 1 | u8::from(*bit))).collect()
}

#[test]
fn lengths_that_contradict_are_never_a_success_of_half_an_answer() {
    let said = |name, headers: &str, body: &str| {
        let text = format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n{body}");
        case(name, says(text), "interrupted", "sent")
    };
    let n = GOOD.len();
    check_all(vec![
        Case {
            class: "bad_response",
            phase: "body",
            ..said("too short", "content-length: 10", GOOD).status(200)
        },
        said("two lengths", &format!("content-length: {n}\r\ncontent-length: 10"), GOOD),
        said("a negative length", "content-length: -1", GOOD),
        said("a length of letters", "content-length: ten", GOOD),
        Case {
            class: "ok",
            phase: "body",
            then: Then::Settled,
            ..said("one length twice", &format!("content-length: {n}\r\ncontent-length: {n}"), GOOD)
                .status(200)
        },
        // Chunks outrank a length (RFC 9112, 6.3).
        Case {
            class: "ok",
            phase: "body",
            then: Then::Settled,
            ..said(
                "chunks and a length",
                "content-length: 10\r\ntransfer-encoding: chunked",
                &format!("{n:x}\r\n{GOOD}\r\n0\r\n\r\n"),
            )
            .status(200)
        },
        said("an immense length", "content-length: 99999999999999999999999", GOOD),
    ]);
}

#[test]
fn chunks_that_are_none_are_in_doubt() {
    let said = |name, body: &str| {
        let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
        case(name, says(text), "interrupted", "body").status(200)
    };
    check_all(vec![
        said("no size", "zz\r\n{}\r\n0\r\n\r\n"),
        said("a negative size", "-5\r\n{}\r\n0\r\n\r\n"),
        said("an immense size", "ffffffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        said("a size and no end", "3c"),
        case(
            "an endless extension",
            fault(|conn| {
                conn.request();
                conn.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3c;x=");
                conn.flood(&b"yyyyyyyy".repeat(1000));
            }),
            "interrupted",
            "body",
        )
        .status(200),
        case(
            "endless trailers",
            fault(|conn| {
                conn.request();
                conn.say(format!(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3c\r\n{GOOD}\r\n0\r\n"
                ));
                conn.flood(&b"x: y\r\n".repeat(1000));
            }),
            "timeout",
            "body",
        )
        .status(200)
        .within("2s"),
        case(
            "an encoding below the chunks",
            says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\n\xff\r\n0\r\n\r\n"),
            "bad_response",
            "body",
        )
        .status(200),
        said("no line end after a chunk", &format!("3c\r\n{GOOD}XX0\r\n\r\n")),
    ]);
}

/// A large body of which the server takes the head only: the 413 is lost in the reset, so nothing is known.
#[test]
fn a_413_that_is_lost_in_a_reset_is_in_doubt_and_one_that_arrives_refuses() {
    let too_large = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
    let lost = fault(move |conn| {
        conn.part(usize::MAX);
        conn.say(too_large);
    });
    let drained = fault(move |conn| {
        conn.request();
        conn.say(too_large);
    });
    for (fault, class, phase, reason) in
        [(lost, "interrupted", "sending", "unknown_outcome"), (drained, "rejected", "body", "rejected")]
    {
        let wire = Wire::start(vec![fault], good(), None);
        let h =
            scene(Family::E, &wire, "20s").set(|s| s.tables = "[limits]\npayload = \"64MiB\"".into()).start();
        let file = h.dir.path().join("large.json");
        std::fs::write(&file, format!(r#"{{"x":"{}"}}"#, "x".repeat(24 << 20))).expect("written");
        h.run(&["enqueue", "raw", "--key", "k", "--payload-file", "large.json"]).ok();
        h.work_until_idle();
        let job = h.show("k");
        let first = tries(&job).next().expect("a try");
        assert_eq!((&first["class"], &first["phase"]), (&class.into(), &phase.into()), "{first:#}");
        assert_eq!(job["park_reason"], reason);
        assert_eq!(wire.asked().len(), 1);
    }
}

#[test]
fn a_name_that_does_not_exist_or_leads_nowhere_is_not_sent() {
    for (base_url, says) in [
        ("http://onceward-nowhere.invalid", "cannot look up"),
        ("http://169.254.169.254", "no provider can be"),
        ("http://[::ffff:169.254.169.254]", "no provider can be"),
        ("http://0.0.0.0", "no provider can be"),
    ] {
        let h = Scene::new(Family::E).set(|s| s.base_url = base_url.into()).start();
        let key = h.payout(1);
        h.run(&["work", "--once"]).ok();
        let job = h.show(&key);
        let first = tries(&job).next().expect("a try");
        assert_eq!((&first["class"], &first["phase"]), (&"not_sent".into(), &"resolve".into()), "{first:#}");
        assert!(first["error"].as_str().is_some_and(|e| e.contains(says)), "{first:#}");
        assert_eq!((&job["attempts"], &job["intent"]["state"]), (&0.into(), &"pending".into()), "{job:#}");
    }
}
