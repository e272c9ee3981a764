//! Payloads: every digit is kept, and what is no JSON object is refused.

use super::{cases, mutated, pick, rng, text};
use fastrand::Rng;
use onceward::json::Json;
use std::collections::BTreeSet;

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "0.1000",
    "1e400",
    "1E+9",
    "-1.5e-7",
    "1970670598291982290",
    "18446744073709551616",
    "0.30000000000000004",
    "123456789012345678901234567890.12345678901234567890",
];

/// A value and its numbers, in their order.
fn value(rng: &mut Rng, depth: usize, numbers: &mut Vec<String>) -> String {
    match rng.u8(..if depth == 0 { 5 } else { 8 }) {
        0 => "null".into(),
        1 => rng.bool().to_string(),
        2 => serde_json::to_string(&text(rng, 6)).unwrap(),
        3 | 4 => {
            let number = pick(rng, NUMBERS).to_string();
            numbers.push(number.clone());
            number
        }
        5 => {
            let items: Vec<String> = (0..rng.usize(..4)).map(|_| value(rng, depth - 1, numbers)).collect();
            format!("[{}]", items.join(" , "))
        }
        _ => object(rng, depth - 1, numbers),
    }
}

fn object(rng: &mut Rng, depth: usize, numbers: &mut Vec<String>) -> String {
    let mut names = BTreeSet::new();
    let members: Vec<String> = (0..rng.usize(..5))
        .filter_map(|n| {
            let name = if rng.bool() { format!("n{n}") } else { text(rng, 3) };
            names
                .insert(name.clone())
                .then(|| format!("{} :{}", serde_json::to_string(&name).unwrap(), value(rng, depth, numbers)))
        })
        .collect();
    format!("{{{}}}", members.join(",\n"))
}

#[test]
fn every_digit_of_a_payload_is_kept_and_its_canonical_form_is_one() {
    let mut rng = rng();
    for n in 0..cases(3000) {
        let mut numbers = Vec::new();
        let given = object(&mut rng, 5, &mut numbers);
        let read = Json::parse(&given).unwrap_or_else(|e| panic!("case {n}: {e}: {given}"));
        let written = read.to_text();
        assert_eq!(Json::parse(&written).unwrap(), read, "case {n}: {given}");
        let mut rest = written.as_str();
        for number in &numbers {
            let at = rest.find(number.as_str());
            let at = at.unwrap_or_else(|| panic!("case {n}: {number} is gone from {written} (of {given})"));
            rest = &rest[at + number.len()..];
        }
        let canonical = read.canonical();
        assert_eq!(Json::parse(&canonical).unwrap().canonical(), canonical, "case {n}: {given}");
    }
}

#[test]
fn what_another_reader_calls_no_json_is_none_here_either() {
    let mut rng = rng();
    for n in 0..cases(6000) {
        let source = object(&mut rng, 4, &mut Vec::new());
        let given = mutated(&mut rng, &source);
        if Json::parse(&given).is_ok() {
            let other = serde_json::from_str::<Box<serde_json::value::RawValue>>(&given);
            assert!(other.is_ok(), "case {n}: {} in {given:?}", other.unwrap_err());
        }
    }
}

/// Named cases: what was found, or is easily got wrong.
#[test]
fn duplicates_depth_and_lone_surrogates_are_refused_and_the_limits_pass() {
    let deep = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n - 1), "]".repeat(n - 1));
    assert!(Json::parse(&deep(64)).is_ok());
    for refused in [
        deep(65),
        deep(100_000),
        r#"{"a":1,"a":1}"#.into(),
        r#"{"a":1,"\u0061":2}"#.into(),
        r#"{"a":{"b":[{"c":1,"c":2}]}}"#.into(),
        r#"{"s":"\ud800"}"#.into(),
        r#"{"s":"\udc00\ud800"}"#.into(),
        r#"{"n":01}"#.into(),
        r#"{"n":1.}"#.into(),
        r#"{"n":+1}"#.into(),
        r#"{"n":NaN}"#.into(),
        "{\"s\":\"\n\"}".into(),
        "{} {}".into(),
        String::new(),
    ] {
        assert!(Json::parse(&refused).is_err(), "{}", &refused[..refused.len().min(60)]);
    }
    // A byte order mark means nothing at any door.
    assert_eq!(Json::parse("\u{feff}{}").unwrap().canonical(), "{}");
    assert_eq!(Json::parse(r#"{"s":"\ud83d\ude00"}"#).unwrap().canonical(), r#"{"s":"😀"}"#);
}
