//! Each secret in each form through each field of a reply, at every family: it is nowhere afterwards.

use crate::harness::{Got, Harness, LIMIT, Person, Scene, Script, TOKEN, key, payout};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use onceward::demo::provider::Family;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SECRET: &str = "sk_live_0123456789/abcdef+GEHEIM=";
const USER: &str = "key_id_of_the_till_4711";

/// A secret as it may come back. All can stand in a JSON string as they are.
fn forms(secret: &str) -> Vec<String> {
    let each = |of: &dyn Fn(char) -> String| secret.chars().map(of).collect::<String>();
    let odd = |of: &dyn Fn(char) -> String| {
        each(&|c| if c.is_ascii_alphanumeric() { c.to_string() } else { of(c) })
    };
    let code = |c: char| u32::from(c);
    vec![
        secret.to_string(),
        secret.replace('/', "\\/"),
        each(&|c| format!("\\u{:04x}", code(c))),
        odd(&|c| format!("\\u{:04X}", code(c))),
        odd(&|c| format!("\\\\u{:04x}", code(c))),
        odd(&|c| format!("%{:02X}", code(c))),
        odd(&|c| format!("%{:02x}", code(c))),
        odd(&|c| if "-_.!~*'()".contains(c) { c.to_string() } else { format!("%{:02X}", code(c)) }),
        odd(&|c| format!("%25{:02X}", code(c))),
        odd(&|c| format!("&#{};", code(c))),
        odd(&|c| format!("&#x{:x};", code(c))),
        secret.replace('/', "&sol;").replace('=', "&equals;").replace('+', "&plus;"),
        STANDARD.encode(secret),
        STANDARD.encode(format!("Bearer {secret}")).replace('/', "\\/"),
        STANDARD.encode(format!("{USER}:{secret}")),
        URL_SAFE.encode(format!("Authorization: Basic {secret}\r\n")),
        format!("{USER}:{secret}"),
        secret.to_uppercase(),
        secret.bytes().map(|b| format!("{b:02x}")).collect(),
    ]
}

