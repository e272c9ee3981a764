//! What the console's pages show, hide and bear.

use super::console::{PAGES, refused, scene};
use crate::harness::{LIMIT, Person, Scene};
use onceward::demo::provider::{Family, Fault};
use std::time::Instant;

/// R46 and R49
#[test]
fn a_jobs_page_shows_every_digit_and_a_list_carries_no_payload() {
    let harness = scene();
    let digits = ["1970670598291982290", "18446744073709551616", "0.1000", "1e400"];
    let numbers = format!(r#"{{"id":{},"u":{},"d":{},"e":{}}}"#, digits[0], digits[1], digits[2], digits[3]);
    harness.enqueue("raw", &numbers, &["--key", "numbers", "--delay", "9h"]).ok();
    let big =
        format!("{{\"kind\":\"raw\",\"delay\":\"9h\",\"payload\":{{\"a\":\"{}\"}}", "x".repeat(250_000));
    let lines: String = (0..40).map(|n| format!("{big},\"key\":\"big-{n}\"}}\n")).collect();
    std::fs::write(harness.dir.path().join("jobs.jsonl"), lines).unwrap();
    harness.run(&["import", "jobs.jsonl"]).ok();
    let web = harness.serve();
    let person = Person::enter(&web);
    let page = person.get("/job/1").text();
    assert!(digits.iter().all(|d| page.contains(d)), "{page}");
    for list in ["/jobs", "/jobs?kind=raw", "/", "/parked"] {
        let text = person.get(list).text();
        assert!(text.len() < 150_000, "{list} has {} bytes", text.len());
    }
    assert!(person.get("/jobs").text().contains("big-39"));
}

/// R49: the culprit can be inspected, and taken away whole.
#[test]
fn a_long_payload_is_shown_from_its_beginning_and_all_of_it_is_a_file_behind_the_same_guard() {
    let harness = scene();
    let short = r#"{"a": 1.50,"api_key":"k-12345"}"#;
    let long = format!(r#"{{"first":"here","text":"{}","last":"there"}}"#, "x".repeat(200_000));
    // Set out in lines it would have many megabytes.
    let deep = format!(r#"{{"deep":{}{}{}}}"#, "[".repeat(60), vec!["1"; 60_000].join(","), "]".repeat(60));
    let payloads = [short, &long, &deep];
    for (n, payload) in (1..).zip(payloads) {
        std::fs::write(harness.dir.path().join("payload"), payload).unwrap();
        let key = format!("raw:{n}");
        harness.run(&["enqueue", "raw", "--payload-file", "payload", "--key", &key, "--delay", "9h"]).ok();
    }
    let web = harness.serve();
    let person = Person::enter(&web);
    for (n, payload) in (1..).zip(payloads) {
        let page = person.get(&format!("/job/{n}")).text();
        assert_eq!(page.contains("This is its beginning."), n > 1, "{page}");
        assert!(page.len() < 40_000, "{} bytes", page.len());
        assert!(!page.contains("k-12345") && !page.contains("there"), "{page}");
        let target = format!("/job/{n}/payload.json");
        assert!(page.contains(&format!("href=\"{target}\"")), "{page}");
        let file = person.get(&target);
        assert!(file.text() == payload, "not the same bytes: {:.300}", file.text());
        assert_eq!(file.field("content-type"), Some("application/json"));
        let name = format!("attachment; filename=\"onceward-job-{n}.json\"");
        assert_eq!(file.field("content-disposition"), Some(name.as_str()));
        let nobody = Person { web: &web, cookie: "none=1".into() };
        assert_eq!(nobody.get(&target).status, 303, "a login comes first");
    }
    assert!(person.get("/job/2").text().contains("here"));
    assert_eq!(person.get("/job/99/payload.json").status, 404);
}

/// R50, at the doors: a provider that repeats the credential brings it onto no page, figure, answer or copy.
#[test]
fn a_credential_that_a_provider_repeats_is_on_no_page_figure_answer_or_copy() {
    const CANARY: &str = "sk-canary-5d41402abc4b2a76";
    let scene = Scene::new(Family::B).with_http().set(|s| {
        s.provider += "\nauth = { bearer = { env = \"CANARY\" } }";
    });
    let harness = scene.start();
    harness.env("CANARY", CANARY);
    let echo = |status: u16| {
        let body =
            format!("{{\"error\":{{\"message\":\"{CANARY} is wrong\"}},\"sent\":\"Bearer {CANARY}\"}}");
        Fault::Answer(onceward::demo::provider::Answer::json(status, body))
    };
    harness.provider.script(vec![echo(422), echo(302), echo(401)]);
    let web = harness.serve();
    // One after the other, so that each meets the answer that is meant for it.
    for n in 1..=2 {
        harness.payout(n);
        harness.show_until(&crate::harness::key(n), |job| job["state"] == "parked");
    }
    harness.payout(3);
    let person = Person::enter(&web);
    let mut seen = String::new();
    for page in PAGES.iter().chain(&["/job/2", "/job/3", "/audit/export"]) {
        seen += &person.get(page).text();
    }
    for path in ["/metrics", "/v1/stats", "/v1/jobs", "/openapi.json", "/nowhere"] {
        seen += &web.get(path).text();
    }
    for n in 1..=3 {
        seen += &web.get(&format!("/v1/jobs/payout%3AINV-{n}")).text();
    }
    seen += &harness.run(&["backup", "copy.db"]).to_string();
    assert!(seen.contains("is wrong"), "the provider's words are shown");
    assert!(!seen.contains(CANARY), "{}", seen.lines().find(|l| l.contains(CANARY)).unwrap_or_default());
    for file in std::fs::read_dir(harness.dir.path()).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap();
        let found = bytes.windows(CANARY.len()).any(|w| w == CANARY.as_bytes());
        assert!(!found, "it is in {}", file.path().display());
    }
}

#[test]
fn no_page_fails_whatever_it_is_asked() {
    let harness = scene();
    refused(&harness);
    let web = harness.serve();
    let person = Person::enter(&web);
    let csrf = person.csrf();
    let junk = [
        "",
        "%00",
        "-1",
        "99999999999999999999",
        "%F0%9F%92%A5",
        "%27%22%3E%3Cscript%3E",
        "a%0D%0Ab",
        "9223372036854775807",
        "2026-13-45T99:99",
        "%2e%2e",
        "+",
    ];
    let names = [
        "state", "kind", "group", "class", "q", "by", "at", "id", "seq", "key", "actor", "from", "to",
        "name", "after", "reason", "which", "span", "done", "of",
    ];
    for page in [
        "/",
        "/doubt",
        "/parked",
        "/parked/replay",
        "/jobs",
        "/providers",
        "/groups",
        "/audit",
        "/audit.jsonl",
        "/login",
    ] {
        for value in junk {
            let query: Vec<String> = names.iter().map(|name| format!("{name}={value}")).collect();
            for query in [
                query.join("&"),
                format!("{}&{}", query[6], query[7]),
                query[4].clone(),
                query[9].clone(),
                query[13].clone(),
            ] {
                let answer = person.get(&format!("{page}?{query}"));
                assert!(answer.status < 500, "{page}?{query}: {answer}");
                assert!(!answer.text().contains("<script>"), "{page}?{query}");
            }
        }
    }
    for value in junk {
        for path in [
            format!("/job/{value}"),
            format!("/job/{value}/replay"),
            format!("/assets/{value}"),
            format!("/job/1/{value}"),
        ] {
            assert!(person.get(&path).status < 500, "{path}");
            let form = format!(
                "csrf={csrf}&scope={value}&name={value}&sequence={value}&id={value}&text={value}&answer={value}&reference={value}"
            );
            for to in [path.as_str(), "/pause", "/groups/skip", "/parked/replay", "/job/1/resolve"] {
                let answer = person.post(to, "", &form);
                assert!(answer.status < 500, "{to} {form}: {answer}");
            }
        }
    }
    let long = "x".repeat(100_000);
    assert_eq!(person.post("/pause", "", &format!("csrf={csrf}&why={long}")).status, 413);
}

#[test]
fn every_page_answers_over_a_hundred_thousand_jobs() {
    let harness = Scene::new(Family::B).with_http().start();
    refused(&harness);
    let mut db = rusqlite::Connection::open(harness.dir.path().join("onceward.db")).expect("the file opens");
    let tx = db.transaction().expect("a transaction");
    tx.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 100009)
         INSERT INTO onceward_intents (id, key, kind, content_hash, payload_hash, account, amount_minor, currency, provider,
             state, wire_key, created_ms)
           SELECT i, 'bulk:' || i, 'payout', zeroblob(32), zeroblob(32), 'a' || (i % 1000), i, 'EUR', 'bank', 'cancelled', 'w', i FROM n;
         INSERT INTO onceward_jobs (id, kind, payload, state, run_after_ms, max_attempts, created_ms, updated_ms)
           SELECT id, kind, '{}', 'cancelled', id, 3, id, id FROM onceward_intents WHERE id >= 10;
         INSERT INTO onceward_history (job_id, action, at_ms, actor, content_hash, chain)
           SELECT id, 'cancel', id, 'cli:x', zeroblob(32), zeroblob(32) FROM onceward_intents WHERE id >= 10;
         INSERT INTO onceward_counters (name, value) VALUES ('jobs:cancelled', 100000);",
    )
    .expect("a hundred thousand jobs");
    tx.commit().expect("a commit");
    drop(db);
    let web = harness.serve();
    let person = Person::enter(&web);
    let more = [
        "/jobs?state=settled",
        "/jobs?q=bulk%3A5",
        "/jobs?q=a7&by=account",
        "/jobs?class=timeout",
        "/audit?actor=nobody",
        "/jobs?kind=raw",
    ];
    for page in PAGES.iter().chain(&more) {
        let begun = Instant::now();
        let answer = person.get(page);
        assert_eq!(answer.status, 200, "{page}: {answer}");
        // Not a measure of speed: a page that reads the whole file would still come, and the plans are tested in the store.
        assert!(
            begun.elapsed() < LIMIT && answer.body.len() < 300_000,
            "{page}: {} bytes",
            answer.body.len()
        );
    }
    // From page to page, by what stands at the end of each.
    let mut next = Some("/jobs?state=cancelled&kind=payout".to_string());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let text = person.get(&next.take().expect("a next page")).text();
        let ids = text.split("href=\"/job/").skip(1).filter_map(|rest| rest.split('"').next());
        ids.for_each(|id| assert!(seen.insert(id.to_string()), "{id} comes twice"));
        let link = text.split("href=\"/jobs?").skip(1).find(|rest| rest.contains("Next page"));
        next = link
            .and_then(|rest| rest.split('"').next())
            .map(|query| format!("/jobs?{}", query.replace("&amp;", "&")));
    }
    assert_eq!(seen.len(), 200);
}

