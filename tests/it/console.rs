//! The console over raw sockets: who gets in, what a change needs, and what every answer carries.

use crate::harness::{Harness, Person, Scene, TOKEN, login};
use onceward::demo::provider::{Family, Fault};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

pub const PAGES: [&str; 13] = [
    "/",
    "/?span=30d",
    "/doubt",
    "/parked",
    "/parked/replay?reason=rejected&which=all",
    "/jobs",
    "/jobs?state=ready&kind=payout",
    "/job/1",
    "/job/1/payload.json",
    "/providers",
    "/groups",
    "/audit",
    "/audit?of=events",
];

pub fn scene() -> Harness {
    Scene::new(Family::B).with_lookup(true).with_http().start()
}

/// A worker with one refused job, number 1.
pub fn refused(harness: &Harness) -> String {
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
fn wrong_tokens_make_their_address_wait_and_the_right_one_logs_in_all_the_same() {
    let harness = scene();
    let web = harness.serve();
    let statuses: Vec<u16> = (0..9).map(|n| login(&web, &format!("wrong-{n}")).status).collect();
    assert_eq!(statuses[..5], [401; 5]);
    assert!(statuses[5..].contains(&429), "{statuses:?}");
    let waits = login(&web, "wrong-10");
    assert_eq!(waits.status, 429, "{waits}");
    assert!(waits.field("retry-after").is_some());
    assert_eq!(login(&web, TOKEN).status, 303);
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
            assert!([200, 404, 405].contains(&answer.status), "{page}: {answer}");
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
    assert!(asks.contains("Put 1 job back to work?") && asks.contains("under the same key"), "{asks}");
    let done = person.post("/parked/replay", "", &format!("csrf={csrf}&reason=rejected&id=1&id=1&id=77"));
    assert_eq!(done.status, 200, "{done}");
    assert!(
        done.text().contains("1 job is</h1>") || done.text().contains("1 job is back at work."),
        "{done}"
    );
    assert!(done.text().contains("#77"), "what could not be replayed is named: {done}");
    let job = harness.show_until(&key, |job| job["state"] == "settled");
    assert_eq!(job["intent"]["generation"], 1, "as the page said");
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

#[test]
fn a_session_is_written_down_nowhere() {
    let harness = scene();
    let web = harness.serve();
    let person = Person::enter(&web);
    let csrf = person.csrf();
    let (_, id) = person.cookie.split_once('=').expect("name=value");
    for file in std::fs::read_dir(harness.dir.path()).expect("the folder").flatten() {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        for secret in [id, csrf.as_str()] {
            let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
            assert!(!found, "a session is in {}", file.path().display());
        }
    }
}
