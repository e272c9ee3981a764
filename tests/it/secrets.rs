//! Secrets: in the request, and nowhere else.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use std::path::Path;

const CANARY: &str = "c4nary-7f3a91d2e5b8";

fn contains(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|window| window == what.as_bytes())
}

/// Every file below `dir` that holds the text.
fn files_with(dir: &Path, what: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, what, found);
        } else if contains(&std::fs::read(&path).unwrap_or_default(), what) {
            found.push(path.display().to_string());
        }
    }
}

#[track_caller]
pub fn assert_nowhere(h: &Harness, keys: &[&str], what: &str) {
    let mut said = String::new();
    for key in keys {
        said += &h.run(&["show", key]).ok().to_string();
    }
    for args in [&["list"][..], &["stats"], &["check"], &["providers", "stripe"]] {
        said += &h.run(args).to_string();
    }
    assert!(!said.contains(what), "shown: {said}");
    let mut found = Vec::new();
    files_with(h.dir.path(), what, &mut found);
    assert_eq!(found, Vec::<String>::new(), "in files");
}

/// R50: careless providers repeat the credential in their errors.
fn echo(auth: &str, env: &[(&str, &str)], sent: &str, secrets: &[&str]) {
    let h = Scene::new(Family::B).set(|s| s.provider += &format!("\nauth = {auth}")).start();
    for (name, value) in env.iter().chain(&[("RUST_LOG", "trace")]) {
        h.env(name, value);
    }
    let echo = |status: u16| {
        let body = format!(r#"{{"error":{{"message":"you said {sent} and {{authorization}}"}}}}"#);
        Fault::Answer(Answer::json(status, body).with("X-Echo", sent))
    };
    h.provider.script(vec![Fault::Unauthorized, echo(401), echo(500), echo(400)]);
    let first = h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    h.show_until(&first, |job| job["state"] == "parked" || job["state"] == "settled");
    let second = h.payout(2);
    h.show_until(&second, |job| job["state"] == "settled" || job["state"] == "parked");
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));

    let posts = h.posts();
    let carried = posts.iter().all(|seen| seen.request.headers.iter().any(|(_, value)| value == sent));
    assert!(carried, "the provider gets the credential");
    for secret in secrets {
        assert_nowhere(&h, &[&first, &second], secret);
    }
}

#[test]
fn a_bearer_token_that_the_provider_repeats_is_stored_and_shown_nowhere() {
    echo(
        "{ bearer = { env = \"BANK_TOKEN\" } }",
        &[("BANK_TOKEN", CANARY)],
        &format!("Bearer {CANARY}"),
        &[CANARY],
    );
}

#[test]
fn a_key_in_a_header_of_its_own_is_stored_and_shown_nowhere() {
    echo(
        "{ header = { name = \"X-Api-Key\", value = { env = \"BANK_KEY\" } } }",
        &[("BANK_KEY", CANARY)],
        CANARY,
        &[CANARY],
    );
}

#[test]
fn a_password_is_stored_and_shown_nowhere_in_either_form() {
    // base64("till:c4nary-7f3a91d2e5b8")
    let coded = "dGlsbDpjNG5hcnktN2YzYTkxZDJlNWI4";
    echo(
        "{ basic = { user = { env = \"BANK_USER\" }, password = { env = \"BANK_PASSWORD\" } } }",
        &[("BANK_USER", "till"), ("BANK_PASSWORD", CANARY)],
        &format!("Basic {coded}"),
        &[CANARY, coded],
    );
}

#[test]
fn a_credential_in_an_address_is_refused() {
    let mut h = Scene::new(Family::B).start();
    h.reconfigure(|s| s.base_url = s.base_url.replace("http://", &format!("http://user:{CANARY}@")));
    let why = h.run(&["check"]).refused("config", 2);
    assert!(!why.contains(CANARY), "{why}");
}

