//! What a provider does with a repeat, family by family, and what became of what it only took: real profiles, real
//! sockets, and as many effects as events.

use crate::harness::*;
use onceward::clock::Ms;
use onceward::config::Profile;
use onceward::demo::provider::Family;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A config with one provider and one kind `pay`, keyed by `n`.
fn config(profile: &str, base_url: &str, provider: &str, kind: &str) -> String {
    format!(
        r#"
[worker]
poll = "20ms"
[providers.p]
profile = "{profile}"
base_url = "{base_url}"
breaker = {{ failures = 1000, cool_down = "100ms" }}
{provider}
[kinds.pay]
provider = "p"
key = "pay:{{n}}"
amount_minor = "{{amount}}"
retry = {{ base = "20ms", cap = "100ms" }}
{kind}
"#
    )
}

fn harness(text: &str) -> Harness {
    let h = Scene::new(Family::B).start();
    h.config(text);
    h
}

#[track_caller]
fn pay(h: &Harness, n: u32) -> String {
    h.enqueue("pay", &json!({"n": n, "amount": 1250}).to_string(), &[]).ok();
    format!("pay:{n}")
}

/// Family D: the first reply is lost, the repeat is an error that names the first object, which is fetched and compared.
fn named(
    profile: &str,
    request: &str,
    conflict: &'static str,
    fetched: &'static str,
    object: &'static str,
) -> Harness {
    let server = Script::start(move |got, before| match (got.method.as_str(), before) {
        ("POST", 0) => None,
        ("POST", _) => Some(reply(if conflict.contains("USER_BUSINESS") { 400 } else { 409 }, "", conflict)),
        _ => Some(reply(if got.path == fetched { 200 } else { 404 }, "", object)),
    });
    let h = harness(&config(profile, &server.base_url, "", request));
    let key = pay(&h, 1);
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!(classes(&job)[..2], ["interrupted", "accepted"], "{job:#}");
    let posts = server.got().iter().filter(|got| got.method == "POST").count();
    assert_eq!(posts, 2, "what was named is never sent for again");
    h
}

const GOCARDLESS: &str = r#"
request = { path = "/payments", body = { payments = { amount = "{amount}" } } }
reply = { reference = "/payments/id", amount = "/payments/amount", status = "/payments/status", settled = ["paid_out"], pending = ["pending"], rejected = ["failed"] }
"#;
const CONFLICT: &str = r#"{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM7"}}]}}"#;

#[test]
fn a_duplicate_that_names_the_first_object_is_fetched_compared_and_settled() {
    let same = r#"{"payments":{"id":"PM7","amount":1250,"status":"paid_out"}}"#;
    let h = named("gocardless", GOCARDLESS, CONFLICT, "/payments/PM7", same);
    let job = h.show("pay:1");
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"PM7".into()), "{job:#}");
    assert_eq!(classes(&job), ["interrupted", "accepted", "ok"]);
}

/// The key decides there and not the body, so that the object may be about something else.
#[test]
fn a_named_object_with_another_amount_is_for_a_person() {
    let other = r#"{"payments":{"id":"PM7","amount":9,"status":"paid_out"}}"#;
    let h = named("gocardless", GOCARDLESS, CONFLICT, "/payments/PM7", other);
    h.assert_parked("pay:1", "content_differs", "requested");
}

#[test]
fn a_duplicate_batch_is_followed_by_its_link() {
    let request = r#"
request = { path = "/v1/payments/payouts", body = { items = [{ amount = "{amount}" }] } }
reply = { reference = "/batch_header/payout_batch_id", status = "/batch_header/batch_status", settled = ["SUCCESS"], pending = ["PENDING"], rejected = ["DENIED"] }
"#;
    let conflict = r#"{"name":"USER_BUSINESS_ERROR","details":[{"issue":"Batch with given sender_batch_id already exists","link":[{"href":"https://api.paypal.com/v1/payments/payouts/CDZ7?x=1","rel":"self"}]}]}"#;
    let object = r#"{"batch_header":{"payout_batch_id":"CDZ7","batch_status":"SUCCESS"}}"#;
    let h = named("paypal-payouts", request, conflict, "/v1/payments/payouts/CDZ7", object);
    assert_eq!(h.show("pay:1")["intent"]["reference"], "CDZ7");
}

