//! JSON Lines: all good lines are taken, each bad one is named, and a second run takes nothing twice.

use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn line(n: u32) -> String {
    format!("{{\"kind\":\"payout\",\"payload\":{}}}", payout(n))
}

fn write(h: &Harness, name: &str, content: &[u8]) {
    std::fs::write(h.dir.path().join(name), content).expect("the file is written");
}

fn summary(created: u32, duplicate: u32, suppressed: u32, refused: u32) -> Value {
    json!({"created": created, "duplicate": duplicate, "suppressed": suppressed, "refused": refused})
}

#[test]
fn all_good_lines_are_taken_and_each_bad_one_is_named_by_its_number() {
    let h = Scene::new(Family::B).start();
    let mut content = Vec::new();
    for part in [
        format!("{}\r\n", line(1)).as_bytes(),
        b"\n",
        b"  \r\n",
        b"no json\n",
        b"{\"kind\":\"raw\",\"key\":\"\xff\",\"payload\":{}}\n",
        b"{\"kind\":\"raw\",\"key\":\"k\",\"payload\":{},\"colour\":1}\n",
        b"{\"kind\":\"nobody\",\"key\":\"k\",\"payload\":{}}\n",
        format!(
            "{{\"kind\":\"raw\",\"key\":\"long\",\"payload\":{{\"x\":\"{}\"}}}}\n",
            "x".repeat(2_000_000)
        )
        .as_bytes(),
        format!("{}\n", line(1).replace("1001", "1002")).as_bytes(),
        format!("{}\n", line(1)).as_bytes(),
        // The last line needs no end.
        line(2).as_bytes(),
    ] {
        content.extend_from_slice(part);
    }
    write(&h, "jobs.jsonl", &content);
    let output = h.run(&["import", "jobs.jsonl"]);
    output.fails(&[4]);
    let mut lines = output.lines();
    assert_eq!(lines.pop(), Some(summary(2, 1, 0, 6)), "{output}");
    let mut bad: Vec<(i64, &str)> =
        lines.iter().map(|v| (v["line"].as_i64().unwrap(), v["error"]["code"].as_str().unwrap())).collect();
    bad.sort_unstable();
    let wanted = [
        (4, "invalid"),
        (5, "invalid"),
        (6, "invalid"),
        (7, "invalid"),
        (8, "too_large"),
        (9, "key_mismatch"),
    ];
    assert_eq!(bad, wanted, "{output}");
    assert!(lines.iter().all(|v| v["error"]["message"].as_str().is_some_and(|m| !m.is_empty())));
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.assert_settled_once(&key(2));
    h.assert_laws();
}

#[test]
fn without_json_the_bad_lines_are_told_on_stderr() {
    let h = Scene::new(Family::B).start();
    write(&h, "jobs.jsonl", format!("{}\n[]\n", line(1)).as_bytes());
    let config = h.config_path();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"))
        .current_dir(h.dir.path())
        .arg("--config")
        .arg(config)
        .args(["import", "jobs.jsonl"])
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(4));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, "1 created, 0 duplicate, 0 suppressed, 1 refused\n");
    assert!(err.starts_with("onceward: line 2: ") && err.lines().count() == 1, "{err}");
}

#[test]
fn a_reader_that_goes_away_does_not_end_the_import() {
    let h = Scene::new(Family::B).start();
    let bad = "[]\n".repeat(500);
    write(&h, "jobs.jsonl", format!("{bad}{}\n", line(1)).as_bytes());
    let mut child =
        h.plain_command(&["import", "jobs.jsonl"]).stdout(Stdio::piped()).spawn().expect("the binary starts");
    drop(child.stdout.take());
    let status = wait(&mut child, LIMIT).expect("it ends");
    assert_eq!(status.code(), Some(4));
    assert_eq!(h.show(&key(1))["state"], "ready");
}

