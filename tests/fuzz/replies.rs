//! Replies of a provider, against every built-in profile: none makes the reader fail, none is good news unless another
//! reading of the same bytes says so, and no wish to wait is longer than a day.

use super::{cases, mutated, pick, rng, text};
use fastrand::Rng;
use onceward::clock::{ManualClock, Ms};
use onceward::config::{Config, Profile};
use onceward::door::job_of_line;
use onceward::outcome::Class;
use onceward::provider::{Answer, Broken, Call, Providers};
use onceward::store::{Desk, Options, Store};
use onceward::worker::Trade;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The config of a provider with this profile; `None`: it is none that calls.
fn config(profile: &str, dir: &Path) -> Option<Config> {
    std::fs::write(dir.join("sign"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let make = |signing: &str| {
        let text = format!(
            r#"
[providers.p]
profile = "{profile}"
base_url = "http://127.0.0.1:1"
{signing}
[kinds.k]
provider = "p"
amount_minor = "{{amount}}"
currency = "{{currency}}"
request = {{ method = "POST", path = "/v1/payouts" }}
reply = {{ reference = "/id", amount = "/amount", currency = "/currency", status = "/status", settled = ["paid"], pending = ["processing"], rejected = ["failed"] }}
"#
        );
        Config::parse(&text, &dir.join("onceward.toml")).ok()
    };
    make("").or_else(|| make("signing = [{ file = \"sign\" }]"))
}

const BODIES: &[&str] = &[
    r#"{"id":"po_1","amount":1250,"currency":"EUR","status":"paid"}"#,
    r#"{"id":"po_1","amount":1250,"currency":"eur","status":"processing"}"#,
    r#"{"id":"po_1","amount":1251,"currency":"EUR","status":"paid"}"#,
    r#"{"id":17,"amount":"1250","currency":"EUR","status":"paid"}"#,
    r#"{"status":"failed"}"#,
    r#"{"error":{"code":"duplicate","type":"idempotency_error","id":"po_9","links":{"conflicting_resource_id":"po_9"}}}"#,
    r#"{"error":{"code":"idempotency_key_in_use"}}"#,
    "<html>login</html>",
    "",
    "null",
    "[]",
];

const HEADERS: &[&str] = &[
    "retry-after",
    "date",
    "content-type",
    "idempotent-replayed",
    "original-request",
    "stripe-should-retry",
    "x-ratelimit-reset",
    "ratelimit-reset",
    "retry-after-ms",
    "location",
    "x-should-retry",
];

const VALUES: &[&str] = &[
    "0",
    "-1",
    "120",
    "1.5",
    "99999999999999999999",
    "1e9",
    "NaN",
    "Wed, 21 Oct 2026 07:28:00 GMT",
    "Wednesday, 21-Oct-26 07:28:00 GMT",
    "Wed Oct 21 07:28:00 2026",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "true",
    "false",
    "application/json",
    "1792567680",
    "86401",
];

fn answer(rng: &mut Rng) -> Answer {
    let body = pick(rng, BODIES);
    let body = if rng.u8(..3) == 0 { mutated(rng, body) } else { body.to_string() };
    let mut body = body.into_bytes();
    if rng.u8(..12) == 0 && !body.is_empty() {
        let at = rng.usize(..body.len());
        body[at] = rng.u8(..);
    }
    let headers = (0..rng.usize(..4))
        .map(|_| {
            let value = if rng.bool() { pick(rng, VALUES).to_string() } else { text(rng, 3) };
            (pick(rng, HEADERS).to_string(), value)
        })
        .collect();
    let status = match rng.u8(..3) {
        0 => 200,
        1 => [201, 202, 204, 400, 401, 402, 403, 404, 409, 422, 429, 500, 503, 504][rng.usize(..14)],
        _ => rng.u16(100..1000),
    };
    Answer { status, headers, body, framed: rng.u8(..4) > 0 }
}

/// Does this settle? A reading of its own: a success (a 202 whose body says that it is paid is one), one JSON object, and
/// all that was asked for in it.
fn settles(answer: &Answer) -> bool {
    let Ok(Value::Object(body)) = serde_json::from_slice(&answer.body) else { return false };
    let text = |name: &str| match body.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(n)) => Some(n.to_string()),
        _ => None,
    };
    (200..300).contains(&answer.status)
        && text("id").is_some_and(|id| !id.trim().is_empty() && id.chars().count() <= 255)
        && text("status").as_deref() == Some("paid")
        && text("amount").is_none_or(|amount| amount == "1250")
        && text("currency").is_none_or(|currency| currency.eq_ignore_ascii_case("EUR"))
}

#[test]
fn no_reply_makes_the_reader_fail_and_none_is_good_news_unless_another_reading_says_so() {
    let mut rng = rng();
    let (mut good, mut profiles) = (0, 0);
    for name in Profile::builtin_names() {
        let dir = tempfile::tempdir().unwrap();
        let Some(config) = config(name, dir.path()) else {
            eprintln!("SKIPPED {name}: it cannot be given this kind");
            continue;
        };
        let config = Arc::new(config);
        let clock = Arc::new(ManualClock::at(Ms(1_792_000_000_000)));
        let trade: Arc<dyn Desk> = Arc::new(Trade::new(config.clone(), clock.clone()));
        let providers = Providers::new(config.clone(), clock.clone());
        let options = Options { create: true, namespace: String::new(), watch: None };
        let store = Store::open(&dir.path().join("t.db"), options, clock.clone(), trade).unwrap();
        let line = br#"{"kind":"k","key":"k1","payload":{"amount":1250,"currency":"EUR"}}"#;
        let job = job_of_line(&config, line).unwrap().unwrap();
        store.enqueue(job, "test").unwrap();
        let (owner, _lock) = store.register("w:1").unwrap();
        let claimed = store.claim(&owner, 1, Duration::from_secs(60)).unwrap();
        let Some(claim) = claimed.claims.into_iter().next() else {
            eprintln!("SKIPPED {name}: no worker sends its jobs");
            continue;
        };
        profiles += 1;
        for n in 0..cases(800) {
            let given = answer(&mut rng);
            let call = Call {
                step: claim.step(),
                job: claim.job(),
                intent: claim.intent(),
                frozen: claim.frozen(),
                scope: Some(claim.scope()),
                before_first_byte: &|| Ok(()),
                program: None,
            };
            let outcome = providers.call_over(&call, &|_, hook| {
                hook().map_err(|error| Broken {
                    class: Class::NotSent,
                    phase: onceward::outcome::Phase::Connect,
                    head: None,
                    cut: None,
                    error,
                })?;
                Ok(given.clone())
            });
            let shown = || format!("{name} case {n}: {given:?} {}", String::from_utf8_lossy(&given.body));
            let settled = outcome.class == Class::Ok && outcome.differs.is_none();
            good += u32::from(settled);
            assert!(!settled || settles(&given), "{} became {outcome:?}", shown());
            let day = Duration::from_secs(24 * 3600);
            assert!(outcome.retry_after.is_none_or(|wish| wish <= day), "{} became {outcome:?}", shown());
            // Bytes have left and an answer is there: only the edge of a network says otherwise, where the profile knows it.
            let edge = [521, 523, 525, 526].contains(&given.status);
            assert!(outcome.class != Class::NotSent || edge, "{} became {outcome:?}", shown());
        }
    }
    assert!(profiles >= 12 && good > 100, "{profiles} profiles, {good} settled");
}
