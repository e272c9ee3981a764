//! Every (status, code) row of every profile, and every status of the outcome table, as a real reply over a real socket:
//! the class that it gets and what it makes of job and intent. What is expected stands here by hand, drawn from what the
//! providers' documents say; nothing of it is read from the profiles.

use crate::harness::*;
use onceward::config::Profile;
use onceward::demo::provider::Family;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One reply to a first request, and what must come of it.
struct Row {
    profile: &'static str,
    status: u16,
    headers: &'static str,
    body: &'static str,
    class: &'static str,
    /// The job's state, and its park reason behind a blank.
    job: &'static str,
    intent: &'static str,
    /// More of the provider's table.
    provider: &'static str,
}

const UNKNOWN: (&str, &str) = ("unknown", "requested");
const AGAIN: (&str, &str) = ("scheduled", "pending");
const REFUSED: (&str, &str) = ("parked rejected", "rejected");
const PERSON: (&str, &str) = ("parked unknown_outcome", "requested");

fn row(
    profile: &'static str,
    status: u16,
    body: &'static str,
    class: &'static str,
    (job, intent): (&'static str, &'static str),
) -> Row {
    Row { profile, status, headers: "", body, class, job, intent, provider: "" }
}

fn with(headers: &'static str, row: Row) -> Row {
    Row { headers, ..row }
}

