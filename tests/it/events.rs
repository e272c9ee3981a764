//! Events by the real binary: who copied, restored, pruned and read the file, whose token was refused, and by which
//! credentials a worker went. And people's words at every door.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use serde_json::{Value, json};

/// The events with this action, oldest first.
fn events(h: &Harness, action: &str) -> Vec<Value> {
    let all = h.run(&["audit", "export", "--events"]).ok().lines();
    all.into_iter().filter(|event| event["action"] == action).collect()
}

fn detail(event: &Value) -> &str {
    event["detail"].as_str().unwrap_or_default()
}

#[test]
fn copies_restores_prunes_and_audits_are_on_record_with_who_did_them() {
    let mut h = Scene::new(Family::B).set(|s| s.kind = "keep = \"1ms\"".into()).start();
    h.env("USER", "ada");
    h.payout(1);
    h.payout(2);
    h.work_until_idle();
    h.run(&["backup", "copy.db"]).ok();
    let copied = events(&h, "backup");
    assert_eq!(copied.len(), 1);
    assert!(copied[0]["actor"].as_str().unwrap().starts_with("cli:ada@"), "{copied:?}");
    assert_eq!(copied[0]["name"], "copy.db");
    assert!(copied[0]["origin"].is_string() && detail(&copied[0]).contains("ends at row 4"), "{copied:?}");

    h.run(&["audit", "verify"]).ok();
    h.run(&["audit", "export", "--key", &key(1)]).ok();
    let read = events(&h, "audit");
    let names: Vec<&str> = read.iter().map(|event| event["name"].as_str().unwrap()).collect();
    // The reading that shows it is on record itself.
    assert_eq!(names, ["export of the events", "verify", "export", "export of the events"]);
    assert!(detail(&read[1]).contains("4 rows") && detail(&read[1]).ends_with("0 wrong"), "{read:?}");
    assert!(detail(&read[2]).contains("key payout:INV-1"), "{read:?}");

    h.run(&["prune", "--force", "--dry-run"]).ok();
    assert_eq!(events(&h, "prune"), Vec::<Value>::new(), "nothing was done");
    h.run(&["prune", "--force", "--archive", "old.jsonl"]).ok();
    h.run(&["prune", "--force"]).ok();
    let pruned = events(&h, "prune");
    assert_eq!(pruned.len(), 1, "a prune that takes nothing is none");
    assert!(detail(&pruned[0]).contains("archive old.jsonl, --force; up to 2 of kind payout"), "{pruned:?}");
    h.run(&["audit", "verify", "--archive", "old.jsonl"]).ok();
    assert!(events(&h, "audit").iter().any(|e| e["name"] == "archive" && detail(e).contains("0 wrong")));

    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(h.dir.path().join(format!("onceward.db{end}")));
    }
    h.run(&["restore", "copy.db"]).ok();
    for word in ["--no-words", "--no-words", "--close"] {
        h.run(&["restore", word]).ok();
    }
    let restored = events(&h, "restore");
    let named: Vec<&str> = restored.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["file", "word", "word"], "a word is on record once");
    assert!(detail(&restored[0]).contains("ends at row 4"), "{restored:?}");
    assert!(detail(&restored[1]).contains("nobody gave anything up"), "{restored:?}");
    assert!(detail(&restored[2]).contains("every app has asked again"), "{restored:?}");
    assert!(restored.iter().all(|event| event["actor"].as_str().unwrap().starts_with("cli:ada@")));
    assert_eq!(events(&h, "pause")[0]["name"], "bank", "and so is what it paused");
    assert_eq!(events(&h, "backup"), Vec::<Value>::new(), "the copy was made before it was told of");
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
    h.reconfigure(|s| s.kind.clear());
}

#[test]
fn a_file_that_takes_no_writes_is_verified_all_the_same_and_it_is_said_that_nothing_is_on_record() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.work_until_idle();
    h.run(&["backup", "copy.db"]).ok();
    let text = h.scene.text().replace("path = \"onceward.db\"", "path = \"copy.db\"");
    h.config(&text);
    for args in [&["audit", "verify"][..], &["audit", "export"], &["audit", "export", "--events"]] {
        let output = h.run(args).ok();
        assert!(output.stderr.contains("not on record"), "{output}");
    }
    let told = h.run(&["audit", "export", "--events"]).ok().lines();
    assert!(told.iter().all(|event| event["action"] != "audit"), "{told:?}");
}

