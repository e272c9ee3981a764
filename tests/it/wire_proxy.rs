//! A proxy: only the configured one, a tunnel and nothing else, and nothing sent where there is none.

use crate::harness::certs::Authority;
use crate::harness::wire::{Conn, Fault, Wire, fault, says};
use crate::harness::*;
use crate::wire::{good, scene};
use onceward::demo::provider::Family;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Connects to where it is asked to, and carries bytes both ways.
fn tunnels() -> Fault {
    fault(|conn: &mut Conn| {
        let asked = conn.request();
        let to = asked.head.split(' ').nth(1).unwrap_or_default().to_string();
        let Ok(mut target) = TcpStream::connect(&to) else { return };
        conn.say("HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n");
        let (mut there, mut back) =
            (target.try_clone().expect("a handle"), conn.raw.try_clone().expect("a handle"));
        let answers = std::thread::spawn(move || copy(&mut target, &mut back));
        copy(&mut conn.raw, &mut there);
        let _ = there.shutdown(std::net::Shutdown::Write);
        let _ = answers.join();
    })
}

fn copy(from: &mut TcpStream, to: &mut TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn a_configured_proxy_is_a_tunnel_through_which_tls_runs_to_the_provider() {
    let authority = Authority::new("ours");
    let leaf = authority.good().server();
    for tls in [false, true] {
        let leaf = Arc::clone(&leaf);
        let of_bank: Option<wire::Tls> = tls.then(|| Arc::new(move |_| Arc::clone(&leaf)) as wire::Tls);
        let (bank, proxy) =
            (Wire::start(Vec::new(), good(), of_bank), Wire::start(Vec::new(), tunnels(), None));
        let h = scene(Family::B, &bank, "20s")
            .set(|s| {
                s.provider += &format!("\nproxy = \"{}\"", proxy.base_url());
                if tls {
                    s.provider += "\ntls = { ca_file = \"ca.pem\" }";
                }
            })
            .start();
        std::fs::write(h.dir.path().join("ca.pem"), &authority.pem).expect("written");
        let key = h.payout(1);
        h.work_until_idle();
        assert_eq!(classes(&h.show(&key)), ["ok"]);
        let (asked, told) = (proxy.asked(), bank.asked());
        assert!(asked[0].head.starts_with("CONNECT 127.0.0.1:"), "{}", asked[0].head);
        assert_eq!(asked[0].header("authorization"), None);
        assert_eq!((asked.len(), told.len()), (1, 1));
    }
}

/// What the proxy does not let through has not left, and a refusal of the proxy's is none of the provider's.
#[test]
fn a_proxy_that_gives_no_tunnel_leaves_nothing_sent() {
    let flood = fault(|conn| {
        conn.request();
        conn.say("HTTP/1.1 200 OK\r\n");
        conn.flood(b"x: y\r\n");
    });
    let silent = fault(|conn| {
        conn.request();
        conn.wait_for_the_end();
    });
    for (name, fault, total) in [
        ("407", says("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"), "20s"),
        ("502", says("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"), "20s"),
        ("403", says("HTTP/1.1 403 Forbidden\r\n\r\n"), "20s"),
        ("garbage", says("no proxy here\r\n\r\n"), "20s"),
        ("a close", says(""), "20s"),
        ("no end", flood, "20s"),
        ("silence", silent, "1s"),
    ] {
        let (bank, proxy) =
            (Wire::start(Vec::new(), good(), None), Wire::start(vec![fault], tunnels(), None));
        let h = scene(Family::E, &bank, total)
            .set(|s| s.provider += &format!("\nproxy = \"{}\"", proxy.base_url()))
            .start();
        let key = h.payout(1);
        h.work_until_idle();
        let job = h.show(&key);
        let first = tries(&job).next().expect("a try");
        assert_eq!(
            (&first["class"], &first["phase"]),
            (&"not_sent".into(), &"connect".into()),
            "{name}: {first:#}"
        );
        assert!(first["error"].as_str().is_some_and(|e| e.contains("proxy")), "{name}: {first:#}");
        assert_eq!((&job["state"], &job["attempts"]), (&"settled".into(), &1.into()), "{name}: {job:#}");
        assert_eq!(bank.asked().len(), 1, "{name}");
    }
}

#[test]
fn what_the_environment_says_of_proxies_is_ignored() {
    let bank = Wire::start(Vec::new(), good(), None);
    let proxy = Wire::start(Vec::new(), says("HTTP/1.1 403 Forbidden\r\n\r\n"), None);
    let h = scene(Family::B, &bank, "20s").start();
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        h.env(name, &proxy.base_url());
    }
    let key = h.payout(1);
    h.work_until_idle();
    assert_eq!(classes(&h.show(&key)), ["ok"]);
    assert_eq!(proxy.asked().len(), 0);
}
