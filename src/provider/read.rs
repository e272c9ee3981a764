//! Reads a reply's body by a kind's JSON pointers, and compares it with the intent.

use super::reply::Ask;
use crate::config::{Reply, currency_digits};
use crate::intent::REFERENCE_LIMIT;
use crate::json::Json;
use std::borrow::Cow;

/// What a body says.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// Done; `differs` says how it is not what was asked for.
    Settled {
        /// The provider's id, where a pointer to it is given.
        reference: Option<String>,
        /// The first difference from the intent.
        differs: Option<String>,
    },
    /// Taken, not final.
    Pending {
        /// The provider's id, if it has one already.
        reference: Option<String>,
        /// The first difference from the intent, as far as the body already says.
        differs: Option<String>,
    },
    /// Refused.
    Rejected {
        /// The status field's value.
        value: String,
        /// The provider's id, if it gave one.
        reference: Option<String>,
    },
    /// A status field is expected, and is not there.
    NoStatus(String),
    /// The body does not say what it should.
    Bad(String),
}

/// Where a pointer leads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Walk<'a> {
    /// To a value.
    Found(&'a Json),
    /// To an explicit null or an empty array, at its end or on the way: the document says "nothing".
    Nothing,
    /// Nowhere: the document says nothing about it.
    Missing,
}

/// Follows an RFC 6901 pointer and tells "nothing there" from "not mentioned".
pub fn walk<'a>(doc: &'a Json, pointer: &str) -> Walk<'a> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Walk::Missing;
    }
    let mut end = 0;
    loop {
        let Some(at) = doc.pointer(&pointer[..end]) else {
            return Walk::Missing;
        };
        match at {
            Json::Null => return Walk::Nothing,
            Json::Array(items) if items.is_empty() => return Walk::Nothing,
            _ if end == pointer.len() => return Walk::Found(at),
            _ => {}
        }
        // The next token ends before the next slash; the first character of what is left is this token's own.
        end = pointer[end + 1..].find('/').map_or(pointer.len(), |next| end + 1 + next);
    }
}

/// The text of the string, number or boolean that a pointer leads to.
pub fn scalar_at<'a>(doc: &'a Json, pointer: &str) -> Option<Cow<'a, str>> {
    doc.pointer(pointer).and_then(Json::scalar)
}

/// Does what a pointer leads to fit? A segment `*` stands for every item of an array.
pub fn any_scalar_at(doc: &Json, pointer: &str, fits: &dyn Fn(&str) -> bool) -> bool {
    let inside = pointer.find("/*/").map(|at| (&pointer[..at], &pointer[at + 2..]));
    match inside.or_else(|| Some((pointer.strip_suffix("/*")?, ""))) {
        Some((list, rest)) => match doc.pointer(list) {
            Some(Json::Array(items)) => items.iter().any(|item| any_scalar_at(item, rest, fits)),
            _ => false,
        },
        None => scalar_at(doc, pointer).is_some_and(|found| fits(&found)),
    }
}

/// A provider's id: a string or number with something in it, and not beyond reason.
pub fn reference_at(doc: &Json, pointer: &str) -> Result<String, String> {
    match doc.pointer(pointer) {
        Some(Json::String(s) | Json::Number(s)) if s.trim().is_empty() => {
            Err(format!("the reference at {pointer} is empty"))
        }
        Some(Json::String(s) | Json::Number(s)) if s.chars().count() > REFERENCE_LIMIT => {
            Err(format!("the reference at {pointer} is longer than {REFERENCE_LIMIT} characters"))
        }
        Some(Json::String(s) | Json::Number(s)) if s.chars().any(char::is_control) => {
            Err(format!("the reference at {pointer} has control characters in it"))
        }
        Some(Json::String(s) | Json::Number(s)) => Ok(s.clone()),
        Some(Json::Null) | None => Err(format!("the reply has no reference at {pointer}")),
        Some(_) => Err(format!("the reference at {pointer} is neither a string nor a number")),
    }
}

/// What a body says by a kind's pointers.
pub fn read(reply: &Reply, doc: &Json, ask: &Ask<'_>) -> Verdict {
    let reference = reply.reference.as_deref().map(|at| reference_at(doc, at));
    if let Some(pointer) = reply.status.as_deref() {
        let Some(value) = scalar_at(doc, pointer) else {
            return Verdict::NoStatus(format!("the reply has no status at {pointer}"));
        };
        let among = |list: &[String]| list.iter().any(|v| *v == value);
        // A value in two lists means the less final: nothing settles by mistake.
        if among(&reply.pending) {
            return Verdict::Pending {
                reference: reference.and_then(Result::ok),
                differs: already_differs(reply, doc, ask),
            };
        }
        if among(&reply.rejected) {
            return Verdict::Rejected {
                value: value.into_owned(),
                reference: reference.and_then(Result::ok),
            };
        }
        if !reply.settled.is_empty() && !among(&reply.settled) {
            return Verdict::Bad(format!(
                "the status `{value}` at {pointer} is in none of the lists settled, pending, rejected"
            ));
        }
    }
    match reference.transpose() {
        Ok(reference) => Verdict::Settled { reference, differs: differs(reply, doc, ask) },
        Err(why) => Verdict::Bad(why),
    }
}