#[test]
fn a_file_on_a_disk_that_is_read_only_is_refused_with_the_reason() {
    let Some(disk) = Disk::small(16) else { return };
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.work_until_idle();
    h.run(&["backup", disk.path().join("copy.db").to_str().unwrap()]).ok();
    let path = format!("path = \"{}\"", disk.path().join("copy.db").display());
    h.config(&h.scene.text().replace("path = \"onceward.db\"", &path));
    let remount = std::process::Command::new("mount").args(["-o", "remount,ro"]).arg(disk.path()).status();
    assert!(remount.is_ok_and(|status| status.success()));
    // Not opened at all, and the words say why: a copy of it on another disk can be verified.
    assert!(h.run(&["audit", "verify"]).refused("database", 1).contains("may not be written"));
}

#[test]
fn the_export_of_the_events_is_whole_in_both_formats_and_by_time() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.work_until_idle();
    h.run(&["pause", "provider", "bank", "--why", "=1+1"]).ok();
    let all = h.run(&["audit", "export", "--events"]).ok().lines();
    let seen: Vec<&str> = all.iter().map(|event| event["action"].as_str().unwrap()).collect();
    assert_eq!(seen, ["start", "config", "stop", "pause", "audit"]);
    assert_eq!(all.iter().map(|e| e["seq"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(all.iter().all(|e| e["chain"].as_str().unwrap().len() == 64), "{all:?}");
    let args = ["audit", "export", "--events", "--format", "csv", "--output", "events.csv"];
    h.run(&args).ok();
    let mut table = csv::Reader::from_path(h.dir.path().join("events.csv")).unwrap();
    let why = table.headers().unwrap().iter().position(|name| name == "why").unwrap();
    let rows: Vec<_> = table.records().map(Result::unwrap).collect();
    assert_eq!((rows.len(), &rows[3][why]), (6, "'=1+1"));
    let none = h.run(&["audit", "export", "--events", "--until", "2020-01-01T00:00:00Z"]).ok();
    assert_eq!(none.stdout, "");
    h.run(&["audit", "export", "--events", "--key", "k"]).fails(&[2]);
}

#[test]
fn a_refused_token_is_on_record_with_where_it_came_from_and_without_the_token() {
    let h = Scene::new(Family::B).with_http().start();
    let web = h.serve();
    let host = format!("Host: {}\r\n", web.address);
    let ask = |fields: &str| {
        let request = format!("GET /v1/stats HTTP/1.1\r\n{host}{fields}\r\n");
        web.raw(request.as_bytes()).expect("an answer").status
    };
    assert_eq!(ask("Authorization: Bearer wrong-token-of-somebody\r\n"), 401);
    assert_eq!(ask(""), 401);
    let denied = events(&h, "denied");
    assert_eq!(denied.len(), 2, "{denied:?}");
    for (event, why) in denied.iter().zip(["this is not the token", "send the token"]) {
        assert_eq!((&event["scope"], &event["name"]), (&json!("door"), &json!("api")));
        assert_eq!(event["origin"], "127.0.0.1");
        assert!(event["why"].as_str().unwrap().contains(why), "{event}");
        assert!(!event.to_string().contains("wrong-token"), "{event}");
    }
    // Whoever knocks a hundred times fills no disk, and is counted.
    for _ in 0..100 {
        assert_eq!(ask("Authorization: Bearer wrong-token-of-somebody\r\n"), 401);
    }
    let denied = events(&h, "denied").len();
    assert!((50..=60).contains(&denied), "{denied}");
}

#[test]
fn a_changed_credential_is_on_record_by_its_fingerprint_and_never_itself() {
    let mut h = Scene::new(Family::B).start();
    h.reconfigure(|s| s.provider += "auth = { bearer = { env = \"BANK_TOKEN\" } }\n");
    let work = |h: &Harness, token: &str| {
        h.run_with(&["work", "--exit-when-idle"], &[("BANK_TOKEN", token)]).ok();
    };
    h.payout(1);
    work(&h, "canary-one-0123456789");
    work(&h, "canary-one-0123456789");
    let seen = events(&h, "config");
    assert_eq!(seen.len(), 1, "what did not change is not told twice: {seen:?}");
    assert_eq!((&seen[0]["scope"], &seen[0]["name"]), (&json!("provider"), &json!("bank")));
    work(&h, "canary-two-0123456789");
    let seen = events(&h, "config");
    assert_eq!(seen.len(), 2);
    let first = detail(&seen[0]).strip_prefix("the credential is ").unwrap();
    assert_eq!(first.len(), 16);
    assert!(detail(&seen[1]).ends_with(&format!(", and was {first}")), "{seen:?}");
    assert!(seen[1]["actor"].as_str().unwrap().starts_with("worker:"));
    h.reconfigure(|s| s.provider = s.provider.replace("auth = { bearer = { env = \"BANK_TOKEN\" } }\n", ""));
    h.work_until_idle();
    assert!(detail(&events(&h, "config")[2]).starts_with("the credential is none, and was "));
    for end in ["", "-wal"] {
        let bytes = std::fs::read(h.dir.path().join(format!("onceward.db{end}"))).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("canary-"), "onceward.db{end}");
    }
}

/// Every word of a person at every door: refused, and nothing of it is in the file.
#[test]
fn card_numbers_in_peoples_words_are_refused_by_the_api_and_the_console_too() {
    let h = Scene::new(Family::E).total("300ms").with_http().start();
    h.provider.script(vec![Fault::DropBefore]);
    let key = h.payout(1);
    h.env("API_TOKEN", TOKEN);
    h.work_until_idle();
    let web = h.serve();
    let card = "4111-1111 1111-1111";
    for (target, body) in [
        (format!("/v1/jobs/{key}/note"), json!({ "text": card })),
        (format!("/v1/jobs/{key}/resolve"), json!({ "not_applied": true, "note": card })),
        (format!("/v1/jobs/{key}/resolve"), json!({ "settled": "po_1", "note": card })),
        (format!("/v1/jobs/{key}/resolve"), json!({ "rejected": card })),
        ("/v1/providers/bank/pause".into(), json!({ "why": card })),
        ("/v1/providers/bank/resume".into(), json!({ "why": card })),
        ("/v1/kinds/payout/pause".into(), json!({ "why": card })),
        ("/v1/kinds/payout/resume".into(), json!({ "why": card })),
        ("/v1/groups/g/pause".into(), json!({ "why": card })),
        ("/v1/groups/g/resume".into(), json!({ "why": card })),
        ("/v1/groups/4111111111111111/pause".into(), json!({})),
        ("/v1/jobs".into(), json!({ "kind": "raw", "key": card, "payload": {} })),
        ("/v1/jobs".into(), json!({ "kind": "raw", "key": "k", "account": card, "payload": {} })),
        (format!("/v1/jobs/{key}/replay"), json!({ "payload": { "memo": card } })),
    ] {
        let said = web.post(&target, &body.to_string()).problem(422, "card_number");
        assert!(!said.contains("1111"), "{target}: {said}");
    }
    // The console: log in, take the form's token, and say it there.
    let form = |target: &str, cookie: &str, body: &str| {
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            web.address,
            body.len()
        );
        web.raw(request.as_bytes()).expect("an answer")
    };
    let entered = form("/login", "", &format!("token={TOKEN}"));
    let cookie = entered.field("set-cookie").unwrap().split(';').next().unwrap().to_string();
    let page = web
        .raw(format!("GET /job/1 HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n", web.address).as_bytes())
        .unwrap()
        .text();
    let csrf = page
        .split("name=\"csrf\" value=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap()
        .to_string();
    let said = "4111-1111+1111-1111";
    for (target, fields) in [
        ("/job/1/note", format!("text={said}")),
        ("/job/1/resolve", format!("answer=rejected&why={said}")),
        ("/job/1/resolve", format!("answer=not-applied&sure=yes&note={said}")),
        ("/job/1/resolve", format!("answer=settled&reference=po_1&note={said}")),
        ("/pause", format!("scope=provider&name=bank&why={said}")),
        ("/resume", format!("scope=provider&name=bank&why={said}")),
    ] {
        let answer = form(target, &cookie, &format!("csrf={csrf}&{fields}"));
        assert_eq!(answer.status, 422, "{target} {fields}: {answer}");
        assert!(
            answer.text().contains("card number") && !answer.text().contains("1111"),
            "{target}: {answer}"
        );
    }
    assert_eq!(
        form("/job/1/note", &cookie, &format!("csrf={csrf}&text=order+2026-0000-4711-0042")).status,
        303
    );
    // A provider's own number is taken, whatever it looks like: what happened is never turned away.
    web.post(&format!("/v1/jobs/{key}/confirm"), r#"{"reference":"4111111111111111"}"#).is(200);
    assert_eq!(h.show(&key)["state"], "settled");
    drop(web);
    let conn = rusqlite::Connection::open(h.dir.path().join("onceward.db")).unwrap();
    let words: i64 = conn
        .query_row(
            "SELECT (SELECT count(*) FROM onceward_history WHERE error LIKE '%4111-%' OR detail LIKE '%4111-%')
               + (SELECT count(*) FROM onceward_events WHERE why LIKE '%4111%' OR detail LIKE '%4111%')",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(words, 0);
}
