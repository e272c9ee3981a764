//! What others wrote, at every place where eyes meet it: nothing of it steers a terminal, a page or a spreadsheet.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use std::process::Stdio;

/// Characters that steer or hide: C0, DEL, C1, direction, zero-width, separators, tags.
const STEERING: &[char] = &[
    '\0',
    '\u{7}',
    '\u{8}',
    '\t',
    '\n',
    '\r',
    '\u{1b}',
    '\u{7f}',
    '\u{85}',
    '\u{9b}',
    '\u{9d}',
    '\u{ad}',
    '\u{61c}',
    '\u{200b}',
    '\u{200d}',
    '\u{200e}',
    '\u{200f}',
    '\u{2028}',
    '\u{2029}',
    '\u{202a}',
    '\u{202e}',
    '\u{2066}',
    '\u{2069}',
    '\u{feff}',
    '\u{e0041}',
];

/// Those that no door refuses anywhere: they may stand in keys, groups and references too.
const QUIET: &[char] =
    &['\u{ad}', '\u{200b}', '\u{200e}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}'];

/// A text that opens a formula and has all of these in it.
fn hostile(of: &[char]) -> String {
    let mut text = "=cmd|' /C x'!A1".to_string();
    for c in of {
        text.push(*c);
        text.push('x');
    }
    text + "\u{1b}[2J".trim_matches(|c| !of.contains(&c) && c == '\u{1b}')
}

fn left(bytes: &[u8], stays: &[char]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let bad = |c: char| STEERING.contains(&c) && !stays.contains(&c) || c.is_control() && !stays.contains(&c);
    let at = text.find(bad)?;
    let from = text[..at].char_indices().rev().nth(60).map_or(0, |(i, _)| i);
    Some(format!("{:?}", text[from..].chars().take(130).collect::<String>()))
}

