//! What a provider promises about repeats, as data: the built-in profiles are TOML files compiled into the binary, and
//! `[providers.*]` may override single fields.

use super::ConfigError;
use super::read::walk::{Source, Table, Value, instead};
use super::template::{Builtin, Template};
use crate::decide::Family;
use crate::outcome::Class;
use std::path::Path;
use std::time::Duration;

/// The built-in profiles: name and text.
const BUILTIN: &[(&str, &str)] = &[
    ("external", include_str!("../provider/profiles/external.toml")),
    ("generic", include_str!("../provider/profiles/generic.toml")),
    ("none", include_str!("../provider/profiles/none.toml")),
    ("stripe", include_str!("../provider/profiles/stripe.toml")),
];

/// How sure a fact is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Certainty {
    /// Read in the provider's own documents, specification or SDK.
    Verified,
    /// From somebody else who quotes the provider.
    SecondHand,
    /// From memory: the safer reading is taken.
    Uncertain,
}

/// One fact of a profile, with its source.
#[derive(Clone, PartialEq, Debug)]
pub struct Fact {
    /// The fact, in words.
    pub what: String,
    /// Where it was read.
    pub source: String,
    /// How sure it is.
    pub certainty: Certainty,
}

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
    /// A member of the JSON or form body, by JSON pointer.
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

/// A status (and code in the body) that means something of its own at this provider.
#[derive(Clone, PartialEq, Debug)]
pub struct StatusRule {
    /// The status code.
    pub status: u16,
    /// The pointer to the code in the body and the value it must have; `None`: any body.
    pub code: Option<(String, String)>,
    /// What it means.
    pub class: Class,
}

/// How a replayed answer shows.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplayMarker {
    /// The header's name.
    pub header: String,
    /// Its value, compared without case.
    pub value: String,
}

/// A duplicate that is answered with an error which names the first object.
#[derive(Clone, PartialEq, Debug)]
pub struct Duplicate {
    /// The status code.
    pub status: u16,
    /// JSON pointer to the code.
    pub code: String,
    /// The code's value.
    pub is: String,
    /// JSON pointer to the first object's id.
    pub reference: String,
    /// Where to fetch it, with `{$reference}`; `None`: the request's own path, `/` and the id.
    pub path: Option<String>,
}

/// A provider's promises.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// One line for a person.
    pub summary: String,
    /// What the answer to a repeat is.
    pub family: Family,
    /// Profile `external`: the app makes the calls.
    pub external: bool,
    /// Where the key goes.
    pub key: KeyPlace,
    /// The key itself goes, not its UUID.
    pub raw_key: bool,
    /// The shortest time that keys are remembered, from the first send; `None`: for ever.
    pub window: Option<Duration>,
    /// (status, code) pairs, first match wins; what none matches has its general meaning.
    pub statuses: Vec<StatusRule>,
    /// How a replay shows.
    pub replay: Option<ReplayMarker>,
    /// How a duplicate that names the first object shows.
    pub duplicate: Option<Duplicate>,
    /// A header with a pause in milliseconds.
    pub retry_after_ms: Option<String>,
    /// The edge is Cloudflare: 521, 523, 525 and 526 never reached the origin.
    pub cloudflare: bool,
    /// Facts and their sources.
    pub facts: Vec<Fact>,
}

