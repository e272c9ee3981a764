//! A byte order mark before a text, as some programs write one, means the same at every door: nothing.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use std::io::Write;
use std::process::Stdio;

const MARK: &str = "\u{feff}";

/// The payload of payout `n`, after a mark.
fn marked(n: u32) -> String {
    format!("{MARK}{}", payout(n))
}

#[test]
fn a_payload_after_a_mark_is_taken_at_every_door_and_the_mark_is_neither_kept_nor_sent() {
    let h = Scene::new(Family::B)
        .with_http()
        // The config itself begins with one.
        .set(|s| s.tables = format!("{MARK}{}", s.tables))
        .start();
    let file = |name: &str, text: &str| std::fs::write(h.dir.path().join(name), text).unwrap();
    h.enqueue("payout", &marked(1), &[]).ok();
    file("p.json", &marked(2));
    h.run(&["enqueue", "payout", "--payload-file", "p.json"]).ok();
    let mut piped = h.plain_command(&["enqueue", "payout", "--payload-file", "-"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(marked(3).as_bytes()).unwrap();
    assert!(piped.wait().unwrap().success());
    let line = |n: u32| format!("{{\"kind\":\"payout\",\"payload\":{}}}\n", payout(n));
    file("jobs.jsonl", &format!("{MARK}{}", line(4)));
    h.run(&["import", "jobs.jsonl"]).ok();
    let app = rusqlite::Connection::open(h.dir.path().join("onceward.db")).unwrap();
    app.execute("INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', ?1)", [marked(5)]).unwrap();
    let web = h.serve();
    assert_eq!(web.post("/v1/jobs", &format!("{MARK}{}", line(6).trim())).status, 201);
    let fields = "Content-Type: application/x-ndjson\r\n";
    web.post_with("/v1/jobs/batch", fields, &format!("{MARK}{}", line(7))).is(200);
    for n in 1..=7 {
        h.show_until(&key(n), |job| job["state"] == "settled");
        // The same without a mark is the same.
        assert_eq!(h.enqueue("payout", &payout(n), &[]).ok().json()["outcome"], "duplicate");
    }
    assert!(h.posts().iter().all(|seen| !seen.request.body.starts_with(MARK.as_bytes())));
    assert_eq!(h.count("SELECT count(*) FROM onceward_jobs WHERE instr(payload, char(65279)) > 0"), 0);
}

#[test]
fn a_mark_does_not_count_towards_the_limit_of_a_payload() {
    let h = Scene::new(Family::B).set(|s| s.tables = "[limits]\npayload = 100\n".into()).start();
    for (size, code) in [(100, 0), (101, 4)] {
        let payload = format!("{MARK}{{\"n\":\"{}\"}}", "x".repeat(size - 8));
        std::fs::write(h.dir.path().join("p.json"), payload).unwrap();
        let args = ["enqueue", "raw", "--key", "k", "--payload-file", "p.json"];
        assert_eq!(h.run(&args).code, Some(code), "{size}");
    }
}

#[test]
fn a_reply_after_a_mark_settles_and_a_secret_file_with_one_is_the_secret() {
    let h = Scene::new(Family::E).set(|s| s.provider += "\nauth = { bearer = { file = \"token\" } }").start();
    std::fs::write(h.dir.path().join("token"), format!("{MARK}s3cret\r\n")).unwrap();
    let body = format!("{MARK}{{\"id\":\"po_1\",\"amount\":1001,\"currency\":\"EUR\",\"status\":\"paid\"}}");
    h.provider.script(vec![Fault::Answer(Answer::json(200, body))]);
    let key = h.payout(1);
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"po_1".into()), "{job:#}");
    assert_eq!(job["intent"]["result"]["id"], "po_1", "{job:#}");
    let authorization = h.posts()[0].request.header("authorization").map(str::to_string);
    assert_eq!(authorization.as_deref(), Some("Bearer s3cret"));
}

#[test]
fn a_statement_whose_first_name_stands_in_quotes_after_a_mark_is_read() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.work_until_idle();
    let reference = h.show(&key)["intent"]["reference"].as_str().unwrap().to_string();
    let text = format!("{MARK}\"id\",\"amount\"\n\"{reference}\",1001\n");
    std::fs::write(h.dir.path().join("s.csv"), text).unwrap();
    let columns = ["--columns", "reference=id,amount=amount"];
    let args = [&["reconcile", "statement", "s.csv", "--provider", "bank"][..], &columns].concat();
    assert_eq!(h.run(&args).ok().lines().last().unwrap()["matched"], 1);
}
