//! `onceward.toml`: read once, checked whole, every error with file, line and field.
//!
//! The types here are what the rest of the program works with: durations are `Duration`, templates are parsed,
//! profiles are merged into their providers. Reading (`read/`) is the only maker of a [`Config`]. Secrets are held
//! in [`Secret`], whose `Debug` shows nothing; they come from the environment or a file, never from the text.

mod alerts;
mod body;
mod exec;
mod intake;
mod key;
mod profile;
mod read;
mod reply;
mod secret;
mod template;

pub use alerts::{AlertEvent, Alerts, Quiet, alert_payload};
pub use body::BodyTemplate;
pub use exec::{Exec, Said};
pub use intake::{Rendered, Request};
pub use key::{KeyChars, KeyPlace, KeyRule};
pub use profile::{
    About, BodyCode, Certainty, Duplicate, Fact, KeyScope, Profile, ReplayMarker, StatusRule, Statuses,
};
pub(crate) use read::RESERVED_HEADERS;
pub use read::parse_duration;
pub use reply::{Absence, Lookup, Reply, is_element};
pub use secret::{Secret, SecretSource};
pub use template::{Builtin, Template, Values, currency_digits, major};

use crate::decide::{OnParked, Terms};
use crate::schedule::Schedule;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a config cannot be used. `Display` is one line for a person: `onceward.toml:12: providers.bank.rate: …`.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {}{message}", file.display(), line.map(|l| format!(":{l}")).unwrap_or_default(), if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line in it, from 1; `None` when the whole file is meant.
    pub line: Option<usize>,
    /// The field, dotted: `providers.bank.rate`.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// The whole config.
#[derive(Debug)]
pub struct Config {
    /// Where it was read from.
    pub file: PathBuf,
    /// `[store]`
    pub store: Store,
    /// `[worker]`
    pub worker: Worker,
    /// `[limits]`
    pub limits: Limits,
    /// `[providers.*]`
    pub providers: BTreeMap<String, Provider>,
    /// `[audit] anchor`; `None`: the chain is anchored nowhere.
    pub anchor: Option<Anchor>,
    /// `[http]`; `None`: no API, no console.
    pub http: Option<Http>,
    /// `[kinds.*]`
    pub kinds: BTreeMap<String, Kind>,
    /// `[schedules.*]`
    pub schedules: BTreeMap<String, Arc<Schedule>>,
    /// `[alerts]`; `None`: nobody is told of anything.
    pub alerts: Option<Alerts>,
    /// Every secret that the config speaks of, with its place.
    secrets: Vec<PlacedSecret>,
}

/// A secret, or another file that must be there, and where the config speaks of it.
#[derive(Debug)]
struct PlacedSecret {
    line: usize,
    field: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Secret(SecretSource),
    /// It signs, so that it has a shape of its own.
    Signing(SecretSource),
    /// The API's, which must be long.
    Token(SecretSource),
    File(PathBuf),
}

impl Source {
    fn missing(&self) -> Option<String> {
        match self {
            Source::Secret(source) => source.read().err(),
            Source::Signing(source) => source.read_signing().err(),
            Source::Token(source) => source.read_token().err(),
            Source::File(path) => {
                std::fs::read(path).err().map(|e| format!("the file {} cannot be read: {e}", path.display()))
            }
        }
    }
}

/// `[audit] anchor = { file = …, every = … }`
#[derive(Debug)]
pub struct Anchor {
    /// The file that the chain's end is appended to; best on another disk or machine.
    pub file: PathBuf,
    /// How often.
    pub every: Duration,
}

/// `[http]`
#[derive(Debug)]
pub struct Http {
    /// Address and port.
    pub listen: SocketAddr,
    /// What a caller must show.
    pub token: SecretSource,
    /// A proxy with TLS stands in front.
    pub behind_proxy: bool,
    /// Further names that the server is called by, in lower case, with the port unless it is the scheme's own.
    pub hosts: Vec<String>,
}

/// `[store]`
#[derive(Debug)]
pub struct Store {
    /// The SQLite file, absolute or relative to the working directory (already joined with the config's folder).
    pub path: PathBuf,
    /// Enters the wire keys.
    pub namespace: String,
}

/// `[worker]`
#[derive(Debug)]
pub struct Worker {
    /// How many calls at once.
    pub threads: usize,
    /// How long a claim is good for unless renewed.
    pub lease: Duration,
    /// How soon a job from another process is noticed.
    pub poll: Duration,
    /// How long a stop waits for calls in flight.
    pub shutdown_grace: Duration,
}

/// `[limits]`
#[derive(Debug)]
pub struct Limits {
    /// The largest payload, in bytes.
    pub payload: usize,
    /// Below so many free bytes nothing is claimed.
    pub free_disk: u64,
    /// Whether payloads with card numbers are refused.
    pub refuse_card_numbers: bool,
}

