//! Whoever has no token takes nothing from those who have one.

use crate::harness::{Harness, LIMIT, Scene, TOKEN, Web, key, payout, read_answer};
use onceward::demo::provider::Family;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn scene() -> Harness {
    Scene::new(Family::A).with_lookup(true).with_http().start()
}

/// What slow strangers say, and then no more: nothing, a part of a head, and bodies that never end.
fn beginnings(address: SocketAddr) -> Vec<String> {
    let head = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    vec![
        String::new(),
        "GET /v1/stats HT".into(),
        head("POST /login", &format!("{form}Content-Length: 4000\r\n")) + "token=",
        head("POST /login", &format!("{form}Transfer-Encoding: chunked\r\n")) + "5\r\ntok",
        head("POST /login", &format!("{form}Expect: 100-continue\r\nContent-Length: 100\r\n")),
        head("POST /v1/jobs", "Content-Length: 100000\r\n") + "{",
        head("GET /healthz", "Content-Length: 100000\r\n"),
        head("GET /assets/app.js", "Content-Length: 5\r\n"),
    ]
}

/// Whole requests of those who have no token, and what is no request.
fn attacks(address: SocketAddr) -> Vec<Vec<u8>> {
    let ask = |line: &str, fields: &str, body: &str| {
        format!("{line} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
            .into_bytes()
    };
    vec![
        ask("GET /v1/stats", "Authorization: Bearer guess\r\n", ""),
        ask("POST /v1/jobs", "", &"x".repeat(20_000)),
        ask("POST /login", "Content-Type: application/x-www-form-urlencoded\r\n", "token=guess"),
        ask("POST /login", "Content-Type: application/x-www-form-urlencoded\r\n", &"t".repeat(60_000)),
        ask("GET /jobs", "Cookie: onceward_1=x\r\n", ""),
        ask("GET /healthz", "", ""),
        ask("GET /assets/app.js", "", ""),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        "X".repeat(20_000).into_bytes(),
    ]
}

/// Opens a connection that says this and no more, again and again.
fn slow(address: SocketAddr, said: &str, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = stream.write_all(said.as_bytes());
            let mut byte = [0];
            while !stop.load(Ordering::Relaxed) {
                match stream.read(&mut byte) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock) => {}
                    Err(_) => break,
                }
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn attack(address: SocketAddr, made: &AtomicUsize, stop: &AtomicBool) {
    for bytes in attacks(address).iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            let _ = stream.write_all(bytes);
            let _ = stream.read(&mut [0; 512]);
            made.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn six_hundred_slow_strangers_and_thousands_of_hostile_requests_keep_nobody_out() {
    let harness = scene();
    let web = harness.serve_within(256);
    let (address, stop, made) = (web.address, AtomicBool::new(false), AtomicUsize::new(0));
    let beginnings = beginnings(address);
    let jobs = std::thread::scope(|scope| {
        for n in 0..600 {
            let said = &beginnings[n % beginnings.len()];
            let thread = std::thread::Builder::new().stack_size(128 * 1024);
            thread.spawn_scoped(scope, || slow(address, said, &stop)).unwrap();
        }
        for _ in 0..4 {
            scope.spawn(|| attack(address, &made, &stop));
        }
        let honest = || -> Result<u32, String> {
            let start = Instant::now();
            while made.load(Ordering::Relaxed) < 500 {
                if start.elapsed() > LIMIT {
                    return Err("the attack never began".into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            for n in 0.. {
                if n >= 100 && made.load(Ordering::Relaxed) > 4_000 {
                    return Ok(n);
                }
                let job = format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n));
                let post = web.head("POST", "/v1/jobs", &format!("Content-Length: {}\r\n", job.len())) + &job;
                for (what, bytes, wanted) in [
                    ("a job", post, 201),
                    ("the figures", web.head("GET", "/v1/stats", ""), 200),
                    ("health", format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n"), 200),
                ] {
                    let got = web.raw(bytes.as_bytes()).map(|answer| answer.status);
                    if got != Some(wanted) {
                        return Err(format!("{what} {n}: {got:?}"));
                    }
                }
            }
            Err("the attack never ended".into())
        };
        let served = honest();
        stop.store(true, Ordering::Relaxed);
        served
            .unwrap_or_else(|why| panic!("{why} ({} hostile requests so far)", made.load(Ordering::Relaxed)))
    });
    // Nor did they take the descriptors that the worker's own calls need.
    for n in 0..jobs {
        harness.show_until(&key(n), |job| job["state"] == "settled");
    }
    let log = std::fs::read_to_string(harness.dir.path().join("workers.log")).unwrap();
    assert!(!log.contains("Too many open files") && !log.contains("could not be taken"), "{log}");
    assert!(log.contains("this process may have so few descriptors"), "{log}");
}

#[test]
fn the_login_takes_little_and_not_for_long() {
    let harness = scene();
    let web = harness.serve();
    let form = |more: &str| {
        let fields = format!("Content-Type: application/x-www-form-urlencoded\r\n{more}");
        format!("POST /login HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", web.address)
    };
    let status = |bytes: String| web.raw(bytes.as_bytes()).expect("an answer").status;
    assert_eq!(status(form("Content-Length: 4097\r\n")), 413);
    let large = format!("1001\r\ntoken={}\r\n0\r\n\r\n", "x".repeat(4091));
    assert_eq!(status(form("Transfer-Encoding: chunked\r\n") + &large), 413);
    assert_eq!(status(form(&format!("Content-Length: {}\r\n", 6 + TOKEN.len())) + "token=" + TOKEN), 303);
    // A byte now and then buys a stranger no time.
    let mut slow = web.connect();
    slow.write_all((form("Content-Length: 4096\r\n") + "token=").as_bytes()).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let start = Instant::now();
    let mut first = [0; 1];
    while slow.read(&mut first).is_err() {
        let _ = slow.write_all(b"x");
        assert!(start.elapsed() < Duration::from_secs(20), "a slow login was never cut off");
    }
    assert_eq!(read_answer_after(first, &mut slow), 408);
}

/// The status of an answer whose first byte was read already.
fn read_answer_after(first: [u8; 1], stream: &mut TcpStream) -> u16 {
    let mut bytes = first.to_vec();
    let _ = stream.set_read_timeout(Some(LIMIT));
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_to_what_is_needed() {
    let harness = scene();
    let web = harness.serve_soft(256);
    // More than 256 of those who have shown the token, each in the midst of its body.
    let head = web.head("POST", "/v1/jobs", "Content-Length: 10\r\n");
    let ask = |_| {
        let mut stream = web.connect();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut known: Vec<TcpStream> = (0..280).map(ask).collect();
    assert_eq!(web.get("/v1/stats").status, 200);
    for stream in &mut known {
        stream.write_all(b"0123456789").unwrap();
        assert_eq!(read_answer(stream).expect("an answer").status, 400);
    }
    let log = std::fs::read_to_string(harness.dir.path().join("workers.log")).unwrap();
    assert!(!log.contains("so few descriptors"), "{log}");
    let Web { worker, .. } = web;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", worker.pid()));
    if let Ok(limits) = limits {
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
        let soft: u32 = line.split_whitespace().nth(3).unwrap_or_default().parse().unwrap();
        assert!(soft > 512, "{line}");
    }
}

#[test]
fn a_token_that_could_be_guessed_or_never_sent_is_refused_before_anything_listens() {
    let harness = scene();
    for (token, why) in [
        ("x", "has 1 characters"),
        ("fifteen-letters", "has 15 characters"),
        ("0123456789abcdef ", "white space at its ends"),
        ("\u{a0}0123456789abcdef", "white space at its ends"),
    ] {
        for command in ["check", "work"] {
            let refused = harness.run_with(&[command], &[("API_TOKEN", token)]);
            assert_eq!(refused.code, Some(2), "{command} {token:?}: {refused}");
            let said = format!("{}{}", refused.stdout, refused.stderr);
            assert!(said.contains("http.token") && said.contains(why), "{command} {token:?}: {refused}");
            assert!(token.len() < 9 || !said.contains(token.trim()), "{refused}");
        }
    }
    // A file's line end is no part of it.
    std::fs::write(harness.dir.path().join("token.txt"), "0123456789abcdef\r\n").unwrap();
    harness.config(&harness.scene.text().replace("{ env = \"API_TOKEN\" }", "{ file = \"token.txt\" }"));
    harness.run(&["check"]).ok();
}
