//! A job: the piece of work that an app asked for, and where it stands. Types, no I/O.

use crate::clock::Ms;
use crate::intent::{Hash, WireStyle};
use crate::outcome::{Class, words};
use std::time::Duration;

words! {
    /// Where a job stands.
    State {
        /// Due later.
        Scheduled = "scheduled",
        /// Due, may be claimed.
        Ready = "ready",
        /// Its group's predecessor is not done.
        Waiting = "waiting",
        /// Leased by a worker.
        Running = "running",
        /// A request may have taken effect; nobody knows yet.
        Unknown = "unknown",
        /// Confirmed, final.
        Settled = "settled",
        /// Needs a person.
        Parked = "parked",
        /// Final: nobody wants it any more.
        Cancelled = "cancelled",
    }
}

words! {
    /// Why a job is parked, where the reason is not simply the class of its last attempt.
    Reason {
        /// The tries are spent, and nothing is unknown.
        AttemptsExhausted = "attempts_exhausted",
        /// `max_age` has passed, and nothing is unknown.
        TooOld = "too_old",
        /// A request may have taken effect.
        UnknownOutcome = "unknown_outcome",
        /// The provider may have forgotten the key.
        WindowExpired = "window_expired",
        /// Provider, address or account are no longer those of the send.
        ScopeChanged = "scope_changed",
        /// The reply's amount, currency or key is not the intent's.
        ContentDiffers = "content_differs",
        /// The reply's reference already belongs to another key.
        ReferenceTaken = "reference_taken",
        /// The request cannot be made from the payload and the config.
        Invalid = "invalid",
        /// The provider refused.
        Rejected = "rejected",
        /// The provider answered with a redirect, which is never followed.
        Redirected = "redirected",
    }
}

words! {
    /// What a claim is for.
    Step {
        /// Send the request (again).
        Send = "send",
        /// Ask what became of it.
        LookUp = "lookup",
        /// Fetch the object that a duplicate's error named.
        Fetch = "fetch",
    }
}

