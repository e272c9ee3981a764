//! The API behind a proxy, on a file that cannot be written, and with keys that look like something else.

use crate::harness::{Answer, Disk, Harness, LIMIT, Scene, TOKEN, Web, payout};
use onceward::demo::provider::Family;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use std::io::Write;

fn scene() -> Scene {
    Scene::new(Family::A).with_lookup(true).with_http()
}

fn with_table(lines: &str) -> Harness {
    let lines = format!("[http]\n{lines}\n");
    scene().set(|s| s.tables = s.tables.replace("[http]\n", &lines)).start()
}

/// A job of kind raw under this key, in JSON.
fn raw(key: &str, more: &str) -> String {
    format!("{{\"kind\":\"raw\",\"key\":{},\"payload\":{{\"n\":1}}{more}}}", json!(key))
}

fn retry_after(answer: &Answer) -> u64 {
    answer
        .field("retry-after")
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| panic!("no Retry-After: {answer}"))
}

fn encode(key: &str) -> String {
    utf8_percent_encode(key, NON_ALPHANUMERIC).to_string()
}

/// The proxy's own entry is the last; whatever stands before it, a client may have written.
#[test]
fn behind_a_proxy_the_address_is_the_one_that_the_proxy_saw_and_otherwise_the_field_means_nothing() {
    for (lines, actor) in [("behind_proxy = true", "api:till@203.0.113.9"), ("", "api:till@127.0.0.1")] {
        let harness = with_table(lines);
        let web = harness.serve();
        let fields = "Content-Type: application/json\r\nX-Onceward-Actor: till\r\n\
                      X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 198.51.100.7, 203.0.113.9\r\n";
        web.post_with("/v1/jobs", fields, &raw("order:1", "")).is(201);
        let shown = harness.show("order:1");
        assert_eq!(shown["history"][0]["actor"], actor, "{shown:#}");
    }
}

#[test]
fn rubbish_from_a_proxy_is_no_address_and_no_fault() {
    let harness = with_table("behind_proxy = true");
    let web = harness.serve();
    for (n, value) in ["", "unknown", "203.0.113.9, nobody", "<script>", "203.0.113.9:443", "[2001:db8::1]"]
        .into_iter()
        .enumerate()
    {
        let fields = format!("Content-Type: application/json\r\nX-Forwarded-For: {value}\r\n");
        let answer = web.post_with("/v1/jobs", &fields, &raw(&format!("order:{n}"), ""));
        assert_eq!(answer.status, 201, "{value:?}: {answer}");
        let actor = harness.show(&format!("order:{n}"))["history"][0]["actor"].to_string();
        assert!(!actor.contains("script") && !actor.contains("nobody"), "{value:?}: {actor}");
    }
}

#[test]
fn a_name_that_the_config_gives_the_server_may_be_called_and_no_other() {
    let harness = with_table("behind_proxy = true\nhosts = [\"queue.shop.example\"]");
    let web = harness.serve();
    let ask = |host: &str, more: &str| {
        let request =
            format!("GET /v1/stats HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n{more}\r\n");
        web.raw(request.as_bytes()).expect("an answer")
    };
    for (host, more) in [
        ("queue.shop.example", ""),
        ("Queue.Shop.Example", ""),
        ("queue.shop.example", "Origin: https://queue.shop.example\r\n"),
    ] {
        assert_eq!(ask(host, more).status, 200, "{host} {more}");
    }
    for (host, more) in [
        ("shop.example", ""),
        ("queue.shop.example.evil.example", ""),
        ("xqueue.shop.example", ""),
        ("queue.shop.example", "Origin: https://shop.example\r\n"),
        ("queue.shop.example", "Origin: null\r\n"),
    ] {
        assert_eq!(ask(host, more).status, 403, "{host} {more}");
    }
}

/// Another process holds the write lock: the caller is told when to ask again, and asking again is safe.
#[test]
fn a_locked_file_is_a_503_with_retry_after_and_nothing_is_stored_twice() {
    let harness = scene().start();
    let web = harness.serve();
    web.post("/v1/kinds/raw/pause", "").is(200);
    let stranger =
        rusqlite::Connection::open(harness.dir.path().join("onceward.db")).expect("the file opens");
    stranger.busy_timeout(LIMIT).expect("a timeout");
    stranger.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let refused = web.post("/v1/jobs", &raw("order:1", ""));
    assert!(
        ["busy", "database"].contains(&refused.is(503)["code"].as_str().unwrap_or_default()),
        "{refused}"
    );
    assert!(retry_after(&refused) >= 1);
    // Whoever only looks does not wait.
    web.get("/v1/jobs").is(200);
    web.get("/v1/stats").is(200);
    stranger.execute_batch("ROLLBACK").expect("let go");
    let again = web.post("/v1/jobs", &raw("order:1", ""));
    assert!([200, 201].contains(&again.status), "{again}");
    assert_eq!(harness.count("SELECT count(*) FROM onceward_intents"), 1);
}

