//! The console over raw sockets: who gets in, what a change needs, and what every answer carries.

use crate::harness::{Answer, Harness, LIMIT, Scene, TOKEN, Web};
use onceward::demo::provider::{Family, Fault};
use std::time::Instant;

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const PAGES: [&str; 12] = [
    "/",
    "/?span=30d",
    "/doubt",
    "/parked",
    "/parked/replay?reason=rejected&which=all",
    "/jobs",
    "/jobs?state=ready&kind=payout",
    "/job/1",
    "/providers",
    "/groups",
    "/audit",
    "/audit?of=events",
];

/// Somebody who is logged in.
struct Person<'w> {
    web: &'w Web,
    cookie: String,
}

fn login(web: &Web, token: &str) -> Answer {
    let body = format!("token={token}");
    let request = format!(
        "POST /login HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        web.address,
        body.len()
    );
    web.raw(request.as_bytes()).expect("an answer to the login")
}

impl<'w> Person<'w> {
    #[track_caller]
    fn enter(web: &'w Web) -> Person<'w> {
        let answer = login(web, TOKEN);
        assert_eq!((answer.status, answer.field("location")), (303, Some("/")), "{answer}");
        let cookie = answer.field("set-cookie").expect("a cookie").split(';').next().unwrap_or_default();
        Person { web, cookie: cookie.to_string() }
    }

    fn ask(&self, method: &str, target: &str, fields: &str, body: &str) -> Answer {
        let length =
            if method == "POST" { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n{length}{fields}\r\n{body}",
            self.web.address, self.cookie
        );
        self.web.raw(request.as_bytes()).unwrap_or_else(|| panic!("no answer to {method} {target}"))
    }

    fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "", "")
    }

    fn post(&self, target: &str, fields: &str, body: &str) -> Answer {
        let fields = format!("Content-Type: application/x-www-form-urlencoded\r\n{fields}");
        self.ask("POST", target, &fields, body)
    }

    /// What a form of this session must carry.
    #[track_caller]
    fn csrf(&self) -> String {
        let page = self.get("/");
        assert_eq!(page.status, 200, "{page}");
        let text = page.text();
        let (_, rest) = text.split_once("name=\"csrf\" value=\"").expect("a CSRF token on the page");
        rest.split('"').next().unwrap_or_default().to_string()
    }
}

fn scene() -> Harness {
    Scene::new(Family::B).with_lookup(true).with_http().start()
}

/// A worker with one refused job, number 1.
fn refused(harness: &Harness) -> String {
    harness.env("API_TOKEN", TOKEN);
    harness.provider.script(vec![Fault::ErrorBefore(422)]);
    let key = harness.payout(1);
    harness.work_until_idle();
    harness.assert_parked(&key, "rejected", "rejected");
    key
}

fn history_rows(harness: &Harness) -> i64 {
    harness.count("SELECT (SELECT count(*) FROM onceward_history) + (SELECT count(*) FROM onceward_events)")
}

#[test]
fn a_session_begins_with_the_token_and_its_cookie_is_for_this_site_only() {
    let harness = scene();
    let web = harness.serve();
    let denied = login(&web, "wrong");
    assert_eq!(denied.status, 401, "{denied}");
    assert_eq!((denied.field("set-cookie"), denied.field("www-authenticate")), (None, None));
    let told = |action: &str| {
        let sql = format!(
            "SELECT count(*) FROM onceward_events WHERE action = '{action}' AND origin = '127.0.0.1'"
        );
        harness.count(&sql)
    };
    assert_eq!((told("denied"), told("login")), (1, 0));
    let answer = login(&web, TOKEN);
    let cookie = answer.field("set-cookie").expect("a cookie");
    let (name, rest) = cookie.split_once('=').expect("name=value");
    let (id, attributes) = rest.split_once("; ").expect("attributes");
    assert_eq!(name, format!("onceward_{}", web.address.port()));
    assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{cookie}");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict");
    assert!(!answer.to_string().contains(TOKEN));
    assert_eq!((told("denied"), told("login")), (1, 1));
    let person = Person::enter(&web);
    assert_eq!(person.get("/").status, 200);
    // The session is nobody's key to the API, and the token in a cookie is no session.
    assert_eq!(person.get("/v1/stats").status, 401);
    let forged = Person { web: &web, cookie: format!("{name}={TOKEN}") };
    assert_eq!(forged.get("/").status, 303);
}

#[test]
fn behind_a_proxy_with_tls_the_cookie_is_secure() {
    let scene = Scene::new(Family::B).with_http().set(|s| {
        s.tables = s.tables.replace("[http]\n", "[http]\nbehind_proxy = true\n");
    });
    let harness = scene.start();
    let web = harness.serve();
    let answer = login(&web, TOKEN);
    assert!(answer.field("set-cookie").is_some_and(|c| c.ends_with("; SameSite=Strict; Secure")), "{answer}");
}

