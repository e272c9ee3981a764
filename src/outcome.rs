//! What one attempt told us: its class, how far the request got, and what the provider said. Types, no I/O.

use crate::clock::Ms;
use std::time::Duration;

/// Defines an enum whose variants have one fixed spelling each, the same in the file, the JSON and the logs.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the documents.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The word for it in the file, in JSON and in logs.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            /// The value for a word; `None` for any other text.
            pub fn parse(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// How an attempt ended: exactly one class each.
    Class {
        /// Confirmed, with what was expected.
        Ok = "ok",
        /// Taken by the provider, not final yet.
        Accepted = "accepted",
        /// Certainly never reached the provider: not one byte of the request was handed to the network.
        NotSent = "not_sent",
        /// Sent, and no answer in time.
        Timeout = "timeout",
        /// Sent, and the connection was reset, cut short or became unreadable.
        Interrupted = "interrupted",
        /// The worker died.
        Crashed = "crashed",
        /// Refused for now by a limiter.
        Throttled = "throttled",
        /// The provider is still working on this key.
        InProgress = "in_progress",
        /// 5xx: the provider's own trouble.
        ServerError = "server_error",
        /// 2xx whose body does not say what it should.
        BadResponse = "bad_response",
        /// A business refusal.
        Rejected = "rejected",
        /// The credential was refused.
        Auth = "auth",
        /// 3xx; never followed.
        Redirected = "redirected",
        /// The provider knows this key with other content.
        KeyMismatch = "key_mismatch",
        /// Look-up: nothing there.
        NotFound = "not_found",
        /// Look-up: no usable answer.
        LookupFailed = "lookup_failed",
        /// An in-process handler returned an error.
        HandlerError = "handler_error",
        /// An in-process handler panicked.
        HandlerPanic = "handler_panic",
    }
}

words! {
    /// How far a call got when it ended.
    Phase {
        /// Claimed, and the call not begun.
        Claimed = "claimed",
        /// Looking up the host name.
        Resolve = "resolve",
        /// Opening the connection.
        Connect = "connect",
        /// The TLS handshake.
        Tls = "tls",
        /// A part of the request was handed to the network.
        Sending = "sending",
        /// The whole request was.
        Sent = "sent",
        /// The status line had arrived.
        Headers = "headers",
        /// The body was arriving, or had arrived.
        Body = "body",
    }
}

/// The result of one attempt, as the provider layer or a handler reports it.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// How it ended.
    pub class: Class,
    /// How far it got; `None` for a handler.
    pub phase: Option<Phase>,
    /// The reply's status code, if there was a reply.
    pub http_status: Option<u16>,
    /// What went wrong, in words for a person; secrets already removed.
    pub error: Option<String>,
    /// The provider's wish for how long to wait, already read and clamped to 0..=24 h.
    pub retry_after: Option<Duration>,
    /// The provider's own id of the effect: what a success, an `accepted` or a named object carries.
    pub reference: Option<String>,
    /// The reply's body, shortened and redacted, kept with the intent and in the history.
    pub result: Option<String>,
    /// For `ok` and `accepted`: how the reply's amount, currency or key is not the intent's.
    pub differs: Option<String>,
    /// For `rejected`: it is the last word even after an unknown (a status in a 2xx body, a look-up or a named object,
    /// or a refusal that carries the profile's replay marker).
    pub decisive: bool,
    /// A look-up was answered, and all that it found under the key are objects that failed, be they this generation's,
    /// an earlier one's or nobody knows whose: that is not nothing.
    pub failed_only: bool,
    /// For `rejected`: the kind's `retry_on` lists this status.
    pub retry_on: bool,
    /// A duplicate was answered with an error that names the first object: fetch `reference` before anything else.
    pub fetch: bool,
    /// A look-up was answered 401: the provider is held though the class is `lookup_failed`.
    pub hold: bool,
    /// For `handler_error`: the handler says that nothing happened, so this attempt leaves nothing in doubt.
    pub not_applied: bool,
    /// The provider's own word on whether a repeat makes sense, where its profile names a header for it.
    pub again: Option<bool>,
    /// For `throttled`: a gateway said it, so that the request may have taken effect all the same.
    pub doubt: bool,
    /// The provider wants no more requests: it is paused until a person resumes it.
    pub disable: bool,
    /// When the call began (wall clock), for the history.
    pub started: Ms,
}

impl Outcome {
    /// An outcome of `class` with nothing else known.
    pub fn new(class: Class, started: Ms) -> Outcome {
        Outcome {
            class,
            phase: None,
            http_status: None,
            error: None,
            retry_after: None,
            reference: None,
            result: None,
            differs: None,
            decisive: false,
            failed_only: false,
            retry_on: false,
            fetch: false,
            hold: false,
            not_applied: false,
            again: None,
            doubt: false,
            disable: false,
            started,
        }
    }
}