#[test]
fn a_full_disk_is_a_503_with_retry_after_and_works_again_when_there_is_room() {
    let Some(disk) = Disk::small(8) else { return };
    let mut harness = scene().start();
    harness.reconfigure(|s| s.tables.push_str("[limits]\nfree_disk = \"0B\"\n"));
    let path = disk.path().join("onceward.db").display().to_string();
    harness.config(&harness.scene.text().replace("\"onceward.db\"", &format!("{path:?}")));
    let web = harness.serve();
    web.post("/v1/kinds/raw/pause", "").is(200);
    // Whoever reads keeps the log from beginning anew, so that each write needs room.
    let reader = rusqlite::Connection::open(&path).expect("the file opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM onceward_jobs").expect("a snapshot");
    disk.fill_but(0);
    // A page or two of the log may have room in a block that the file has already.
    let full =
        (0..50).map(|n| web.post("/v1/jobs", &raw(&format!("order:{n}"), ""))).find(|a| a.status != 201);
    let full = full.expect("the disk is full");
    full.problem(503, "database");
    assert!(retry_after(&full) >= 1);
    web.get("/v1/jobs").is(200);
    reader.execute_batch("ROLLBACK").expect("let go");
    disk.empty();
    let start = std::time::Instant::now();
    while web.post("/v1/jobs", &raw("order:last", "")).status >= 500 {
        assert!(start.elapsed() < LIMIT, "there is room, and nothing is taken");
    }
    assert_eq!(harness_count(&path, "SELECT count(*) FROM onceward_intents WHERE key = 'order:last'"), 1);
}

fn harness_count(path: &str, sql: &str) -> i64 {
    let db = rusqlite::Connection::open(path).expect("the file opens");
    db.query_row(sql, [], |row| row.get(0)).expect("a number")
}

#[test]
fn a_place_that_is_passed_or_taken_is_a_409_with_its_own_code() {
    let harness = scene().start();
    let web = harness.serve();
    let at = |n: u32| format!(",\"group\":\"g\",\"sequence\":{n}");
    web.post("/v1/jobs", &raw("a", &at(1))).is(201);
    harness.show_until("a", |job| job["state"] == "settled");
    web.post("/v1/jobs", &raw("b", &at(1))).problem(409, "stale_sequence");
    web.post("/v1/kinds/raw/pause", "").is(200);
    web.post("/v1/jobs", &raw("c", &at(2))).is(201);
    web.post("/v1/jobs", &raw("d", &at(2))).problem(409, "sequence_taken");
    assert_eq!(harness.count("SELECT count(*) FROM onceward_intents"), 2);
}

/// A key is whatever an app makes of its event: it is never taken for a route, a number or a path.
#[test]
fn keys_that_look_like_routes_numbers_or_paths_are_keys() {
    let harness = scene().start();
    let web = harness.serve();
    web.post("/v1/kinds/raw/pause", "").is(200);
    let first = payout(1);
    web.post("/v1/jobs", &format!("{{\"kind\":\"payout\",\"payload\":{first},\"delay\":\"1h\"}}")).is(201);
    let keys = [
        "batch",
        "#1",
        "#7",
        "a/b/../c",
        "/",
        "..",
        ".",
        "100%",
        "%2F",
        "a%2Fb",
        "a b",
        "a+b",
        "a?b=c#d",
        "\"",
        "<b>&'",
        "ключ/🦀",
        "e\u{301}",
        "é",
        "replay",
        "x/replay",
        "\\",
    ];
    for key in keys {
        let answer = web.post("/v1/jobs", &raw(key, "")).is(201);
        assert_eq!(answer["key"], key, "{answer:#}");
    }
    for key in keys {
        let job = web.get(&format!("/v1/jobs/{}", encode(key))).is(200);
        assert_eq!((&job["key"], &job["kind"]), (&json!(key), &json!("raw")), "{job:#}");
        // What is done under a key is done to that job.
        web.post(
            &format!("/v1/jobs/{}/note", encode(key)),
            &json!({ "text": format!("of {key}") }).to_string(),
        );
        let page = web.get(&format!("/v1/jobs?kind=raw&limit=1&after={}", encode(key))).is(200);
        let next = &page["jobs"][0]["id"];
        assert!(next.is_null() || next.as_i64() > job["id"].as_i64(), "{key}: {page:#}");
        web.post(&format!("/v1/jobs/{}/cancel", encode(key)), "").is(200);
        assert_eq!(harness.show(key)["state"], "cancelled", "{key}");
    }
    // The job with number 1 has another key; `#1` was somebody's key.
    assert_eq!(harness.count("SELECT count(*) FROM onceward_jobs WHERE state <> 'cancelled'"), 1);
    let batch = web.post_with("/v1/jobs/batch", "Content-Type: application/x-ndjson\r\n", &raw("batch", ""));
    assert_eq!((batch.status, &batch.json()["outcome"]), (200, &json!("duplicate")), "{batch}");
}

/// The most memory that the process has had, in KiB.
fn peak(web: &Web) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", web.worker.id())).expect("its status");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Of a batch, some jobs are in memory at once and not all of it: 400 lines of 200 KiB are 80 MiB.
#[test]
fn a_large_batch_takes_little_memory() {
    if !cfg!(target_os = "linux") {
        eprintln!("SKIPPED a_large_batch_takes_little_memory: the peak is read from /proc");
        return;
    }
    const LINES: usize = 400;
    let harness = scene().start();
    let web = harness.serve();
    web.post("/v1/kinds/raw/pause", "").is(200);
    let text = "x".repeat(200 * 1024);
    // The same job again and again: what is looked at is the reading, not the disk.
    let line = format!("{{\"kind\":\"raw\",\"key\":\"k\",\"payload\":{{\"text\":\"{text}\"}}}}\n");
    let before = peak(&web);
    let head = web.head(
        "POST",
        "/v1/jobs/batch",
        &format!("Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n", LINES * line.len()),
    );
    let mut stream = web.connect();
    stream.write_all(head.as_bytes()).expect("the head is taken");
    for _ in 0..LINES {
        stream.write_all(line.as_bytes()).expect("a line is taken");
    }
    let answer = crate::harness::read_answer(&mut stream).expect("an answer");
    assert_eq!(answer.text().lines().count(), LINES, "{}", answer.head);
    assert_eq!(answer.text().matches("\"duplicate\"").count(), LINES - 1);
    let grown = peak(&web).saturating_sub(before) / 1024;
    assert!(grown < 48, "the batch took {grown} MiB");
}
