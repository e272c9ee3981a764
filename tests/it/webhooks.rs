//! Standard Webhooks, as the sender: one id, a fresh time and signature at each try, and an endpoint that may say no.

use crate::harness::*;
use onceward::demo::provider::Family;
use std::io::Write;
use std::process::{Command, Stdio};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_plJ3nmyCDGBKInavdOK15jsl7JbMWcMQ6ELIqXuYSPU=";

fn hook(server: &Script, signing: &str) -> Harness {
    let h = Scene::new(Family::B).start();
    h.config(&text(&server.base_url, signing));
    h.env("OLD", OLD);
    h.env("NEW", NEW);
    h
}

fn text(base_url: &str, signing: &str) -> String {
    format!(
        r#"
[worker]
poll = "20ms"
[providers.shop]
profile = "standard-webhooks"
base_url = "{base_url}"
signing = [{signing}]
[kinds.paid]
provider = "shop"
key = "paid:{{n}}"
request = {{ path = "/hook" }}
retry = {{ base = "20ms", cap = "50ms" }}
"#
    )
}

#[track_caller]
fn tell(h: &Harness, n: u32) -> String {
    h.enqueue("paid", &format!(r#"{{"n":{n},"text":"für Zoë"}}"#), &[]).ok();
    format!("paid:{n}")
}

/// The signature by Python's own hmac, which shares no line with ours. `None`: there is no Python here.
fn by_python(secret: &str, got: &Got) -> Option<String> {
    const PROGRAM: &str = "
import base64, hashlib, hmac, sys
secret = base64.b64decode(sys.argv[1].removeprefix('whsec_'))
signed = (sys.argv[2] + '.' + sys.argv[3] + '.').encode() + sys.stdin.buffer.read()
print('v1,' + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode())";
    let id = got.header("webhook-id").expect("an id");
    let timestamp = got.header("webhook-timestamp").expect("a timestamp");
    let child = Command::new("python3")
        .args(["-c", PROGRAM, secret, id, timestamp])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: there is no python3 to compare the signature with");
        return None;
    };
    child.stdin.take().expect("stdin").write_all(&got.body).expect("python reads");
    let output = child.wait_with_output().expect("python ends");
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("text").trim().to_string())
}

#[test]
fn every_try_has_the_same_id_and_body_and_a_signature_of_its_own_time() {
    let server = Script::start(|_, before| {
        // Two seconds later the timestamp is another one, so that the signature must be too.
        Some(if before == 0 { reply(500, "Retry-After: 2\r\n", "") } else { reply(204, "", "") })
    });
    let h = hook(&server, "{ env = \"OLD\" }");
    let key = tell(&h, 1);
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!(classes(&job), ["server_error", "ok"], "{job:#}");
    let got = server.got();
    let header = |n: usize, name: &str| got[n].header(name).expect(name).to_string();
    assert_eq!(header(0, "webhook-id"), header(1, "webhook-id"));
    assert_eq!(header(0, "webhook-id"), job["intent"]["wire_key"].as_str().expect("a key"));
    assert_eq!(got[0].body, got[1].body);
    assert_ne!(header(0, "webhook-timestamp"), header(1, "webhook-timestamp"));
    assert_ne!(header(0, "webhook-signature"), header(1, "webhook-signature"));
    for got in got.iter() {
        let Some(expected) = by_python(OLD, got) else { return };
        assert_eq!(got.header("webhook-signature"), Some(expected.as_str()));
    }
}

#[test]
fn while_a_secret_is_rotated_both_sign_and_neither_is_kept_anywhere() {
    let server = Script::start(|_, before| match before {
        0 => Some(reply(400, "", &format!(r#"{{"message":"{NEW} and {} do not sign this"}}"#, &OLD[6..]))),
        _ => Some(reply(200, "", "")),
    });
    let h = hook(&server, "{ env = \"NEW\" }, { env = \"OLD\" }");
    let key = tell(&h, 1);
    let said = h.work_until_idle().to_string();
    let job = h.assert_parked(&key, "rejected", "rejected");
    let got = server.got()[0].clone();
    if let (Some(new), Some(old)) = (by_python(NEW, &got), by_python(OLD, &got)) {
        assert_eq!(got.header("webhook-signature"), Some(format!("{new} {old}").as_str()));
    }
    let mut everywhere = format!("{said}{job}").into_bytes();
    for file in std::fs::read_dir(h.dir.path()).expect("the directory").flatten() {
        everywhere.extend(std::fs::read(file.path()).unwrap_or_default());
    }
    for secret in [&NEW[6..], &OLD[6..], got.header("webhook-signature").expect("a signature")] {
        let found = everywhere.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
        assert!(!found, "{secret} is kept");
    }
}

#[test]
fn an_endpoint_that_is_gone_gets_nothing_more_until_a_person_resumes_it() {
    let server =
        Script::start(|_, before| Some(if before == 0 { reply(410, "", "") } else { reply(200, "", "") }));
    let h = hook(&server, "{ env = \"OLD\" }");
    let gone = tell(&h, 1);
    h.work_until_idle();
    h.assert_parked(&gone, "rejected", "rejected");
    let waiting = tell(&h, 2);
    h.work_until_idle();
    assert_eq!(h.show(&waiting)["state"], "ready");
    let stats = h.stats();
    let shop = &stats["providers"]["shop"];
    assert_eq!(shop["state"], "paused", "{shop}");
    assert!(shop["why"].as_str().expect("why").contains("410"), "{shop}");
    assert_eq!(server.got().len(), 1);
    assert_eq!(h.run(&["resume", "provider", "shop"]).ok().json()["changed"], true);
    h.work_until_idle();
    assert_eq!(h.show(&waiting)["state"], "settled");
    h.assert_parked(&gone, "rejected", "rejected");
    assert_eq!(server.got().len(), 2);
}

/// A gateway's 502 and 504 ask to be slower, and say nothing of whether the receiver has had it.
#[test]
fn a_gateway_slows_deliveries_down_and_proves_nothing() {
    for status in [429, 502, 504] {
        let server = Script::start(move |_, before| {
            Some(if before == 0 { reply(status, "Retry-After: 1\r\n", "") } else { reply(200, "", "") })
        });
        let h = hook(&server, "{ env = \"OLD\" }");
        let key = tell(&h, 1);
        h.work_until_idle();
        let job = h.show(&key);
        assert_eq!(classes(&job), ["throttled", "ok"], "{status} {job:#}");
        assert_eq!(job["attempts"], 1, "it spends nothing");
        let to = &tries(&job).next().expect("a try")["to"];
        assert_eq!(to, if status == 429 { "scheduled" } else { "unknown" });
    }
}

#[test]
fn a_secret_that_cannot_sign_is_named_before_anything_is_sent_and_never_shown() {
    let server = Script::start(|_, _| Some(reply(200, "", "")));
    for bad in ["whsec_hunter2", "whsec_aHVudGVyMg=="] {
        let h = hook(&server, "{ env = \"BAD\" }");
        h.env("BAD", bad);
        tell(&h, 1);
        for command in [&["check"][..], &["work", "--once"]] {
            let said = h.run(command);
            said.fails(&[2]);
            let said = said.to_string();
            assert!(said.contains("providers.shop.signing") && said.contains("BAD"), "{said}");
            assert!(!said.contains(&bad[6..]), "{said}");
        }
    }
    assert_eq!(server.got().len(), 0);
}