/// What the providers' documents say of statuses and codes.
fn promised() -> Vec<Row> {
    let mut rows = vec![
        row("stripe", 400, r#"{"error":{"type":"idempotency_error"}}"#, "key_mismatch", PERSON),
        row("stripe", 400, r#"{"error":{"type":"invalid_request_error"}}"#, "rejected", REFUSED),
        row("stripe", 409, r#"{"error":{"code":"idempotency_key_in_use"}}"#, "in_progress", UNKNOWN),
        row(
            "stripe",
            409,
            r#"{"error":{"code":"idempotency_key_in_use","type":"invalid_request_error"}}"#,
            "in_progress",
            UNKNOWN,
        ),
        row("stripe", 409, r#"{"error":{"code":"resource_changed"}}"#, "rejected", REFUSED),
        row("stripe", 402, r#"{"error":{"type":"card_error","code":"card_declined"}}"#, "rejected", REFUSED),
        row("stripe", 429, r#"{"error":{"code":"lock_timeout"}}"#, "throttled", AGAIN),
        with("Stripe-Should-Retry: true\r\n", row("stripe", 429, "{}", "throttled", AGAIN)),
        // Its word goes before the status, in both directions.
        with("Stripe-Should-Retry: false\r\n", row("stripe", 429, "{}", "rejected", REFUSED)),
        with("Stripe-Should-Retry: true\r\n", row("stripe", 400, "{}", "throttled", AGAIN)),
        with("Stripe-Should-Retry: true\r\n", row("stripe", 500, "{}", "server_error", UNKNOWN)),
        with("Stripe-Should-Retry: false\r\n", row("stripe", 500, "{}", "server_error", PERSON)),
        with("Stripe-Should-Retry: perhaps\r\n", row("stripe", 400, "{}", "rejected", REFUSED)),
        with(
            "Stripe-Should-Retry: false\r\n",
            row("stripe", 409, r#"{"error":{"code":"idempotency_key_in_use"}}"#, "in_progress", PERSON),
        ),
        // A stored refusal stays one, whatever else is said.
        with(
            "Idempotent-Replayed: true\r\nStripe-Should-Retry: true\r\n",
            row("stripe", 402, "{}", "rejected", REFUSED),
        ),
        // The code that would tell a refusal from a running first request cannot be read: a firewall's page, say.
        row("stripe", 409, "<html>blocked</html>", "bad_response", UNKNOWN),
        row("stripe", 409, "", "bad_response", UNKNOWN),
        row("stripe", 400, "Bad Request", "bad_response", UNKNOWN),
        row("stripe", 403, "<html>blocked</html>", "rejected", REFUSED),
        row("paypal", 403, "<html>blocked</html>", "bad_response", UNKNOWN),
        row("gocardless", 409, "<html>blocked</html>", "bad_response", UNKNOWN),
        row("resend", 409, "<html>blocked</html>", "key_mismatch", PERSON),
        with(
            "Idempotent-Replayed: true\r\n",
            row("stripe", 400, "<html>blocked</html>", "bad_response", UNKNOWN),
        ),
        row("stripe-v2", 400, r#"{"error":{"type":"idempotency_error"}}"#, "key_mismatch", PERSON),
        row("stripe-v2", 409, r#"{"error":{"code":"idempotency_key_in_use"}}"#, "in_progress", UNKNOWN),
        row("stripe-v2", 409, r#"{"error":{"code":"other"}}"#, "key_mismatch", PERSON),
        with("Stripe-Should-Retry: false\r\n", row("stripe-v2", 503, "{}", "server_error", PERSON)),
        row("paypal", 409, r#"{"name":"PREVIOUS_REQUEST_IN_PROGRESS"}"#, "in_progress", UNKNOWN),
        row(
            "paypal",
            422,
            r#"{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}"#,
            "in_progress",
            UNKNOWN,
        ),
        row(
            "paypal",
            422,
            r#"{"details":[{"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}"#,
            "key_mismatch",
            PERSON,
        ),
        row("paypal", 400, r#"{"name":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}"#, "key_mismatch", PERSON),
        row("paypal", 400, r#"{"name":"DUPLICATE_REQUEST_ID"}"#, "key_mismatch", PERSON),
        row("paypal", 409, r#"{"details":[{"issue":"DUPLICATE_REQUEST_ID"}]}"#, "key_mismatch", PERSON),
        row("paypal", 422, r#"{"details":[{"issue":"DUPLICATE_INVOICE_ID"}]}"#, "key_mismatch", PERSON),
        row("paypal", 422, r#"{"details":[{"issue":"INSTRUMENT_DECLINED"}]}"#, "rejected", REFUSED),
        row(
            "paypal-payouts",
            400,
            r#"{"name":"USER_BUSINESS_ERROR","details":[{"issue":"Batch with given sender_batch_id already exists","link":[{"href":"https://api.paypal.com/v1/payments/payouts/CDZ1","rel":"self"}]}]}"#,
            "accepted",
            UNKNOWN,
        ),
        row(
            "paypal-payouts",
            400,
            r#"{"name":"USER_BUSINESS_ERROR","details":[{"issue":"Batch with given sender_batch_id already exists"}]}"#,
            "bad_response",
            UNKNOWN,
        ),
        // The issue that counts need not be the first.
        row(
            "paypal",
            422,
            r#"{"details":[{"issue":"INVALID_PARAMETER"},{"issue":"DUPLICATE_REQUEST_ID"}]}"#,
            "key_mismatch",
            PERSON,
        ),
        row("paypal-payouts", 400, r#"{"name":"USER_BUSINESS_ERROR"}"#, "key_mismatch", PERSON),
        row("paypal-payouts", 422, r#"{"name":"INSUFFICIENT_FUNDS"}"#, "rejected", REFUSED),
        row("square", 400, r#"{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}"#, "key_mismatch", PERSON),
        row(
            "square",
            400,
            r#"{"errors":[{"code":"VALUE_TOO_LONG"},{"code":"IDEMPOTENCY_KEY_REUSED"}]}"#,
            "key_mismatch",
            PERSON,
        ),
        row("square", 409, r#"{"errors":[{"code":"CONFLICT"}]}"#, "in_progress", UNKNOWN),
        row("square", 400, r#"{"errors":[{"code":"MISSING_REQUIRED_PARAMETER"}]}"#, "rejected", REFUSED),
        row(
            "gocardless",
            409,
            r#"{"error":{"type":"invalid_state","errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM1"}}]}}"#,
            "accepted",
            UNKNOWN,
        ),
        row(
            "gocardless",
            409,
            r#"{"error":{"type":"invalid_state","errors":[{"reason":"idempotent_creation_conflict"}]}}"#,
            "bad_response",
            UNKNOWN,
        ),
        row(
            "gocardless",
            409,
            r#"{"error":{"type":"invalid_state","errors":[{"reason":"mandate_is_inactive"}]}}"#,
            "rejected",
            REFUSED,
        ),
        row("adyen", 422, r#"{"errorCode":"704"}"#, "in_progress", UNKNOWN),
        row(
            "gocardless",
            409,
            r#"{"error":{"type":"invalid_state","errors":[{"reason":"mandate_is_inactive"},{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM2"}}]}}"#,
            "key_mismatch",
            PERSON,
        ),
        row("adyen", 422, r#"{"errorCode":"101"}"#, "rejected", REFUSED),
        // An error that will pass: sent again, and nothing is claimed of the first try meanwhile.
        with("transient-error: true\r\n", row("adyen", 422, r#"{"errorCode":"101"}"#, "throttled", UNKNOWN)),
        with("transient-error: true\r\n", row("adyen", 500, "{}", "server_error", UNKNOWN)),
        with(
            "transient-error: true\r\n",
            row("adyen", 422, r#"{"errorCode":"704"}"#, "in_progress", UNKNOWN),
        ),
        with("transient-error: false\r\n", row("adyen", 422, r#"{"errorCode":"101"}"#, "rejected", REFUSED)),
        with("transient-error: false\r\n", row("adyen", 500, "{}", "server_error", UNKNOWN)),
        row("mollie", 409, r#"{"title":"Conflict"}"#, "key_mismatch", PERSON),
        row("mollie", 422, r#"{"title":"Unprocessable Entity"}"#, "rejected", REFUSED),
        row(
            "razorpay",
            400,
            r#"{"error":{"code":"BAD_REQUEST_ERROR","description":"Different request body sent for the same Idempotency Header"}}"#,
            "key_mismatch",
            PERSON,
        ),
        row(
            "razorpay",
            400,
            r#"{"error":{"code":"BAD_REQUEST_ERROR","description":"The amount is too low"}}"#,
            "rejected",
            REFUSED,
        ),
        row("razorpay", 409, r#"{"error":{"code":"BAD_REQUEST_ERROR"}}"#, "in_progress", UNKNOWN),
        row("wise", 409, "{}", "key_mismatch", PERSON),
        row("modern-treasury", 409, r#"{"errors":{"code":"conflict"}}"#, "in_progress", UNKNOWN),
        with("x-should-retry: true\r\n", row("modern-treasury", 422, "{}", "throttled", AGAIN)),
        with("x-should-retry: false\r\n", row("modern-treasury", 503, "{}", "server_error", PERSON)),
        row("xero", 409, "{}", "key_mismatch", PERSON),
        row("quickbooks", 409, "{}", "key_mismatch", PERSON),
        row("resend", 409, r#"{"name":"concurrent_idempotent_requests"}"#, "in_progress", UNKNOWN),
        row("resend", 409, r#"{"name":"invalid_idempotent_request"}"#, "key_mismatch", PERSON),
        row("resend", 409, r#"{"name":"something_new"}"#, "key_mismatch", PERSON),
        row("resend", 400, r#"{"name":"invalid_idempotency_key"}"#, "rejected", REFUSED),
        row("resend", 429, r#"{"name":"daily_quota_exceeded"}"#, "throttled", AGAIN),
        row("brevo", 409, "{}", "key_mismatch", PERSON),
        row("standard-webhooks", 410, "", "rejected", REFUSED),
        // A gateway spoke, so that it may have been delivered.
        row("standard-webhooks", 502, "", "throttled", UNKNOWN),
        row("standard-webhooks", 504, "", "throttled", UNKNOWN),
        row("standard-webhooks", 500, "", "server_error", UNKNOWN),
        row("standard-webhooks", 404, "", "rejected", REFUSED),
    ];
    for profile in Profile::builtin_names().into_iter().filter(|name| *name != "external") {
        let forgets = ["none", "postmark", "sendgrid", "twilio"].contains(&profile);
        rows.extend([
            row(profile, 201, r#"{"id":"{id}","status":"done"}"#, "ok", ("settled", "settled")),
            row(profile, 200, r#"{"id":"{id}","status":"failed"}"#, "rejected", REFUSED),
            row(profile, 200, r#"{"id":"{id}","status":"pending"}"#, "accepted", UNKNOWN),
            row(profile, 202, "", "accepted", UNKNOWN),
            row(profile, 400, r#"{"message":"no"}"#, "rejected", REFUSED),
            row(profile, 401, "{}", "auth", ("ready", "pending")),
            row(profile, 429, "{}", "throttled", AGAIN),
            row(profile, 500, "{}", "server_error", if forgets { PERSON } else { UNKNOWN }),
            row(profile, 302, "", "redirected", ("parked redirected", "requested")),
        ]);
    }
    rows
}

/// The status rows 20 to 57 of the outcome table, for a provider that remembers, one that has forgotten by the time of a
/// re-send, and one that never remembers.
fn statuses() -> Vec<Row> {
    const FORGOT: (&str, &str) = ("parked window_expired", "requested");
    let mut rows = Vec::new();
    let mut add = |status, body, class, outcomes: [(&'static str, &'static str); 3]| {
        for ((profile, provider), outcome) in
            [("generic", ""), ("generic", "idempotency = { window = \"1s\" }"), ("none", "")]
                .into_iter()
                .zip(outcomes)
        {
            rows.push(Row { provider, ..row(profile, status, body, class, outcome) });
        }
    };
    let doubt = [UNKNOWN, FORGOT, PERSON];
    add(200, "<html>log in</html>", "bad_response", doubt); // 22
    add(200, "", "bad_response", doubt);
    add(200, r#"{"errors":[{"message":"no"}]}"#, "bad_response", doubt); // 23
    add(200, r#"{"success":false,"status":"failed"}"#, "rejected", [REFUSED; 3]);
    add(202, r#"{"id":"{id}","status":"pending"}"#, "accepted", [UNKNOWN; 3]); // 24
    for status in [301, 302, 303, 307, 308] {
        add(status, "", "redirected", [("parked redirected", "requested"); 3]); // 25, 26
    }
    add(304, "", "bad_response", doubt); // 27
    for status in
        [400, 402, 403, 404, 405, 406, 409, 410, 412, 413, 414, 415, 418, 422, 423, 424, 428, 431, 451, 501]
    {
        add(status, "{}", "rejected", [REFUSED; 3]); // 28, 31-33, 37-40, 42, 43, 46, 48, 57
    }
    add(401, "{}", "auth", [("ready", "pending"); 3]); // 30
    add(408, "", "server_error", doubt); // 34
    for status in [421, 425, 429] {
        add(status, "", "throttled", [AGAIN; 3]); // 41, 44, 45
    }
    for status in [500, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527, 529, 530, 599] {
        add(status, "", "server_error", doubt); // 47, 49-56
    }
    add(102, "", "in_progress", doubt); // 20
    rows
}

/// Nothing is tried again while the test looks.
const LATER: &str = "Retry-After: 300\r\n";

/// Serves each row to a job of its own, each at a provider of its own, and compares what came of it.
fn run(rows: &[Row]) {
    let replies: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(i, row)| match row.status {
            100..=199 => format!("HTTP/1.1 {} X\r\n{LATER}\r\n", row.status),
            _ => reply(
                row.status,
                &format!("{LATER}{}", row.headers),
                &row.body.replace("{id}", &format!("obj_{i}")),
            ),
        })
        .collect();
    let server = Script::start(move |got, _| {
        let index: usize = got.path.split('?').next()?.strip_prefix("/row/")?.parse().ok()?;
        replies.get(index).cloned()
    });
    let h = Scene::new(Family::B).start();
    let mut config = String::from("[worker]\nthreads = 8\n");
    let mut jobs = String::new();
    for (i, row) in rows.iter().enumerate() {
        let signing = if row.profile == "standard-webhooks" { "signing = [{ env = \"SIGN\" }]" } else { "" };
        config += &format!(
            r#"
[providers.p{i}]
profile = "{}"
base_url = "{}"
{signing}
{}
[kinds.k{i}]
provider = "p{i}"
request = {{ path = "/row/{i}", body = {{ amount = 1 }} }}
reply = {{ reference = "/id", status = "/status", settled = ["done"], pending = ["pending"], rejected = ["failed"] }}
retry = {{ base = "1s", cap = "1s" }}
"#,
            row.profile, server.base_url, row.provider
        );
        jobs += &format!("{}\n", json!({"kind": format!("k{i}"), "key": format!("row-{i}"), "payload": {}}));
    }
    h.config(&config);
    h.env("SIGN", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    std::fs::write(h.dir.path().join("jobs.jsonl"), jobs).expect("the jobs are written");
    h.run(&["import", "jobs.jsonl"]).ok();
    h.run(&["work", "--once"]).ok();

    let listed = h.list(&[]);
    let jobs: BTreeMap<&str, &Value> = listed.iter().map(|job| (job["key"].as_str().unwrap(), job)).collect();
    let mut wrong = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let job = jobs[format!("row-{i}").as_str()];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let state = format!("{} {}", word(&job["state"]), word(&job["park_reason"])).trim().to_string();
        let class = if state == "settled" { "ok".to_string() } else { word(&job["error_class"]) };
        let is = (class.as_str(), state.as_str(), word(&job["intent"]["state"]));
        if is != (row.class, row.job, row.intent.to_string()) {
            let expected = (row.class, row.job, row.intent);
            wrong.push(format!(
                "{} {} {} {}{}: {is:?}, expected {expected:?}",
                row.profile, row.provider, row.status, row.headers, row.body
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut asked: Vec<String> = server.got().iter().map(|got| got.path.clone()).collect();
    asked.sort();
    let twice: Vec<_> = asked.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
    assert_eq!((asked.len(), twice), (rows.len(), Vec::new()), "one request for each row");
}

#[test]
fn every_reply_that_a_provider_documents_gets_its_class_and_makes_the_job_what_it_should() {
    run(&promised());
}

#[test]
fn every_status_of_the_outcome_table_gets_its_class_and_makes_the_job_what_it_should() {
    run(&statuses());
}

/// Does the body have a code that fits? A segment `*` stands for every item of an array.
fn has(body: &Value, at: &str, fits: &dyn Fn(&str) -> bool) -> bool {
    match at.split_once("/*") {
        Some((list, rest)) => body
            .pointer(list)
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|v| has(v, rest, fits))),
        None => body.pointer(at).and_then(Value::as_str).is_some_and(fits),
    }
}

/// A row that is added to a profile without an expectation here would be a claim that nobody has checked.
#[test]
fn no_row_of_a_profile_is_without_an_expectation() {
    let rows = promised();
    for name in Profile::builtin_names() {
        let profile = Profile::builtin(name).expect("it is one of them");
        for (i, rule) in profile.statuses.iter().enumerate() {
            let met = rows.iter().filter(|row| row.profile == name).any(|row| {
                let body: Value = serde_json::from_str(row.body).unwrap_or(Value::Null);
                let first = profile.statuses.iter().position(|rule| {
                    rule.fits(row.status, |code| has(&body, &code.at, &|found| code.fits(found)))
                });
                first == Some(i)
            });
            assert!(met, "{name}: nothing here meets {rule:?}");
        }
        if let Some(duplicate) = profile.duplicate {
            let met = rows
                .iter()
                .any(|row| row.profile == name && row.class == "accepted" && row.status == duplicate.status);
            assert!(met, "{name}: nothing here meets {duplicate:?}");
        }
    }
}
