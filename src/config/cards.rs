//! Finds card numbers and verification codes, so that they never reach the file.
//!
//! A ledger that is kept for ever is the wrong place for them: a provider's token for the card does the same work. The
//! search is meant to catch what an app sends by mistake, not to stop somebody who hides a number. A number is one by
//! its length, the first digits of a known scheme and its check digit (Luhn), so that article, order and account
//! numbers pass with few exceptions. What is found is named by its field, never repeated.

use crate::json::Json;

/// Members that may hold nothing at all, compared without case, blanks, dashes and underscores.
const CODES: &[&str] = &[
    "cvc",
    "cvv",
    "cvv2",
    "cvc2",
    "cvn",
    "csc",
    "cardcvc",
    "cardcvv",
    "cvccode",
    "cvvcode",
    "cvcnumber",
    "cvvnumber",
    "securitycode",
    "cardsecuritycode",
    "verificationvalue",
    "cardverificationvalue",
    "pinblock",
    "trackdata",
    "track1",
    "track2",
    "track3",
];

/// Members that mean something else as often (a customer's id, a track of an album): only such values are codes.
fn is_code(name: &str, value: &str) -> bool {
    let digits = |lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit())
    };
    match name {
        "cid" => digits(3..=4),
        "pin" | "cardpin" => digits(3..=12),
        // The sentinels of a magnetic stripe.
        "track" => digits(3..=4) || value.starts_with(['%', ';']) || value.contains('^'),
        _ => CODES.contains(&name),
    }
}

/// The first field that holds a card number or a code, and what it seems to be.
pub(super) fn find(payload: &Json) -> Option<String> {
    search(payload, &mut Vec::new())
}

fn search<'a>(json: &'a Json, path: &mut Vec<&'a str>) -> Option<String> {
    match json {
        Json::String(text) | Json::Number(text) => {
            number_in(text).then(|| format!("{} holds what looks like a card number", shown(path)))
        }
        Json::Array(items) => items.iter().find_map(|item| search(item, path)),
        Json::Object(members) => members.iter().find_map(|(name, value)| {
            path.push(name);
            let found = if number_in(name) {
                Some(format!("{} has a name that looks like a card number", shown(path)))
            } else if value.scalar().is_some_and(|value| is_code(&bare(name), value.trim())) {
                Some(format!("{} holds what looks like a card's code", shown(path)))
            } else {
                search(value, path)
            };
            path.pop();
            found
        }),
        Json::Null | Json::Bool(_) => None,
    }
}

/// A member's name as the lists above have it.
fn bare(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, ' ' | '-' | '_')).map(|c| c.to_ascii_lowercase()).collect()
}

/// A path as it is written in templates; a name that is itself a card number is left out.
fn shown(path: &[&str]) -> String {
    let names: Vec<&str> = path.iter().map(|name| if number_in(name) { "…" } else { name }).collect();
    format!("{{{}}}", names.join("."))
}

/// Whether a card number stands somewhere in the text, blanks and dashes between its digits allowed.
pub(super) fn number_in(text: &str) -> bool {
    let groups = groups(text);
    (0..groups.len()).any(|first| {
        let mut digits = String::new();
        for (i, group) in groups[first..].iter().enumerate() {
            if i > 0 && !group.joined {
                break;
            }
            digits.push_str(group.digits);
            if digits.len() > 19 {
                break;
            }
            let ends_here = !group.glued_after;
            if ends_here && !groups[first].glued_before && is_card_number(digits.as_bytes()) {
                return true;
            }
        }
        false
    })
}

/// Digits that stand together.
struct Group<'a> {
    digits: &'a str,
    /// Only blanks or dashes stand between the group before and this one.
    joined: bool,
    /// A letter stands directly before: part of a hash or an id. Or a point after a digit: part of a decimal.
    glued_before: bool,
    /// A letter stands directly after.
    glued_after: bool,
}

fn groups(text: &str) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut rest = text;
    let mut before = "";
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let between = &rest[..start];
        let from = &rest[start..];
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        let decimal = between == "." && !before.is_empty();
        groups.push(Group {
            digits,
            joined: !groups.is_empty() && is_separator(between),
            glued_before: decimal || between.ends_with(char::is_alphabetic),
            glued_after: after.starts_with(char::is_alphabetic),
        });
        before = digits;
        rest = after;
    }
    groups
}

