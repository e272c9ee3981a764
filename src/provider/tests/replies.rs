//! Tables: what a reply means.

use super::{profile, reply};
use crate::clock::Ms;
use crate::config::{Absence, BodyCode, Duplicate, Profile, ReplayMarker, Reply, StatusRule, Statuses};
use crate::intent::Earlier;
use crate::outcome::{Class, Outcome};
use crate::provider::http::Answer;
use crate::provider::reply::{Ask, fetch, look_up, send};

/// No earlier generation.
static NONE: Earlier = Earlier { wire_keys: Vec::new(), references: Vec::new(), lost: Vec::new() };

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
    let headers = headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    Answer { status, headers, body: body.as_bytes().to_vec(), framed: true }
}

fn ask<'a>(profile: &'a Profile, reply: Option<&'a Reply>) -> Ask<'a> {
    Ask {
        profile,
        reply,
        not_found: None,
        has_lookup: false,
        retry_on: &[402],
        keys: ["payout:1", "wire-1"],
        generation: 1,
        earlier: &NONE,
        amount_minor: Some(1250),
        currency: Some("EUR"),
        named: Some("po_named"),
        secrets: &[],
        started: Ms(0),
        now: Ms(0),
    }
}

fn sent(status: u16, body: &str) -> Outcome {
    send(&answer(status, &[], body), &ask(&profile(), Some(&reply())))
}

#[test]
fn a_gateway_that_stopped_waiting_is_left_alone_for_five_minutes() {
    let pause = |status, headers: &[(&str, &str)]| {
        let outcome = send(&answer(status, headers, ""), &ask(&profile(), Some(&reply())));
        outcome.retry_after.map(|pause| pause.as_secs())
    };
    assert_eq!(pause(524, &[]), Some(300));
    assert_eq!(pause(524, &[("Retry-After", "7")]), Some(300));
    assert_eq!(pause(524, &[("Retry-After", "700")]), Some(700));
    assert_eq!(pause(522, &[]), None);
}

#[test]
fn statuses_have_their_general_meanings() {
    use Class::*;
    for (statuses, class) in [
        (
            &[
                400, 402, 403, 404, 405, 406, 409, 410, 412, 413, 415, 418, 422, 423, 424, 428, 431, 451,
                499, 501,
            ][..],
            Rejected,
        ),
        (&[401], Auth),
        (&[421, 425, 429], Throttled),
        (&[408, 500, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527, 529, 530, 599], ServerError),
        (&[300, 301, 302, 303, 305, 307, 308, 399], Redirected),
        (&[304, 600, 999], BadResponse),
        (&[101, 102], InProgress),
    ] {
        for status in statuses {
            let outcome = sent(*status, "{}");
            assert_eq!(outcome.class, class, "{status}");
            assert_eq!(outcome.http_status, Some(*status));
            assert!(outcome.error.unwrap().contains(&status.to_string()));
            assert_eq!(outcome.retry_on, *status == 402);
            assert!(!outcome.decisive);
        }
    }
    let cloudflare = Profile { cloudflare: true, ..profile() };
    for status in [521, 523, 525, 526] {
        assert_eq!(send(&answer(status, &[], ""), &ask(&cloudflare, None)).class, NotSent);
    }
    for status in [520, 522, 524] {
        assert_eq!(send(&answer(status, &[], ""), &ask(&cloudflare, None)).class, ServerError);
    }
}

