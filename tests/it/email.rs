//! E-mail: providers that know a key, and providers that would send it twice.

use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::Value;
use std::collections::BTreeSet;

/// A kind `mail` at a provider of this profile; `more` are further lines of the kind.
fn text(profile: &str, base_url: &str, more: &str) -> String {
    format!(
        r#"
[worker]
poll = "20ms"
[providers.post]
profile = "{profile}"
base_url = "{base_url}"
breaker = {{ failures = 1000, cool_down = "100ms" }}
[kinds.mail]
provider = "post"
key = "welcome:{{user}}"
request = {{ path = "/mail/send", body = {{ to = "{{to}}", headers = {{ "Message-ID" = "{{$message_id}}" }} }} }}
retry = {{ max_attempts = 3, base = "20ms", cap = "50ms" }}
{more}
"#
    )
}

fn mail(profile: &str, server: &Script, more: &str) -> Harness {
    let h = Scene::new(Family::E).start();
    h.config(&text(profile, &server.base_url, more));
    h.enqueue("mail", r#"{"user":7,"to":"zoe@example.org"}"#, &[]).ok();
    h
}

const KEY: &str = "welcome:7";
const PROVIDERS_WITHOUT_KEYS: [&str; 4] = ["sendgrid", "postmark", "twilio", "none"];

fn message_ids(server: &Script) -> Vec<String> {
    let id = |got: &Got| got.json()["headers"]["Message-ID"].as_str().expect("a Message-ID").to_string();
    server.got().iter().map(id).collect()
}

/// The rows that say that this send may be a second one.
fn said(job: &Value) -> usize {
    let rows = job["history"].as_array().expect("a history");
    rows.iter().filter(|r| r["action"] == "note" && r["detail"].to_string().contains("at least once")).count()
}

/// R04
#[test]
fn a_mail_whose_outcome_is_unknown_waits_for_a_person_unless_the_config_chose_otherwise() {
    for profile in PROVIDERS_WITHOUT_KEYS {
        for more in ["", "on_unknown = \"park\""] {
            let server = Script::start(|_, _| None);
            let h = mail(profile, &server, more);
            h.work_until_idle();
            let job = h.assert_parked(KEY, "unknown_outcome", "requested");
            assert_eq!((server.got().len(), said(&job)), (1, 0), "{profile} {more}");
        }
    }
}

#[test]
fn at_least_once_is_sent_again_with_the_same_message_id_and_each_time_said() {
    for profile in PROVIDERS_WITHOUT_KEYS {
        let server = Script::start(|_, before| match before {
            0 => None,
            1 => Some(reply(500, "", "")),
            _ => Some(reply(202, "", "")),
        });
        let h = mail(profile, &server, "on_unknown = \"resend\"");
        h.work_until_idle();
        let job = h.show(KEY);
        assert_eq!(job["state"], "settled", "{job:#}");
        assert_eq!(classes(&job), ["interrupted", "server_error", "ok"]);
        assert_eq!(said(&job), 2, "{job:#}");
        let ids = message_ids(&server);
        assert_eq!(ids.len(), 3);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 1, "{ids:?}");
        let wire_key = job["intent"]["wire_key"].as_str().expect("a key");
        assert_eq!(ids[0], format!("<{wire_key}@onceward.invalid>"));
        let got = server.got();
        assert_eq!(got[0].body, got[2].body);
    }
}

#[test]
fn at_least_once_is_not_without_end() {
    let server = Script::start(|_, _| None);
    let h = mail("sendgrid", &server, "on_unknown = \"resend\"");
    h.work_until_idle();
    let job = h.assert_parked(KEY, "unknown_outcome", "requested");
    assert_eq!((server.got().len(), said(&job)), (3, 2), "max_attempts");
}

/// A crash leaves the same doubt as a lost reply; a refusal after it makes nothing certain and is not argued with.
#[test]
fn at_least_once_goes_on_after_a_crash_and_ends_at_a_refusal() {
    let server = Script::start(|_, before| match before {
        0 => {
            std::thread::sleep(LIMIT);
            None
        }
        _ => Some(reply(400, "", "{}")),
    });
    let h = mail("postmark", &server, "on_unknown = \"resend\"");
    let mut worker = h.spawn_worker(&[]);
    h.show_until(KEY, |_| server.got().len() == 1);
    worker.kill9();
    h.work_until_idle();
    let job = h.assert_parked(KEY, "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["crashed", "rejected"]);
    assert_eq!((server.got().len(), said(&job)), (2, 1));
}

/// What the provider took is on its way: "at least once" is fulfilled.
#[test]
fn a_mail_that_was_taken_is_not_sent_again() {
    let server = Script::start(|_, _| Some(reply(202, "", r#"{"id":"m1","status":"queued"}"#)));
    let reply =
        "reply = { reference = \"/id\", status = \"/status\", settled = [\"sent\"], pending = [\"queued\"] }";
    let h = mail("sendgrid", &server, &format!("on_unknown = \"resend\"\n{reply}"));
    h.work_until_idle();
    assert_eq!(h.show(KEY)["state"], "unknown");
    h.run(&["confirm", KEY, "--reference", "m1"]).ok();
    h.work_until_idle();
    assert_eq!((h.show(KEY)["state"].clone(), server.got().len()), ("settled".into(), 1));
}

/// With a key, a repeat is the same mail; it is no "at least once" until the provider may have forgotten the key.
#[test]
fn a_provider_with_keys_gets_the_same_key_and_nothing_is_said_within_its_window() {
    for (profile, key_of) in [
        ("resend", (|got| got.header("idempotency-key").map(str::to_string)) as fn(&Got) -> Option<String>),
        ("brevo", |got| got.json()["headers"]["idempotencyKey"].as_str().map(str::to_string)),
    ] {
        for more in ["", "on_unknown = \"resend\""] {
            let server = Script::start(|_, before| match before {
                0 => None,
                _ => Some(reply(201, "", r#"{"id":"m1"}"#)),
            });
            let h = mail(profile, &server, more);
            h.work_until_idle();
            let job = h.show(KEY);
            assert_eq!((&job["state"], said(&job)), (&"settled".into(), 0), "{job:#}");
            let got = server.got();
            assert_eq!(got.len(), 2);
            for got in got.iter() {
                assert_eq!(key_of(got).as_deref(), job["intent"]["wire_key"].as_str(), "{profile}");
            }
        }
    }
}

#[test]
fn at_least_once_is_refused_where_something_better_can_be_done() {
    let server = Script::start(|_, _| None);
    let h = Scene::new(Family::E).start();
    for (more, why) in [
        ("on_unknown = \"resend\"\nlookup = { path = \"/mail?key={$key}\" }", "look-up"),
        ("on_unknown = \"again\"", "\"park\", \"resend\""),
    ] {
        let text = text("sendgrid", &server.base_url, more);
        h.config(&text);
        let message = h.run(&["check"]).refused("config", 2);
        let line = text.lines().position(|l| l.starts_with("on_unknown")).expect("the line") + 1;
        assert!(message.contains(&format!(":{line}: kinds.mail.on_unknown: ")), "{message}");
        assert!(message.contains(why), "{message}");
    }
}