/// The same of a body that need not say everything yet: what is there must fit, what is not there may still come.
pub fn already_differs(reply: &Reply, doc: &Json, ask: &Ask<'_>) -> Option<String> {
    let there = |pointer: &Option<String>| {
        pointer.clone().filter(|at| doc.pointer(at).is_some_and(|value| *value != Json::Null))
    };
    let said = Reply {
        amount: there(&reply.amount),
        currency: there(&reply.currency),
        key: there(&reply.key),
        ..reply.clone()
    };
    differs(&said, doc, ask)
}

/// The first way in which the body is not about what was asked for.
fn differs(reply: &Reply, doc: &Json, ask: &Ask<'_>) -> Option<String> {
    amount_differs(reply, doc, ask)
        .or_else(|| {
            let (pointer, ours) = (reply.currency.as_deref()?, ask.currency?);
            match scalar_at(doc, pointer) {
                Some(theirs) if theirs.eq_ignore_ascii_case(ours) => None,
                Some(theirs) => Some(format!("the reply's currency is {theirs}, the intent's {ours}")),
                None => Some(format!("the reply has no currency at {pointer}, the intent's is {ours}")),
            }
        })
        .or_else(|| {
            let pointer = reply.key.as_deref()?;
            match scalar_at(doc, pointer) {
                Some(theirs) if ask.keys.contains(&theirs.as_ref()) => None,
                Some(theirs) => Some(format!("the reply's key is {theirs}, the job's {}", ask.keys[0])),
                None => Some(format!("the reply has no key at {pointer}, the job's is {}", ask.keys[0])),
            }
        })
}

fn amount_differs(reply: &Reply, doc: &Json, ask: &Ask<'_>) -> Option<String> {
    let (pointer, ours) = (reply.amount.as_deref()?, ask.amount_minor?);
    let digits = match (reply.amount_major, ask.currency) {
        (false, _) => 0,
        (true, Some(currency)) => match currency_digits(currency) {
            Ok(digits) => usize::from(digits),
            Err(why) => return Some(format!("the reply's amount is in major units, and {why}")),
        },
        (true, None) => {
            return Some("the reply's amount is in major units, and the intent has no currency".into());
        }
    };
    let unit = if reply.amount_major { " (in minor units)" } else { "" };
    let Some(theirs) = doc
        .pointer(pointer)
        .filter(|v| matches!(v, Json::String(_) | Json::Number(_)))
        .and_then(Json::scalar)
    else {
        return Some(format!("the reply has no amount at {pointer}, the intent's is {ours}{unit}"));
    };
    match minor_units(&theirs, digits) {
        Some(amount) if amount == i128::from(ours) => None,
        Some(_) => Some(format!("the reply's amount is {theirs}, the intent's {ours}{unit}")),
        None => Some(format!("the reply's amount `{theirs}` cannot be read, the intent's is {ours}{unit}")),
    }
}

/// A decimal number in units of 10^-digits, exactly; `None` if it is not one, or has a remainder.
pub fn minor_units(text: &str, digits: usize) -> Option<i128> {
    let (negative, plain) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, "0"));
    let decimal = |t: &str| !t.is_empty() && t.len() <= 30 && t.bytes().all(|b| b.is_ascii_digit());
    if !decimal(whole) || !decimal(fraction) {
        return None;
    }
    let kept = fraction.len().min(digits);
    if fraction[kept..].bytes().any(|b| b != b'0') {
        return None;
    }
    let units: i128 = format!("{whole}{:0<digits$}", &fraction[..kept]).parse().ok()?;
    Some(if negative { -units } else { units })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_exactly_or_not_at_all() {
        for (text, digits, units) in [
            ("1250", 0, Some(1250)),
            ("1250.00", 0, Some(1250)),
            ("1250.5", 0, None),
            ("12.50", 2, Some(1250)),
            ("12.5", 2, Some(1250)),
            ("12", 2, Some(1200)),
            ("12.505", 2, None),
            ("0.29", 2, Some(29)),
            ("-0.29", 2, Some(-29)),
            ("1.234", 3, Some(1234)),
            ("90071992547409.93", 2, Some(9_007_199_254_740_993)),
            ("1e3", 0, None),
            ("", 0, None),
            (".5", 1, None),
            ("1.", 1, None),
            ("1,250", 0, None),
            ("٣", 0, None),
            ("9999999999999999999999999999999999999999", 0, None),
        ] {
            assert_eq!(minor_units(text, digits), units, "{text}");
        }
    }

    #[test]
    fn nothing_there_is_not_the_same_as_not_mentioned() {
        let walk_to = |doc: &str, pointer: &str| match walk(&Json::parse(doc).unwrap(), pointer) {
            Walk::Found(v) => v.to_text(),
            Walk::Nothing => "nothing".into(),
            Walk::Missing => "missing".into(),
        };
        for (doc, pointer, expected) in [
            (r#"{"data":[{"id":"a"}]}"#, "/data/0/id", "\"a\""),
            (r#"{"data":[]}"#, "/data/0/id", "nothing"),
            (r#"{"data":null}"#, "/data/0/id", "nothing"),
            (r#"{"data":[{"id":null}]}"#, "/data/0/id", "nothing"),
            (r#"{"data":[{}]}"#, "/data/0/id", "missing"),
            (r#"{"data":{}}"#, "/data/0/id", "missing"),
            (r#"{}"#, "/data/0/id", "missing"),
            (r#"[]"#, "/0/id", "nothing"),
            (r#"null"#, "/id", "nothing"),
            (r#"{"":{"":1}}"#, "//", "1"),
        ] {
            assert_eq!(walk_to(doc, pointer), expected, "{doc} {pointer}");
        }
    }
}
