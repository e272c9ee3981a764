//! JSON that loses nothing: numbers keep every digit, a key that comes twice in one object is an error.
//!
//! `serde_json::Value` would round large numbers and keep the last of two equal keys without a word; its
//! `arbitrary_precision` feature would change the behaviour of every other user of serde_json in an embedding app.
//! So a document is read level by level through `RawValue`, which hands out each number's own text. Invariant: a
//! [`Json`] nests at most [`DEPTH`] deep, so code that walks one may recurse.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// How deep a document may nest.
pub const DEPTH: usize = 64;

/// A JSON value. Objects keep the order of their members.
#[derive(Clone, PartialEq, Debug)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number, by its own text.
    Number(String),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object; no name twice.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one whole document, after a byte order mark if there is one. The error says what is wrong and where.
    pub fn parse(text: &str) -> Result<Json, String> {
        let raw: &RawValue = serde_json::from_str(unmarked(text)).map_err(|e| e.to_string())?;
        build(raw.get(), 1)
    }

    /// The member of an object; `None` for anything else.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The value that an RFC 6901 pointer leads to.
    pub fn pointer(&self, pointer: &str) -> Option<&Json> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |at, token| {
            let token = token.replace("~1", "/").replace("~0", "~");
            match at {
                Json::Array(items) => items.get(index(&token)?),
                other => other.get(&token),
            }
        })
    }

    /// The text of a string, a number or a boolean; `None` for null, arrays and objects.
    pub fn scalar(&self) -> Option<Cow<'_, str>> {
        match self {
            Json::String(s) | Json::Number(s) => Some(Cow::Borrowed(s)),
            Json::Bool(b) => Some(Cow::Borrowed(if *b { "true" } else { "false" })),
            Json::Null | Json::Array(_) | Json::Object(_) => None,
        }
    }

    /// Compact text, members in their order, numbers as they were written.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, false);
        out
    }

    /// The text that content is compared by: compact, members sorted by name, numbers as they were written (`1.0` and
    /// `1.00` differ).
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, true);
        out
    }

    fn write(&self, out: &mut String, sorted: bool) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Json::Number(n) => out.push_str(n),
            Json::String(s) => out.push_str(&quote(s)),
            Json::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out, sorted);
                }
                out.push(']');
            }
            Json::Object(members) => {
                let mut order: Vec<&(String, Json)> = members.iter().collect();
                if sorted {
                    order.sort_by(|a, b| a.0.cmp(&b.0));
                }
                out.push('{');
                for (i, (name, value)) in order.into_iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&quote(name));
                    out.push(':');
                    value.write(out, sorted);
                }
                out.push('}');
            }
        }
    }
}

/// A byte order mark in UTF-8.
pub const MARK: &[u8] = b"\xEF\xBB\xBF";

/// The text without the byte order mark that some programs put before it: it is no part of what is said (RFC 8259, 8.1).
pub fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The members of the object that a document is, each value by its own text, byte for byte.
pub fn members(text: &str) -> Result<Vec<(String, &str)>, String> {
    let Members(raws) = serde_json::from_str(unmarked(text)).map_err(|e| e.to_string())?;
    Ok(raws.into_iter().map(|(name, value)| (name, value.get())).collect())
}

/// An array index as RFC 6901 allows it: digits without a leading zero.
pub fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
}

