//! One connection for many requests, and what a client hears of a request that was refused early.

use crate::harness::{Harness, LIMIT, Person, Scene, TOKEN, Web, key, login, payout, read_answer, read_one};
use onceward::demo::provider::Family;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn scene() -> Harness {
    Scene::new(Family::A).with_lookup(true).with_http().start()
}

/// A head that leaves the connection open.
fn ask(web: &Web, line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n{fields}\r\n", web.address)
}

fn post(web: &Web, n: u32) -> String {
    let body = format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n));
    ask(web, "POST /v1/jobs", &format!("Content-Length: {}\r\n", body.len())) + &body
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    matches!(stream.read(&mut [0]), Ok(0))
}

#[test]
fn a_client_with_the_token_asks_for_many_things_over_one_connection() {
    let harness = scene();
    let web = harness.serve();
    let (mut stream, mut beyond) = (web.connect(), Vec::new());
    let mut hear = |stream: &mut TcpStream, bare| read_one(stream, &mut beyond, bare).expect("an answer");
    for n in 0..50 {
        stream.write_all(post(&web, n).as_bytes()).unwrap();
        let answer = hear(&mut stream, false);
        assert_eq!(answer.is(201)["key"], key(n).as_str());
        assert_eq!(answer.field("connection"), None, "{answer}");
    }
    // What is wrong with a request says nothing of the next one, whatever was left of its body.
    let wrong = ask(&web, "POST /v1/jobs", "Content-Type: text/html\r\nContent-Length: 30000\r\n");
    let get = |target: &str| ask(&web, &format!("GET {target}"), "");
    let line = format!(r#"{{"kind":"payout","payload":{}}}"#, payout(1));
    let batch = ask(&web, "POST /v1/jobs/batch", "Transfer-Encoding: chunked\r\n")
        + &format!("{:x}\r\n{line}\r\n0\r\n\r\n", line.len());
    for (bytes, bare, status) in [
        (wrong + &"x".repeat(30_000), false, 415),
        (get("/v1/jobs/none"), false, 404),
        (get("/v1/jobs?limit=3"), false, 200),
        (ask(&web, "HEAD /v1/jobs", ""), true, 200),
        (ask(&web, "DELETE /v1/jobs", ""), false, 405),
        (batch, false, 200),
        (ask(&web, "GET /v1/stats", "Content-Length: 5\r\n") + "GET /", false, 200),
        (get("/v1/stats"), false, 200),
    ] {
        stream.write_all(bytes.as_bytes()).unwrap();
        let answer = hear(&mut stream, bare);
        assert_eq!((answer.status, answer.field("connection")), (status, None), "{answer}");
    }
    // Several at once are answered one by one, in their order.
    let three = post(&web, 51) + &get("/v1/stats") + &post(&web, 51);
    stream.write_all(three.as_bytes()).unwrap();
    let statuses: Vec<u16> = (0..3).map(|_| hear(&mut stream, false).status).collect();
    assert_eq!(statuses, [201, 200, 200]);
    // The client says when it is over.
    stream.write_all(ask(&web, "GET /v1/stats", "Connection: TE, Close\r\n").as_bytes()).unwrap();
    let last = hear(&mut stream, false);
    assert_eq!((last.status, last.field("connection")), (200, Some("close")));
    assert!(is_closed(&mut stream));
}

#[test]
fn a_browser_that_is_logged_in_keeps_its_connection_too() {
    let harness = scene();
    let web = harness.serve();
    let person = Person::enter(&web);
    let (mut stream, mut beyond) = (web.connect(), Vec::new());
    for page in ["/", "/jobs", "/nowhere", "/jobs/nowhere", "/audit.jsonl"] {
        let request =
            format!("GET {page} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n", web.address, person.cookie);
        stream.write_all(request.as_bytes()).unwrap();
        let answer = read_one(&mut stream, &mut beyond, false).expect("an answer");
        assert_eq!(answer.field("connection"), (page == "/nowhere").then_some("close"), "{page}: {answer}");
        if page == "/nowhere" {
            // The API's path: it has shown no token.
            assert!(is_closed(&mut stream));
            stream = web.connect();
        }
    }
}

#[test]
fn a_connection_ends_with_the_answer_where_nothing_was_shown_or_the_framing_is_in_doubt() {
    let harness = scene();
    let web = harness.serve();
    let bare = |line: &str| format!("{line} HTTP/1.1\r\nHost: {}\r\n\r\n", web.address);
    let after = [post(&web, 1), post(&web, 2)];
    for (what, bytes, status) in [
        ("no token", bare("GET /v1/stats"), 401),
        ("health", bare("GET /healthz"), 200),
        ("the login", bare("GET /login"), 200),
        (
            "a wrong token",
            bare("GET /v1/stats").replace("\r\n\r\n", "\r\nAuthorization: Bearer x\r\n\r\n"),
            401,
        ),
        ("two lengths", ask(&web, "POST /v1/jobs", "Content-Length: 0\r\nContent-Length: 0\r\n"), 400),
        ("no HTTP", "X\r\n\r\n".into(), 400),
        ("HTTP/1.0", ask(&web, "GET /v1/stats", "").replace("HTTP/1.1", "HTTP/1.0"), 200),
        ("a target that cannot be read", ask(&web, "GET /%", ""), 400),
        ("a strange expectation", ask(&web, "POST /v1/jobs", "Expect: wonders\r\n"), 417),
        (
            "a body in broken chunks",
            ask(&web, "POST /v1/jobs", "Transfer-Encoding: chunked\r\n") + "zz\r\n",
            400,
        ),
        (
            "a body that was not asked for",
            ask(&web, "POST /v1/jobs/x/none", "Expect: 100-continue\r\nContent-Length: 9\r\n"),
            404,
        ),
        ("a body too long to be read over", ask(&web, "GET /v1/stats", "Content-Length: 9999999\r\n"), 200),
    ] {
        // After a request that was answered well, and what would be one if the connection went on.
        let (mut stream, mut beyond) = (web.connect(), Vec::new());
        for bytes in [ask(&web, "GET /v1/stats", ""), bytes] {
            stream.write_all(bytes.as_bytes()).unwrap();
        }
        let _ = stream.write_all(after[0].as_bytes());
        let first = read_one(&mut stream, &mut beyond, false).expect("an answer");
        assert_eq!((first.status, first.field("connection")), (200, None), "{what}");
        let answer = read_one(&mut stream, &mut beyond, false).expect("an answer");
        assert_eq!((answer.status, answer.field("connection")), (status, Some("close")), "{what}: {answer}");
        assert!(read_one(&mut stream, &mut beyond, false).is_none(), "{what}");
    }
    assert_eq!(harness.count("SELECT count(*) FROM onceward_intents"), 0);
}

#[test]
fn a_connection_that_rests_keeps_nobody_out_and_does_not_hold_up_a_stop() {
    let harness = scene();
    let mut web = harness.serve();
    let resting: Vec<(TcpStream, Vec<u8>)> = (0..400)
        .map(|_| {
            let (mut stream, mut beyond) = (web.connect(), Vec::new());
            stream.write_all(ask(&web, "GET /v1/stats", "").as_bytes()).unwrap();
            assert_eq!(read_one(&mut stream, &mut beyond, false).expect("an answer").status, 200);
            (stream, beyond)
        })
        .collect();
    web.post("/v1/jobs", &format!(r#"{{"kind":"payout","payload":{}}}"#, payout(1))).is(201);
    // Those that rested longest gave way, the others are still there.
    let (mut last, mut beyond) = resting.into_iter().next_back().unwrap();
    last.write_all(ask(&web, "GET /v1/stats", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut last, &mut beyond, false).expect("an answer").status, 200);
    let start = Instant::now();
    web.worker.term();
    assert!(web.worker.wait().success());
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(is_closed(&mut last));
}

#[test]
fn a_client_that_sends_the_whole_url_is_answered_by_its_path_and_judged_by_its_name() {
    let harness = scene();
    let web = harness.serve();
    let address = web.address;
    let status = |target: &str, host: &str| {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        );
        web.raw(request.as_bytes()).expect("an answer").status
    };
    let ours = address.to_string();
    for target in ["/healthz", "/v1/stats", "/v1/jobs?limit=1", "/login", "/"] {
        let wanted = if target == "/" { 303 } else { 200 };
        assert_eq!(status(&format!("http://{address}{target}"), &ours), wanted, "{target}");
    }
    assert_eq!(status(&format!("HTTP://localhost:{}/v1/stats", address.port()), &ours), 200);
    assert_eq!(status(&format!("http://{address}"), &ours), 303);
    assert_eq!(status(&format!("http://{address}?a=b"), &ours), 303);
    // The name in the URL counts, whatever Host says beside it.
    assert_eq!(status(&format!("http://{address}/v1/stats"), "evil.example"), 200);
    assert_eq!(status("http://evil.example/v1/stats", &ours), 403);
    assert_eq!(status(&format!("http://evil.example:{}/v1/stats", address.port()), &ours), 403);
    let none = format!("GET http://{address}/healthz HTTP/1.1\r\n\r\n");
    assert_eq!(web.raw(none.as_bytes()).expect("an answer").status, 400);
}

#[test]
fn a_method_that_a_page_is_not_for_is_a_405_that_says_which_ones_are() {
    let harness = scene();
    let web = harness.serve();
    let person = Person::enter(&web);
    for (method, target, allow) in [
        ("DELETE", "/", "GET, HEAD"),
        ("POST", "/jobs", "GET, HEAD"),
        ("PUT", "/login", "GET, HEAD, POST"),
        ("GET", "/logout", "POST"),
        ("GET", "/job/1/replay", "POST"),
        ("HEAD", "/pause", "POST"),
        ("POST", "/job/1/payload.json", "GET, HEAD"),
        ("POST", "/assets/app.js", "GET, HEAD"),
        ("OPTIONS", "/audit", "GET, HEAD"),
    ] {
        for cookie in [&person.cookie, "none"] {
            let request = format!(
                "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n",
                web.address
            );
            let answer = web.raw(request.as_bytes()).expect("an answer");
            assert_eq!(
                (answer.status, answer.field("allow")),
                (405, Some(allow)),
                "{method} {target}: {answer}"
            );
        }
    }
    assert_eq!(login(&web, TOKEN).status, 303);
}

#[test]
fn a_refusal_reaches_a_client_that_first_sends_all_and_then_reads() {
    let harness = scene();
    let web = harness.serve();
    // As a proxy does: what is written is all written, and a write that fails is told as a bad gateway.
    for _ in 0..5 {
        let mut stream = web.connect();
        let head = web.head("POST", "/v1/jobs", "Content-Length: 20000000\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let piece = [b'y'; 16 * 1024];
        let mut left = 20_000_000usize;
        while left > 0 {
            let n = left.min(piece.len());
            stream.write_all(&piece[..n]).expect("the server reads on");
            left -= n;
            if left.is_multiple_of(64) {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        read_answer(&mut stream).expect("an answer").problem(413, "too_large");
    }
    // A stranger is read on with for a moment only.
    let mut stream = web.connect();
    let head = format!("POST /v1/jobs HTTP/1.1\r\nHost: {}\r\nContent-Length: 99999999\r\n\r\n", web.address);
    stream.write_all(head.as_bytes()).unwrap();
    let start = Instant::now();
    while stream.write_all(&[b'y'; 4096]).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "a stranger is read on with for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
}