#[test]
fn wrong_tokens_make_their_address_wait() {
    let harness = scene();
    let web = harness.serve();
    let statuses: Vec<u16> = (0..9).map(|n| login(&web, &format!("wrong-{n}")).status).collect();
    assert_eq!(statuses[..5], [401; 5]);
    assert!(statuses[5..].contains(&429), "{statuses:?}");
    let waits = login(&web, TOKEN);
    assert_eq!(waits.status, 429, "nothing is compared while an address waits: {waits}");
    assert!(waits.field("retry-after").is_some());
}

#[test]
fn without_a_session_every_page_leads_to_the_login_and_no_change_is_made() {
    let harness = scene();
    let key = refused(&harness);
    let web = harness.serve();
    let nobody = Person { web: &web, cookie: "onceward_1=abc".into() };
    for page in PAGES.iter().chain(&["/audit.jsonl", "/job/1?x=<b>"]) {
        let answer = nobody.get(page);
        assert_eq!(answer.status, 303, "{page}: {answer}");
        let to = answer.field("location").unwrap_or_default();
        assert!(to == "/login" || to.starts_with("/login?next=%2F"), "{page}: {to}");
        assert!(answer.body.is_empty());
    }
    let rows = history_rows(&harness);
    let answer = nobody.post("/job/1/replay", "", "csrf=");
    assert_eq!((answer.status, answer.field("location")), (303, Some("/login")));
    assert_eq!(history_rows(&harness), rows);
    harness.assert_parked(&key, "rejected", "rejected");
    // Where to go after the login is one of our own pages or none.
    for next in
        ["//evil.example", "https://evil.example", "/\\evil.example", "/%0d%0aSet-Cookie:x", "javascript:1"]
    {
        let body = format!("token={TOKEN}&next={next}");
        let answer = nobody.post("/login", "", &body);
        assert_eq!((answer.status, answer.field("location")), (303, Some("/")), "{next}");
    }
}

#[test]
fn a_change_needs_the_sessions_own_token_and_this_sites_origin() {
    let harness = scene();
    let key = refused(&harness);
    let web = harness.serve();
    let person = Person::enter(&web);
    let (csrf, other) = (person.csrf(), Person::enter(&web).csrf());
    assert_ne!(csrf, other);
    let rows = history_rows(&harness);
    let evil = "Origin: http://evil.example\r\n";
    let right =
        format!("csrf={csrf}&scope=provider&name=bank&sequence=1&id=1&text=x&reference=r&answer=settled");
    for path in [
        "/job/1/replay",
        "/job/1/resolve",
        "/job/1/cancel",
        "/job/1/confirm",
        "/job/1/note",
        "/parked/replay",
        "/pause",
        "/resume",
        "/groups/skip",
        "/logout",
    ] {
        for (fields, body) in [
            ("", String::new()),
            ("", "csrf=".to_string()),
            ("", format!("csrf={other}&name=bank&scope=provider&id=1&text=x")),
            (evil, right.clone()),
            ("Origin: null\r\n", right.clone()),
            ("Sec-Fetch-Site: cross-site\r\n", right.clone()),
            ("Sec-Fetch-Site: same-site\r\n", right.clone()),
        ] {
            let answer = person.post(path, fields, &body);
            assert_eq!(answer.status, 403, "{path} {fields} {body}: {answer}");
        }
        let json = person.ask("POST", path, "Content-Type: text/plain\r\n", &right);
        assert_eq!(json.status, 415, "{path}: {json}");
    }
    assert_eq!(history_rows(&harness), rows, "nothing of that is in the history");
    assert_eq!(login(&web, TOKEN).status, 303);
    let foreign = person.post("/login", evil, &format!("token={TOKEN}"));
    assert_eq!(foreign.status, 403);
    let done = person.post(
        "/job/1/note",
        &format!("Origin: http://{}\r\n", web.address),
        &format!("csrf={csrf}&text=seen"),
    );
    assert_eq!((done.status, done.field("location")), (303, Some("/job/1?done=note")), "{done}");
    let job = harness.show(&key);
    let note = job["history"].as_array().and_then(|h| h.last()).expect("a row");
    assert_eq!((&note["action"], &note["actor"]), (&"note".into(), &"console:127.0.0.1".into()));
}