/// Each field of a reply: the status with its reason, headers, a body, and how many bytes of it are missing.
fn replies(said: &str) -> Vec<(String, String, String, usize)> {
    let plain = |status: &str, body: String| (status.to_string(), String::new(), body, 0);
    let paid = |more: &str| format!(r#"{{"id":"po_%N","status":"paid","amount":%A,"currency":"EUR"{more}}}"#);
    vec![
        plain("201 Created", paid("").replace("po_%N", said)),
        plain("201 Created", paid("").replace("po_%N", &format!("po-{said}-%N"))),
        plain("202 Accepted", paid("").replace("po_%N", said).replace("paid", "processing")),
        plain("201 Created", paid("").replace("\"paid\"", &format!("\"{said}\""))),
        plain("201 Created", paid("").replace("%A", &format!("\"{said}\""))),
        plain("201 Created", paid("").replace("EUR", said)),
        plain("201 Created", paid(&format!(r#","{said}":1,"x":[{{"y":"a {said} b"}}]"#))),
        plain("422 No", format!(r#"{{"error":{{"message":"no: {said}!"}}}}"#)),
        plain("422 No", format!(r#"{{"error":{{"message":"{}{said}"}}}}"#, "x".repeat(280))),
        plain("422 No", format!(r#"{{"error":{{"code":"{said}"}}}}"#)),
        plain("400 No", format!("<p>{said}</p>")),
        plain("400 No", said.to_string()),
        plain(&format!("400 {said}"), "{}".into()),
        plain("500 Oh", format!(r#"{{"pad":"{}","s":"{said}"}}"#, "x".repeat(4080))),
        plain("409 Again", format!(r#"{{"error":{{"code":"duplicate","id":"{said}"}}}}"#)),
        plain("409 Again", format!(r#"{{"error":{{"code":"duplicate","id":"po_%N","message":"{said}"}}}}"#)),
        ("302 There".into(), format!("Location: https://x.example/{said}\r\n"), String::new(), 0),
        ("429 Slow".into(), format!("Retry-After: {said}\r\nX-Request-Id: {said}\r\n"), "{}".into(), 0),
        ("401 Who".into(), format!("WWW-Authenticate: {said}\r\n"), format!(r#"{{"message":"{said}"}}"#), 0),
        ("200 Cut".into(), String::new(), format!(r#"{{"id":"po_%N","status":"{said}"#), 5),
    ]
}

/// The invoice that a request or a question is about.
fn number(got: &Got) -> Option<usize> {
    let text = format!("{} {}", got.path, String::from_utf8_lossy(&got.body));
    text.split("INV-").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// What the provider says of it at the nth time.
fn answer(
    got: &Got,
    number: usize,
    times: usize,
    said: &[(String, String, String, usize)],
) -> Option<String> {
    let good = ("200 OK".to_string(), String::new(), replies("paid").swap_remove(3).2, 0);
    let (status, headers, body, missing) =
        said.get(number).filter(|(status, ..)| times == 1 || !status.starts_with("4")).unwrap_or(&good);
    let amount = (1000 + number).to_string();
    let mut body = body.replace("%N", &number.to_string()).replace("%A", &amount);
    if got.method == "GET" && got.path.contains('?') && body.starts_with('{') {
        body = format!(r#"{{"data":[{body}]}}"#);
    }
    let length = body.len() + missing;
    // A line of a head has no more bytes than this.
    let status: String = status.chars().take(300).collect();
    Some(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"))
}

/// Every text that a person or a program can get, and every file.
fn everything(h: &Harness, jobs: usize) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let web = h.serve();
    let person = Person::enter(&web);
    for n in 0..jobs {
        all.push((format!("the job's page {n}"), person.get(&format!("/job/{}", n + 1)).body));
        all.push((format!("the API's job {n}"), web.get(&format!("/v1/jobs/payout%3AINV-{n}")).body));
    }
    for page in ["/", "/jobs", "/parked", "/doubt", "/providers", "/audit", "/audit.jsonl"] {
        all.push((page.into(), person.get(page).body));
    }
    for path in ["/metrics", "/v1/stats", "/v1/jobs?limit=1000"] {
        all.push((path.into(), web.get(path).body));
    }
    drop(web);
    for args in [
        &["list"][..],
        &["stats"],
        &["check"],
        &["show", &key(0)],
        &["audit", "export"],
        &["audit", "export", "--format", "csv"],
        &["audit", "export", "--events"],
        &["backup", "copy.db"],
    ] {
        all.push((args.join(" "), h.run(args).to_string().into_bytes()));
    }
    for file in std::fs::read_dir(h.dir.path()).unwrap().flatten() {
        all.push((file.path().display().to_string(), std::fs::read(file.path()).unwrap()));
    }
    all
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    let Some(first) = what.first() else { return false };
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|b| b == first) {
        if bytes[at + next..].starts_with(what) {
            return true;
        }
        at += next + 1;
    }
    false
}

/// `auth` carries [`SECRET`]; a provider that repeats it in every way is asked for every way.
#[track_caller]
fn nothing_is_left(family: Family, auth: &str, lookup: bool, every: usize) {
    let forms = forms(SECRET);
    let said: Vec<_> = forms.iter().flat_map(|form| replies(form)).step_by(every).collect();
    let answers = said.clone();
    // A 401 holds the provider and a 429 spends nothing: one each, and then a good answer.
    let asked = Mutex::new(BTreeMap::new());
    let server = Script::start(move |got, _| {
        let number = number(got)?;
        let mut asked = asked.lock().expect("no test panics while it holds this");
        let times: &mut usize = asked.entry(number).or_default();
        *times += 1;
        answer(got, number, *times, &answers)
    });
    let mut scene = Scene::new(family).with_http().set(|s| {
        s.base_url = server.base_url.clone();
        s.provider += &format!("\nauth = {auth}");
        s.retry = r#"{ max_attempts = 2, base = "1ms", cap = "2ms", max_age = "1h" }"#.into();
    });
    if lookup {
        scene = scene.with_lookup(true);
    }
    let h = scene.start();
    for (name, value) in
        [("BANK_SECRET", SECRET), ("BANK_USER", USER), ("API_TOKEN", TOKEN), ("RUST_LOG", "debug")]
    {
        h.env(name, value);
    }
    let lines: String = (0..said.len())
        .map(|n| format!("{{\"kind\":\"payout\",\"payload\":{}}}\n", payout(n as u32)))
        .collect();
    std::fs::write(h.dir.path().join("jobs.jsonl"), lines).unwrap();
    h.run(&["import", "jobs.jsonl"]).ok();
    std::fs::remove_file(h.dir.path().join("jobs.jsonl")).unwrap();
    let mut worker = h.spawn_worker(&[]);
    let start = Instant::now();
    while h.count("SELECT count(*) FROM onceward_jobs WHERE tries = 0 OR state = 'running'") > 0 {
        assert!(start.elapsed() < LIMIT, "not all were asked: {:?}", h.stats()["jobs"]);
        std::thread::sleep(Duration::from_millis(50));
    }
    worker.term();
    assert!(worker.wait().success());
    let sent = server.got().iter().filter(|got| got.method == "POST").count();
    assert!(sent >= said.len() * 9 / 10, "{sent} of {} were sent", said.len());
    let mut found = Vec::new();
    for (what, bytes) in everything(&h, said.len()) {
        let form = forms.iter().find(|form| contains(&bytes, form.as_bytes()));
        if let Some(form) = form {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let line = text.lines().find(|line| line.contains(form.as_str())).unwrap_or_default();
            found.push(format!("{form} in {what}: {}", &line.chars().take(400).collect::<String>()));
        }
    }
    assert!(found.is_empty(), "{} texts, such as {}", found.len(), found[0]);
    // The answers themselves were understood: what has no secret in it is as the provider said it.
    let settled = h.count("SELECT count(*) FROM onceward_intents WHERE reference LIKE 'po\\_%' ESCAPE '\\'");
    assert!(settled > 0);
    h.run(&["audit", "verify"]).ok();
}

const BEARER: &str = r#"{ bearer = { env = "BANK_SECRET" } }"#;

#[test]
fn a_credential_in_any_form_in_any_field_is_left_nowhere_at_family_a() {
    nothing_is_left(Family::A, BEARER, true, 3);
}

#[test]
fn a_credential_in_any_form_in_any_field_is_left_nowhere_at_family_b() {
    nothing_is_left(Family::B, BEARER, false, 1);
}

#[test]
fn a_credential_in_any_form_in_any_field_is_left_nowhere_at_family_c() {
    let basic = r#"{ basic = { user = { env = "BANK_USER" }, password = { env = "BANK_SECRET" } } }"#;
    nothing_is_left(Family::C, basic, true, 3);
}

#[test]
fn a_credential_in_any_form_in_any_field_is_left_nowhere_at_family_d() {
    let header = r#"{ header = { name = "X-Api-Key", value = { env = "BANK_SECRET" } } }"#;
    nothing_is_left(Family::D, header, false, 3);
}

#[test]
fn a_credential_in_any_form_in_any_field_is_left_nowhere_at_family_e() {
    nothing_is_left(Family::E, BEARER, true, 3);
}
