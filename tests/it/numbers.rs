//! Digits: none is lost on the way to the provider, and none is overlooked when two contents are compared.

use crate::harness::*;
use onceward::demo::provider::Family;

/// R46
#[test]
fn large_numbers_and_decimals_reach_the_provider_digit_for_digit() {
    let h = Scene::new(Family::B).start();
    let payload =
        r#"{"id":1970670598291982290,"u":18446744073709551616,"d":0.1000,"e":1e400,"n":-0.0,"s":"😀"}"#;
    h.enqueue("raw", payload, &["--key", "raw-1"]).ok();
    h.work_until_idle();
    let posts = h.posts();
    assert_eq!(posts.len(), 1);
    assert_eq!(String::from_utf8_lossy(&posts[0].request.body), payload);
    let shown = h.run(&["show", "raw-1"]).ok().stdout;
    for digits in ["1970670598291982290", "18446744073709551616", "0.1000", "1e400"] {
        assert!(shown.contains(digits), "{digits} is not in {shown}");
    }
    assert!(shown.contains(r#""state":"settled""#), "{shown}");
}

#[test]
fn an_amount_beyond_two_to_the_53_is_exact_in_request_ledger_and_comparison() {
    let h = Scene::new(Family::B).start();
    for (invoice, amount) in [("a", 9_007_199_254_740_993_i64), ("b", i64::MAX)] {
        let payload = format!(
            r#"{{"invoice_id":"{invoice}","account_id":"1","amount_minor":{amount},"currency":"EUR"}}"#
        );
        h.enqueue("payout", &payload, &[]).ok();
        h.work_until_idle();
        let key = format!("payout:{invoice}");
        let job = h.assert_settled_once(&key);
        assert_eq!(job["amount_minor"].as_i64(), Some(amount));
        let posts = h.posts();
        let body = String::from_utf8_lossy(&posts[posts.len() - 1].request.body).into_owned();
        assert!(body.contains(&format!(r#""amount":{amount}"#)), "{body}");
    }
    h.assert_laws();
}

/// R02, second half.
#[test]
fn key_order_and_white_space_make_a_duplicate_and_digits_make_another_content() {
    let h = Scene::new(Family::B).start();
    h.enqueue("raw", r#"{"a":1,"b":{"x":1.0,"y":[1,2]}}"#, &["--key", "k"]).ok();
    for same in
        [r#"{ "b" : {"y":[1,2], "x":1.0 }, "a":1 }"#, "{\n\"\\u0061\":1,\"b\":{\"x\":1.0,\"y\":[1,2]}}"]
    {
        let answer = h.enqueue("raw", same, &["--key", "k"]).ok().json();
        assert_eq!(answer["outcome"], "duplicate", "{same}");
    }
    for other in [
        r#"{"a":1,"b":{"x":1.00,"y":[1,2]}}"#,
        r#"{"a":1,"b":{"x":1,"y":[1,2]}}"#,
        r#"{"a":1,"b":{"x":1.0,"y":[2,1]}}"#,
        r#"{"a":"1","b":{"x":1.0,"y":[1,2]}}"#,
        r#"{"a":1,"b":{"x":1.0,"y":[1,2]},"c":null}"#,
    ] {
        h.enqueue("raw", other, &["--key", "k"]).refused("key_mismatch", 4);
    }
    h.enqueue(
        "raw",
        r#"{"a":1,"b":{"x":1.0,"y":[1,2]}}"#,
        &["--key", "k", "--amount-minor", "5", "--currency", "EUR"],
    )
    .refused("key_mismatch", 4);
    assert_eq!(h.list(&[]).len(), 1);
    assert_eq!(h.stats()["key_mismatches"], 6);
    h.work_until_idle();
    assert_eq!(h.posts().len(), 1);
}

#[test]
fn the_same_key_with_another_amount_is_refused_even_after_the_job_is_done() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.work_until_idle();
    let more = payout(1).replace("1001", "1002");
    h.enqueue("payout", &more, &[]).refused("key_mismatch", 4);
    h.work_until_idle();
    h.assert_settled_once(&key);
    assert_eq!(h.posts().len(), 1);
}