/// Whatever is asked of a page or said in a form: no 5xx, nothing of it unescaped, and the worker goes on.
#[test]
fn no_input_makes_a_page_fail() {
    const PIECES: [&str; 24] = [
        "",
        "%00",
        "%0d%0a",
        "%zz",
        "%",
        "..",
        "%2e%2e",
        "<script>x</script>",
        "%3Cscript%3Ex%3C/script%3E",
        "'\"",
        "#1",
        "1",
        "-1",
        "99999999999999999999",
        "9223372036854775807",
        "2026-11-29",
        "2026-02-30T25:61",
        "ready",
        "rejected",
        "payout",
        "bank",
        "%F0%9F%98%80",
        "é",
        "a=b&c",
    ];
    const NAMES: [&str; 22] = [
        "state",
        "kind",
        "reason",
        "which",
        "of",
        "key",
        "actor",
        "from",
        "to",
        "at",
        "seq",
        "span",
        "name",
        "scope",
        "sequence",
        "why",
        "note",
        "answer",
        "reference",
        "text",
        "id",
        "after",
    ];
    const PATHS: [&str; 18] = [
        "/",
        "/doubt",
        "/parked",
        "/parked/replay",
        "/jobs",
        "/job/1",
        "/job/1/note",
        "/job/1/resolve",
        "/job/1/replay",
        "/job/1/cancel",
        "/job/1/confirm",
        "/providers",
        "/groups",
        "/groups/skip",
        "/audit",
        "/audit.jsonl",
        "/pause",
        "/resume",
    ];
    let times: u32 = std::env::var("ONCEWARD_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let harness = scene();
    refused(&harness);
    let web = harness.serve();
    let person = Person::enter(&web);
    let csrf = person.csrf();
    let mut rng = fastrand::Rng::with_seed(20_261_129);
    for n in 0..700 * times {
        let pick = |rng: &mut fastrand::Rng, all: &[&'static str]| all[rng.usize(..all.len())];
        let mut path = pick(&mut rng, &PATHS).to_string();
        if rng.u8(..4) == 0 {
            path = format!(
                "{path}/{}",
                pick(&mut rng, &PIECES).replace(['#', ' ', '<', '>', '"', 'é', '?'], "x")
            );
        }
        let pairs: Vec<String> = (0..rng.usize(..5))
            .map(|_| {
                format!("{}={}{}", pick(&mut rng, &NAMES), pick(&mut rng, &PIECES), pick(&mut rng, &PIECES))
            })
            .collect();
        let pairs = pairs.join("&");
        let answer = match rng.bool() {
            true => {
                let query: String =
                    pairs.chars().filter(|c| c.is_ascii_graphic() && !"#<>\"".contains(*c)).collect();
                person.get(&format!("{path}?{query}"))
            }
            false => {
                let csrf = if rng.u8(..8) == 0 { "wrong" } else { &csrf };
                person.post(&path, "", &format!("csrf={csrf}&{pairs}"))
            }
        };
        assert!(answer.status < 500, "case {n}: {path} {pairs}: {answer}");
        let is_page = answer.field("content-type").is_some_and(|of| of.starts_with("text/html"));
        assert!(!is_page || !answer.text().contains("<script>x"), "case {n}: {path} {pairs}: {answer}");
    }
    assert_eq!(person.get("/").status, 200);
    let log = std::fs::read_to_string(harness.dir.path().join("workers.log")).expect("the log");
    assert!(!log.contains("panick"), "{log}");
    assert_eq!(harness.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// A key, a group, an account, a payload and a provider's words, on every page.
#[test]
fn what_others_wrote_is_text_on_every_page() {
    const EVIL: &str = "<script>x</script>";
    let harness = scene();
    let body = format!(r#"{{"error":{{"message":"{EVIL}"}}}}"#);
    harness.provider.script(vec![Fault::Answer(onceward::demo::provider::Answer::json(422, body))]);
    let payload = format!(r#"{{"a":"{EVIL}"}}"#);
    harness.enqueue("raw", &payload, &["--key", EVIL, "--group", EVIL, "--account", EVIL]).ok();
    let web = harness.serve();
    harness.show_until(EVIL, |job| job["state"] == "parked");
    let person = Person::enter(&web);
    let pages = PAGES.iter().filter(|page| !page.ends_with(".json"));
    let seen: String = pages.map(|page| person.get(page).text()).collect();
    assert!(seen.contains("&lt;script&gt;x") && !seen.contains("<script>x"), "{seen}");
}