/// A credential is read at each call, so a new one takes effect without a restart.
#[test]
fn a_revoked_credential_holds_the_provider_and_burns_no_job() {
    let h = Scene::new(Family::B)
        .set(|s| {
            s.provider += "\nauth = { bearer = { file = \"token\" } }";
            s.retry = s.retry.replace("max_attempts = 10", "max_attempts = 2");
        })
        .start();
    let token = h.dir.path().join("token");
    std::fs::write(&token, "old-token\n").expect("written");
    h.provider.script(vec![Fault::Unauthorized; 3]);
    let keys: Vec<String> = (1..=3).map(|n| h.payout(n)).collect();
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.posts().count() >= 3, LIMIT));
    std::fs::write(&token, "new-token\n").expect("written");
    for key in &keys {
        let job = h.show_until(key, |job| job["state"] == "settled" || job["state"] == "parked");
        assert_eq!((&job["state"], &job["attempts"]), (&"settled".into(), &1.into()), "{job:#}");
    }
    worker.kill9();
    let posts = h.posts();
    assert_eq!(posts[posts.len() - 1].request.header("authorization"), Some("Bearer new-token"));
    h.assert_laws();
}

/// No header carries it: said at the start, not at every send.
#[test]
fn a_credential_with_a_line_break_in_it_is_named_before_anything_is_sent() {
    let h = Scene::new(Family::B).set(|s| s.provider += "\nauth = { bearer = { env = \"TOKEN\" } }").start();
    h.env("TOKEN", &format!("{CANARY}\r\nX-More: 1"));
    for command in ["check", "work"] {
        let why = h.run(&[command]).refused("config", 2);
        assert!(why.contains("providers.bank.auth.bearer") && !why.contains(CANARY), "{why}");
    }
}

/// Whoever replaces a file may leave it half done for a moment: nothing is sent meanwhile, nobody need restart anything.
#[test]
fn a_secret_file_that_is_empty_or_gone_sends_nothing_and_is_read_again() {
    let h = Scene::new(Family::B).set(|s| s.provider += "\nauth = { bearer = { file = \"token\" } }").start();
    let token = h.dir.path().join("token");
    std::fs::write(&token, "first").expect("written");
    let mut worker = h.spawn_worker(&[]);
    let first = h.payout(1);
    h.show_until(&first, |job| job["state"] == "settled");
    for (n, broken) in [(2, Some("")), (3, Some("two\nlines")), (4, None)] {
        match broken {
            Some(text) => std::fs::write(&token, text).expect("written"),
            None => std::fs::remove_file(&token).expect("removed"),
        }
        let key = h.payout(n);
        // While it is tried again, that try counts.
        let job = h.show_until(&key, |job| job["error_class"] == "not_sent" && job["state"] != "running");
        assert_eq!(job["attempts"], 0, "{job:#}");
        std::fs::write(&token, format!("token-{n}\n")).expect("written");
        h.show_until(&key, |job| job["state"] == "settled");
        let posts = h.posts();
        let last = posts[posts.len() - 1].request.header("authorization").map(str::to_string);
        assert_eq!(last, Some(format!("Bearer token-{n}")));
    }
    worker.kill9();
    assert_eq!(h.posts().len(), 4);
    h.assert_laws();
}

/// What a reply says of amount, currency and key is the provider's word like any other.
#[test]
fn a_credential_in_a_field_that_is_compared_is_stored_and_shown_nowhere() {
    let bearer = "\nauth = { bearer = { env = \"BANK_TOKEN\" } }";
    let h = Scene::new(Family::B).set(|s| s.provider += bearer).start();
    h.env("BANK_TOKEN", CANARY);
    let body = format!(r#"{{"id":"po_1","status":"paid","amount":1001,"currency":"{CANARY}"}}"#);
    h.provider.script(vec![Fault::AnswerAfter(Answer::json(201, body))]);
    let key = h.payout(1);
    h.work_until_idle();
    h.assert_parked(&key, "content_differs", "requested");
    assert_nowhere(&h, &[&key], CANARY);
}