fn is_separator(between: &str) -> bool {
    (1..=3).contains(&between.chars().count())
        && between
            .chars()
            .all(|c| c == ' ' || c == '-' || matches!(c, '\u{a0}' | '\u{2010}'..='\u{2014}' | '\u{202f}'))
}

fn is_card_number(digits: &[u8]) -> bool {
    matches!(digits.len(), 15 | 16 | 19) && has_known_prefix(digits) && luhn(digits)
}

fn has_known_prefix(digits: &[u8]) -> bool {
    // The first four digits tell every scheme apart.
    let first = digits[..4].iter().fold(0, |n, d| n * 10 + u32::from(d - b'0'));
    match digits.len() {
        // American Express.
        15 => matches!(first / 100, 34 | 37),
        // Visa, Mastercard, Discover, JCB, UnionPay, Mir.
        16 => {
            matches!(first / 1000, 4)
                || matches!(first / 100, 51..=55 | 35 | 62 | 65)
                || matches!(first, 2200..=2204 | 2221..=2720 | 6011 | 6440..=6499)
        }
        // Visa, JCB and UnionPay again, and Maestro, which covers all of 6.
        19 => matches!(first / 1000, 4 | 6) || matches!(first / 100, 35 | 50 | 56..=58),
        _ => false,
    }
}

/// The check digit of ISO/IEC 7812.
fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| match (i % 2, u32::from(d - b'0')) {
            (0, n) => n,
            (_, n) if n > 4 => n * 2 - 9,
            (_, n) => n * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_schemes_test_numbers_are_found_however_they_are_written() {
        for text in [
            "4111111111111111",
            "4111 1111 1111 1111",
            "4111-1111-1111-1111",
            "4111\u{a0}1111\u{a0}1111\u{a0}1111",
            "card: 4111111111111111, thanks",
            "12 4111111111111111",
            "4111 1111 1111 1111 12/29",
            "4111111111111111.00",
            "5555555555554444",
            "2223003122003222",
            "378282246310005",
            "3782 822463 10005",
            "6011111111111117",
            "3566002020360505",
            "6200000000000005",
        ] {
            assert!(number_in(text), "{text}");
        }
    }

    #[test]
    fn article_order_and_account_numbers_pass() {
        for text in [
            "4006381333931",       // EAN-13
            "4111111111111112",    // wrong check digit
            "1970670598291982290", // a snowflake id
            "0.4111111111111111",  // the digits of a decimal
            "a4111111111111111",   // part of a hash
            "4111111111111111f",
            "DE89370400440532013000", // IBAN
            "41111111111111111111",   // too long
            "9111111111111111",
            "2026-11-29T13:00:00.000Z",
            "966b27f5-7e40-53ee-afca-3d77557216ce",
            "",
        ] {
            assert!(!number_in(text), "{text}");
        }
    }

    #[test]
    fn the_field_is_named_and_the_digits_are_not() {
        for (payload, expected) in [
            (r#"{"a":[{"pan":"4111 1111 1111 1111"}]}"#, "{a.pan}"),
            (r#"{"a":{"n":4111111111111111}}"#, "{a.n}"),
            (r#"{"x":{"4111111111111111":1}}"#, "{x.…}"),
            (r#"{"card":{"CVC":123}}"#, "{card.CVC}"),
            (r#"{"track2":"x"}"#, "{track2}"),
            (r#"{"card":{"security-code":"123"}}"#, "{card.security-code}"),
            (r#"{"cardCvc":"0123"}"#, "{cardCvc}"),
            (r#"{"cvn":"999"}"#, "{cvn}"),
            (r#"{"cid":"1234"}"#, "{cid}"),
            (r#"{"pin":4711}"#, "{pin}"),
            (r#"{"track":";4000=99"}"#, "{track}"),
        ] {
            let found = find(&Json::parse(payload).unwrap()).unwrap();
            assert!(found.starts_with(expected), "{payload}: {found}");
            assert!(!found.contains("1111") && !found.contains("123"), "{found}");
        }
        for payload in [
            r#"{"cvc":null}"#,
            r#"{"track":{"album":1}}"#,
            r#"{"cvcs":123,"ean":4006381333931}"#,
            r#"{"cid":"cus_17","track":"Blue","pin":"x"}"#,
        ] {
            assert_eq!(find(&Json::parse(payload).unwrap()), None, "{payload}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_search_panic(text in "[0-9 .a-zé-]{0,60}") {
            let _ = number_in(&text);
        }
    }
}
