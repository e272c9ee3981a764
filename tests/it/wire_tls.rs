//! TLS: whom it trusts, what it shows, and what a connection that breaks in it means.

use crate::harness::certs::{Authority, Leaf};
use crate::harness::wire::{Fault, Tls, Wire, fault, http, says};
use crate::harness::*;
use crate::wire::{Case, GOOD, Then, case, check_on, good, scene};
use onceward::clock::{Clock, SystemClock};
use onceward::config::Config;
use onceward::demo::provider::Family;
use onceward::outcome::{Class, Phase};
use onceward::provider::{Call, Providers};
use onceward::store::{Options, Store};
use onceward::worker::Trade;
use rustls::ServerConfig;
use std::sync::Arc;

const TLS: &str = "\ntls = { ca_file = \"ca.pem\" }";

/// The first connection meets this server, all others a good one.
fn first(first: Arc<ServerConfig>, good: Arc<ServerConfig>) -> Tls {
    Arc::new(move |n| Arc::clone(if n == 0 { &first } else { &good }))
}

fn check(case: &Case, authority: &Authority, tls: &Tls) {
    for family in [Family::B, Family::E] {
        let wire = Wire::start(vec![case.fault.clone()], good(), Some(Arc::clone(tls)));
        let h = scene(family, &wire, case.total).set(|s| s.provider += TLS).start();
        std::fs::write(h.dir.path().join("ca.pem"), &authority.pem).expect("written");
        check_on(case, family, &wire, h);
    }
}

/// Certificates that must not be taken: nothing leaves, and the job goes once the right one is there.
#[test]
fn nothing_is_sent_to_a_server_whose_certificate_is_not_good() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let good = ours.good().server();
    for (name, leaf) in [
        ("expired", ours.leaf("127.0.0.1", 2020, 2021)),
        ("not valid yet", ours.leaf("127.0.0.1", 2080, 2090)),
        ("another host", ours.leaf("bank.example", 2020, 2090)),
        ("self-signed", Leaf::self_signed("127.0.0.1")),
        ("an unknown root", theirs.good()),
    ] {
        let case = case(name, says(http("200 OK", "", GOOD)), "not_sent", "tls").then(Then::Again);
        check(&case, &ours, &first(leaf.server(), Arc::clone(&good)));
    }
}