/// `[providers.NAME]`, its profile merged in.
#[derive(Debug)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// What it promises.
    pub profile: Profile,
    /// `https://host[:port][/base]`, without a slash at the end.
    pub base_url: String,
    /// Whose account the credential acts for, where keys belong to the account: names the scope instead of the
    /// credential's fingerprint, so that a rotated credential is no other scope.
    pub account: Option<String>,
    /// The credential.
    pub auth: Option<Auth>,
    /// What TLS stands on besides the platform's roots.
    pub tls: Tls,
    /// The proxy that calls go through; `None`: none, whatever the environment says.
    pub proxy: Option<Proxy>,
    /// A path that a GET may ask at any time without an effect, for `check --online`.
    pub health: Option<String>,
    /// Time to a connection.
    pub connect_timeout: Duration,
    /// Time for the whole call.
    pub total_timeout: Duration,
    /// Calls in flight at once.
    pub concurrency: u32,
    /// Calls a second; `None` is no limit.
    pub rate: Option<f64>,
    /// Failures in a row that open the breaker.
    pub breaker_failures: u32,
    /// How long it stays open before a probe.
    pub cool_down: Duration,
    /// The secrets that sign its requests, the newest first; empty unless the profile signs.
    pub signing: Vec<SecretSource>,
}

/// `tls = { … }`: files in PEM. They are read again when they change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Tls {
    /// Roots that are trusted besides the platform's.
    pub ca_file: Option<PathBuf>,
    /// The chain and the private key that we show to the provider.
    pub client: Option<ClientCert>,
}

/// A client certificate.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientCert {
    /// The certificate, and those between it and the root.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// `proxy = "http://HOST:PORT"`: every connection is a tunnel through it (CONNECT).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxy {
    /// A name or an address, an IPv6 one without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// How a provider knows who calls. Values are read (again) at each call, so that a rotated secret takes effect.
#[derive(Debug)]
pub enum Auth {
    /// `Authorization: Bearer …`
    Bearer(SecretSource),
    /// `Authorization: Basic …`
    Basic {
        /// User name.
        user: SecretSource,
        /// Password.
        password: SecretSource,
    },
    /// A header of the provider's own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: SecretSource,
    },
    /// `Authorization: Bearer …` with a token that is fetched (RFC 6749, client credentials).
    OAuth2(OAuth2),
}

/// `auth = { oauth2 = { … } }`
#[derive(Debug)]
pub struct OAuth2 {
    /// Where tokens are given out; `https`, or on loopback.
    pub token_url: String,
    /// Who we are there.
    pub client_id: SecretSource,
    /// What proves it.
    pub client_secret: SecretSource,
    /// What is asked for.
    pub scope: Option<String>,
}

/// How a request's body is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/x-www-form-urlencoded`, nested as `a[b]=…`
    Form,
    /// No body.
    None,
}

/// `[kinds.NAME]`
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// Its provider's name; `None`: a program does it, or a handler in an embedding app.
    pub provider: Option<String>,
    /// The program that does it on this machine.
    pub exec: Option<Exec>,
    /// Gives the key from the payload.
    pub key: Option<Template>,
    /// Gives the account.
    pub account: Option<Template>,
    /// Gives the amount in minor units.
    pub amount_minor: Option<Template>,
    /// Gives the currency.
    pub currency: Option<Template>,
    /// Gives the group.
    pub group: Option<Template>,
    /// How the request is made; `None` without a provider.
    pub request: Option<RequestTemplate>,
    /// How a 2xx body is read.
    pub reply: Option<Reply>,
    /// A reference of the provider belongs to one job of this kind.
    pub unique: bool,
    /// How to ask what became of a request.
    pub lookup: Option<Lookup>,
    /// Statuses that are retried though they would be `rejected`.
    pub retry_on: Vec<u16>,
    /// Profile `external`: how long the app has to report.
    pub confirm_within: Option<Duration>,
    /// How long a finished job keeps its row, payload and words.
    pub keep: Duration,
    /// What `decide` needs to know of kind and provider together.
    pub terms: Terms,
}

/// `request = { … }`
#[derive(Debug)]
pub struct RequestTemplate {
    /// GET, POST, PUT, PATCH or DELETE.
    pub method: String,
    /// Path and query after the base URL.
    pub path: Template,
    /// How the body is written.
    pub encoding: Encoding,
    /// The body; `None`: the payload is the body.
    pub body: Option<BodyTemplate>,
    /// Further headers.
    pub headers: Vec<(String, Template)>,
}

impl Kind {
    /// What happens to the group when a job of this kind is parked.
    pub fn on_parked(&self) -> OnParked {
        self.terms.on_parked
    }
}

#[cfg(test)]
mod kind_tests;
#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod tests;