#[test]
fn every_answer_forbids_what_is_inline_and_every_get_leaves_the_file_as_it_was() {
    let harness = scene();
    refused(&harness);
    let web = harness.serve();
    let person = Person::enter(&web);
    let digest = || {
        harness.count(
            "SELECT (SELECT count(*) FROM onceward_history) * 1000003 + (SELECT coalesce(sum(updated_ms), 0) FROM onceward_jobs)
               + (SELECT count(*) FROM onceward_events WHERE action <> 'audit') * 7 + (SELECT count(*) FROM onceward_holds WHERE paused_ms IS NOT NULL)",
        )
    };
    // That somebody took the audit away is on record; nothing else is written by reading.
    let before = digest();
    let style = person.get("/").text();
    let asset =
        style.split("href=\"").find(|part| part.starts_with("/assets/style-")).expect("a style sheet");
    let asset = asset.split('"').next().unwrap_or_default().to_string();
    let more = [
        "/login",
        "/audit.jsonl",
        "/job/99",
        "/favicon.ico",
        "/logout",
        "/pause",
        "/groups/skip",
        "/job/1/replay",
    ];
    for page in PAGES.iter().chain(&more).copied().chain([asset.as_str()]) {
        for method in ["GET", "HEAD"] {
            let answer = person.ask(method, page, "", "");
            assert!([200, 404].contains(&answer.status), "{page}: {answer}");
            assert_eq!(answer.field("content-security-policy"), Some(POLICY), "{page}");
            assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{page}");
            assert_eq!(answer.field("x-frame-options"), Some("DENY"), "{page}");
            assert_eq!(answer.field("referrer-policy"), Some("same-origin"), "{page}");
            let kept = page.starts_with("/assets/") || page == "/favicon.ico";
            assert_eq!(answer.field("cache-control") == Some("no-store"), !kept, "{page}: {answer}");
            let text = answer.text();
            let inline = text.contains(" style=") || text.contains("<script>") || text.contains(" onclick");
            assert!(!inline || page.contains("assets"), "{page}");
        }
    }
    assert_eq!(digest(), before);
    assert_eq!(person.ask("DELETE", "/job/1", "", "").status, 405);
}

#[test]
fn a_logout_and_a_changed_token_end_the_session() {
    let harness = scene();
    let token = harness.dir.path().join("token.txt");
    std::fs::write(&token, TOKEN).expect("a token");
    let text = harness.scene.text().replace("{ env = \"API_TOKEN\" }", "{ file = \"token.txt\" }");
    harness.config(&text);
    let web = harness.serve();
    let (one, two) = (Person::enter(&web), Person::enter(&web));
    let left = one.post("/logout", "", &format!("csrf={}", one.csrf()));
    assert_eq!(left.status, 303, "{left}");
    assert!(left.field("set-cookie").is_some_and(|c| c.contains("Max-Age=0")), "{left}");
    assert_eq!((one.get("/").status, two.get("/").status), (303, 200));
    std::fs::write(&token, "another-token-0123456789").expect("a token");
    assert_eq!(two.get("/").status, 303);
    std::fs::write(&token, TOKEN).expect("a token");
    assert_eq!(two.get("/").status, 303, "what is over stays over");
}

#[test]
fn the_console_does_what_the_command_line_does_and_says_who() {
    let harness = scene();
    let key = refused(&harness);
    let web = harness.serve();
    let person = Person::enter(&web);
    let csrf = person.csrf();
    // A replay of some by a page that asks first.
    let asks = person.get("/parked/replay?reason=rejected&which=some&id=1").text();
    assert!(asks.contains("Put 1 job back to work?") && asks.contains("under a new key"), "{asks}");
    let done = person.post("/parked/replay", "", &format!("csrf={csrf}&reason=rejected&id=1&id=1&id=77"));
    assert_eq!(done.status, 200, "{done}");
    assert!(
        done.text().contains("1 job is</h1>") || done.text().contains("1 job is back at work."),
        "{done}"
    );
    assert!(done.text().contains("#77"), "what could not be replayed is named: {done}");
    harness.show_until(&key, |job| job["state"] == "settled");
    // What the state does not allow is said on the job's page, and nothing happens.
    let not = person.post("/job/1/cancel", "", &format!("csrf={csrf}"));
    assert_eq!(not.status, 409, "{not}");
    assert!(not.text().contains("is settled, for ever"), "{not}");
    // An answer that could double an effect needs the word that somebody has looked.
    let unsure = person.post("/job/1/resolve", "", &format!("csrf={csrf}&answer=not-applied"));
    assert_eq!(unsure.status, 400, "{unsure}");
    for (path, form, to) in [
        ("/pause", "scope=provider&name=bank&why=noon", "/providers?done=pause"),
        ("/pause", "scope=provider&name=bank", "/providers?done=paused-before"),
        ("/resume", "scope=provider&name=bank", "/providers?done=resume"),
        ("/pause", "scope=group&name=a%3A1", "/groups?name=a%3A1&done=pause"),
    ] {
        let answer = person.post(path, "", &format!("csrf={csrf}&{form}"));
        assert_eq!((answer.status, answer.field("location")), (303, Some(to)), "{answer}");
    }
    let who = harness
        .count("SELECT count(*) FROM onceward_events WHERE actor = 'console:127.0.0.1' AND why IS 'noon'");
    assert_eq!(who, 1);
    let exported = person.get("/audit.jsonl?actor=console").text();
    let lines: Vec<serde_json::Value> =
        exported.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines.len(), 1, "{exported}");
    assert_eq!((&lines[0]["key"], &lines[0]["action"]), (&key.as_str().into(), &"replay".into()));
}

/// R50, at the doors: a provider that repeats the credential brings it onto no page, figure, answer or copy.
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
    for n in 1..=3 {
        harness.payout(n);
    }
    for n in 1..=2 {
        harness.show_until(&crate::harness::key(n), |job| job["state"] == "parked");
    }
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