#[test]
fn every_member_arrives_and_the_payload_to_the_byte() {
    let h = Scene::new(Family::B).start();
    let full = r#"{"kind":"raw","payload":{ "id": 18446744073709551616, "d":0.1000 },"key":"full","group":"g","sequence":1,"at":"2100-01-01T00:00:00Z","priority":-2,"account":"7","amount_minor":9007199254740993,"currency":"EUR","dedup":"d","dedup_window":"1h"}"#;
    let again = r#"{"kind":"raw","payload":{},"key":"other","dedup":"d","dedup_window":"1h"}"#;
    let late = r#"{"kind":"raw","payload":{},"key":"late","delay":"30d"}"#;
    write(&h, "jobs.jsonl", format!("{full}\n{again}\n{late}\n").as_bytes());
    assert_eq!(h.run(&["import", "jobs.jsonl"]).ok().json(), summary(2, 0, 1, 0));
    let payload: String = h
        .sqlite()
        .query_row("SELECT payload FROM onceward_jobs WHERE id = 1", [], |row| row.get(0))
        .expect("a payload");
    assert_eq!(payload, r#"{ "id": 18446744073709551616, "d":0.1000 }"#);
    let job = h.show("full");
    assert_eq!((job["group"].as_str(), job["sequence"].as_i64()), (Some("g"), Some(1)));
    assert_eq!((job["priority"].as_i64(), job["account"].as_str()), (Some(-2), Some("7")));
    assert_eq!(job["amount_minor"].as_i64(), Some(9_007_199_254_740_993));
    assert_eq!(job["run_after"], "2100-01-01T00:00:00.000Z");
    assert_eq!(h.show("late")["state"], "scheduled");
}

#[test]
fn stdin_is_read_and_a_missing_file_makes_no_store() {
    let h = Scene::new(Family::B).start();
    h.run(&["import", "missing.jsonl"]).refused("io", 1);
    assert!(!h.dir.path().join("onceward.db").exists());
    let mut child = h
        .plain_command(&["import", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().unwrap().write_all(line(1).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), summary(1, 0, 0, 0));
    assert_eq!(h.show(&key(1))["state"], "ready");
}

/// The most memory that a process has had so far, in kilobytes.
#[cfg(target_os = "linux")]
fn high_water(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Issue 3: 100,000 lines in bounded memory, a bad one among them, and safe to run again after it broke off.
#[cfg(target_os = "linux")]
#[test]
fn a_hundred_thousand_lines_take_bounded_memory_and_an_import_that_broke_off_is_run_again() {
    const LINES: u32 = 100_000;
    let h = Scene::new(Family::B).start();
    let mut file = std::io::BufWriter::new(File::create(h.dir.path().join("jobs.jsonl")).unwrap());
    let filler = "x".repeat(600);
    for n in 0..LINES {
        if n == 70_000 {
            // A line that would not fit by itself.
            file.write_all("y".repeat(80_000_000).as_bytes()).unwrap();
            file.write_all(b"\n").unwrap();
        }
        writeln!(file, r#"{{"kind":"raw","key":"k{n}","payload":{{"n":{n},"x":"{filler}"}}}}"#).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    let start = || {
        let out = File::create(h.dir.path().join("import.out")).unwrap();
        h.plain_command(&["import", "jobs.jsonl"]).stdout(out).spawn().unwrap()
    };
    // The first run is killed on its way.
    let mut first = start();
    let jobs = || {
        let path = h.dir.path().join("onceward.db");
        let db =
            rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        db.query_row("SELECT count(*) FROM onceward_jobs", [], |row| row.get::<_, u32>(0)).ok()
    };
    let begun = Instant::now();
    while jobs().unwrap_or(0) < 1000 {
        assert!(begun.elapsed() < LIMIT && first.try_wait().unwrap().is_none(), "it never got going");
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let kept = jobs().unwrap();
    let mut second = start();
    let (mut most, begun) = (0, Instant::now());
    let status = loop {
        most = high_water(second.id()).unwrap_or(0).max(most);
        if let Some(status) = wait(&mut second, Duration::from_millis(20)) {
            break status;
        }
        assert!(begun.elapsed() < LIMIT * 10, "it did not end");
    };
    assert_eq!(status.code(), Some(4), "one line is bad");
    assert!(most > 0 && most < 60 * 1024, "{most} kB");
    let said = std::fs::read_to_string(h.dir.path().join("import.out")).unwrap();
    let said: Vec<Value> = said.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(
        (said[0]["line"].as_u64(), said[0]["error"]["code"].as_str()),
        (Some(70_001), Some("too_large"))
    );
    assert_eq!(said[1], summary(LINES - kept, kept, 0, 1));
    assert_eq!(jobs(), Some(LINES));
}