impl Profile {
    /// The names of the built-in profiles, sorted.
    pub fn builtin_names() -> Vec<&'static str> {
        BUILTIN.iter().map(|(name, _)| *name).collect()
    }

    /// A built-in profile.
    pub fn builtin(name: &str) -> Option<Profile> {
        let (name, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
        // The text is part of the binary, and a test reads each: an error here cannot happen at run time.
        #[allow(clippy::expect_used)]
        Some(Profile::parse(name, text).expect("a built-in profile is well formed"))
    }

    /// The profile that a provider names.
    pub(super) fn named(value: &Value) -> Result<Profile, ConfigError> {
        let name = value.text()?;
        Profile::builtin(name).ok_or_else(|| {
            let names = Profile::builtin_names();
            let near = instead(name, &names);
            let all = if near.contains("mean") {
                format!(" (known are {})", names.join(", "))
            } else {
                String::new()
            };
            value.error(format!("there is no profile {name:?}{near}{all}"))
        })
    }

    fn parse(name: &str, text: &str) -> Result<Profile, ConfigError> {
        let file = format!("{name}.toml");
        let source = Source { file: Path::new(&file), text };
        let document = source.document(text)?;
        let t = Value::root(source, &document).table(&[
            "summary",
            "family",
            "external",
            "key",
            "raw_key",
            "window",
            "statuses",
            "replay",
            "duplicate",
            "retry_after_ms",
            "cloudflare",
            "facts",
        ])?;
        let flag = |name: &str| t.read(name, Value::flag).map(Option::unwrap_or_default);
        Ok(Profile {
            name: name.to_string(),
            summary: t.need("summary", "one line for a person")?.text_not_empty()?.to_string(),
            family: t.need("family", "A, B, C, D or E")?.word(&[
                ("A", Family::A),
                ("B", Family::B),
                ("C", Family::C),
                ("D", Family::D),
                ("E", Family::E),
            ])?,
            external: flag("external")?,
            key: match t.get("key") {
                Some(key) => KeyPlace::read(&key.table(KeyPlace::NAMES)?)?.unwrap_or(KeyPlace::None),
                None => KeyPlace::None,
            },
            raw_key: flag("raw_key")?,
            window: t.read("window", |w| w.duration(Duration::from_millis(1)))?,
            statuses: match t.get("statuses") {
                Some(rules) => rules.items()?.iter().map(StatusRule::read).collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
            replay: t.read("replay", ReplayMarker::read)?,
            duplicate: t.read("duplicate", Duplicate::read)?,
            retry_after_ms: t.read("retry_after_ms", Value::header_name)?,
            cloudflare: flag("cloudflare")?,
            facts: match t.get("facts") {
                Some(facts) => facts.items()?.iter().map(Fact::read).collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
        })
    }

    /// Takes over a provider's own `idempotency = { … }`, field by field.
    pub(super) fn override_idempotency(&mut self, value: &Value) -> Result<(), ConfigError> {
        let t = value.table(&["header", "body", "query", "quoted", "window"])?;
        if let Some(window) = t.get("window") {
            // Family E is never asked twice: a window would promise what does not happen.
            if self.family == Family::E {
                return Err(window.error(format!(
                    "profile {:?} never sends a key twice, so there is no window: use profile = \"generic\"",
                    self.name
                )));
            }
            self.window = Some(window.duration(Duration::from_millis(1))?);
        }
        if let Some(place) = KeyPlace::read(&t)? {
            self.key = place;
        } else if let Some(flag) = t.get("quoted") {
            match &mut self.key {
                KeyPlace::Header { quoted, .. } => *quoted = flag.flag()?,
                KeyPlace::Body { .. } | KeyPlace::Query { .. } | KeyPlace::None => {
                    return Err(flag.error("only a key in a header can be quoted"));
                }
            }
        }
        Ok(())
    }
}

impl KeyPlace {
    const NAMES: &'static [&'static str] = &["header", "body", "query", "quoted"];

    /// The place that a table names; `None` if it names none.
    fn read(t: &Table) -> Result<Option<KeyPlace>, ConfigError> {
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

impl StatusRule {
    fn read(value: &Value) -> Result<StatusRule, ConfigError> {
        let t = value.table(&["status", "at", "is", "class"])?;
        let class = t.need("class", "what the status means")?;
        let code = match (t.get("at"), t.get("is")) {
            (None, None) => None,
            (Some(at), Some(is)) => Some((at.pointer()?, is.scalar()?)),
            _ => return Err(t.error("at and is belong together: where the code stands, and its value")),
        };
        Ok(StatusRule {
            status: status(&t.need("status", "the status code")?)?,
            code,
            class: Class::parse(class.text()?).ok_or_else(|| class.error("this is not a class"))?,
        })
    }
}

impl ReplayMarker {
    fn read(value: &Value) -> Result<ReplayMarker, ConfigError> {
        let t = value.table(&["header", "value"])?;
        Ok(ReplayMarker {
            header: t.need("header", "the header that marks a replay")?.header_name()?,
            value: t.need("value", "the header's value")?.text_not_empty()?.to_string(),
        })
    }
}

impl Duplicate {
    /// Reads `duplicate = { … }`, in a profile or in a provider.
    pub(super) fn read(value: &Value) -> Result<Duplicate, ConfigError> {
        let t = value.table(&["status", "code", "is", "reference", "path"])?;
        Ok(Duplicate {
            status: status(&t.need("status", "the status code of the duplicate's error")?)?,
            code: t.need("code", "a JSON pointer to the error's code")?.pointer()?,
            is: t.need("is", "the code's value")?.scalar()?,
            reference: t.need("reference", "a JSON pointer to the first object's id")?.pointer()?,
            path: t.read("path", |path| {
                let text = path.text()?;
                Template::parse(text, Builtin::IN_FETCH)
                    .and_then(|template| super::read::kind::check_path(&template))
                    .map_err(|e| path.error(e))?;
                Ok(text.to_string())
            })?,
        })
    }
}

impl Fact {
    fn read(value: &Value) -> Result<Fact, ConfigError> {
        let t = value.table(&["what", "source", "certainty"])?;
        Ok(Fact {
            what: t.need("what", "the fact")?.text_not_empty()?.to_string(),
            source: t.need("source", "where it was read")?.text_not_empty()?.to_string(),
            certainty: t.need("certainty", "how sure it is")?.word(&[
                ("verified", Certainty::Verified),
                ("second-hand", Certainty::SecondHand),
                ("uncertain", Certainty::Uncertain),
            ])?,
        })
    }
}

/// A status code that is not a success.
fn status(value: &Value) -> Result<u16, ConfigError> {
    value.whole(300, 599).map(|status| status as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_well_formed_and_says_where_its_facts_are_from() {
        for name in Profile::builtin_names() {
            let profile = Profile::builtin(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(!profile.facts.is_empty(), "{name}");
            assert_eq!(profile.external, name == "external");
        }
        assert_eq!(Profile::builtin("stripes"), None);
    }

    #[test]
    fn only_providers_that_forget_have_neither_key_nor_window() {
        for name in Profile::builtin_names() {
            let profile = Profile::builtin(name).unwrap();
            let forgets = profile.family == Family::E;
            assert_eq!(forgets, profile.key == KeyPlace::None, "{name}");
            assert_eq!(forgets, profile.window.is_none(), "{name}");
        }
    }

    #[test]
    fn stripe_tells_a_mismatch_from_a_running_request() {
        let stripe = Profile::builtin("stripe").unwrap();
        let class = |status: u16, is: &str| {
            let rule = stripe
                .statuses
                .iter()
                .find(|r| r.status == status && r.code.as_ref().is_some_and(|c| c.1 == is));
            rule.map(|r| r.class)
        };
        assert_eq!(class(400, "idempotency_error"), Some(Class::KeyMismatch));
        assert_eq!(class(409, "idempotency_key_in_use"), Some(Class::InProgress));
        assert_eq!(stripe.window, Some(Duration::from_secs(86_400)));
    }
}
