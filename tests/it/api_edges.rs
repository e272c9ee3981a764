//! The API against clients that are broken, slow or hostile: raw bytes on real sockets.

use crate::harness::{Harness, LIMIT, Scene, TOKEN, Web, key, payout, read_answer, read_one};
use onceward::demo::provider::Family;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn scene() -> Harness {
    Scene::new(Family::A).with_lookup(true).with_http().start()
}

fn job(n: u32) -> String {
    format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n))
}

/// The status of the answer to these bytes; 0 if it was closed without one.
fn status(web: &Web, bytes: &[u8]) -> u16 {
    web.raw(bytes).map_or(0, |answer| answer.status)
}

#[test]
fn two_hundred_slow_connections_hold_up_nobody_and_are_cut_off() {
    let harness = scene();
    let web = harness.serve();
    let mut slow: Vec<TcpStream> = (0..200).map(|_| web.connect()).collect();
    let head = web.head("POST", "/v1/jobs", "Content-Length: 1000\r\n");
    for (n, stream) in slow.iter_mut().enumerate() {
        // Silent, in the midst of a head, and in the midst of a body.
        let said = [0, head.len() / 2, head.len()][n % 3];
        stream.write_all(&head.as_bytes()[..said]).unwrap();
    }
    for n in 0..20 {
        web.post("/v1/jobs", &job(n)).is(201);
    }
    let start = Instant::now();
    let mut dribbled = slow.pop().unwrap();
    let mut alive = true;
    // A byte now and then buys no time worth having.
    while alive {
        alive = dribbled.write_all(b" ").is_ok();
        dribbled.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut buffer = [0; 1024];
        match dribbled.read(&mut buffer) {
            Ok(0) => alive = false,
            Ok(_) => {}
            Err(e) => {
                alive &= matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            }
        }
        assert!(start.elapsed() < LIMIT, "a dribbling client was never cut off");
    }
    for mut stream in slow {
        let answer = read_answer(&mut stream);
        assert!(answer.as_ref().is_none_or(|a| a.status == 408), "{answer:?}");
    }
}

#[test]
fn more_connections_than_there_are_places_keep_nobody_out() {
    let harness = scene();
    let web = harness.serve();
    let silent: Vec<TcpStream> = (0..600).map(|_| web.connect()).collect();
    web.post("/v1/jobs", &job(1)).is(201);
    drop(silent);
    assert_eq!(web.get("/healthz").status, 200);
}

