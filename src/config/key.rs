//! The idempotency key as a provider wants it: where it travels, how long it may be, of which characters.

use super::ConfigError;
use super::read::walk::{Table, Value};
use crate::intent::WireStyle;

/// Where the wire key travels.
#[derive(Clone, PartialEq, Debug)]
pub enum KeyPlace {
    /// A header; `quoted` as a structured-field string.
    Header {
        /// Its name.
        name: String,
        /// In double quotes.
        quoted: bool,
    },
    /// A member of the JSON or form body, by JSON pointer: a GraphQL variable is one, at `/variables/NAME`.
    Body {
        /// The pointer.
        pointer: String,
    },
    /// A query parameter.
    Query {
        /// Its name.
        name: String,
    },
    /// Nowhere.
    None,
}

impl std::fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyPlace::Header { name, quoted: false } => write!(f, "header {name}"),
            KeyPlace::Header { name, quoted: true } => write!(f, "header {name}, in quotes"),
            KeyPlace::Body { pointer } => write!(f, "body {pointer}"),
            KeyPlace::Query { name } => write!(f, "query {name}"),
            KeyPlace::None => f.write_str("none"),
        }
    }
}

/// The characters that a provider takes in a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyChars {
    /// All that the place can carry.
    #[default]
    Any,
    /// Visible ASCII, no blanks.
    Ascii,
    /// Letters, digits, `-` and `_`.
    Token,
    /// Nothing but a UUID.
    Uuid,
}

impl KeyChars {
    const WORDS: &'static [(&'static str, KeyChars)] = &[
        ("any", KeyChars::Any),
        ("ascii", KeyChars::Ascii),
        ("token", KeyChars::Token),
        ("uuid", KeyChars::Uuid),
    ];

    /// The word in a profile.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyChars::Any => "any",
            KeyChars::Ascii => "ascii",
            KeyChars::Token => "token",
            KeyChars::Uuid => "uuid",
        }
    }

    fn has(self, c: char) -> bool {
        match self {
            KeyChars::Any => true,
            KeyChars::Ascii => c.is_ascii_graphic(),
            KeyChars::Token => c.is_ascii_alphanumeric() || c == '-' || c == '_',
            KeyChars::Uuid => c.is_ascii_hexdigit() || c == '-',
        }
    }
}

/// Which keys a provider takes. Lengths are in bytes: for the characters that most take it is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRule {
    /// The shortest.
    pub min: usize,
    /// The longest; `None`: no limit is known.
    pub max: Option<usize>,
    /// Its characters.
    pub chars: KeyChars,
}

impl Default for KeyRule {
    fn default() -> KeyRule {
        KeyRule { min: 1, max: None, chars: KeyChars::Any }
    }
}

/// A UUID in its usual form.
const UUID_LENGTH: usize = 36;

/// What a raw key grows by when the generation rises, at most: `~` and a number of ten digits.
const GENERATION_LENGTH: usize = 11;