/// Family C: the answer to a repeat is the object's present state, which may be a later one, or not final yet.
#[test]
fn a_repeat_that_is_answered_with_a_pending_state_is_looked_up_and_not_sent_a_third_time() {
    let server = Script::start(|got, before| match (got.method.as_str(), before) {
        ("POST", 0) => None,
        ("POST", _) => Some(reply(200, "", r#"{"id":"O1","status":"PENDING"}"#)),
        (_, n) if n < 4 => Some(reply(200, "", r#"{"id":"O1","status":"PENDING"}"#)),
        _ => Some(reply(200, "", r#"{"id":"O1","status":"COMPLETED"}"#)),
    });
    let kind = r#"
request = { path = "/v2/payments", body = { amount = "{amount}" } }
reply = { reference = "/id", status = "/status", settled = ["COMPLETED"], pending = ["PENDING"], rejected = ["DECLINED"] }
lookup = { path = "/v2/payments?custom_id={$key}", reference = "/id", status = "/status", settled = ["COMPLETED"], pending = ["PENDING"], rejected = ["DECLINED"] }
"#;
    let h = harness(&config("paypal", &server.base_url, "", kind));
    let key = pay(&h, 1);
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!(job["state"], "settled", "{job:#}");
    assert_eq!(classes(&job), ["interrupted", "accepted", "accepted", "accepted", "ok"], "{job:#}");
    let posts: Vec<_> = server.got().iter().filter(|got| got.method == "POST").cloned().collect();
    assert_eq!(posts.len(), 2);
    let id = |n: usize| posts[n].header("paypal-request-id").map(str::to_string);
    assert_eq!((id(0), id(0).as_deref()), (id(1), job["intent"]["wire_key"].as_str()));
}

/// Finds the key in a request.
type KeyOf = fn(&Got) -> Value;

/// Each way that a key can travel: a re-send is the same to the byte, the next generation is another one.
#[test]
fn a_re_send_is_the_same_request_and_the_next_generation_another_wherever_the_key_stands() {
    let places: [(&str, &str, KeyOf); 7] = [
        ("generic", "", |got| got.header("idempotency-key").into()),
        ("generic", "idempotency = { quoted = true }", |got| {
            let value = got.header("idempotency-key").expect("a key");
            value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).expect("in quotes").into()
        }),
        ("square", "", |got| got.json()["idempotency_key"].clone()),
        ("brevo", "", |got| got.json()["headers"]["idempotencyKey"].clone()),
        ("generic", "idempotency = { body = \"/variables/apiRequestKey\" }", |got| {
            got.json()["variables"]["apiRequestKey"].clone()
        }),
        ("quickbooks", "", |got| got.path.split("requestid=").nth(1).into()),
        ("generic", "idempotency = { raw = true }", |got| got.header("idempotency-key").into()),
    ];
    for (profile, provider, key_of) in places {
        let server = Script::start(|_, before| match before {
            0 => None,
            1 => Some(reply(402, "Idempotent-Replayed: true\r\n", "{}")),
            _ => Some(reply(200, "", r#"{"id":"1"}"#)),
        });
        let provider = format!("{provider}\nstatuses = [{{ status = 402, class = \"rejected\" }}]");
        let kind = "request = { path = \"/pay?x=1\", body = { amount = \"{amount}\" } }\nreply = { reference = \"/id\" }";
        let h = harness(&config(profile, &server.base_url, &provider, kind));
        let key = pay(&h, 1);
        h.work_until_idle();
        let first = h.assert_parked(&key, "unknown_outcome", "requested");
        h.run(&["resolve", &key, "--not-applied"]).ok();
        h.work_until_idle();
        let job = h.show(&key);
        assert_eq!((&job["state"], &job["intent"]["generation"]), (&"settled".into(), &2.into()), "{job:#}");
        let got = server.got();
        assert_eq!(got.len(), 3, "{profile} {provider}");
        let same = |a: &Got, b: &Got| (&a.path, &a.headers, &a.body) == (&b.path, &b.headers, &b.body);
        assert!(same(&got[0], &got[1]), "{profile}: {:?} {:?}", got[0], got[1]);
        assert_eq!(key_of(&got[0]), first["intent"]["wire_key"], "{profile} {provider}");
        assert_eq!(key_of(&got[2]), job["intent"]["wire_key"], "{profile} {provider}");
        assert_ne!(key_of(&got[0]), key_of(&got[2]), "{profile} {provider}");
    }
}

/// R07: one business event, two calls: each has a key of its own, also across a crash, and neither is done twice.
#[test]
fn two_steps_of_one_event_have_two_keys_and_a_crash_between_them_repeats_neither() {
    static PAID: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
    static LOST: AtomicUsize = AtomicUsize::new(0);
    // A key that is used on another path is refused, as Stripe does it; the first reply is held until the worker is gone.
    let server = Script::start(|got, _| {
        let key = got.header("idempotency-key").expect("a key").to_string();
        let mut paid = PAID.lock().expect("not poisoned");
        if paid.iter().any(|(k, path)| *k == key && *path != got.path) {
            return Some(reply(400, "", r#"{"error":{"type":"idempotency_error"}}"#));
        }
        if !paid.iter().any(|(k, _)| *k == key) {
            paid.push((key, got.path.clone()));
        }
        drop(paid);
        if LOST.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::sleep(LIMIT);
        }
        Some(reply(200, "", &json!({"id": got.path}).to_string()))
    });
    let mut text = config("stripe", &server.base_url, "", "request = { path = \"/v1/invoices\" }");
    text +=
        "[kinds.charge]\nprovider = \"p\"\nkey = \"charge:{n}\"\nrequest = { path = \"/v1/invoices/pay\" }\n";
    let h = harness(&text);
    let create = pay(&h, 1);
    let mut worker = h.spawn_worker(&[]);
    h.show_until(&create, |_| LOST.load(Ordering::SeqCst) == 1);
    worker.kill9();
    h.work_until_idle();
    h.enqueue("charge", r#"{"n":1}"#, &[]).ok();
    h.enqueue("charge", r#"{"n":1}"#, &["--key", "pay:1"]).refused("invalid", 4);
    h.work_until_idle();
    let (create, charge) = (h.show("pay:1"), h.show("charge:1"));
    assert_eq!((&create["state"], &charge["state"]), (&"settled".into(), &"settled".into()));
    assert_eq!(classes(&create), ["crashed", "ok"]);
    assert_ne!(create["intent"]["wire_key"], charge["intent"]["wire_key"]);
    assert_eq!(PAID.lock().expect("not poisoned").len(), 2, "each step took effect once");
    assert_eq!(server.got().len(), 3);
}

/// R15, at every profile: taken is not done; asked about until it is, with one request for all of it.
#[test]
fn what_any_provider_only_took_is_looked_up_until_it_is_final_and_sent_once() {
    let server = Script::start(|got, _| {
        static ASKED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let name = got.path.split('/').next_back().map(|p| p.split('?').next().unwrap_or(p))?;
        let body = |status: &str| json!({"id": format!("po_{name}"), "status": status}).to_string();
        if got.method != "GET" {
            return Some(reply(202, "", &body("pending")));
        }
        let mut asked = ASKED.lock().expect("not poisoned");
        asked.push(name.to_string());
        let times = asked.iter().filter(|n| n.as_str() == name).count();
        Some(reply(200, "", &body(if times < 3 { "pending" } else { "succeeded" })))
    });
    let mut text = String::from("[worker]\npoll = \"20ms\"\n");
    let names: Vec<&str> = Profile::builtin_names().into_iter().filter(|n| *n != "external").collect();
    for name in &names {
        let signing = if *name == "standard-webhooks" { "signing = [{ env = \"SIGN\" }]" } else { "" };
        let read = r#"reference = "/id", status = "/status", settled = ["succeeded"], pending = ["pending"], rejected = ["failed"]"#;
        text += &format!(
            r#"
[providers.{name}]
profile = "{name}"
base_url = "{}"
{signing}
[kinds.{name}]
provider = "{name}"
key = "{name}:{{n}}"
request = {{ path = "/{name}", body = {{ n = "{{n}}" }} }}
reply = {{ {read} }}
lookup = {{ path = "/status/{name}?key={{$key}}", {read} }}
retry = {{ base = "20ms", cap = "100ms" }}
"#,
            server.base_url
        );
    }
    let h = harness(&text);
    h.env("SIGN", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    for name in &names {
        h.enqueue(name, r#"{"n":1}"#, &[]).ok();
    }
    h.work_until_idle();
    for name in &names {
        let job = h.show(&format!("{name}:1"));
        assert_eq!((&job["state"], &job["attempts"]), (&"settled".into(), &1.into()), "{job:#}");
        assert_eq!(classes(&job), ["accepted", "accepted", "accepted", "ok"], "{name}");
        assert_eq!(job["intent"]["reference"], format!("po_{name}"));
        let posts =
            |got: &&Got| got.method == "POST" && got.path.split('?').next() == Some(&format!("/{name}"));
        assert_eq!(server.got().iter().filter(posts).count(), 1, "{name}");
    }
}

/// A provider that only takes: every request is answered 202.
fn taken(kind: &str) -> (Harness, Script) {
    let server = Script::start(|_, _| Some(reply(202, "", r#"{"id":"po_1","status":"pending"}"#)));
    let kind = format!(
        "request = {{ path = \"/pay\" }}\nreply = {{ reference = \"/id\", status = \"/status\", settled = [\"done\"], pending = [\"pending\"] }}\n{kind}"
    );
    (harness(&config("generic", &server.base_url, "", &kind)), server)
}

#[test]
fn what_was_only_taken_waits_for_the_providers_own_word() {
    let (h, server) = taken("");
    let key = pay(&h, 1);
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["state"]), (&"unknown".into(), &"requested".into()), "{job:#}");
    h.run(&["confirm", &key, "--reference", "po_1"]).ok();
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"po_1".into()));
    // Afterwards it comes back: a note is appended, and what was settled stays.
    h.run(&["note", &key, "returned by the bank", "--reversed", "re_1"]).ok();
    assert_eq!(h.show(&key)["intent"], job["intent"]);
    h.work_until_idle();
    assert_eq!(server.got().len(), 1);
}

#[test]
fn what_was_only_taken_and_never_ends_is_parked_at_its_deadline_and_not_sent_again() {
    let kind = "retry = { base = \"20ms\", cap = \"100ms\", max_age = \"300ms\" }";
    let (h, server) = taken("");
    let text = std::fs::read_to_string(h.config_path()).expect("the config");
    h.config(&text.replacen("retry = { base = \"20ms\", cap = \"100ms\" }", kind, 1));
    let key = pay(&h, 1);
    let mut worker = h.spawn_worker(&[]);
    h.show_until(&key, |job| job["state"] == "parked");
    worker.kill9();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(server.got().len(), 1);
}

/// R13: transport success is not business success, wherever the body says so.
#[test]
fn a_refusal_inside_a_success_is_found_where_the_kind_says_it_stands() {
    for (status, body, at, rejected) in [
        (201, r#"{"id":"1","captures":[{"status":"DECLINED"}]}"#, "/captures/0/status", "DECLINED"),
        (200, r#"{"success":false,"code":"INSUFFICIENT_FUNDS"}"#, "/success", "false"),
    ] {
        let server = Script::start(move |_, _| Some(reply(status, "", body)));
        let kind = format!(
            "request = {{ path = \"/pay\" }}\nreply = {{ status = \"{at}\", rejected = [\"{rejected}\"] }}"
        );
        let h = harness(&config("paypal", &server.base_url, "", &kind));
        let key = pay(&h, 1);
        h.work_until_idle();
        let job = h.assert_parked(&key, "rejected", "rejected");
        assert!(job["history"].to_string().contains(rejected), "the body is kept: {job:#}");
        assert_eq!(server.got().len(), 1);
    }
}

/// R13: nobody would see a refusal inside a success.
#[test]
fn check_speaks_up_for_a_kind_that_moves_money_and_settles_on_any_2xx() {
    let h = harness(&config("generic", "http://127.0.0.1:9", "", "request = { path = \"/pay\" }"));
    let said = h.run(&["check"]).ok().stdout;
    assert!(said.contains("pay") && said.contains("any 2xx"), "{said}");
}

/// R52: a redirect that is followed turns a POST into a GET, and its page answers 200.
#[test]
fn no_redirect_is_followed_and_the_group_does_not_go_on_behind_one() {
    for status in [301, 302, 303, 307, 308] {
        let server = Script::start(move |got, _| match got.path.as_str() {
            "/pay" => Some(reply(status, "Location: /login?token=s3cret\r\n", "")),
            _ => Some(reply(200, "", r#"{"id":"1"}"#)),
        });
        let h = harness(&config(
            "generic",
            &server.base_url,
            "",
            "group = \"account:1\"\nrequest = { path = \"/pay\" }\nreply = { reference = \"/id\" }",
        ));
        let (first, second) = (pay(&h, 1), pay(&h, 2));
        h.work_until_idle();
        let job = h.assert_parked(&first, "redirected", "requested");
        let error = job["last_error"].as_str().expect("why");
        assert!(error.contains("/login") && !error.contains("s3cret"), "{error}");
        assert_eq!(h.show(&second)["state"], "waiting");
        let got = server.got();
        assert_eq!((got.len(), got[0].method.as_str()), (1, "POST"), "{status}");
    }
}

/// A provider's own headers about its limits count at the limit, and only there.
#[test]
fn a_limit_is_waited_for_by_the_providers_own_header() {
    for (profile, status, headers, waits) in [
        ("gocardless", 429, "RateLimit-Reset: 3600\r\n", true),
        ("square", 429, "X-RateLimit-Reset: 99999999999\r\n", true),
        ("square", 503, "retry-after-ms: 3600000\r\n", true),
        ("modern-treasury", 429, "retry-after-ms: 3600000\r\n", true),
        ("gocardless", 503, "RateLimit-Reset: 3600\r\n", false),
        ("stripe", 429, "RateLimit-Reset: 3600\r\n", false),
    ] {
        let server = Script::start(move |_, _| Some(reply(status, headers, "{}")));
        let h = harness(&config(profile, &server.base_url, "", "request = { path = \"/pay\" }"));
        let key = pay(&h, 1);
        if !waits {
            // Nothing holds it back, so that it is soon tried again.
            let mut worker = h.spawn_worker(&[]);
            h.show_until(&key, |_| server.got().len() > 1);
            worker.kill9();
            continue;
        }
        h.run(&["work", "--once"]).ok();
        let shown = h.show(&key);
        let due = Ms::parse_rfc3339(shown["run_after"].as_str().expect("a time")).expect("RFC 3339");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let due = due.0 - i64::try_from(now.as_millis()).expect("it fits");
        assert!(due > 3_000_000, "{profile} {status} {headers}: {due}");
        assert_eq!(server.got().len(), 1);
    }
}

#[test]
fn check_speaks_up_for_a_look_up_that_cannot_tell_generations_apart() {
    let said = |scene: Scene| scene.start().run(&["check"]).ok().stdout;
    let hint = "the same in every generation";
    assert!(said(Scene::new(Family::B).with_lookup(true)).contains(hint));
    assert!(
        !said(Scene::new(Family::B).with_lookup(false)).contains(hint),
        "it starts no generation by itself"
    );
    let by_wire_key = Scene::new(Family::B)
        .with_lookup(true)
        .set(|s| s.lookup = s.lookup.take().map(|l| l.replace("{$key}", "{$wire_key}")));
    assert!(!said(by_wire_key).contains(hint));
}