/// A string as JSON text, quotes included.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Builds the value of one raw text that serde_json has already found to be one JSON value.
fn build(raw: &str, depth: usize) -> Result<Json, String> {
    if depth > DEPTH && raw.starts_with(['{', '[']) {
        return Err(format!("nested more than {DEPTH} deep"));
    }
    match raw.as_bytes().first() {
        Some(b'{') => {
            let Members(raws) = serde_json::from_str(raw).map_err(|e| plain(&e))?;
            raws.into_iter()
                .map(|(name, v)| Ok((name, build(v.get(), depth + 1)?)))
                .collect::<Result<_, _>>()
                .map(Json::Object)
        }
        Some(b'[') => {
            let Items(raws) = serde_json::from_str(raw).map_err(|e| plain(&e))?;
            raws.into_iter().map(|v| build(v.get(), depth + 1)).collect::<Result<_, _>>().map(Json::Array)
        }
        Some(b'"') => serde_json::from_str(raw).map(Json::String).map_err(|e| plain(&e)),
        Some(b't') => Ok(Json::Bool(true)),
        Some(b'f') => Ok(Json::Bool(false)),
        Some(b'n') => Ok(Json::Null),
        _ => Ok(Json::Number(raw.to_string())),
    }
}

/// An error of an inner text, without its line and column: they would count from the inner text's start.
fn plain(e: &serde_json::Error) -> String {
    let text = e.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if !seen.insert(name.clone()) {
                        return Err(serde::de::Error::custom(format!(
                            "the name {} comes twice in one object",
                            quote(&name)
                        )));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        d.deserialize_map(V)
    }
}

struct Items<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Items<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element::<&'de RawValue>()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        d.deserialize_seq(V)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mark_before_a_document_is_skipped_and_no_second_one() {
        let parse = |text: &str| Json::parse(text).map(|doc| doc.to_text());
        assert_eq!(parse("\u{feff}{\"a\":\"\u{feff}\"}").unwrap(), "{\"a\":\"\u{feff}\"}");
        assert_eq!(members("\u{feff}{\"a\":1}").unwrap(), [("a".to_string(), "1")]);
        assert!(parse("\u{feff}\u{feff}{}").is_err() && parse("{}\u{feff}").is_err());
    }

    #[test]
    fn numbers_keep_every_digit() {
        let text = r#"{"id":1970670598291982290,"u":18446744073709551616,"d":0.1000,"e":1e400}"#;
        assert_eq!(Json::parse(text).unwrap().to_text(), text);
    }

    #[test]
    fn order_and_white_space_do_not_count_but_digits_do() {
        let canonical = |t: &str| Json::parse(t).unwrap().canonical();
        assert_eq!(
            canonical(r#"{ "b": [1, {"y":2,"x":"\u0041"}], "a": null }"#),
            r#"{"a":null,"b":[1,{"x":"A","y":2}]}"#
        );
        assert_ne!(canonical(r#"{"a":1.0}"#), canonical(r#"{"a":1.00}"#));
    }

    #[test]
    fn a_name_that_comes_twice_is_refused_at_any_depth() {
        let e = Json::parse(r#"{"a":{"x":1,"x":2}}"#).unwrap_err();
        assert_eq!(e, r#"the name "x" comes twice in one object"#);
        assert!(Json::parse(r#"{"a":1,"\u0061":2}"#).is_err());
    }

    #[test]
    fn lone_surrogates_and_rubbish_are_refused() {
        for bad in [r#"{"s":"\ud800"}"#, "{", "", "{} {}", r#"{"a":01}"#, "{\"a\":\"\u{1}\"}", "nul"] {
            assert!(Json::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Json::parse(&nested(DEPTH)).is_ok());
        assert!(Json::parse(&nested(DEPTH + 1)).unwrap_err().contains("64 deep"));
        assert!(Json::parse(&nested(100_000)).is_err());
    }

    #[test]
    fn pointers_follow_rfc_6901() {
        let doc = Json::parse(r#"{"data":[{"id":"po_1"}],"a/b":{"~":7}}"#).unwrap();
        assert_eq!(doc.pointer("/data/0/id").and_then(Json::scalar).as_deref(), Some("po_1"));
        assert_eq!(doc.pointer("/a~1b/~0"), Some(&Json::Number("7".into())));
        assert_eq!(doc.pointer("/data/00/id"), None);
        assert_eq!(doc.pointer("data"), None);
        assert_eq!(doc.pointer(""), Some(&doc));
    }
}
