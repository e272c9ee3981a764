//! The API: what each route answers, and that it is the command line's word.

use crate::harness::{Harness, Scene, key, payout};
use onceward::demo::provider::Family;
use serde_json::json;

fn scene() -> Harness {
    Scene::new(Family::A).with_lookup(true).with_http().start()
}

fn job(n: u32) -> String {
    format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n))
}

#[test]
fn a_job_that_is_asked_for_over_http_is_done_once_and_a_repeat_says_how_it_stands() {
    let harness = scene();
    let web = harness.serve();
    let created = web.post("/v1/jobs", &job(1)).is(201);
    assert_eq!((&created["outcome"], &created["key"]), (&json!("created"), &json!(key(1))));
    assert_eq!(created["generation"], 1);
    harness.show_until(&key(1), |job| job["state"] == "settled");
    let again = web.post("/v1/jobs", &job(1)).is(200);
    assert_eq!((&again["outcome"], &again["state"]), (&json!("duplicate"), &json!("settled")));
    assert_eq!(again["wire_key"], created["wire_key"]);
    assert_eq!(web.get("/v1/jobs/payout%3AINV-1").is(200), harness.show(&key(1)));
    harness.assert_settled_once(&key(1));
}

#[test]
fn every_refusal_is_the_command_lines_with_its_code_as_a_problem() {
    let harness = scene();
    let web = harness.serve();
    web.post("/v1/kinds/payout/pause", r#"{"why":"month end"}"#).is(200);
    web.post("/v1/jobs", &job(1)).is(201);
    let other = job(1).replace("1001", "1002");
    let place = |key: &str, sequence: u32| {
        format!(
            r#"{{"kind":"raw","key":"{key}","group":"g","sequence":{sequence},"payload":{{}},"delay":"1h"}}"#
        )
    };
    web.post("/v1/jobs", &place("p1", 1)).is(201);
    for (body, status, code) in [
        (other.as_str(), 422, "key_mismatch"),
        (r#"{"kind":"raw","key":"card","payload":{"n":"4111111111111111"}}"#, 422, "card_number"),
        (&place("p2", 1), 409, "sequence_taken"),
        (r#"{"kind":"nope","payload":{}}"#, 400, "invalid"),
        (r#"{"kind":"raw","payload":{}}"#, 400, "invalid"),
        (r#"{"kind":"raw","key":"k","payload":{"a":1,"a":2}}"#, 400, "invalid"),
        (r#"{"kind":"raw","key":"k","payload":[]}"#, 400, "invalid"),
        (r#"{"kind":"raw","key":"k","payload":{},"colour":"red"}"#, 400, "invalid"),
        ("", 400, "invalid"),
        ("{", 400, "invalid"),
    ] {
        web.post("/v1/jobs", body).problem(status, code);
    }
    for (target, body, status, code) in [
        ("/v1/jobs/none/replay", "", 404, "not_found"),
        ("/v1/jobs/%2399/cancel", "{}", 404, "not_found"),
        ("/v1/jobs/payout%3AINV-1/replay", "", 409, "not_allowed"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"not_applied":true,"generation":1}"#, 409, "not_allowed"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"rejected":"no","generation":1}"#, 409, "not_allowed"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"settled":"x"}"#, 409, "not_allowed"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"not_applied":true}"#, 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"rejected":"no"}"#, 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"not_applied":true,"generation":"every"}"#, 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"not_applied":true,"generation":"1"}"#, 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"not_applied":true,"generation":-1}"#, 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/resolve", "{}", 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/resolve", r#"{"not_applied":true,"settled":"x"}"#, 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/confirm", r#"{"reference":"x"}"#, 409, "not_allowed"),
        ("/v1/jobs/payout%3AINV-1/confirm", "[\"x\"]", 400, "invalid"),
        ("/v1/jobs/payout%3AINV-1/note", r#"{"text":" "}"#, 400, "invalid"),
        ("/v1/providers/none/pause", "", 404, "not_found"),
        ("/v1/groups/g/resume", "\u{b}", 400, "invalid"),
    ] {
        web.post(target, body).problem(status, code);
    }
    for query in [
        "state=happy",
        "class=x",
        "limit=0",
        "limit=-1",
        "limit=1001",
        "limit=5&limit=6",
        "colour=red",
        "kind=nope",
    ] {
        web.get(&format!("/v1/jobs?{query}")).problem(400, "invalid");
    }
    web.get("/v1/jobs?after=none").problem(404, "not_found");
    let form = web.post_with("/v1/jobs", "Content-Type: application/x-www-form-urlencoded\r\n", &job(3));
    form.problem(415, "unsupported_media_type");
}

#[test]
fn the_idempotency_key_header_is_the_key() {
    let harness = scene();
    let web = harness.serve();
    let body = r#"{"kind":"raw","payload":{},"delay":"1h"}"#;
    let header = |key: &str| format!("Idempotency-Key: {key}\r\n");
    assert_eq!(web.post_with("/v1/jobs", &header("order/7 ä"), body).is(201)["key"], "order/7 ä");
    assert_eq!(web.get("/v1/jobs/order%2F7%20%C3%A4").is(200)["key"], "order/7 ä");
    let both = r#"{"kind":"raw","key":"a","payload":{}}"#;
    web.post_with("/v1/jobs", &header("b"), both).problem(400, "invalid");
    web.post_with("/v1/jobs", &header("a"), both).is(201);
    web.post_with("/v1/jobs", &(header("a") + &header("a")), both).problem(400, "invalid");
}

#[test]
fn every_change_is_in_the_history_with_who_and_from_where() {
    let harness = scene();
    let web = harness.serve();
    web.post("/v1/kinds/raw/pause", "").is(200);
    let named = "X-Onceward-Actor: Ada\u{7f} @home\r\n";
    web.post_with("/v1/jobs", named, r#"{"kind":"raw","key":"k","payload":{}}"#).problem(400, "invalid");
    let named = "X-Onceward-Actor: Ada @home\r\n";
    web.post_with("/v1/jobs", named, r#"{"kind":"raw","key":"k","payload":{}}"#).is(201);
    web.post("/v1/jobs/k/note", r#"{"text":"looked at it"}"#).is(200);
    assert_eq!(
        web.post("/v1/jobs/k/cancel", "").is(200),
        json!({ "key": "k", "state": "cancelled", "generation": 1 })
    );
    let job = web.get("/v1/jobs/k").is(200);
    let actors: Vec<&str> =
        job["history"].as_array().unwrap().iter().map(|row| row["actor"].as_str().unwrap()).collect();
    assert_eq!(actors, ["api:Ada home@127.0.0.1", "api:127.0.0.1", "api:127.0.0.1"]);
    let paused = web.post("/v1/kinds/raw/resume", r#"{"why":"done"}"#).is(200);
    assert_eq!(paused, json!({ "scope": "kind", "name": "raw", "state": "resumed", "changed": true }));
    let events = "SELECT count(*) FROM onceward_events WHERE actor = 'api:127.0.0.1' AND scope = 'kind'";
    assert_eq!(harness.count(events), 2);
}

#[test]
fn a_person_can_set_right_what_is_parked_over_the_api() {
    let harness = Scene::new(Family::A).with_http().start();
    let web = harness.serve();
    web.post("/v1/providers/bank/pause", "").is(200);
    web.post("/v1/jobs", &job(1)).is(201);
    web.post("/v1/jobs/%231/cancel", "").is(200);
    web.post("/v1/providers/bank/resume", "").is(200);
    // What was never sent may be amended and replayed; money only if that is said.
    let amended = payout(1).replace("1001", "1005");
    web.post("/v1/jobs/%231/replay", &format!(r#"{{"payload":{amended}}}"#)).problem(409, "not_allowed");
    web.post("/v1/jobs/%231/replay", &format!(r#"{{"payload":{amended},"amend_money":true}}"#)).is(200);
    let job = harness.show_until(&key(1), |job| job["state"] == "settled");
    assert_eq!(job["amount_minor"], 1005);
    let reference = job["intent"]["reference"].as_str().unwrap();
    web.post("/v1/jobs/%231/confirm", &format!(r#"{{"reference":"{reference}"}}"#)).is(200);
    web.post("/v1/jobs/%231/confirm", r#"{"reference":"another"}"#).problem(409, "not_allowed");
    assert_eq!(web.get("/v1/stats").is(200)["double_effects"], 1);
}

#[test]
fn a_batch_of_ten_thousand_lines_is_answered_line_by_line_in_order() {
    let harness = scene();
    let web = harness.serve();
    web.post("/v1/kinds/raw/pause", "").is(200);
    let line = |n: usize| match n {
        5000 => "not json\n".to_string(),
        5001 => "\n".to_string(),
        n => format!("{{\"kind\":\"raw\",\"key\":\"k{n}\",\"payload\":{{\"n\":{n}}}}}\n"),
    };
    let body: String = (1..=10_000).map(line).collect();
    let ndjson = "Content-Type: application/x-ndjson\r\n";
    for outcome in ["created", "duplicate"] {
        let answer = web.post_with("/v1/jobs/batch", ndjson, &body);
        assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/x-ndjson")));
        let text = answer.text();
        let answers: Vec<serde_json::Value> =
            text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(answers.len(), 9_999);
        for answer in &answers {
            let n = answer["line"].as_u64().unwrap() as usize;
            match n {
                5000 => assert_eq!(answer["error"]["code"], "invalid"),
                n => assert_eq!(
                    (&answer["outcome"], &answer["key"]),
                    (&json!(outcome), &json!(format!("k{n}")))
                ),
            }
        }
        assert!(answers.is_sorted_by_key(|a| a["line"].as_u64()));
    }
    assert_eq!(harness.count("SELECT count(*) FROM onceward_intents"), 9_998);
    // A body that breaks off keeps what was whole, says where it ended, and takes no half line.
    let cut =
        "{\"kind\":\"raw\",\"key\":\"x1\",\"payload\":{}}\n{\"kind\":\"raw\",\"key\":\"x2\",\"payload\":{}";
    let head = web.head("POST", "/v1/jobs/batch", &format!("Content-Length: {}\r\n", cut.len() + 1));
    let mut stream = web.connect();
    std::io::Write::write_all(&mut stream, (head + cut).as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let text = crate::harness::read_answer(&mut stream).unwrap().text();
    let answers: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(answers[0]["outcome"], "created");
    assert_eq!(
        (answers.len(), &answers[1]["line"], &answers[1]["error"]["code"]),
        (2, &json!(2), &json!("invalid"))
    );
}

#[test]
fn a_list_can_be_walked_page_by_page_and_filtered() {
    let harness = scene();
    let web = harness.serve();
    let body: String = (1..=130)
        .map(|n| {
            format!("{{\"kind\":\"raw\",\"key\":\"#{n}x\",\"payload\":{{\"n\":1.00}},\"delay\":\"1h\"}}\n")
        })
        .collect();
    web.post_with("/v1/jobs/batch", "", &body);
    let (mut keys, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = web.get(&format!("/v1/jobs?limit=60&state=scheduled{after}"));
        assert!(page.text().contains("\"payload\":{\"n\":1.00}"), "digits are kept");
        let page = page.is(200);
        keys.extend(page["jobs"].as_array().unwrap().iter().map(|j| j["key"].as_str().unwrap().to_string()));
        pages += 1;
        match page["next"].as_str() {
            None => break,
            Some(next) => {
                after = format!(
                    "&after={}",
                    percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC)
                )
            }
        }
    }
    assert_eq!((keys.len(), pages), (130, 3));
    assert_eq!(keys[129], "#130x");
    assert_eq!(web.get("/v1/jobs?limit=130").is(200)["next"], serde_json::Value::Null);
    assert_eq!(web.get("/v1/jobs?group=none&kind=raw").is(200), json!({ "jobs": [], "next": null }));
}

#[test]
fn the_server_says_whether_all_is_well_and_what_the_figures_are() {
    let harness = scene();
    let mut web = harness.serve();
    web.post("/v1/jobs", &job(1)).is(201);
    harness.show_until(&key(1), |job| job["state"] == "settled");
    let open = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", web.address);
    assert_eq!(web.raw(open.as_bytes()).unwrap().is(200), json!({ "status": "ok" }));
    let mut stats = web.get("/v1/stats").is(200);
    let mut cli = harness.stats();
    for both in [&mut stats, &mut cli] {
        both["wal_bytes"] = json!(0);
    }
    assert_eq!(stats, cli);
    let metrics = web.get("/metrics");
    let text = metrics.text();
    check_format(&text);
    check_with_promtool(&text);
    for line in [
        r#"onceward_jobs{state="settled"} 1.0"#,
        r#"onceward_attempts_total{kind="payout",provider="bank",class="ok"} 1"#,
        r#"onceward_confirmation_gap_seconds_bucket{le="+Inf",kind="payout",provider="bank"} 1"#,
        r#"onceward_provider_state{provider="bank",state="ok"} 1.0"#,
        "onceward_double_effects_total 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("INV-1"), "no label holds a key");
    let kept = web.get("/openapi.json").is(200);
    assert_eq!(kept["openapi"], "3.1.0");
    web.worker.kill9();
}

#[test]
fn the_head_of_line_delay_is_a_figure_while_a_group_waits() {
    let harness = scene();
    let web = harness.serve();
    let figure = |name: &str| -> f64 {
        let text = web.get("/metrics").text();
        let line =
            text.lines().find(|l| l.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(figure("onceward_head_of_line_delay_seconds"), 0.0);
    // Place 1 never arrives.
    harness.enqueue("payout", &payout(1), &["--group", "till", "--sequence", "2"]).ok();
    let start = std::time::Instant::now();
    while figure("onceward_head_of_line_delay_seconds") == 0.0 {
        assert!(start.elapsed() < crate::harness::LIMIT);
    }
    assert_eq!((figure("onceward_blocked_groups"), figure("onceward_blocked_jobs")), (1.0, 1.0));
    harness.run(&["group", "skip", "till", "--sequence", "1"]).ok();
    harness.show_until(&key(1), |job| job["state"] == "settled");
    assert_eq!(figure("onceward_head_of_line_delay_seconds"), 0.0);
}

/// The format's own checker, where it is installed (Debian's package prometheus).
#[track_caller]
fn check_with_promtool(text: &str) {
    use std::process::{Command, Stdio};
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED promtool check metrics: promtool is not installed");
        return;
    };
    // It knows the older text format, in which a counter is announced under the name of its sample.
    let counters: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let plain: String = text
        .lines()
        .filter(|l| *l != "# EOF" && !l.starts_with("# UNIT"))
        .map(|l| match l.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", what, name, rest] if counters.contains(&name) => format!("# {what} {name}_total {rest}\n"),
            _ => format!("{l}\n"),
        })
        .collect();
    std::io::Write::write_all(&mut child.stdin.take().expect("its input"), plain.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{plain}");
}

/// What `promtool check metrics` looks at: each series is announced once with help and type, before its samples; no
/// sample comes twice; every value is a number; the text ends where it says so.
#[track_caller]
fn check_format(text: &str) {
    let mut types = std::collections::BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|l| *l != "# EOF") {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap();
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name.to_string(), kind.to_string()).is_none(), "{line} comes twice");
            continue;
        }
        if line.starts_with("# ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok_and(|v| v.is_finite()), "{line}");
        assert!(seen.insert(series.to_string()), "{line} comes twice");
        let name = series.split('{').next().unwrap();
        let base = ["_total", "_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s));
        let kind = types.get(base.unwrap_or(name)).or_else(|| types.get(name));
        assert!(kind.is_some() && name.starts_with("onceward_"), "{line} was not announced");
    }
}

#[test]
fn the_log_has_a_line_a_decision_with_key_class_and_next_time_and_no_payload() {
    let harness = Scene::new(Family::A).start();
    harness.payout(1);
    let worked = harness.run_with(&["work", "--exit-when-idle"], &[("ONCEWARD_LOG_FORMAT", "json")]).ok();
    let lines: Vec<serde_json::Value> = worked
        .stderr
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")))
        .collect();
    let settled: Vec<_> = lines.iter().filter(|l| l["key"] == key(1).as_str()).collect();
    assert_eq!(settled.len(), 1, "{}", worked.stderr);
    assert_eq!((&settled[0]["class"], &settled[0]["state"]), (&json!("ok"), &json!("settled")));
    assert!(!worked.stderr.contains("amount_minor"), "{}", worked.stderr);
}

#[test]
fn stats_watch_tells_the_figures_again_and_again() {
    use std::io::BufRead;
    let harness = Scene::new(Family::A).start();
    let mut child =
        harness.plain_command(&["stats", "--watch"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let mut settled = || {
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["jobs"]["settled"].as_u64().unwrap()
    };
    assert_eq!(settled(), 0);
    harness.payout(1);
    harness.work_until_idle();
    let start = std::time::Instant::now();
    while settled() != 1 {
        assert!(start.elapsed() < crate::harness::LIMIT, "the figures never changed");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
