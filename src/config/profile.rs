//! What a provider promises about repeats, as data: the built-in profiles are TOML files compiled into the binary, and
//! `[providers.*]` may override single fields.

use super::ConfigError;
use super::key::{KeyPlace, KeyRule};
use super::read::walk::{Source, Value, instead};
use super::template::{Builtin, Template};
use crate::decide::Family;
use crate::outcome::{Class, words};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The built-in profiles: name and text.
const BUILTIN: &[(&str, &str)] = &[
    ("adyen", include_str!("../provider/profiles/adyen.toml")),
    ("brevo", include_str!("../provider/profiles/brevo.toml")),
    ("external", include_str!("../provider/profiles/external.toml")),
    ("generic", include_str!("../provider/profiles/generic.toml")),
    ("gocardless", include_str!("../provider/profiles/gocardless.toml")),
    ("modern-treasury", include_str!("../provider/profiles/modern-treasury.toml")),
    ("mollie", include_str!("../provider/profiles/mollie.toml")),
    ("none", include_str!("../provider/profiles/none.toml")),
    ("paypal", include_str!("../provider/profiles/paypal.toml")),
    ("paypal-payouts", include_str!("../provider/profiles/paypal-payouts.toml")),
    ("postmark", include_str!("../provider/profiles/postmark.toml")),
    ("quickbooks", include_str!("../provider/profiles/quickbooks.toml")),
    ("razorpay", include_str!("../provider/profiles/razorpay.toml")),
    ("resend", include_str!("../provider/profiles/resend.toml")),
    ("sendgrid", include_str!("../provider/profiles/sendgrid.toml")),
    ("square", include_str!("../provider/profiles/square.toml")),
    ("standard-webhooks", include_str!("../provider/profiles/standard-webhooks.toml")),
    ("stripe", include_str!("../provider/profiles/stripe.toml")),
    ("stripe-v2", include_str!("../provider/profiles/stripe-v2.toml")),
    ("twilio", include_str!("../provider/profiles/twilio.toml")),
    ("wise", include_str!("../provider/profiles/wise.toml")),
    ("xero", include_str!("../provider/profiles/xero.toml")),
];

words! {
    /// How sure a fact is. What is not verified is read in the safer way: the shorter window, unknown and not refused.
    Certainty {
        /// Read in the provider's own documents, specification or SDK.
        Verified = "verified",
        /// From somebody else who quotes the provider.
        Secondary = "secondary",
        /// From memory, or taken on because nothing was found.
        Memory = "memory",
    }
}

words! {
    /// What a fact is about.
    About {
        /// Where the key travels.
        Key = "key",
        /// How long it may be, and of which characters.
        Limits = "limits",
        /// How long it is remembered.
        Window = "window",
        /// Which answer a repeat gets.
        Repeat = "repeat",
        /// What statuses and codes mean.
        Statuses = "statuses",
        /// When and whether to try again.
        Hints = "hints",
        /// To whom the key belongs.
        Scope = "scope",
        /// How to ask what became of a request.
        Lookup = "lookup",
    }
}

words! {
    /// To whom a key belongs: under another one of it, the key means nothing.
    KeyScope {
        /// The provider's account, whichever credential is used.
        Account = "account",
        /// The single API key: when it is rotated, all keys are forgotten.
        Credential = "credential",
        /// The company, above its accounts.
        Company = "company",
        /// Not known.
        Unknown = "unknown",
    }
}

/// One fact of a profile, with its source.
#[derive(Clone, PartialEq, Debug)]
pub struct Fact {
    /// What it is about.
    pub about: About,
    /// The fact, in words.
    pub what: String,
    /// Where it was read.
    pub source: String,
    /// How sure it is.
    pub certainty: Certainty,
}

/// The status codes that a rule is about, first and last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statuses(pub u16, pub u16);

impl Statuses {
    /// Whether it speaks of this status.
    pub fn cover(&self, status: u16) -> bool {
        (self.0..=self.1).contains(&status)
    }
}

impl std::fmt::Display for Statuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Statuses(low, high) if low == high => write!(f, "{low}"),
            Statuses(low, _) => write!(f, "{}xx", low / 100),
        }
    }
}

/// The code that a body must have for a rule to fit.
#[derive(Clone, PartialEq, Debug)]
pub struct BodyCode {
    /// JSON pointer to it.
    pub at: String,
    /// Its value, or a part of it.
    pub is: String,
    /// `is` need only be a part, in capitals or not: for providers that tell their errors apart by their text alone.
    pub part: bool,
}

impl BodyCode {
    /// Does a value fit?
    pub fn fits(&self, value: &str) -> bool {
        match self.part {
            true => value.to_lowercase().contains(&self.is.to_lowercase()),
            false => value == self.is,
        }
    }
}