#[test]
fn what_two_readers_could_read_in_two_ways_is_refused() {
    let harness = scene();
    let web = harness.serve();
    let body = job(1);
    let length = body.len();
    let post = |fields: &str, body: &str| web.head("POST", "/v1/jobs", fields) + body;
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    for (name, request) in [
        (
            "both framings",
            post(&format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"), &chunked),
        ),
        ("two lengths", post(&format!("Content-Length: {length}\r\nContent-Length: 5\r\n"), &body)),
        (
            "the same length twice",
            post(&format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"), &body),
        ),
        ("a list of lengths", post(&format!("Content-Length: {length}, {length}\r\n"), &body)),
        ("a signed length", post(&format!("Content-Length: +{length}\r\n"), &body)),
        ("a hexadecimal length", post("Content-Length: 0x10\r\n", &body)),
        ("a length beyond all", post("Content-Length: 99999999999999999999999\r\n", &body)),
        ("another coding", post("Transfer-Encoding: gzip, chunked\r\n", &chunked)),
        ("chunked twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", &chunked)),
        ("nearly chunked", post("Transfer-Encoding: xchunked\r\n", &chunked)),
        ("a blank before the colon", post(&format!("Content-Length : {length}\r\n"), &body)),
        ("a folded field", post(&format!("X-A: b\r\n c\r\nContent-Length: {length}\r\n"), &body)),
        ("a signed chunk", post("Transfer-Encoding: chunked\r\n", &format!("+{chunked}"))),
        (
            "a chunk beyond its size",
            post("Transfer-Encoding: chunked\r\n", &format!("2\r\n{body}\r\n0\r\n\r\n")),
        ),
        ("bare line feeds", post("Transfer-Encoding: chunked\r\n", &chunked.replace("\r\n", "\n"))),
        ("a huge chunk", post("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n{}")),
        ("two hosts", post("Host: elsewhere\r\n", "")),
        (
            "HTTP/1.0 in chunks",
            post("Transfer-Encoding: chunked\r\n", &chunked).replace("HTTP/1.1", "HTTP/1.0"),
        ),
    ] {
        assert_eq!(status(&web, request.as_bytes()), 400, "{name}");
    }
    assert_eq!(harness.count("SELECT count(*) FROM onceward_intents"), 0);
    // What follows a request that ends the connection is never read as one.
    let two = post(&format!("Content-Length: {length}\r\n"), &body) + &web.head("GET", "/v1/stats", "");
    let mut stream = web.connect();
    stream.write_all(two.as_bytes()).unwrap();
    let mut beyond = Vec::new();
    let answer = read_one(&mut stream, &mut beyond, false).expect("an answer");
    assert_eq!(answer.is(201)["key"], key(1).as_str());
    assert!(read_one(&mut stream, &mut beyond, false).is_none());
    let whole = post(
        "Transfer-Encoding: CHUNKED\r\n",
        &format!("5;a=b\r\n{}\r\n{:x}\r\n{}\r\n0\r\nX: y\r\n\r\n", &body[..5], length - 5, &body[5..]),
    );
    assert_eq!(status(&web, whole.as_bytes()), 200);
}

#[test]
fn heads_and_bodies_are_bounded_before_anything_is_kept() {
    let mut harness = scene();
    harness.reconfigure(|s| s.tables.push_str("[limits]\npayload = \"1KiB\"\n"));
    let web = harness.serve();
    let long = "a".repeat(20_000);
    assert_eq!(status(&web, web.head("GET", "/v1/stats", &format!("X-Long: {long}\r\n")).as_bytes()), 431);
    assert_eq!(status(&web, web.head("GET", &format!("/v1/jobs/{long}"), "").as_bytes()), 431);
    let many: String = (0..100).map(|n| format!("X-{n}: 1\r\n")).collect();
    assert_eq!(status(&web, web.head("GET", "/v1/stats", &many).as_bytes()), 431);
    // Announced: refused before a byte of it is read. In chunks: as soon as it is too much.
    let announced = web.head("POST", "/v1/jobs", "Content-Length: 99999999999\r\n");
    web.raw(announced.as_bytes()).unwrap().problem(413, "too_large");
    let large = "x".repeat(200_000);
    let chunks = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let request = web.head("POST", "/v1/jobs", "Transfer-Encoding: chunked\r\n") + &chunks;
    web.raw(request.as_bytes()).unwrap().problem(413, "too_large");
    let payload = format!(r#"{{"kind":"raw","key":"k","payload":{{"x":"{}"}}}}"#, "y".repeat(2000));
    web.post("/v1/jobs", &payload).problem(413, "too_large");
    let batch = web.post_with("/v1/jobs/batch", "", &format!("{large}\n{}\n", job(1))).text();
    let lines: Vec<serde_json::Value> = batch.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(
        (lines[0]["error"]["code"].as_str(), lines[1]["outcome"].as_str()),
        (Some("too_large"), Some("created"))
    );
}

#[test]
fn a_target_that_cannot_be_read_is_a_400_and_a_path_leads_nowhere_but_to_a_route() {
    let harness = scene();
    let web = harness.serve();
    for target in [
        "/v1/jobs/%zz",
        "/v1/jobs/%",
        "/v1/jobs/%4",
        "/v1/jobs/%ff",
        "/v1/jobs?state=%c3%28",
        "*",
        "ftp://127.0.0.1/v1/stats",
        "http://me@127.0.0.1/v1/stats",
        "http:///v1/stats",
        "v1",
    ] {
        assert_eq!(status(&web, web.head("GET", target, "").as_bytes()), 400, "{target}");
    }
    for target in [
        "/v1",
        "/v1/",
        "/v1/jobs/",
        "/../etc/passwd",
        "/v1/../metrics",
        "/%2e%2e/healthz",
        "//healthz",
        "/v1/jobs/a/b",
        "/v1%2Fstats",
        "/v1/jobs/%00",
        "/v1/jobs/..%2f..%2fx",
        "/V1/stats",
    ] {
        let answer = web.get(target);
        assert_eq!(answer.status, 404, "{target}: {answer}");
    }
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"G\xc3\x28T / HTTP/1.1\r\n\r\n",
    ] {
        let got = status(&web, &[bytes, b"\r\n\r\n"].concat());
        assert!(got == 400 || got == 0, "{got} for {bytes:?}");
    }
}

#[test]
fn only_the_servers_own_names_and_pages_may_ask() {
    let harness = scene();
    let web = harness.serve();
    let port = web.address.port();
    let ask = |host: &str, more: &str| {
        let request =
            format!("GET /v1/stats HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n{more}\r\n");
        status(&web, request.as_bytes())
    };
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"] {
        assert_eq!(ask(&format!("{host}:{port}"), ""), 200, "{host}");
    }
    for host in [
        "evil.example".into(),
        format!("evil.example:{port}"),
        "127.0.0.1".into(),
        format!("127.0.0.1:{port}.evil.example"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost:{}", port ^ 1),
        format!("10.0.0.1:{port}"),
    ] {
        assert_eq!(ask(&host, ""), 403, "{host}");
    }
    let own = format!("127.0.0.1:{port}");
    assert_eq!(ask(&own, &format!("Origin: http://{own}\r\n")), 200);
    for origin in [
        "null".into(),
        "https://evil.example".into(),
        format!("https://{own}"),
        format!("http://localhost:{port}"),
        "http://127.0.0.1".to_string(),
    ] {
        assert_eq!(ask(&own, &format!("Origin: {origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(
        status(&web, format!("GET /healthz HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n").as_bytes()),
        403
    );
    assert_eq!(
        status(&web, format!("GET /v1/stats HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n").as_bytes()),
        400
    );
}

#[test]
fn without_the_token_nothing_is_said_and_guessing_gets_slow() {
    let harness = scene();
    let web = harness.serve();
    let ask = |field: &str| {
        let request = format!("GET /v1/stats HTTP/1.1\r\nHost: {}\r\n{field}\r\n", web.address);
        web.raw(request.as_bytes()).expect("an answer")
    };
    let none = ask("");
    none.problem(401, "unauthorized");
    assert!(none.field("www-authenticate").is_some_and(|v| v.starts_with("Bearer")));
    ask(&format!("Authorization: Basic {TOKEN}\r\n")).problem(401, "unauthorized");
    // The same wrong one again and again is an app with an old token: it makes nobody wait.
    for _ in 0..30 {
        ask("Authorization: Bearer old\r\n").problem(401, "unauthorized");
    }
    assert_eq!(web.get("/v1/stats").status, 200);
    let slowed =
        (0..30).map(|n| ask(&format!("Authorization: Bearer guess{n}\r\n"))).find(|a| a.status != 401);
    let slowed = slowed.expect("guessing is slowed");
    slowed.problem(429, "slow_down");
    assert!(slowed.field("retry-after").is_some_and(|s| s.parse::<u64>().is_ok()));
    // Whoever has the token is none of those who guess, though the address is the same.
    for n in 0..20 {
        assert_eq!(ask(&format!("Authorization: Bearer another-guess-{n}\r\n")).status, 429);
        assert_eq!(web.get("/v1/stats").status, 200);
    }
    let denied = web.get("/metrics").text();
    let denied: f64 = denied
        .lines()
        .find_map(|l| l.strip_prefix("onceward_denied_requests_total "))
        .unwrap()
        .parse()
        .unwrap();
    assert!(denied >= 35.0, "{denied}");
    let log = std::fs::read_to_string(harness.dir.path().join("workers.log")).unwrap();
    assert!(
        log.contains("came with a wrong token") && !log.contains(TOKEN) && !log.contains("guess1"),
        "{log}"
    );
    let secret = TOKEN.as_bytes();
    for file in std::fs::read_dir(harness.dir.path()).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(
            !bytes.windows(secret.len()).any(|w| w == secret),
            "the token is in {}",
            file.path().display()
        );
    }
}

#[test]
fn methods_expectations_and_head_are_answered_as_http_has_it() {
    let harness = scene();
    let web = harness.serve();
    for (method, target, allow) in [
        ("DELETE", "/v1/jobs", "POST, GET, HEAD"),
        ("GET", "/v1/jobs/x/replay", "POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("OPTIONS", "/healthz", "GET, HEAD"),
        ("BREW", "/v1/stats", "GET, HEAD"),
        ("PUT", "/v1/jobs/batch", "POST"),
    ] {
        let answer = web.raw(web.head(method, target, "").as_bytes()).unwrap();
        answer.problem(405, "method_not_allowed");
        assert_eq!(answer.field("allow"), Some(allow), "{method} {target}");
    }
    for target in ["/v1/stats", "/v1/jobs", "/metrics", "/healthz", "/openapi.json"] {
        let answer = web.raw(web.head("HEAD", target, "").as_bytes()).unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{target}: {answer}");
        assert_eq!(web.get(target).status, 200);
    }
    let missing = web.raw(web.head("HEAD", "/v1/jobs/none", "").as_bytes()).unwrap();
    assert_eq!((missing.status, missing.body.len()), (404, 0));
    // The body is sent only once the server has asked for it.
    let body = job(1);
    let mut stream = web.connect();
    let fields = format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(web.head("POST", "/v1/jobs", &fields).as_bytes()).unwrap();
    let mut go = [0; 25];
    stream.read_exact(&mut go).unwrap();
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    read_answer(&mut stream).unwrap().is(201);
    let refused = web.head("POST", "/v1/jobs", "Expect: 100-continue\r\nContent-Length: 99999999999\r\n");
    assert_eq!(status(&web, refused.as_bytes()), 413);
    assert_eq!(status(&web, web.head("POST", "/v1/jobs", "Expect: a-miracle\r\n").as_bytes()), 417);
    // HTTP/1.0 knows no chunks.
    let old = web.head("GET", "/v1/jobs", "").replace("HTTP/1.1", "HTTP/1.0");
    let answer = web.raw(old.as_bytes()).unwrap();
    assert!(answer.field("transfer-encoding").is_none() && answer.json()["jobs"].is_array(), "{answer}");
}

#[test]
fn a_job_that_was_answered_with_201_survives_a_kill_right_after() {
    for n in 0..5 {
        let harness = scene();
        let mut web = harness.serve();
        web.post("/v1/jobs", &job(n)).is(201);
        web.worker.kill9();
        assert_eq!(harness.show(&key(n))["key"], key(n).as_str());
        harness.work_until_idle();
        harness.assert_settled_once(&key(n));
    }
}

#[test]
fn a_stop_answers_what_was_asked_and_takes_no_more() {
    let harness = scene();
    let mut web = harness.serve();
    let mut half = web.connect();
    let body = job(1);
    let head =
        web.head("POST", "/v1/jobs", &format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len()));
    half.write_all(head.as_bytes()).unwrap();
    let mut go = [0; 25];
    half.read_exact(&mut go).unwrap();
    let silent = web.connect();
    web.worker.term();
    half.write_all(body.as_bytes()).unwrap();
    read_answer(&mut half).unwrap().is(201);
    assert!(web.worker.wait().success());
    assert!(TcpStream::connect(web.address).is_err());
    drop(silent);
    assert_eq!(harness.show(&key(1))["key"], key(1).as_str());
}

#[test]
fn no_input_makes_the_server_fail() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    let harness = scene();
    let web = harness.serve();
    web.post("/v1/jobs", &job(1)).is(201);
    let text = || {
        prop_oneof![
            Just("payout:INV-1".to_string()),
            Just("%2523".into()),
            Just("{\"a\":1}".into()),
            Just("a=b&c".into()),
            "[ -~]{0,40}",
            "\\PC{0,20}",
            "[{}\\[\\]\",:0-9eE+.-]{0,60}",
        ]
    };
    let method = prop_oneof![4 => Just("POST".to_string()), 4 => Just("GET".into()), 1 => Just("HEAD".into()), 1 => "[A-Z]{1,9}"];
    let encoded =
        |t: String| percent_encoding::utf8_percent_encode(&t, percent_encoding::NON_ALPHANUMERIC).to_string();
    let part = prop_oneof![
        Just("v1".to_string()),
        Just("jobs".into()),
        Just("batch".into()),
        Just("replay".into()),
        Just("resolve".into()),
        Just("groups".into()),
        Just("pause".into()),
        Just("metrics".into()),
        text().prop_map(encoded),
        "[!-~]{0,12}"
    ];
    let target = (
        prop::collection::vec(part, 1..5),
        prop::option::of(text().prop_map(encoded)),
        prop::option::of(Just("state=parked&limit=5")),
    )
        .prop_map(|(parts, q, known)| {
            let query = q.map(|q| format!("{}={q}", known.unwrap_or("after"))).or(known.map(str::to_string));
            format!("/{}{}", parts.join("/"), query.map(|q| format!("?{q}")).unwrap_or_default())
        });
    let known = prop_oneof![
        Just(("POST".to_string(), "/v1/jobs".to_string())),
        Just(("POST".into(), "/v1/jobs/batch".into())),
        Just(("POST".into(), "/v1/jobs/payout%3AINV-1/resolve".into())),
        Just(("POST".into(), "/v1/jobs/payout%3AINV-1/note".into())),
        Just(("POST".into(), "/v1/jobs/%231/replay".into())),
        Just(("POST".into(), "/v1/kinds/payout/pause".into())),
        (method, target),
    ];
    let field = prop_oneof![
        Just("Content-Type: application/json".to_string()),
        Just("Transfer-Encoding: chunked".into()),
        Just("Expect: 100-continue".into()),
        Just("Content-Length: 7".into()),
        text().prop_map(|t| format!("Idempotency-Key: {t}")),
        text().prop_map(|t| format!("X-Onceward-Actor: {t}")),
        "[!-~]{1,10}: [ -~]{0,30}",
    ];
    let body = prop_oneof![
        Just(job(1).into_bytes()),
        Just(job(2).into_bytes()),
        text().prop_map(|t| format!(r#"{{"kind":{t},"payload":{{}},"key":"k"}}"#).into_bytes()),
        text().prop_map(|t| format!(
            r#"{{"kind":"raw","payload":{{"x":{}}},"key":{}}}"#,
            serde_json::json!(t),
            serde_json::json!(t)
        )
        .into_bytes()),
        text().prop_map(|t| format!(r#"{{"settled":{t}}}"#).into_bytes()),
        text().prop_map(|t| format!(r#"{{"text":{}}}"#, serde_json::json!(t)).into_bytes()),
        prop::collection::vec(any::<u8>(), 0..200),
        Just("[".repeat(5000).into_bytes()),
        Just(format!("{{\"payload\":{}1{}}}", "[".repeat(200), "]".repeat(200)).into_bytes()),
    ];
    let cut = prop_oneof![8 => Just(usize::MAX), 1 => 0..400usize];
    let mut runner = TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() });
    let request = (known, prop::collection::vec(field, 0..4), body, cut, any::<bool>());
    runner
        .run(&request, |((method, target), fields, body, cut, framed)| {
            let mut fields: String = fields.into_iter().map(|f| f + "\r\n").collect();
            if framed && !fields.contains("Content-Length") && !fields.contains("chunked") {
                fields.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            let mut bytes = web.head(&method, &target, &fields).into_bytes();
            bytes.extend_from_slice(&body);
            bytes.truncate(cut);
            let mut stream = web.connect();
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            if let Some(answer) = read_answer(&mut stream) {
                prop_assert!(answer.status < 500, "{answer} to {}", String::from_utf8_lossy(&bytes));
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(web.get("/healthz").status, 200);
    let log = std::fs::read_to_string(harness.dir.path().join("workers.log")).unwrap();
    assert!(!log.contains("panick"), "{log}");
}

#[test]
fn no_route_but_the_health_answers_without_the_token() {
    let harness = scene();
    let web = harness.serve();
    let document = web.get("/openapi.json").is(200);
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().filter(|name| *name != "parameters") {
            let target = path.replace("{key}", "x").replace("{name}", "bank");
            let request =
                format!("{} {target} HTTP/1.1\r\nHost: {}\r\n\r\n", method.to_uppercase(), web.address);
            let wanted = if path == "/healthz" { 200 } else { 401 };
            assert_eq!(status(&web, request.as_bytes()), wanted, "{method} {path}");
            asked += 1;
        }
    }
    assert!(asked > 15, "{asked}");
}