impl KeyRule {
    /// The fields of a profile's `key = { … }`.
    pub(super) const IN_PROFILE: &'static [&'static str] =
        &["header", "body", "query", "quoted", "min", "max", "chars"];
    /// The fields of a provider's `idempotency = { … }`.
    pub(super) const IN_PROVIDER: &'static [&'static str] =
        &["header", "body", "query", "quoted", "min", "max", "chars", "window", "raw"];

    /// Takes over the limits that a table names.
    pub(super) fn take_over(&mut self, t: &Table, place: &KeyPlace) -> Result<(), ConfigError> {
        let limit = |v: &Value| v.whole(1, 10_000);
        if let Some(min) = t.read("min", limit)? {
            self.min = min as usize;
        }
        if let Some(max) = t.read("max", limit)? {
            self.max = Some(max as usize);
        }
        if let Some(chars) = t.read("chars", |v| v.word(KeyChars::WORDS))? {
            self.chars = chars;
        }
        if self.max.is_some_and(|max| max < self.min) {
            return Err(t.error(format!(
                "no key is at least {} and at most {} long",
                self.min,
                self.max.unwrap_or(0)
            )));
        }
        if let Some(limit) = ["min", "max", "chars"].iter().find_map(|name| t.get(name))
            && *place == KeyPlace::None
        {
            return Err(limit.error("no key is sent here: say where it goes first"));
        }
        // A header carries visible ASCII, whatever the provider would take.
        if matches!(place, KeyPlace::Header { .. }) && self.chars == KeyChars::Any {
            self.chars = KeyChars::Ascii;
        }
        Ok(())
    }

    /// Whether keys made in this way can fit at all.
    pub(super) fn check_style(&self, raw: bool) -> Result<(), String> {
        match (raw, self.chars) {
            (true, KeyChars::Uuid) => Err("this provider takes nothing but a UUID as a key: take raw out".into()),
            (true, KeyChars::Token) => Err("this provider takes letters, digits, - and _ in a key, and a raw key's second generation has a ~ in it: take raw out".into()),
            (true, KeyChars::Any | KeyChars::Ascii) if self.max.is_some_and(|max| max <= GENERATION_LENGTH) => {
                Err(format!("a raw key needs room for its generation, more than {GENERATION_LENGTH} characters: take raw out"))
            }
            (true, KeyChars::Any | KeyChars::Ascii) => Ok(()),
            (false, _) if self.min > UUID_LENGTH || self.max.is_some_and(|max| max < UUID_LENGTH) => {
                Err(format!("keys are UUIDs of {UUID_LENGTH} characters, which do not fit {self}: raise max, or write raw = true to send the job's own keys"))
            }
            (false, _) => Ok(()),
        }
    }

    /// Whether the provider will take this job's key, in each of its generations. `key` is the job's own, sent raw.
    pub fn admits(&self, style: WireStyle, key: &str) -> Result<(), String> {
        if style == WireStyle::Uuid {
            return Ok(());
        }
        if let Some(c) = key.chars().find(|c| !self.chars.has(*c)) {
            return Err(format!(
                "the provider sees this key as it is, and does not take {c:?} in it (raw = true; {self})"
            ));
        }
        let room = self.max.map(|max| max.saturating_sub(GENERATION_LENGTH));
        if key.len() < self.min || room.is_some_and(|room| key.len() > room) {
            return Err(format!(
                "the provider sees this key as it is, and {} bytes do not fit {self} with room for its generation",
                key.len()
            ));
        }
        Ok(())
    }

    /// Whether the text of a key template can be part of a raw key.
    pub(super) fn admits_text(&self, text: &str) -> Result<(), String> {
        if let Some(c) = text.chars().find(|c| !self.chars.has(*c)) {
            return Err(format!(
                "the provider sees this key as it is (raw = true), and does not take {c:?} in it"
            ));
        }
        match self.max.map(|max| max.saturating_sub(GENERATION_LENGTH)) {
            Some(room) if text.len() > room => Err(format!(
                "the provider sees this key as it is (raw = true), and it is longer than {room} characters already"
            )),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for KeyRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.max {
            Some(max) => write!(f, "{} to {max}", self.min)?,
            None => write!(f, "{} or more", self.min)?,
        }
        f.write_str(match self.chars {
            KeyChars::Any => " characters",
            KeyChars::Ascii => " visible ASCII characters",
            KeyChars::Token => " letters, digits, - and _",
            KeyChars::Uuid => " characters of a UUID",
        })
    }
}

impl KeyPlace {
    /// The place that a table names; `None` if it names none.
    pub(super) fn read(t: &Table) -> Result<Option<KeyPlace>, ConfigError> {
        let quoted = t.get("quoted");
        let place = match (t.get("header"), t.get("body"), t.get("query")) {
            (None, None, None) => return Ok(None),
            (Some(header), None, None) => {
                let quoted = quoted.map(|q| q.flag()).transpose()?.unwrap_or_default();
                let name = header.header_name()?;
                if ["authorization", "host", "content-length", "content-type"]
                    .contains(&name.to_ascii_lowercase().as_str())
                {
                    return Err(header.error(format!("the key cannot travel in {name}")));
                }
                return Ok(Some(KeyPlace::Header { name, quoted }));
            }
            (None, Some(body), None) => {
                let pointer = body.pointer()?;
                if pointer.is_empty() {
                    return Err(body.error("this must name a member of the body, like \"/idempotency_key\""));
                }
                KeyPlace::Body { pointer }
            }
            (None, None, Some(query)) => KeyPlace::Query { name: query.text_not_empty()?.to_string() },
            _ => return Err(t.error("the key has one place: header, body or query")),
        };
        match quoted {
            Some(flag) => Err(flag.error("only a key in a header can be quoted")),
            None => Ok(Some(place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_key_must_fit_with_room_for_its_generation() {
        let rule = KeyRule { min: 4, max: Some(30), chars: KeyChars::Ascii };
        for (key, fits) in [
            ("payout:INV-1", true),
            ("abc", false),
            ("nineteen-bytes-long", true),
            ("twenty-bytes-long-it", false),
            ("with blank", false),
            ("schlüssel", false),
        ] {
            assert_eq!(rule.admits(WireStyle::Raw, key).is_ok(), fits, "{key}");
            assert_eq!(rule.admits(WireStyle::Uuid, key), Ok(()));
        }
        assert!(KeyRule::default().admits(WireStyle::Raw, "ключ").is_ok());
    }
}