/// A status (and code in the body) that means something of its own at this provider.
#[derive(Clone, PartialEq, Debug)]
pub struct StatusRule {
    /// The status codes.
    pub status: Statuses,
    /// The code in the body; `None`: any body.
    pub code: Option<BodyCode>,
    /// What it means.
    pub class: Class,
    /// For `throttled`: the request may have taken effect all the same (a gateway spoke, not the provider).
    pub doubt: bool,
    /// The provider wants no more requests at all: it is paused until a person resumes it.
    pub disable: bool,
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
    /// What stands there is the object's address: its last segment is the id.
    pub link: bool,
    /// Where to fetch it, with `{$reference}`; `None`: the request's own path, `/` and the id.
    pub path: Option<Template>,
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
    /// Which keys it takes.
    pub key_rule: KeyRule,
    /// The key itself goes, not its UUID.
    pub raw_key: bool,
    /// To whom a key belongs. Another address or credential is another scope, whatever it is; but where the account
    /// counts, a provider may name it (`account = …`), and then another credential is not.
    pub scope: KeyScope,
    /// The shortest time that keys are remembered, from the first send; `None`: for ever.
    pub window: Option<Duration>,
    /// (status, code) pairs, first match wins; what none matches has its general meaning.
    pub statuses: Vec<StatusRule>,
    /// How a replay shows.
    pub replay: Option<ReplayMarker>,
    /// How a duplicate that names the first object shows.
    pub duplicate: Option<Duplicate>,
    /// A header that says `true` or `false` to whether a repeat makes sense; its word goes before the status.
    pub should_retry: Option<String>,
    /// A header that says `true` of an error that will pass: what would be a refusal is then sent again under the same
    /// key, and is in doubt until that is answered. Whatever else it says means nothing.
    pub transient: Option<String>,
    /// A header with a pause in milliseconds.
    pub retry_after_ms: Option<String>,
    /// A header of a 429 that says when the limit is lifted: a date, seconds since 1970, or seconds from now.
    pub reset: Option<String>,
    /// How long the provider's lists may lag behind: the least that a kind's look-up waits unless it says otherwise.
    pub lookup_lag: Option<Duration>,
    /// Requests are signed as Standard Webhooks says.
    pub signed: bool,
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

