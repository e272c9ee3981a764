//! Card numbers and verification codes: found at every door, so that they are refused, and in every reply, so that they
//! are masked. A ledger that is kept for ever is the wrong place for them: a provider's token for the card does the same
//! work.
//!
//! The search is meant to catch what is sent by mistake, not to stop somebody who hides a number. A number is one by the
//! first digits and the length of a known scheme and by its check digit (`schemes`), however it is written (`text`), so
//! that article, order and account numbers pass with few exceptions; how many, [`SECURITY.md`] tells. What is found is
//! named by its field, never repeated.
//!
//! [`SECURITY.md`]: ../../docs/SECURITY.md

mod schemes;
mod text;
#[cfg(test)]
mod tests;

use crate::escapes::{LAYERS, Layer};
use crate::json::Json;
use std::borrow::Cow;
use text::Found;
pub use text::Place;

/// Members that may hold nothing at all, compared without case, blanks, dashes and underscores.
const CODES: &[&str] = &[
    "cvc",
    "cvv",
    "cvv2",
    "cvc2",
    "cvn",
    "cvn2",
    "csc",
    "cav2",
    "cvp2",
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
    "cardcode",
    "pinblock",
    "trackdata",
    "track1",
    "track2",
    "track3",
];

/// Words of a name that is a code's if its value looks like one (`card_cvv_code`, and not `cvc_check`).
const CODE_WORDS: &[&str] = &["cvc", "cvv", "cvn", "csc", "cav", "cvp", "cvd"];

fn digits(value: &str, lengths: std::ops::RangeInclusive<usize>) -> bool {
    lengths.contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a member of this name holds a card's code if it says this. Some names mean something else as often (a
/// customer's id, a track of an album).
fn is_code(name: &str, value: &str) -> bool {
    let (bare, value) = (bare(name), value.trim());
    match bare.as_str() {
        "cid" => digits(value, 3..=4),
        "pin" | "cardpin" => digits(value, 3..=12),
        // The sentinels of a magnetic stripe.
        "track" => digits(value, 3..=4) || value.starts_with(['%', ';']) || value.contains('^'),
        _ if CODES.contains(&bare.as_str()) => !value.is_empty(),
        _ => digits(value, 3..=4) && text::words(name).any(|word| CODE_WORDS.contains(&word.as_str())),
    }
}

/// Whether a name is a code's whatever it holds, for where masking one too many costs nothing.
pub fn is_code_name(bare: &str) -> bool {
    CODES.contains(&bare) || matches!(bare, "pin" | "cardpin")
}

/// The first field that holds a card number or a code, and what it seems to be.
pub fn find(payload: &Json) -> Option<String> {
    search(payload, &mut Vec::new(), Place::default())
}

fn search<'a>(json: &'a Json, path: &mut Vec<&'a str>, place: Place) -> Option<String> {
    match json {
        Json::String(value) | Json::Number(value) => {
            // A code's own list or object counts too: `"cvc": ["123"]`, `"cvc": {"value": "123"}`.
            let what = if path.iter().any(|name| is_code(name, value)) {
                "a card's code"
            } else if stands_in(json, place) {
                "a card number"
            } else {
                return None;
            };
            Some(format!("{} holds what looks like {what}", shown(path)))
        }
        Json::Array(items) => items.iter().find_map(|item| search(item, path, place)),
        Json::Object(members) => members.iter().find_map(|(name, value)| {
            path.push(name);
            let found = match number_in(name) {
                true => Some(format!("{} has a name that looks like a card number", shown(path))),
                false => search(value, path, place.named(name)),
            };
            path.pop();
            found
        }),
        Json::Null | Json::Bool(_) => None,
    }
}

fn stands_in(value: &Json, place: Place) -> bool {
    match value {
        Json::String(text) => !in_layers(text, place).is_empty(),
        Json::Number(text) => !in_layers(&whole(text), Place { number: true, ..place }).is_empty(),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => false,
    }
}

/// Whether a member of this name holds a card's code, anywhere below it.
pub fn holds_code(name: &str, value: &Json) -> bool {
    match value {
        Json::String(text) | Json::Number(text) => is_code(name, text),
        Json::Array(items) => items.iter().any(|item| holds_code(name, item)),
        Json::Object(members) => members.iter().any(|(_, value)| holds_code(name, value)),
        Json::Null | Json::Bool(_) => false,
    }
}

/// A number with an exponent, written out: `4.111111111111111e15` is one as well.
fn whole(number: &str) -> Cow<'_, str> {
    let written = number.split_once(['e', 'E']).and_then(|(mantissa, exponent)| {
        let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent: usize = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        (after.len()..=20).contains(&exponent).then(|| format!("{before}{after:0<exponent$}"))
    });
    written.map_or(Cow::Borrowed(number), Cow::Owned)
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

/// Whether a card number stands somewhere in the text.
pub fn number_in(text: &str) -> bool {
    !in_layers(text, Place::default()).is_empty()
}

/// A value's text with each card number masked but for its last four digits, and each track whole; `None` if there is
/// none, or if it is no value.
pub fn masked_value(value: &Json, place: Place, mask: &str) -> Option<String> {
    match value {
        Json::String(text) => masked(text, place, mask),
        Json::Number(text) => masked(&whole(text), Place { number: true, ..place }, mask),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => None,
    }
}

/// The same of a text.
pub fn masked(text: &str, place: Place, mask: &str) -> Option<String> {
    let found = in_layers(text, place);
    if found.is_empty() {
        return None;
    }
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for Found { range, last } in found {
        // One that a deeper layer shows may lie over another.
        if range.start < at {
            continue;
        }
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(mask);
        out.push_str(&last);
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    Some(out)
}

/// What stands in the text, and in what comes of it when its escapes are undone.
fn in_layers(text: &str, place: Place) -> Vec<Found> {
    let mut found = text::find(text, place);
    if !text.contains(['\\', '%', '&']) {
        return found;
    }
    let mut layer = Layer::of(text);
    for _ in 1..LAYERS {
        let Some(next) = layer.undone() else { break };
        let mut start = 0;
        for chunk in next.bytes.utf8_chunks() {
            let here = text::find(chunk.valid(), place);
            found.extend(here.into_iter().map(|Found { range, last }| Found {
                range: next.range(start + range.start..start + range.end),
                last,
            }));
            start += chunk.valid().len() + chunk.invalid().len();
        }
        layer = next;
    }
    found.sort_by_key(|found| (found.range.start, std::cmp::Reverse(found.range.end)));
    found
}
