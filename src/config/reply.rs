//! How a body is read, and how a provider is asked: the tables `reply` and `lookup` of a kind.

use super::profile::BodyCode;
use super::template::{Builtin, Template};
use crate::json;

/// Where things stand in a reply body: JSON pointers, and what the status field's values mean.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reply {
    /// The provider's id of the effect; required where given.
    pub reference: Option<String>,
    /// Must equal the intent's amount.
    pub amount: Option<String>,
    /// The reply's amounts are in major units with decimals.
    pub amount_major: bool,
    /// Must equal the intent's currency, without regard to case.
    pub currency: Option<String>,
    /// Must equal the job's key (or wire key).
    pub key: Option<String>,
    /// The status field.
    pub status: Option<String>,
    /// Its values that mean done; empty: all that are in no other list.
    pub settled: Vec<String>,
    /// Its values that mean taken, not final.
    pub pending: Vec<String>,
    /// Its values that mean refused.
    pub rejected: Vec<String>,
}

impl Reply {
    /// The pointers, in a fixed order.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        [&self.status, &self.reference, &self.key, &self.amount, &self.currency]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// The pointer whose way into a list the others follow: where the status stands, else the first that is given.
    pub fn spine(&self) -> Option<&str> {
        self.pointers().next()
    }

    /// Whether a pointer names an element of an array: then the body may list several objects.
    pub fn lists(&self) -> bool {
        self.pointers().any(|pointer| pointer.split('/').any(is_element))
    }
}

/// Whether a part of a pointer may name an element of an array: `*` names each.
pub fn is_element(part: &str) -> bool {
    part == "*" || json::index(part).is_some()
}

/// `lookup = { … }`
#[derive(Debug)]
pub struct Lookup {
    /// Path and query after the base URL.
    pub path: Template,
    /// How to read the answer.
    pub reply: Reply,
    /// Which answer says that there is nothing.
    pub not_found: Option<Absence>,
}

/// `lookup.not_found = { … }`: the answer that says "nothing there", beside an explicit null and an empty list.
#[derive(Clone, PartialEq, Debug)]
pub struct Absence {
    /// Its status; 200 with no code: only null and the empty list count.
    pub status: u16,
    /// The code in its body that says so. A gateway's own error of the same status has another.
    pub code: Option<BodyCode>,
}

impl Lookup {
    /// Whether it asks by the job's key and by nothing else, so that neither an amendment nor a new generation changes
    /// what it finds.
    pub fn by_key_alone(&self) -> bool {
        self.path.only_of(Builtin::Key)
    }

    /// Whether it also finds what was merely taken: it has words for it, or the kind's reply has none.
    pub fn lists_accepted(&self, reply: Option<&Reply>) -> bool {
        !self.reply.pending.is_empty() || reply.is_none_or(|reply| reply.pending.is_empty())
    }
}
