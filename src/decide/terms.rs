//! What decisions need to know of a kind and its provider: what the config chose and the profile promises. It does not
//! change while a process runs; what does change is job, intent, outcome and the present.

use crate::intent::WireStyle;
use std::time::Duration;

/// What a provider promises about a repeat: which answer a second request under one key gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// The stored answer, errors too.
    A,
    /// The stored answer if it was a success; a failure runs again.
    B,
    /// The object's present state.
    C,
    /// An error that names the first object.
    D,
    /// Nothing: it acts twice.
    E,
}

/// The kind's look-up, as far as decisions need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LookupTerms {
    /// How long after a send the provider may not know it yet.
    pub lag: Duration,
    /// "Nothing there", said twice, proves that there was no effect.
    pub authoritative: bool,
    /// It asks by the job's key and by nothing else: what any generation left under that key is found, whatever was
    /// amended since.
    pub by_key: bool,
    /// It also finds what was merely taken and is not final.
    pub lists_accepted: bool,
}

/// What a parked job does to its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnParked {
    /// The group waits.
    Block,
    /// The group goes on, unless the outcome is unknown.
    Skip,
}

/// What becomes of an outcome that is in doubt, when neither a repeat nor a look-up can clear it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnUnknown {
    /// A person decides.
    Park,
    /// The same request goes again: at least once instead of at most once, which the config chose.
    Resend,
}

/// What decisions need to know about a kind and its provider.
#[derive(Clone, PartialEq, Debug)]
pub struct Terms {
    /// What the provider promises about repeats.
    pub family: Family,
    /// How long it remembers a key, from the first send; `None`: for ever. Meaningless for family E.
    pub window: Option<Duration>,
    /// The look-up, if there is one.
    pub lookup: Option<LookupTerms>,
    /// The app makes the call itself; no worker ever sends it.
    pub external: bool,
    /// How the provider sees keys.
    pub wire_style: WireStyle,
    /// The most requests.
    pub max_attempts: u32,
    /// The first pause.
    pub base: Duration,
    /// The longest pause.
    pub cap: Duration,
    /// How long after the first request that left a person is asked.
    pub max_age: Duration,
    /// Whether the group goes on past a parked job.
    pub on_parked: OnParked,
    /// Whether what is in doubt is sent again when nobody can be asked.
    pub on_unknown: OnUnknown,
    /// An alert, or at least once by choice: a restore puts nothing of it in doubt.
    pub never_doubtful: bool,
    /// How long a held provider rests before a probe, and after how many failures in a row it is held.
    pub breaker: BreakerTerms,
}

/// The breaker of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerTerms {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it stays open before a probe.
    pub cool_down: Duration,
}