#[test]
fn a_good_body_is_read_by_the_kinds_pointers() {
    use Class::*;
    for (body, class) in [
        (r#"{"id":"po_1","amount":1250,"currency":"eur","status":"paid"}"#, Ok),
        (r#"{"id":"po_1","amount":"1250","currency":"EUR","status":"anything"}"#, Ok),
        (r#"{"id":"po_1","status":"processing"}"#, Accepted),
        (r#"{"status":"processing"}"#, Accepted),
        (r#"{"id":"po_1","status":"failed"}"#, Rejected),
        (r#"{"amount":1250,"currency":"EUR","status":"paid"}"#, BadResponse),
        (r#"{"id":"","amount":1250,"currency":"EUR","status":"paid"}"#, BadResponse),
        (r#"{"id":{},"amount":1250,"currency":"EUR","status":"paid"}"#, BadResponse),
        (r#"{"id":true,"amount":1250,"currency":"EUR","status":"paid"}"#, BadResponse),
        (r#"{"id":"po_1","amount":1250,"currency":"EUR"}"#, BadResponse),
        (r#"{"id":"po_1","id":"po_2","status":"paid"}"#, BadResponse),
        (r#"{"id":"po_1""#, BadResponse),
        ("[]", BadResponse),
    ] {
        let outcome = sent(200, body);
        assert_eq!(outcome.class, class, "{body} {outcome:?}");
        assert_eq!(outcome.decisive, class == Rejected);
        assert_eq!(outcome.differs, None);
    }
    assert_eq!(
        sent(200, r#"{"id":1970670598291982290123,"amount":1250,"currency":"EUR","status":"paid"}"#)
            .reference
            .as_deref(),
        Some("1970670598291982290123")
    );
    assert_eq!(sent(200, &format!(r#"{{"id":"{}","status":"paid"}}"#, "x".repeat(256))).class, BadResponse);
    let strict = Reply { settled: vec!["paid".into()], ..reply() };
    let odd = send(&answer(200, &[], r#"{"id":"po_1","status":"odd"}"#), &ask(&profile(), Some(&strict)));
    assert_eq!(odd.class, BadResponse);
    assert!(odd.error.unwrap().contains("`odd`"));
}

#[test]
fn what_is_not_the_intents_differs_and_is_still_ok() {
    let keyed = Reply { key: Some("/ref".into()), ..reply() };
    for (body, says) in [
        (
            r#"{"id":"a","amount":1300,"currency":"EUR","status":"x","ref":"wire-1"}"#,
            "the reply's amount is 1300, the intent's 1250",
        ),
        (r#"{"id":"a","currency":"EUR","status":"x","ref":"wire-1"}"#, "no amount"),
        (r#"{"id":"a","amount":"1.25e3","currency":"EUR","status":"x","ref":"wire-1"}"#, "cannot be read"),
        (r#"{"id":"a","amount":1250,"currency":"USD","status":"x","ref":"wire-1"}"#, "currency is USD"),
        (r#"{"id":"a","amount":1250,"status":"x","ref":"wire-1"}"#, "no currency"),
        (r#"{"id":"a","amount":1250,"currency":"EUR","status":"x","ref":"other"}"#, "key is other"),
        (r#"{"id":"a","amount":1250,"currency":"EUR","status":"x"}"#, "no key"),
        (r#"{"id":"a","amount":1250,"currency":"EUR","status":"x","ref":"payout:1"}"#, ""),
    ] {
        let outcome = send(&answer(200, &[], body), &ask(&profile(), Some(&keyed)));
        assert_eq!(outcome.class, Class::Ok);
        let differs = outcome.differs.unwrap_or_default();
        assert!(differs.contains(says) && differs.is_empty() == says.is_empty(), "{body}: {differs}");
    }
    let major = Reply { amount_major: true, ..reply() };
    for (amount, currency, same) in [
        ("12.50", "EUR", true),
        ("12.5", "EUR", true),
        ("12.501", "EUR", false),
        ("1250", "JPY", true),
        ("1.250", "KWD", true),
        ("12.50", "XQQ", false),
    ] {
        let body = format!(r#"{{"id":"a","amount":"{amount}","currency":"{currency}","status":"x"}}"#);
        let profile = profile();
        let ask = Ask { currency: Some(currency), ..ask(&profile, Some(&major)) };
        assert_eq!(send(&answer(200, &[], &body), &ask).differs.is_none(), same, "{amount} {currency}");
    }
    let profile = profile();
    let reply = reply();
    let free = Ask { amount_minor: None, currency: None, ..ask(&profile, Some(&reply)) };
    assert_eq!(send(&answer(200, &[], r#"{"id":"a","status":"x"}"#), &free).differs, None);
}

#[test]
fn what_is_taken_for_another_amount_differs_already_and_what_it_does_not_say_yet_does_not() {
    for (status, body, differs) in [
        (200, r#"{"id":"a","status":"processing","amount":1300,"currency":"EUR"}"#, true),
        (202, r#"{"id":"a","status":"processing","amount":1250,"currency":"USD"}"#, true),
        (200, r#"{"id":"a","status":"processing","amount":1250,"currency":"eur"}"#, false),
        (202, r#"{"status":"processing"}"#, false),
        (202, r#"{"status":"processing","amount":null}"#, false),
    ] {
        let outcome = sent(status, body);
        assert_eq!((outcome.class, outcome.differs.is_some()), (Class::Accepted, differs), "{body}");
    }
}

#[test]
fn a_202_is_taken_unless_its_body_says_more() {
    use Class::*;
    let plain = Reply { status: None, ..reply() };
    let reply = reply();
    let good = r#"{"id":"a","amount":1250,"currency":"EUR","status":"paid"}"#;
    for (reply, has_lookup, body, class) in [
        (None, false, "", Ok),
        (None, true, "", Accepted),
        (Some(&plain), false, "", Accepted),
        (Some(&plain), false, good, Accepted),
        (Some(&reply), false, good, Ok),
        (Some(&reply), false, r#"{"status":"processing"}"#, Accepted),
        (Some(&reply), false, r#"{"status":"failed"}"#, Rejected),
        (Some(&reply), false, r#"{"id":"a"}"#, Accepted),
        (Some(&reply), false, "", Accepted),
    ] {
        let profile = profile();
        let ask = Ask { has_lookup, ..ask(&profile, reply) };
        assert_eq!(send(&answer(202, &[], body), &ask).class, class, "{body}");
        if reply.is_none() {
            assert_eq!(send(&answer(204, &[], ""), &ask).class, Ok);
            assert_eq!(send(&answer(200, &[], "<html>"), &ask).class, Ok);
        }
    }
}

#[test]
fn the_profile_overrules_by_status_and_code() {
    let code = |c: &str| Some(BodyCode { at: "/error/code".into(), is: c.into(), part: false });
    let rule = |status: u16, code: Option<BodyCode>, class: Class| StatusRule {
        status: Statuses(status, status),
        code,
        class,
        doubt: false,
        disable: false,
    };
    let rules = Profile {
        statuses: vec![
            rule(409, code("in_use"), Class::InProgress),
            rule(409, code("mismatch"), Class::KeyMismatch),
            rule(403, None, Class::Auth),
            rule(409, None, Class::Rejected),
        ],
        replay: Some(ReplayMarker { header: "Idempotent-Replayed".into(), value: "true".into() }),
        duplicate: Some(Duplicate {
            status: 409,
            code: "/error/code".into(),
            is: "dup".into(),
            reference: "/error/id".into(),
            link: false,
            path: None,
        }),
        ..profile()
    };
    let reply = reply();
    let says = |status, headers: &[(&str, &str)], body: &str| {
        send(&answer(status, headers, body), &ask(&rules, Some(&reply)))
    };
    assert_eq!(says(409, &[], r#"{"error":{"code":"in_use"}}"#).class, Class::InProgress);
    assert_eq!(says(409, &[], r#"{"error":{"code":"mismatch"}}"#).class, Class::KeyMismatch);
    assert_eq!(says(409, &[], r#"{"error":{"code":"else"}}"#).class, Class::Rejected);
    assert_eq!(says(409, &[], "<html>").class, Class::Rejected);
    assert_eq!(says(403, &[], "").class, Class::Auth);

    let named = says(409, &[], r#"{"error":{"code":"dup","id":"po_7"}}"#);
    assert_eq!((named.class, named.fetch, named.reference.as_deref()), (Class::Accepted, true, Some("po_7")));
    let listed = Profile {
        duplicate: rules.duplicate.clone().map(|d| Duplicate { code: "/errors/*/code".into(), ..d }),
        ..rules.clone()
    };
    let body = r#"{"errors":[{"code":"x"},{"code":"dup"}],"error":{"id":"po_7"}}"#;
    assert!(send(&answer(409, &[], body), &ask(&listed, Some(&reply))).fetch);
    let nameless = says(409, &[], r#"{"error":{"code":"dup"}}"#);
    assert_eq!((nameless.class, nameless.fetch), (Class::BadResponse, false));

    assert!(says(400, &[("idempotent-replayed", "True")], "{}").decisive);
    assert!(!says(400, &[("idempotent-replayed", "false")], "{}").decisive);
    assert!(!says(500, &[("idempotent-replayed", "true")], "{}").decisive);
}

#[test]
fn a_look_up_finds_nothing_only_when_it_says_so() {
    use Class::*;
    let by = Reply {
        reference: Some("/data/0/id".into()),
        status: Some("/data/0/status".into()),
        settled: vec!["paid".into()],
        pending: vec!["processing".into()],
        rejected: vec!["failed".into()],
        ..Reply::default()
    };
    let profile = profile();
    for (status, body, class) in [
        // A list that is empty says so; a 404 only says that somebody knows no such path.
        (404, r#"{"error":"no such thing"}"#, LookupFailed),
        (404, "<html>", LookupFailed),
        (404, "", LookupFailed),
        (200, r#"{"data":[]}"#, NotFound),
        (200, r#"{"data":null}"#, NotFound),
        (200, r#"{"data":[{"id":null}]}"#, NotFound),
        (200, r#"{"data":[{"id":null,"status":"processing"}]}"#, Accepted),
        (200, r#"{"data":[{}]}"#, LookupFailed),
        (200, "{}", LookupFailed),
        (200, r#"{"data":[{"id":"a","status":"paid"}]}"#, Ok),
        (200, r#"{"data":[{"id":"a","status":"processing"}]}"#, Accepted),
        (200, r#"{"data":[{"id":"a","status":"failed"}]}"#, Rejected),
        (200, r#"{"data":[{"id":"a","status":"odd"}]}"#, LookupFailed),
        (200, r#"{"data":["#, LookupFailed),
        (200, "<html>", LookupFailed),
        (200, "", LookupFailed),
        (202, r#"{"data":[]}"#, LookupFailed),
        (204, "", LookupFailed),
        (302, "", LookupFailed),
        (401, "{}", LookupFailed),
        (410, "{}", LookupFailed),
        (429, "{}", LookupFailed),
        (503, "{}", LookupFailed),
    ] {
        let outcome = look_up(&answer(status, &[("retry-after", "7")], body), &ask(&profile, Some(&by)));
        assert_eq!(outcome.class, class, "{status} {body}");
        assert_eq!(outcome.hold, status == 401);
        assert_eq!(outcome.decisive, class == Rejected);
        assert_eq!(outcome.retry_after.map(|d| d.as_secs()), Some(7));
        // Of a named object no answer proves that there is nothing.
        let fetched = fetch(&answer(status, &[], body), &ask(&profile, Some(&by)));
        assert_eq!(fetched.class, if class == NotFound { LookupFailed } else { class }, "{status} {body}");
    }
}

#[test]
fn a_404_says_nothing_there_where_one_object_is_asked_for_or_where_it_is_named() {
    use Class::*;
    let one = Reply { reference: Some("/id".into()), status: Some("/status".into()), ..Reply::default() };
    let list = Reply { reference: Some("/data/*/id".into()), ..Reply::default() };
    let code = |is: &str| Some(BodyCode { at: "/errors/*/code".into(), is: is.into(), part: false });
    let named = Absence { status: 404, code: code("missing") };
    let odd = Absence { status: 400, code: code("missing") };
    let found = Absence { status: 200, code: code("missing") };
    let only_null = Absence { status: 200, code: None };
    let theirs = r#"{"errors":[{"code":"other"},{"code":"missing"}]}"#;
    let gateways = r#"{"message":"no Route matched with those values"}"#;
    for (reply, rule, status, body, class) in [
        (&one, None, 404, gateways, NotFound),
        (&one, None, 404, r#""a string""#, LookupFailed),
        (&list, None, 404, theirs, LookupFailed),
        (&one, Some(&named), 404, gateways, LookupFailed),
        (&one, Some(&named), 404, theirs, NotFound),
        (&list, Some(&named), 404, theirs, NotFound),
        (&list, Some(&named), 404, gateways, LookupFailed),
        (&one, Some(&named), 400, theirs, LookupFailed),
        (&one, Some(&odd), 400, theirs, NotFound),
        (&one, Some(&odd), 404, theirs, LookupFailed),
        (&one, Some(&found), 200, theirs, NotFound),
        (&one, Some(&found), 200, r#"{"id":"a","status":"paid"}"#, Ok),
        (&one, Some(&only_null), 404, gateways, LookupFailed),
        (&one, Some(&only_null), 200, r#"{"id":null}"#, NotFound),
        (&list, Some(&only_null), 200, r#"{"data":[]}"#, NotFound),
    ] {
        let profile = profile();
        let ask = Ask { not_found: rule, ..ask(&profile, Some(reply)) };
        let outcome = look_up(&answer(status, &[], body), &ask);
        assert_eq!(outcome.class, class, "{rule:?} {status} {body}");
        let hint = outcome.error.unwrap_or_default().contains("see lookup.not_found");
        assert_eq!(hint, status == 404 && class == LookupFailed, "{rule:?} {status} {body}");
        assert!(!outcome.failed_only);
    }
}

#[test]
fn a_mark_before_a_reply_is_no_part_of_it() {
    let whole =
        sent(200, "\u{feff}{\"id\":\"po_1\",\"amount\":1250,\"currency\":\"EUR\",\"status\":\"paid\"}");
    assert_eq!((whole.class, whole.reference.as_deref()), (Class::Ok, Some("po_1")));
    assert!(whole.result.unwrap().starts_with('{'));
    assert!(sent(200, "\u{feff}<html>").error.unwrap().contains("HTML or XML"));
    assert!(sent(200, "\u{feff}").error.unwrap().contains("empty body"));
    let unframed = |body: &str| {
        let answer = Answer { framed: false, ..answer(200, &[], body) };
        send(&answer, &ask(&profile(), Some(&reply()))).class
    };
    assert_eq!(unframed("\u{feff}{\"id\":\"po_1\""), Class::Interrupted);
}

#[test]
fn a_fetched_object_without_a_reply_table_is_done_under_its_name() {
    let outcome = fetch(&answer(200, &[], "{}"), &ask(&profile(), None));
    assert_eq!((outcome.class, outcome.reference.as_deref()), (Class::Ok, Some("po_named")));
}
