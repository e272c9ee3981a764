//! Tables: what a list means, over generations.

use super::{profile, reply};
use crate::clock::Ms;
use crate::config::Reply;
use crate::intent::Earlier;
use crate::outcome::{Class, Outcome};
use crate::provider::http::Answer;
use crate::provider::reply::{Ask, fetch, look_up, send};

/// How the objects of a list are found.
fn by(at: &str) -> Reply {
    let place = |name: &str| Some(format!("{at}/{name}"));
    Reply {
        reference: place("id"),
        amount: place("amount"),
        key: place("ref"),
        status: place("status"),
        settled: vec!["paid".into()],
        pending: vec!["new".into()],
        rejected: vec!["failed".into()],
        ..Reply::default()
    }
}

/// What is known of the first generation: its key, and that it led to `po_1`.
fn known() -> Earlier {
    Earlier { wire_keys: vec!["wire-1".into()], references: vec!["po_1".into()], ..Earlier::default() }
}

fn judge(
    step: fn(&Answer, &Ask<'_>) -> Outcome,
    reply: &Reply,
    generation: u32,
    earlier: &Earlier,
    body: &str,
) -> Outcome {
    let profile = profile();
    let wire = format!("wire-{generation}");
    let ask = Ask {
        profile: &profile,
        reply: Some(reply),
        not_found: None,
        has_lookup: true,
        retry_on: &[],
        keys: ["payout:1", &wire],
        generation,
        earlier,
        amount_minor: Some(1250),
        currency: None,
        named: Some("po_named"),
        secrets: &[],
        started: Ms(0),
        now: Ms(0),
    };
    step(&Answer { status: 200, headers: Vec::new(), body: body.as_bytes().to_vec(), framed: true }, &ask)
}

/// `ID STATUS`, then words: `wN` for the wire key of a generation somewhere in it, `=N` for another amount, `@K` for
/// another key in the place of ours.
fn object(text: &str) -> String {
    let mut words = text.split(' ');
    let (id, status) = (words.next().unwrap(), words.next().unwrap());
    let (mut amount, mut key, mut meta) = ("1250", "payout:1", String::new());
    for word in words {
        match word.split_at(1) {
            ("w", n) => meta = format!(r#","meta":{{"tags":["x","wire-{n}"]}}"#),
            ("=", n) => amount = n,
            ("@", k) => key = k,
            _ => unreachable!("{word}"),
        }
    }
    format!(r#"{{"id":"{id}","status":"{status}","amount":{amount},"ref":"{key}"{meta}}}"#)
}

fn list(objects: &[&str]) -> String {
    let objects: Vec<String> = objects.iter().map(|o| object(o)).collect();
    format!(r#"{{"data":[{}]}}"#, objects.join(","))
}

/// The class, the reference, a part of what differs, and whether only failed objects were found.
type Row<'a> = (&'a [&'a str], Class, Option<&'a str>, Option<&'a str>, bool);

#[track_caller]
fn check(generation: u32, rows: &[Row<'_>]) {
    for (objects, class, reference, differs, failed_only) in rows {
        for at in ["/data/0", "/data/*"] {
            let outcome = judge(look_up, &by(at), generation, &known(), &list(objects));
            let told = (outcome.class, outcome.reference.as_deref(), outcome.failed_only);
            assert_eq!(told, (*class, *reference, *failed_only), "{objects:?} {outcome:?}");
            let says = outcome.differs.as_deref();
            assert_eq!(says.is_some(), differs.is_some(), "{objects:?} {outcome:?}");
            assert!(
                says.unwrap_or_default().contains(differs.unwrap_or_default()),
                "{objects:?} {outcome:?}"
            );
            assert_eq!(outcome.decisive, *class == Class::Rejected);
        }
    }
}

#[test]
fn every_element_of_a_list_is_read_and_an_effect_outweighs_a_failure() {
    use Class::*;
    check(
        1,
        &[
            (&["po_1x failed", "po_2 paid"], Ok, Some("po_2"), None, false),
            (&["po_2 paid", "po_3 failed =7"], Ok, Some("po_2"), None, false),
            (&["po_2 failed", "po_3 new"], Accepted, Some("po_3"), None, false),
            (&["po_2 new", "po_3 paid"], Ok, Some("po_3"), None, false),
            (&["po_2 paid", "po_3 paid"], Ok, Some("po_2"), Some("po_2 and po_3"), false),
            (&["po_2 paid", "po_3 paid =999"], Ok, Some("po_2"), Some("po_2 and po_3"), false),
            (&["po_2 paid", "po_2 paid"], Ok, Some("po_2"), None, false),
            (&["po_2 failed", "po_3 failed"], Rejected, Some("po_2"), None, false),
            (&["po_2 failed", "po_3 odd"], LookupFailed, None, None, false),
            (&["po_2 odd", "po_3 paid"], Ok, Some("po_3"), None, false),
            (&[], NotFound, None, None, false),
        ],
    );
}

#[test]
fn what_is_not_ours_is_no_refusal_of_ours() {
    use Class::*;
    check(
        1,
        &[
            (&["po_9 failed @payout:9"], Ok, Some("po_9"), Some("key is payout:9"), false),
            (&["po_9 failed =999"], Ok, Some("po_9"), Some("amount is 999"), false),
            (&["po_9 paid @payout:9"], Ok, Some("po_9"), Some("key is payout:9"), false),
            (&["po_9 new =999"], Accepted, Some("po_9"), Some("amount is 999"), false),
            // Beside one of ours another job's does not count.
            (&["po_9 paid @payout:9", "po_2 failed"], Rejected, Some("po_2"), None, false),
            (&["po_9 paid @payout:9", "po_2 new"], Accepted, Some("po_2"), None, false),
            (&["po_9 failed @payout:9", "po_2 paid"], Ok, Some("po_2"), None, false),
        ],
    );
}

#[test]
fn an_earlier_generations_object_is_no_answer_about_the_present_one() {
    use Class::*;
    check(
        2,
        &[
            // The first one's object is known by its reference, or by the key that it carries.
            (&["po_1 failed"], NotFound, None, None, true),
            (&["po_7 failed w1"], NotFound, None, None, true),
            (&["po_1 failed", "po_7 failed w1"], NotFound, None, None, true),
            (&["po_1 failed", "po_2 paid"], Ok, Some("po_2"), None, false),
            (&["po_1 failed", "po_2 new"], Accepted, Some("po_2"), None, false),
            (&["po_1 failed", "po_2 failed w2"], Rejected, Some("po_2"), None, false),
            (&["po_1 failed", "po_2 odd"], LookupFailed, None, None, false),
            // Nobody knows whose this is.
            (&["po_5 failed"], LookupFailed, None, None, true),
            (&["po_1 failed", "po_5 failed"], LookupFailed, None, None, true),
            (&["po_5 failed", "po_2 failed w2"], Rejected, Some("po_2"), None, false),
            (&["po_2 failed @wire-2"], Rejected, Some("po_2"), None, false),
            // It was given up, and has not failed: a person has to know.
            (&["po_1 paid"], Ok, Some("po_1"), Some("po_1 is an earlier generation's"), false),
            (&["po_1 new"], Accepted, Some("po_1"), Some("po_1 is an earlier generation's"), false),
            (&["po_1 paid", "po_2 failed w2"], Ok, Some("po_1"), Some("an earlier generation's"), false),
            (&["po_1 paid", "po_2 paid"], Ok, Some("po_2"), Some("po_2 and po_1"), false),
            // Another job's object stays another job's, though it was once taken for the first one's.
            (&["po_1 paid @payout:9", "po_2 paid"], Ok, Some("po_2"), None, false),
            (&["po_1 paid @payout:9"], Ok, Some("po_1"), Some("key is payout:9"), false),
            // The provider keeps one object a key, and it is this generation's now.
            (&["po_1 failed w2"], Rejected, Some("po_1"), None, false),
        ],
    );
}

/// Restored since: generations 2 and on are only the lost file's, if anybody's.
#[test]
fn what_a_generation_did_that_only_the_lost_file_had_was_done_for_this_intent() {
    let lost = Earlier { lost: vec!["wire-2".into(), "wire-3".into()], ..Earlier::default() };
    use Class::*;
    for (texts, class, reference, differs, failed_only) in [
        (&["po_2 paid @wire-2"][..], Ok, Some("po_2"), false, false),
        (&["po_2 paid w2"], Ok, Some("po_2"), false, false),
        (&["po_2 new @wire-3"], Accepted, Some("po_2"), false, false),
        (&["po_1 failed w1", "po_2 paid @wire-2"], Ok, Some("po_2"), false, false),
        (&["po_2 paid @wire-2 =9"], Ok, Some("po_2"), true, false),
        (&["po_2 paid @wire-2", "po_3 paid @wire-3"], Ok, Some("po_2"), true, false),
        // Another one's key is another one's.
        (&["po_2 paid @wire-9"], Ok, Some("po_2"), true, false),
        // What failed is not nothing.
        (&["po_2 failed @wire-2"], LookupFailed, None, false, true),
    ] {
        let outcome = judge(look_up, &by("/data/*"), 1, &lost, &list(texts));
        assert_eq!((outcome.class, outcome.reference.as_deref()), (class, reference), "{texts:?}");
        assert_eq!((outcome.differs.is_some(), outcome.failed_only), (differs, failed_only), "{texts:?}");
    }
}

#[test]
fn a_raw_keys_first_generation_looks_like_the_job_and_hides_nothing() {
    let raw = Earlier { wire_keys: vec!["payout:1".into()], references: Vec::new(), lost: Vec::new() };
    let outcome = judge(look_up, &by("/data/0"), 2, &raw, &list(&["po_2 paid"]));
    assert_eq!((outcome.class, outcome.differs), (Class::Ok, None));
    let outcome = judge(look_up, &by("/data/0"), 2, &raw, &list(&["po_2 failed"]));
    assert_eq!(outcome.class, Class::LookupFailed);
}

#[test]
fn one_object_that_failed_answers_for_a_later_generation_only_with_its_key() {
    let unit = by("");
    for (generation, text, class, decisive) in [
        (1, "po_0 failed", Class::Rejected, true),
        (2, "po_2 failed w2", Class::Rejected, true),
        (2, "po_2 failed", Class::Rejected, false),
        (2, "po_1 failed", Class::Rejected, false),
        (2, "po_7 failed w1", Class::Rejected, false),
        (2, "po_2 paid", Class::Ok, false),
    ] {
        let outcome = judge(send, &unit, generation, &known(), &object(text));
        assert_eq!((outcome.class, outcome.decisive), (class, decisive), "{text}");
        assert_eq!(
            outcome.error.is_some_and(|e| e.contains("generation")),
            class == Class::Rejected && !decisive
        );
        for question in [look_up, fetch] {
            let asked = judge(question, &unit, generation, &known(), &object(text));
            let expected = if class == Class::Rejected && !decisive { Class::LookupFailed } else { class };
            assert_eq!(asked.class, expected, "{text}");
            assert_eq!(asked.failed_only, expected == Class::LookupFailed);
        }
    }
    let other = judge(send, &unit, 1, &known(), &object("po_9 failed =999"));
    assert_eq!((other.class, other.differs.is_some()), (Class::Ok, true));
}

#[test]
fn a_reply_that_shows_a_failed_part_first_is_not_a_refusal_when_another_part_was_done() {
    let captures = |second: &str| {
        format!(r#"{{"units":[{{"captures":[{},{}]}}]}}"#, object("c_1 failed"), object(second))
    };
    let at = by("/units/0/captures/0");
    for (second, class, reference) in [
        ("c_2 paid", Class::Ok, "c_2"),
        ("c_2 new", Class::Accepted, "c_2"),
        ("c_2 failed", Class::Rejected, "c_1"),
        ("c_2 odd", Class::BadResponse, ""),
    ] {
        let outcome = judge(send, &at, 1, &Earlier::default(), &captures(second));
        assert_eq!(
            (outcome.class, outcome.reference.unwrap_or_default().as_str()),
            (class, reference),
            "{second}"
        );
    }
    // The reply to a request is about that request: the place that the config names is the object.
    let parts = format!(r#"{{"units":[{{"captures":[{},{}]}}]}}"#, object("c_1 paid"), object("c_2 paid"));
    assert_eq!(judge(send, &at, 1, &Earlier::default(), &parts).differs, None);
    let none = judge(send, &by("/units/*/captures/*"), 1, &Earlier::default(), r#"{"units":[]}"#);
    assert_eq!(none.class, Class::BadResponse);
    assert_eq!(reply().spine(), Some("/status"));
}