    /// The profile that a provider names: one of the config's own, or a built-in one.
    pub(super) fn named(value: &Value, own: &BTreeMap<String, Profile>) -> Result<Profile, ConfigError> {
        let name = value.text()?;
        own.get(name).cloned().or_else(|| Profile::builtin(name)).ok_or_else(|| {
            let mut names = Profile::builtin_names();
            names.extend(own.keys().map(String::as_str));
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
        Profile::read(name, &Value::root(source, &document))
    }

    /// Reads a profile: a built-in one's file, or a `[profiles.NAME]` of the config.
    pub(super) fn read(name: &str, value: &Value) -> Result<Profile, ConfigError> {
        let t = value.table(&[
            "summary",
            "family",
            "external",
            "key",
            "raw_key",
            "window",
            "scope",
            "statuses",
            "replay",
            "duplicate",
            "should_retry",
            "transient",
            "retry_after_ms",
            "reset",
            "lookup_lag",
            "cloudflare",
            "signed",
            "facts",
        ])?;
        let flag = |name: &str| t.read(name, Value::flag).map(Option::unwrap_or_default);
        let mut profile = Profile {
            name: name.to_string(),
            summary: t.read("summary", Value::text_not_empty)?.unwrap_or_default().to_string(),
            family: t.need("family", "which answer a repeat gets: A, B, C, D or E")?.word(FAMILIES)?,
            external: flag("external")?,
            key: KeyPlace::None,
            key_rule: KeyRule::default(),
            raw_key: flag("raw_key")?,
            window: t.read("window", |w| w.duration(Duration::from_millis(1)))?,
            scope: t.read("scope", |v| v.word(&SCOPES))?.unwrap_or(KeyScope::Unknown),
            statuses: t.read("statuses", StatusRule::read_all)?.unwrap_or_default(),
            replay: t.read("replay", ReplayMarker::read)?,
            duplicate: t.read("duplicate", Duplicate::read)?,
            should_retry: t.read("should_retry", Value::header_name)?,
            transient: t.read("transient", Value::header_name)?,
            retry_after_ms: t.read("retry_after_ms", Value::header_name)?,
            reset: t.read("reset", Value::header_name)?,
            lookup_lag: t.read("lookup_lag", |v| v.duration(Duration::ZERO))?,
            cloudflare: flag("cloudflare")?,
            signed: flag("signed")?,
            facts: match t.get("facts") {
                Some(facts) => facts.items()?.iter().map(Fact::read).collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
        };
        if let Some(key) = t.get("key") {
            let table = key.table(KeyRule::IN_PROFILE)?;
            profile.key = KeyPlace::read(&table)?
                .ok_or_else(|| key.error("this must say where the key goes: header, body or query"))?;
            profile.key_rule.take_over(&table, &profile.key)?;
        }
        profile.consistent(value)?;
        Ok(profile)
    }

    /// Refuses what contradicts itself: a promise about a key that is never sent, a family without its proof.
    fn consistent(&self, at: &Value) -> Result<(), ConfigError> {
        let forgets = self.family == Family::E;
        if forgets && (self.key != KeyPlace::None || self.window.is_some()) {
            return Err(
                at.error("family E remembers no key, so it has neither key nor window: take them out")
            );
        }
        if !forgets && self.key == KeyPlace::None {
            return Err(at.error("where does the key go? Write key = { header = \"Idempotency-Key\" }, or family = \"E\" for a provider that takes none"));
        }
        if self.external && !forgets {
            return Err(at.error("no worker sends to an external provider, so that its family is E"));
        }
        self.check_signed(at)
    }

    /// The signed text begins with the id as the receiver sees it.
    fn check_signed(&self, at: &Value) -> Result<(), ConfigError> {
        let is_id = matches!(&self.key, KeyPlace::Header { name, quoted: false } if name.eq_ignore_ascii_case("webhook-id"));
        if self.signed && !is_id {
            return Err(at.error(
                "the signature covers the header webhook-id, so that the key goes there, without quotes",
            ));
        }
        Ok(())
    }

    /// Takes over a provider's own `idempotency = { … }`, field by field.
    pub(super) fn override_idempotency(&mut self, value: &Value) -> Result<(), ConfigError> {
        let t = value.table(KeyRule::IN_PROVIDER)?;
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
        if let Some(raw) = t.get("raw") {
            self.raw_key = raw.flag()?;
        }
        self.check_signed(value)?;
        self.key_rule.take_over(&t, &self.key)
    }

    /// Refuses a way to make keys of which it is certain that the provider will not take them.
    pub(super) fn check_keys(&self, at: &Value) -> Result<(), ConfigError> {
        if self.key == KeyPlace::None {
            return if self.raw_key { Err(at.error("no key is sent here: take raw out")) } else { Ok(()) };
        }
        self.key_rule.check_style(self.raw_key).map_err(|why| at.error(why))
    }
}

const FAMILIES: &[(&str, Family)] =
    &[("A", Family::A), ("B", Family::B), ("C", Family::C), ("D", Family::D), ("E", Family::E)];

const SCOPES: [(&str, KeyScope); 4] = [
    ("account", KeyScope::Account),
    ("credential", KeyScope::Credential),
    ("company", KeyScope::Company),
    ("unknown", KeyScope::Unknown),
];

/// What a status may be said to mean. `not_sent` is none of them: a status is an answer.
const CLASSES: [Class; 9] = [
    Class::Ok,
    Class::Accepted,
    Class::Throttled,
    Class::InProgress,
    Class::ServerError,
    Class::BadResponse,
    Class::Rejected,
    Class::Auth,
    Class::KeyMismatch,
];

impl StatusRule {
    /// Reads `statuses = [ … ]`, in a profile or in a provider.
    pub(super) fn read_all(value: &Value) -> Result<Vec<StatusRule>, ConfigError> {
        value.items()?.iter().map(StatusRule::read).collect()
    }

    fn read(value: &Value) -> Result<StatusRule, ConfigError> {
        let t = value.table(&["status", "at", "is", "contains", "class", "doubt", "disable"])?;
        let named = t.need("class", "what the status means")?;
        let word = named.text()?;
        let class = Class::parse(word).filter(|class| CLASSES.contains(class)).ok_or_else(|| {
            let all: Vec<&str> = CLASSES.iter().map(|c| c.as_str()).collect();
            named.error(format!("\"{word}\" is no meaning of a status: {} are", all.join(", ")))
        })?;
        let code = match (t.get("at"), t.get("is"), t.get("contains")) {
            (None, None, None) => None,
            (Some(at), Some(is), None) => Some(BodyCode { at: at.pointer()?, is: is.scalar()?, part: false }),
            (Some(at), None, Some(part)) => {
                Some(BodyCode { at: at.pointer()?, is: part.text_not_empty()?.to_string(), part: true })
            }
            _ => {
                return Err(t.error(
                    "at goes with one of is and contains: where the code stands, and its value or a part of it",
                ));
            }
        };
        let flag = |name: &str, of: Class| match t.get(name) {
            Some(value) if class != of => Err(value.error(format!("this goes with class = \"{of}\" only"))),
            Some(value) => value.flag(),
            None => Ok(false),
        };
        Ok(StatusRule {
            status: statuses(&t.need("status", "the status code, or \"4xx\"")?)?,
            code,
            class,
            doubt: flag("doubt", Class::Throttled)?,
            disable: flag("disable", Class::Rejected)?,
        })
    }

    /// Is it about this status and this body? `has` says whether the body has that code.
    pub fn fits(&self, status: u16, has: impl FnOnce(&BodyCode) -> bool) -> bool {
        self.status.cover(status) && self.code.as_ref().is_none_or(has)
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
        let t = value.table(&["status", "code", "is", "reference", "link", "path"])?;
        Ok(Duplicate {
            status: status(&t.need("status", "the status code of the duplicate's error")?)?,
            code: t.need("code", "a JSON pointer to the error's code")?.pointer()?,
            is: t.need("is", "the code's value")?.scalar()?,
            reference: {
                let at = t.need("reference", "a JSON pointer to the first object's id")?;
                match at.pointer()? {
                    pointer if pointer.split('/').any(|part| part == "*") => {
                        return Err(at.error("one object is named: write the element's number in place of *"));
                    }
                    pointer => pointer,
                }
            },
            link: t.read("link", Value::flag)?.unwrap_or_default(),
            path: t.read("path", |path| {
                let template = Template::parse(path.text()?, Builtin::IN_FETCH).map_err(|e| path.error(e))?;
                super::read::kind::check_path(&template).map_err(|e| path.error(e))?;
                Ok(template)
            })?,
        })
    }
}

impl Fact {
    fn read(value: &Value) -> Result<Fact, ConfigError> {
        let t = value.table(&["about", "what", "source", "certainty"])?;
        let about: Vec<_> = About::ALL.iter().map(|a| (a.as_str(), *a)).collect();
        let certainty: Vec<_> = Certainty::ALL.iter().map(|c| (c.as_str(), *c)).collect();
        Ok(Fact {
            about: t.need("about", "what the fact is about")?.word(&about)?,
            what: t.need("what", "the fact")?.text_not_empty()?.to_string(),
            source: t.need("source", "where it was read")?.text_not_empty()?.to_string(),
            certainty: t.need("certainty", "how sure it is")?.word(&certainty)?,
        })
    }
}

/// A status code that is not a success.
fn status(value: &Value) -> Result<u16, ConfigError> {
    value.whole(300, 599).map(|status| status as u16)
}

/// One status code, or all of a hundred: `"4xx"`.
fn statuses(value: &Value) -> Result<Statuses, ConfigError> {
    match value.text() {
        Ok("3xx") => Ok(Statuses(300, 399)),
        Ok("4xx") => Ok(Statuses(400, 499)),
        Ok("5xx") => Ok(Statuses(500, 599)),
        Ok(other) => Err(value.error(format!("{other:?} is no status: write 409, or \"4xx\""))),
        Err(_) => status(value).map(|one| Statuses(one, one)),
    }
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

    /// A fact of what is not verified is worth nothing if nobody knows that it is not.
    #[test]
    fn every_part_of_every_profile_has_a_fact_with_a_source() {
        for name in Profile::builtin_names() {
            let profile = Profile::builtin(name).unwrap();
            let has = |about: About| profile.facts.iter().any(|f| f.about == about);
            assert!(has(About::Repeat), "{name} says nothing of repeats");
            let keyed = profile.key != KeyPlace::None;
            for about in [About::Key, About::Limits, About::Window, About::Scope] {
                assert!(!keyed || has(about), "{name} says nothing of {about}");
            }
            let hinted =
                profile.should_retry.is_some() || profile.transient.is_some() || profile.reset.is_some();
            assert!(!hinted || has(About::Hints), "{name}");
            assert!(!profile.statuses.iter().any(|r| r.code.is_some()) || has(About::Statuses), "{name}");
            assert!(profile.lookup_lag.is_none() || has(About::Lookup), "{name}");
            // An Adyen or a Stripe key is a UUID, and no profile refuses one.
            assert_eq!(profile.key_rule.check_style(false), Ok(()), "{name}");
        }
    }

    #[test]
    fn where_the_window_is_not_known_it_is_short() {
        let window = |name: &str| Profile::builtin(name).unwrap().window.map(|w| w.as_secs());
        for (name, seconds) in [
            ("stripe", 86_400),
            ("stripe-v2", 30 * 86_400),
            ("paypal", 3 * 3600),
            ("paypal-payouts", 30 * 86_400),
            ("square", 86_400),
            ("gocardless", 86_400),
            ("adyen", 7 * 86_400),
            ("mollie", 3600),
            ("razorpay", 86_400),
            ("wise", 86_400),
            ("modern-treasury", 86_400),
            ("xero", 360),
            ("quickbooks", 86_400),
            ("resend", 86_400),
            ("brevo", 900),
            ("generic", 86_400),
        ] {
            assert_eq!(window(name), Some(seconds), "{name}");
        }
    }
}