/// A job's number: its intent's, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub i64);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The idempotency key: 1 to 255 bytes of UTF-8, no control characters, no white space at its ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// Checks a key. The error says which rule it breaks.
    pub fn new(text: impl Into<String>) -> Result<Key, String> {
        let text = text.into();
        if text.is_empty() {
            return Err(
                "the key is empty: draw it from the business event, for example payout:INV-1001".into()
            );
        }
        if text.len() > 255 {
            return Err(format!("the key has {} bytes; 255 is the limit", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("the key has a control character in it".into());
        }
        if text.trim() != text {
            return Err("the key has white space at an end".into());
        }
        Ok(Key(text))
    }

    /// What stands in the place of a key in a row that cannot be read, for whoever shows that row.
    pub(crate) fn of_an_unreadable_row(text: &str) -> Key {
        Key(text.chars().filter(|c| !c.is_control()).take(255).collect())
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

words! {
    /// The code of a refusal or failure: the same in JSON on every door.
    Code {
        /// The command line is wrong.
        Usage = "usage",
        /// The config is wrong.
        Config = "config",
        /// There is no such thing.
        NotFound = "not_found",
        /// A payload, key or field that cannot be used, or an unknown kind.
        Invalid = "invalid",
        /// The payload is over the limit.
        TooLarge = "too_large",
        /// The payload holds a card number or a verification code.
        CardNumber = "card_number",
        /// The key is taken by other content.
        KeyMismatch = "key_mismatch",
        /// The group has passed this place.
        StaleSequence = "stale_sequence",
        /// Another key's unfinished job holds this place.
        SequenceTaken = "sequence_taken",
        /// The state does not allow it.
        NotAllowed = "not_allowed",
        /// The file could not be read or written.
        Database = "database",
        /// Another file or a socket failed.
        Io = "io",
        /// The file stayed locked by somebody else.
        Busy = "busy",
    }
}

/// A refusal: a value, not a fault. Nothing was stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Its code.
    pub code: Code,
    /// What is wrong, where, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal with this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// A job as it is to be stored: checked and rendered, nothing left to refuse but what only the file knows.
#[derive(Clone, PartialEq, Debug)]
pub struct NewJob {
    /// Its key.
    pub key: Key,
    /// Its kind.
    pub kind: String,
    /// The payload as given.
    pub payload: String,
    /// SHA-256 of the canonical payload.
    pub payload_hash: Hash,
    /// SHA-256 of the whole content.
    pub content_hash: Hash,
    /// Whose account.
    pub account: Option<String>,
    /// Minor units.
    pub amount_minor: Option<i64>,
    /// ISO 4217, upper case.
    pub currency: Option<String>,
    /// Group.
    pub group: Option<String>,
    /// The app's own number in the group; `None`: by arrival.
    pub sequence: Option<i64>,
    /// Not before this time of the app's own; `None`: at once, or after the delay.
    pub run_after: Option<Ms>,
    /// Not before so long after it is stored.
    pub delay: Option<Duration>,
    /// Higher first.
    pub priority: i64,
    /// Suppress jobs of this kind with the same id for so long.
    pub dedup: Option<(String, Duration)>,
    /// Who will carry it out; `None`: an in-process handler.
    pub provider: Option<String>,
    /// How the provider sees keys.
    pub wire_style: WireStyle,
    /// The most requests.
    pub max_attempts: u32,
    /// Profile `external`: the app has so long to report, then it is looked up or parked.
    pub external: Option<Duration>,
    /// An alert, or at least once by choice: a restore puts nothing of it in doubt.
    pub never_doubtful: bool,
    /// The tick of the schedule that asks for it.
    pub tick: Option<Ms>,
}

/// A worker's claim as readers see it.
#[derive(Clone, PartialEq, Debug)]
pub struct Lease {
    /// The worker's name, `host:pid`.
    pub owner: String,
    /// Rises with every claim of the job.
    pub token: i64,
    /// When the lease would end unless renewed.
    pub expires: Ms,
    /// The boot clock at the claim. `None`: the claim was an older version's.
    pub boot: Option<i64>,
}

/// One job as it stands in the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Its intent's key.
    pub key: Key,
    /// What sort of work it is.
    pub kind: String,
    /// Where it stands.
    pub state: State,
    /// The payload, byte for byte as it was given; `None` once pruned.
    pub payload: Option<String>,
    /// Its group, if order matters.
    pub group: Option<String>,
    /// Its place in the group.
    pub sequence: Option<i64>,
    /// Higher is claimed first.
    pub priority: i64,
    /// What was spent of `max_attempts`.
    pub attempts: u32,
    /// The ceiling as last seen in the config.
    pub max_attempts: u32,
    /// Numbers every try, look-ups and crashes too; never given back.
    pub tries: u32,
    /// Consecutive tries that ended in a later one: the exponent of the backoff.
    pub pauses: u32,
    /// When the first request left since the job was made or replayed: `max_age` counts from here.
    pub age_from: Option<Ms>,
    /// When it is due.
    pub run_after: Ms,
    /// The class of its last attempt, while that is news.
    pub error_class: Option<Class>,
    /// The words that go with it.
    pub last_error: Option<String>,
    /// Why it is parked.
    pub park_reason: Option<Reason>,
    /// When it was made.
    pub created: Ms,
    /// When it last changed.
    pub updated: Ms,
    /// Who works on it.
    pub lease: Option<Lease>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_over_the_limit_empty_or_unclean_are_refused_by_name() {
        assert!(Key::new("k".repeat(255)).is_ok());
        assert!(Key::new("k".repeat(256)).unwrap_err().contains("256 bytes"));
        assert!(Key::new("").unwrap_err().contains("empty"));
        assert!(Key::new(" a").unwrap_err().contains("white space"));
        assert!(Key::new("a\u{a0}").unwrap_err().contains("white space"));
        assert!(Key::new("a\nb").unwrap_err().contains("control"));
        assert!(Key::new("ключ 😀").is_ok());
    }
}
