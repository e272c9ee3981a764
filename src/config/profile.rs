//! What a provider promises about repeats, as data: the built-in profiles are TOML files compiled into the binary, and
//! `[providers.*]` may override single fields.

use crate::decide::Family;
use crate::outcome::Class;
use std::time::Duration;

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
    /// A header that says `true` or `false` to "may this be tried again".
    pub should_retry: Option<String>,
    /// A header with a pause in milliseconds.
    pub retry_after_ms: Option<String>,
    /// The edge is Cloudflare: 521, 523, 525 and 526 never reached the origin.
    pub cloudflare: bool,
    /// Connections may be kept and used again (then "no byte written" is no proof on a used one).
    pub keep_alive: bool,
    /// Facts and their sources.
    pub facts: Vec<Fact>,
}