/// A scene in which every field that others fill holds such a text.
fn scene() -> Harness {
    let h = Scene::new(Family::A).with_http().set(|s| s.kind = "keep = \"1ms\"".into()).start();
    let (all, quiet) = (hostile(STEERING), hostile(QUIET));
    let json = |text: &str| serde_json::Value::from(text).to_string();
    h.env("API_TOKEN", TOKEN);
    h.env("USER", &quiet);
    h.env("LOGNAME", &quiet);
    let payload = format!(
        "{{ \"invoice_id\":\n {}, \"account_id\": {}, \"amount_minor\": 5, \"currency\": \"EUR\", {}: {} }}",
        json(&quiet),
        json(&quiet),
        json(&all),
        json(&all)
    );
    let body = |more: &str| {
        format!(r#"{{"id":{},"status":"paid",{}:{}{more}}}"#, json(&quiet), json(&all), json(&all))
    };
    let refusal = format!(r#"{{"error":{{"message":{},"code":{}}}}}"#, json(&all), json(&all));
    h.provider.script(vec![
        Fault::Answer(Answer::json(400, refusal).with("X-Odd", "x")),
        Fault::AnswerAfter(Answer::json(201, body(r#","amount":5,"currency":"EUR""#))),
    ]);
    // Worked one after the other, so that the first meets the refusal and the second the good answer.
    h.enqueue("payout", &payload, &["--group", &quiet]).ok();
    h.work_until_idle();
    h.enqueue(
        "raw",
        &payload,
        &["--key", &format!("+1{quiet}"), "--account", &quiet, "--dedup", &quiet, "--dedup-window", "1h"],
    )
    .ok();
    h.enqueue("raw", &payload, &["--key", "@refused", "--delay", "1h"]).ok();
    h.run(&["cancel", "@refused"]).ok();
    h.work_until_idle();
    // No argument of a program can have a zero in it.
    let all = hostile(&STEERING[1..]);
    h.run(&["note", "#1", &all]).ok();
    h.run(&["pause", "group", &quiet, "--why", &all]).ok();
    h.run(&["pause", "provider", "bank", "--why", &all]).ok();
    let insert = "INSERT INTO onceward_inbox (kind, payload, key) VALUES (?1, ?2, ?3)";
    let db = rusqlite::Connection::open(h.dir.path().join("onceward.db")).unwrap();
    db.execute(insert, (&all, &all, &all)).unwrap();
    db.execute(insert, ("raw", "{}", &all)).unwrap();
    h
}

#[test]
fn no_command_page_or_export_hands_on_what_steers_or_opens_a_formula() {
    let h = scene();
    let (all, quiet) = (hostile(&STEERING[1..]), hostile(QUIET));
    let web = h.serve();
    let person = Person::enter(&web);
    let acts = format!("X-Onceward-Actor: {quiet}\r\nContent-Type: application/json\r\n");
    let remark = serde_json::json!({ "text": all }).to_string();
    assert_eq!(web.post_with("/v1/jobs/%231/note", &acts, &remark).status, 200);
    std::fs::write(
        h.dir.path().join("s.csv"),
        format!("id,amount,currency\n\"{all}\",5,EUR\n{quiet},7,EUR\nx,\"{all}\",\"{all}\"\n"),
    )
    .unwrap();
    std::fs::write(
        h.dir.path().join("bad.jsonl"),
        format!("{{\"kind\":\"raw\",\"{}\":1}}\n{quiet}\n", quiet),
    )
    .unwrap();
    let key = h.list(&["--kind", "raw"])[0]["key"].as_str().unwrap().to_string();
    let columns = "reference=id,amount=amount,currency=currency";
    let missing = h.dir.path().join(format!("{quiet}.csv")).display().to_string();
    let commands: Vec<Vec<&str>> = vec![
        vec!["list"],
        vec!["list", "--search", &quiet],
        vec!["list", "--kind", &quiet],
        vec!["show", "#1"],
        vec!["show", &key],
        vec!["show", &quiet],
        vec!["stats"],
        vec!["check"],
        vec!["group", "show", &quiet],
        vec!["group", "skip", &quiet, "--sequence", "9"],
        vec!["audit", "verify"],
        vec!["audit", "export"],
        vec!["audit", "export", "--events"],
        vec!["audit", "export", "--format", "csv"],
        vec!["audit", "export", "--events", "--format", "csv"],
        vec!["audit", "export", "--key", &key],
        vec!["enqueue", "raw", "--key", &key, "--payload", "{\"other\":1}"],
        vec!["enqueue", "raw", "--key", &all, "--payload", "{}"],
        vec!["enqueue", &quiet, "--key", "k", "--payload", "{}"],
        vec!["enqueue", "payout", "--payload", "{\"invoice_id\":\"\\u202e\\u001b[2J\",\"amount_minor\":1}"],
        vec!["enqueue", "raw", "--key", "dry", "--payload", "{\"x\":\"\\u202e\\u009b\"}", "--dry-run"],
        vec!["enqueue", "raw", "--key", "k", "--payload", &all],
        vec!["import", "bad.jsonl"],
        vec!["import", &missing],
        vec!["replay", "#2"],
        vec!["resolve", "#1", "--rejected", &all],
        vec!["confirm", &quiet, "--reference", "r"],
        vec!["reconcile", "statement", "s.csv", "--provider", "bank", "--columns", columns],
        vec!["reconcile", "statement", &missing, "--provider", "bank", "--columns", columns],
        vec!["pause", "kind", &quiet],
        vec!["resume", "group", &quiet],
        vec!["providers", &quiet],
        vec![&quiet],
        vec!["list", "--state", &quiet],
        vec!["--config", &missing, "list"],
        vec!["prune", "--force", "--archive", "old.jsonl"],
    ];
    let mut found = Vec::new();
    for args in &commands {
        for json in [false, true] {
            let mut command = h.plain_command(args);
            let mut plain = std::process::Command::new(command.get_program());
            plain.env_clear().current_dir(h.dir.path());
            plain.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            plain.args(command.get_args().filter(|arg| json || *arg != "--json"));
            command = plain;
            let output = command.stdin(Stdio::null()).output().unwrap();
            let csv = args.contains(&"csv");
            for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
                if let Some(text) = left(bytes, &['\n']) {
                    found.push(format!("{args:?} json={json} {stream}: {text}"));
                }
            }
            for line in String::from_utf8_lossy(&output.stdout).lines().filter(|_| json && !csv) {
                if serde_json::from_str::<serde_json::Value>(line).is_err() {
                    found.push(format!("{args:?}: no JSON: {line:?}"));
                }
            }
            if csv {
                let mut table =
                    csv::ReaderBuilder::new().has_headers(false).from_reader(output.stdout.as_slice());
                let rows: Vec<_> = table.records().map(|row| row.unwrap()).collect();
                assert!(rows.len() > 3, "{args:?}");
                let opens = |cell: &&str| cell.starts_with(['=', '+', '@', '|', '\t', '\r', '\n']);
                found.extend(
                    rows.iter()
                        .flat_map(|row| row.iter())
                        .filter(opens)
                        .map(|cell| format!("a formula: {cell:?}")),
                );
                // Where a semicolon parts cells, none begins in the midst of one.
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(text.contains("\"'=cmd"), "{args:?}: {text}");
            }
        }
    }
    for page in super::console::PAGES.iter().chain(&[
        "/job/1",
        "/job/2",
        "/job/3",
        "/parked/replay?ids=1",
        "/nowhere",
    ]) {
        if let Some(text) = left(&person.get(page).body, &['\n', '\t']) {
            found.push(format!("the page {page}: {text}"));
        }
    }
    let encoded =
        percent_encoding::utf8_percent_encode(&quiet, percent_encoding::NON_ALPHANUMERIC).to_string();
    for page in [
        format!("/jobs?search={encoded}"),
        format!("/groups?name={encoded}"),
        format!("/audit?key={encoded}"),
    ] {
        if let Some(text) = left(&person.get(&page).body, &['\n', '\t']) {
            found.push(format!("the page {page}: {text}"));
        }
    }
    for file in ["/audit.jsonl", "/job/1/payload.json", "/job/2/payload.json"] {
        let answer = person.get(file);
        assert_eq!(answer.status, 200, "{file}");
        found.extend(left(&answer.body, &['\n']).map(|text| format!("{file}: {text}")));
    }
    for path in [
        "/v1/jobs".to_string(),
        "/v1/jobs/%231".into(),
        "/v1/jobs/%232".into(),
        format!("/v1/jobs/{encoded}"),
        format!("/v1/jobs?state={encoded}"),
        format!("/v1/{encoded}"),
        "/v1/stats".into(),
        "/metrics".into(),
    ] {
        found.extend(left(&web.get(&path).body, &['\n']).map(|text| format!("{path}: {text}")));
    }
    let batch = web.post_with("/v1/jobs/batch", "", &format!("{{\"kind\":\"{quiet}\",\"payload\":{{}}}}\n"));
    found.extend(left(&batch.body, &['\n']).map(|text| format!("the batch: {text}")));
    for file in ["workers.log", "old.jsonl"] {
        let bytes = std::fs::read(h.dir.path().join(file)).unwrap();
        found.extend(left(&bytes, &['\n']).map(|text| format!("{file}: {text}")));
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
    // Each line of the log is one of ours, whatever a provider says.
    let log = std::fs::read_to_string(h.dir.path().join("workers.log")).unwrap();
    assert!(log.lines().all(|line| line.starts_with('[')), "{log}");
    h.run(&["audit", "verify", "--archive", "old.jsonl"]).ok();
}

#[test]
fn what_is_escaped_in_json_is_the_same_text_to_a_program() {
    let h = scene();
    let job = h.show("#1");
    let all = hostile(STEERING);
    assert_eq!(job["payload"][&all], all.as_str());
    assert!(h.run(&["show", "#1"]).ok().stdout.trim_end().lines().count() == 1, "one object a line");
    let all = hostile(&STEERING[1..]);
    let noted = job["history"]
        .as_array()
        .unwrap()
        .iter()
        .any(|row| row["detail"] == all.as_str() || row["error"] == all.as_str());
    assert!(noted, "{job:#}");
}