#[test]
fn a_handshake_that_breaks_is_not_sent() {
    let authority = Authority::new("ours");
    let leaf = authority.good().server();
    let raw = |bytes: &'static [u8]| -> Fault {
        fault(move |conn| {
            use std::io::{Read, Write};
            let _ = conn.raw.read(&mut [0; 4096]);
            let _ = conn.raw.write_all(bytes);
        })
    };
    let tls: Tls = Arc::new(move |_| Arc::clone(&leaf));
    for (name, fault) in [
        // A fatal alert of level 2: handshake_failure (40).
        ("an alert", raw(b"\x15\x03\x03\x00\x02\x02\x28")),
        ("plain HTTP", raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        ("a close", raw(b"")),
        ("half a record", raw(b"\x16\x03\x03\x00\x7a\x02\x00")),
    ] {
        check(&case(name, fault, "not_sent", "tls").then(Then::Again), &authority, &tls);
    }
    let dribble = fault(|conn| {
        use std::io::Write;
        // The beginning of a record that is never whole.
        let _ = conn.raw.write_all(b"\x16\x03\x03\x3f\xff");
        while conn.raw.write_all(b"\x02").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    check(&case("a dribble", dribble, "not_sent", "tls").then(Then::Again).within("2s"), &authority, &tls);
}

#[test]
fn a_connection_that_is_cut_under_tls_is_in_doubt() {
    let authority = Authority::new("ours");
    let leaf = authority.good().server();
    let tls: Tls = Arc::new(move |_| Arc::clone(&leaf));
    let cut_after = |text: String| {
        fault(move |conn| {
            conn.request();
            conn.say(&text);
            conn.cut();
        })
    };
    let half = &GOOD[..20];
    // The beginning of a record of 16 KiB, and then a byte of it now and then.
    let dribble = fault(|conn| {
        use std::io::Write;
        conn.request();
        let _ = conn.raw.write_all(b"\x17\x03\x03\x40\x00");
        while conn.raw.write_all(b"x").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    for case in [
        case("a dribble", dribble, "timeout", "sent").within("2s"),
        case("before the status", cut_after(String::new()), "interrupted", "sent"),
        case(
            "with a length",
            cut_after(format!("HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\n{half}")),
            "interrupted",
            "body",
        )
        .status(200),
        case(
            "no length, half the JSON",
            cut_after(format!("HTTP/1.1 200 OK\r\n\r\n{half}")),
            "interrupted",
            "body",
        )
        .status(200),
        // No beginning of an object is an object: the JSON's own end is proof enough without TLS's.
        case("no length, all the JSON", cut_after(format!("HTTP/1.1 200 OK\r\n\r\n{GOOD}")), "ok", "body")
            .status(200)
            .then(Then::Settled),
        case("a whole answer", cut_after(http("200 OK", "", GOOD)), "ok", "body")
            .status(200)
            .then(Then::Settled),
    ] {
        check(&case, &authority, &tls);
    }
}

/// TLS 1.3 lets a client speak before the server has looked at its certificate: the refusal comes after the request.
#[test]
fn a_client_certificate_is_shown_and_its_absence_leaves_the_outcome_in_doubt() {
    let authority = Authority::new("ours");
    let server = authority.asks_clients(&authority.good());
    let tls: Tls = Arc::new(move |_| Arc::clone(&server));
    let wire = Wire::start(Vec::new(), good(), Some(tls));
    let mut h = scene(Family::B, &wire, "20s").set(|s| s.provider += TLS).start();
    let write = |h: &Harness, name: &str, text: &str| {
        std::fs::write(h.dir.path().join(name), text).expect("written");
    };
    write(&h, "ca.pem", &authority.pem);
    let key = h.payout(1);
    h.run(&["work", "--once"]).ok();
    let job = h.show(&key);
    let first = tries(&job).next().expect("a try");
    assert_eq!(first["class"], "interrupted", "{first:#}");
    assert_eq!(job["state"], "unknown", "{job:#}");

    let client = authority.leaf("till-3", 2020, 2090);
    write(&h, "till.pem", &client.cert_pem);
    write(&h, "till.key", &client.key_pem);
    let with = "\ntls = { ca_file = \"ca.pem\", client_cert = \"till.pem\", client_key = \"till.key\" }";
    h.reconfigure(|s| s.provider = s.provider.replace(TLS, with));
    let second = h.payout(2);
    h.work_until_idle();
    // Another certificate is another caller: where the first request went, nobody knows this one.
    assert_eq!(h.show(&key)["park_reason"], "scope_changed");
    let job = h.show(&second);
    assert_eq!(classes(&job), ["ok"], "{job:#}");
    for output in [h.run(&["show", &second]).to_string(), h.run(&["check"]).to_string()] {
        assert!(!output.contains("PRIVATE KEY"), "{output}");
    }
}

/// The certificate is read when the connection is opened, and the claim was made by the one before it.
#[test]
fn a_client_certificate_that_changes_between_claim_and_call_sends_nothing() {
    let authority = Authority::new("ours");
    let server = authority.asks_clients(&authority.good());
    let tls: Tls = Arc::new(move |_| Arc::clone(&server));
    let wire = Wire::start(Vec::new(), good(), Some(tls));
    let with = "\ntls = { ca_file = \"ca.pem\", client_cert = \"till.pem\", client_key = \"till.key\" }";
    let h = scene(Family::B, &wire, "20s").set(|s| s.provider += with).start();
    let write = |name: &str, text: &str| std::fs::write(h.dir.path().join(name), text).expect("written");
    let show = |name: &str| {
        let client = authority.leaf(name, 2020, 2090);
        write("till.pem", &client.cert_pem);
        write("till.key", &client.key_pem);
    };
    write("ca.pem", &authority.pem);
    show("till-3");
    h.payout(1);
    let config = Arc::new(Config::load(&h.config_path()).expect("a config"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let trade = Arc::new(Trade::new(Arc::clone(&config), Arc::clone(&clock)));
    let providers = Providers::new(Arc::clone(&config), Arc::clone(&clock));
    let store = Store::open(
        &config.store.path,
        Options { create: false, namespace: String::new(), watch: None },
        clock,
        trade,
    )
    .expect("a store");
    let (owner, _lock) = store.register("test:1").expect("an owner");
    let claimed = store.claim(&owner, 1, LIMIT).expect("a claim");
    let claim = &claimed.claims[0];
    let call = |scope| {
        let (step, job, intent, frozen) = (claim.step(), claim.job(), claim.intent(), claim.frozen());
        providers.call(&Call {
            step,
            job,
            intent,
            frozen,
            scope: Some(scope),
            before_first_byte: &|| Ok(()),
            program: None,
        })
    };
    show("till-4");
    let outcome = call(claim.scope());
    assert_eq!((outcome.class, outcome.phase), (Class::NotSent, Some(Phase::Connect)), "{outcome:?}");
    assert!(outcome.error.as_ref().is_some_and(|why| why.contains("providers.bank")), "{outcome:?}");
    assert_eq!(wire.asked().len(), 0);
    assert_eq!(call(&providers.scope("payout")).class, Class::Ok);
}

#[test]
fn files_of_tls_that_cannot_be_used_are_named_before_anything_is_sent() {
    let authority = Authority::new("ours");
    let leaf = authority.good().server();
    let wire = Wire::start(Vec::new(), good(), Some(Arc::new(move |_| Arc::clone(&leaf))));
    let h = scene(Family::B, &wire, "20s").set(|s| s.provider += TLS).start();
    let key = h.payout(1);
    for command in ["check", "work"] {
        let why = h.run(&[command]).refused("config", 2);
        assert!(why.contains("providers.bank.tls.ca_file") && why.contains("ca.pem"), "{why}");
    }
    std::fs::write(h.dir.path().join("ca.pem"), "no certificate").expect("written");
    let mut worker = h.spawn_worker(&[]);
    let job = h.show_until(&key, |job| job["error_class"] == "not_sent");
    assert!(job["last_error"].as_str().is_some_and(|e| e.contains("no certificate in PEM")), "{job:#}");
    // Read again when it changes, from nothing to another root to the right one: no restart.
    std::fs::write(h.dir.path().join("ca.pem"), &Authority::new("theirs").pem).expect("written");
    h.show_until(&key, |job| job["last_error"].as_str().is_some_and(|e| e.contains("UnknownIssuer")));
    std::fs::write(h.dir.path().join("ca.pem"), &authority.pem).expect("written");
    h.show_until(&key, |job| job["state"] == "settled");
    worker.kill9();
    assert_eq!(wire.asked().len(), 1);
}
