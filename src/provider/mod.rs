//! The only place that makes outgoing calls: one call in, one [`Outcome`] out. No SQL, no decisions.
//!
//! `request` renders what is sent, `connect` and `tls` open a connection, `http` makes one exchange over it and knows
//! whether a byte left, `reply` and `read` say what an answer means, `sign` signs webhooks, `redact` keeps secrets out of
//! what is kept, `oauth` has tokens, `online` looks whether a provider can be reached and `question` whether its look-ups
//! are understood, `handler` calls an app's own closures, `exec` runs programs. Nothing here tries twice.

mod auth;
mod connect;
mod exec;
mod handler;
mod http;
mod oauth;
mod objects;
mod online;
mod own;
mod pause;
mod question;
mod read;
pub mod redact;
mod reply;
mod request;
mod sign;
#[cfg(unix)]
mod run;
#[cfg(test)]
mod tests;
mod tls;

pub use auth::credentials;
pub use exec::Programs;
pub use handler::{Handler, HandlerCall, HandlerOutcome, Handlers};
#[doc(hidden)]
pub use http::{Answer, Broken, Wire};
pub use online::Finding;

use crate::clock::Clock;
use crate::config::{Absence, Auth, Config, Kind, Lookup, Profile, Provider};
use crate::decide::Family;
use crate::intent::{Frozen, Intent, Scope};
use crate::job::{Job, Step};
use crate::json::Json;
use crate::outcome::{Class, Outcome, Phase};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// One call to make.
pub struct Call<'a> {
    /// What it is for.
    pub step: Step,
    /// The job.
    pub job: &'a Job,
    /// Its intent.
    pub intent: &'a Intent,
    /// The request as it was frozen.
    pub frozen: &'a Frozen,
    /// Where the claim found that the kind's calls go: the credential of the call must be that one's. `None`: nobody
    /// claimed it.
    pub scope: Option<&'a Scope>,
    /// Called once, after the connection stands and before the first byte of the request is handed to the network.
    /// An error ends the call as `not_sent`.
    pub before_first_byte: &'a dyn Fn() -> Result<(), String>,
    /// Where a program that does the kind's work is put on record. `None`: nowhere, nobody would come after.
    pub program: Option<ProgramRecord<'a>>,
}

/// Where the run of a program is put on record, for whoever comes after a worker that died.
#[derive(Clone, Copy)]
pub struct ProgramRecord<'a> {
    /// Its lock file.
    pub file: &'a Path,
    /// Keeps what is said of the process that was started.
    pub keep: &'a dyn Fn(String) -> Result<(), String>,
}

/// One exchange over a network: the request and the hook that precedes its first byte in, what came back out.
#[doc(hidden)]
pub type Exchange<'e> = dyn Fn(&Wire<'_>, &dyn Fn() -> Result<(), String>) -> Result<Answer, Broken> + 'e;

/// All the providers of a config, and the way to them. Shared by the worker's threads.
pub struct Providers {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    http: http::Http,
    tokens: oauth::Tokens,
    /// Each provider's fingerprint as last read. A secret that cannot be read for a moment is no change of account.
    fingerprints: Mutex<BTreeMap<String, String>>,
}

impl Providers {
    /// Makes no call and opens nothing; reads each credential once for its fingerprint.
    pub fn new(config: Arc<Config>, clock: Arc<dyn Clock>) -> Providers {
        let (http, tokens) = (http::Http::default(), oauth::Tokens::default());
        let providers = Providers { config, clock, http, tokens, fingerprints: Mutex::default() };
        for provider in providers.config.providers.values() {
            providers.fingerprint(provider);
        }
        providers
    }

    /// The request of the intent's present generation, to be stored and then sent as it is. The error says why it
    /// cannot be made.
    pub fn freeze(&self, kind: &str, job: &Job, intent: &Intent) -> Result<Frozen, String> {
        let (kind, provider) = self.find(kind)?;
        request::freeze(kind, provider, job, intent)
    }

    /// Where the kind's requests go now. Rotating a credential changes it, and is meant to, unless the config names the
    /// account: nothing else tells whether a new credential is the same account's. Empty for a kind without a provider.
    pub fn scope(&self, kind: &str) -> Scope {
        let Ok((kind, provider)) = self.find(kind) else {
            return Scope::default();
        };
        let send = place(provider, &self.fingerprint(provider));
        let lookup = kind.lookup.as_ref().map(definition).unwrap_or_default();
        Scope { send, lookup }
    }

    /// Makes one call. Blocks, at most for the provider's total timeout and the hook's own time; where a token must be
    /// fetched first, for twice that.
    pub fn call(&self, call: &Call<'_>) -> Outcome {
        self.call_over(call, &|wire, hook| self.http.exchange(wire, hook))
    }

    /// The same over another network: the simulation's provider takes the request as it would be sent, and its raw
    /// answer is read as any other is.
    #[doc(hidden)]
    pub fn call_over(&self, call: &Call<'_>, exchange: &Exchange<'_>) -> Outcome {
        let started = self.clock.now();
        // Before the first byte a send is `not_sent`; a question that could not be asked is just unanswered.
        let unsent = |error: String, secrets: &[String]| {
            let class = if call.step == Step::Send { Class::NotSent } else { Class::LookupFailed };
            let error = Some(redact::words(&error, secrets));
            Outcome { phase: Some(Phase::Claimed), error, ..Outcome::new(class, started) }
        };
        let (kind, provider) = match self.find(&call.job.kind) {
            Ok(found) => found,
            Err(why) => return unsent(why, &[]),
        };
        let mut credential = match self.credential(provider) {
            Ok(credential) => credential,
            Err(why) => return unsent(format!("providers.{}.auth: {why}", provider.name), &[]),
        };
        let own = credential.fingerprint.clone();
        let same_caller = |shown: Option<&[u8]>| match call.scope {
            Some(scope) if place(provider, &auth::with_certificate(&own, shown)) != scope.send => {
                Err(format!(
                    "providers.{}: its credential is not the one any more that was there when the job was claimed; nothing was \
                 sent, and the next try goes by the new one",
                    provider.name
                ))
            }
            _ => Ok(()),
        };
        // What a connection shows is known only when it stands.
        let shows = provider.tls.client.is_some() && provider.base_url.starts_with("https:");
        if !shows {
            let shown = tls::client_digest(&provider.tls);
            if let Err(why) = shown.and_then(|shown| same_caller(shown.as_deref())) {
                return unsent(why, &credential.secrets);
            }
        }
        let mut wire = match wire(call, kind, provider, &credential) {
            Ok(wire) => wire,
            Err(why) => return unsent(why, &credential.secrets),
        };
        wire.caller = shows.then_some(&same_caller);
        if provider.profile.signed && call.step == Step::Send {
            match sign::sign(&provider.signing, &call.intent.wire_key, started, &call.frozen.body) {
                Ok(signed) => {
                    wire.headers.extend(signed.headers.into_iter().map(|(n, v)| (n, v, false)));
                    credential.secrets.extend(signed.secrets);
                }
                Err(why) => return unsent(format!("providers.{}.signing: {why}", provider.name), &[]),
            }
        }
        let exchange = exchange(&wire, call.before_first_byte);

        let ask = reply::Ask {
            profile: &provider.profile,
            reply: match call.step {
                Step::Send | Step::Fetch => kind.reply.as_ref(),
                Step::LookUp => kind.lookup.as_ref().map(|l| &l.reply),
            },
            not_found: kind.lookup.as_ref().and_then(|l| l.not_found.as_ref()),
            has_lookup: kind.lookup.is_some(),
            retry_on: &kind.retry_on,
            keys: [call.job.key.as_str(), &call.intent.wire_key],
            generation: call.intent.generation.number,
            earlier: &call.intent.earlier,
            amount_minor: call.intent.amount_minor,
            currency: call.intent.currency.as_deref(),
            named: call.intent.generation.named.as_deref(),
            secrets: &credential.secrets,
            started,
            now: self.clock.now(),
        };
        let outcome = match exchange {
            Ok(answer) => match call.step {
                Step::Send if blind(&answer, provider) => unread(&answer, &ask),
                Step::Send => reply::send(&answer, &ask),
                Step::LookUp => reply::look_up(&answer, &ask),
                Step::Fetch => reply::fetch(&answer, &ask),
            },
            Err(broken) => unanswered(call.step, broken, &ask),
        };
        if outcome.http_status == Some(401) && matches!(provider.auth, Some(Auth::OAuth2(_))) {
            self.tokens.refused(&provider.name, &credential);
        }
        redact::sealed(outcome, call.step, &credential)
    }

    fn credential(&self, provider: &Provider) -> Result<auth::Credential, String> {
        match &provider.auth {
            Some(Auth::OAuth2(oauth2)) => {
                self.tokens.credential(&self.http, self.clock.as_ref(), provider, oauth2)
            }
            None | Some(Auth::Bearer(_) | Auth::Basic { .. } | Auth::Header { .. }) => auth::read(provider),
        }
    }

    fn find(&self, kind: &str) -> Result<(&Kind, &Provider), String> {
        let found = self.config.kinds.get(kind).ok_or_else(|| format!("the config has no kind {kind}"))?;
        let name = found.provider.as_deref().ok_or_else(|| format!("the kind {kind} has no provider"))?;
        let provider =
            self.config.providers.get(name).ok_or_else(|| format!("the config has no provider {name}"))?;
        Ok((found, provider))
    }

    fn fingerprint(&self, provider: &Provider) -> String {
        let mut known = self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner);
        match auth::identity(provider) {
            Ok(fingerprint) => {
                known.insert(provider.name.clone(), fingerprint.clone());
                fingerprint
            }
            Err(_) => known.get(&provider.name).cloned().unwrap_or_default(),
        }
    }
}

/// Where a provider's requests go, called by whom.
fn place(provider: &Provider, fingerprint: &str) -> String {
    // The equals sign keeps an account apart from every fingerprint.
    let whose = match &provider.account {
        Some(account) => format!("account={account}"),
        None => fingerprint.to_string(),
    };
    let mut send = [provider.name.as_str(), &provider.base_url, &whose].join(" ");
    // What was sent where no key is remembered may carry none: a profile that promises more, read later, does not make it
    // safe to send again.
    if provider.profile.family == Family::E {
        send.push_str(" without-key");
    }
    send
}

/// The request as it goes to the network, the credential added.
fn wire<'a>(
    call: &Call<'a>,
    kind: &Kind,
    provider: &'a Provider,
    credential: &auth::Credential,
) -> Result<http::Wire<'a>, String> {
    let frozen = call.frozen;
    let (method, path, headers, body) = match call.step {
        Step::Send => {
            // An empty body of a POST is said to be empty; a GET or DELETE then has none.
            let has_body =
                !frozen.body.is_empty() || matches!(frozen.method.as_str(), "POST" | "PUT" | "PATCH");
            let body = has_body.then_some(frozen.body.as_slice());
            (frozen.method.as_str(), frozen.path.clone(), frozen.headers.clone(), body)
        }
        Step::LookUp => {
            let path = request::lookup_path(kind, call.job, call.intent, frozen)?;
            ("GET", path, request::question_headers(frozen, kind, provider, &call.intent.wire_key), None)
        }
        Step::Fetch => {
            let named =
                call.intent.generation.named.as_deref().ok_or("no object was named that could be fetched")?;
            let duplicate = provider.profile.duplicate.as_ref();
            let path = request::fetch_path(duplicate, call.job, call.intent, frozen, named)?;
            ("GET", path, request::question_headers(frozen, kind, provider, &call.intent.wire_key), None)
        }
    };
    let mut headers: Vec<(String, String, bool)> = headers.into_iter().map(|(n, v)| (n, v, false)).collect();
    headers.extend(credential.header.iter().map(|(n, v)| (n.clone(), v.clone(), true)));
    Ok(http::Wire {
        method,
        url: format!("{}{path}", provider.base_url),
        headers,
        body,
        connect_timeout: provider.connect_timeout,
        total_timeout: provider.total_timeout,
        route: connect::Route { tls: &provider.tls, proxy: provider.proxy.as_ref() },
        caller: None,
    })
}

/// Whether the status alone does not say what the answer means, and its body cannot be read: the profile tells this
/// status's meanings apart by a code in the body, and the body came encoded though that was not asked for.
fn blind(answer: &http::Answer, provider: &Provider) -> bool {
    let plain =
        |coding: &str| matches!(coding.trim().to_ascii_lowercase().as_str(), "" | "identity" | "chunked");
    let codings = answer.headers.iter().filter(|(n, _)| n == "content-encoding" || n == "transfer-encoding");
    let encoded = codings.flat_map(|(_, value)| value.split(',')).any(|coding| !plain(coding));
    encoded && by_code(answer.status, &provider.profile)
}

/// Whether the profile reads the body before it knows what this status means.
fn by_code(status: u16, profile: &Profile) -> bool {
    let duplicate = profile.duplicate.as_ref().is_some_and(|d| d.status == status);
    duplicate || profile.statuses.iter().any(|rule| rule.status.cover(status) && rule.code.is_some())
}

/// An answer whose body would say what it means, and cannot be read.
fn unread(answer: &http::Answer, ask: &reply::Ask<'_>) -> Outcome {
    let error = format!("the provider answered {}, in an encoding that was not asked for", answer.status);
    Outcome {
        phase: Some(Phase::Body),
        http_status: Some(answer.status),
        error: Some(error),
        retry_after: pause::retry_after(&answer.headers, ask.profile.retry_after_ms.as_deref(), ask.now),
        ..Outcome::new(Class::BadResponse, ask.started)
    }
}

/// An exchange without a whole answer.
fn unanswered(step: Step, broken: http::Broken, ask: &reply::Ask<'_>) -> Outcome {
    let send = step == Step::Send;
    // Too long to be read whole. A status that is no success says what it says without its body, unless the profile
    // tells its meanings apart by a code in there: then nothing is inferred from it.
    if let (true, Some(part), Some((status, headers))) = (send, &broken.cut, &broken.head)
        && !(200..300).contains(status)
        && !by_code(*status, ask.profile)
    {
        let head = http::Answer { status: *status, headers: headers.clone(), body: Vec::new(), framed: true };
        let mut outcome = reply::send(&head, ask);
        outcome.result = redact::body(part, ask.secrets);
        return outcome;
    }
    let (status, headers) =
        broken.head.map_or((None, Vec::new()), |(status, headers)| (Some(status), headers));
    Outcome {
        phase: Some(broken.phase),
        http_status: status,
        error: Some(redact::words(&broken.error, ask.secrets)),
        retry_after: pause::retry_after(&headers, ask.profile.retry_after_ms.as_deref(), ask.now),
        hold: !send && status == Some(401),
        ..Outcome::new(if send { broken.class } else { Class::LookupFailed }, ask.started)
    }
}

/// A look-up's definition as text that is the same for as long as it asks and reads the same.
fn definition(lookup: &Lookup) -> String {
    let Lookup { path, reply, not_found } = lookup;
    let text = |t: &str| Json::String(t.to_string());
    let maybe = |t: &Option<String>| t.as_deref().map_or(Json::Null, text);
    let list = |l: &[String]| Json::Array(l.iter().map(|t| text(t)).collect());
    let parts = [
        ("path", text(path.text())),
        ("reference", maybe(&reply.reference)),
        ("amount", maybe(&reply.amount)),
        ("amount_major", Json::Bool(reply.amount_major)),
        ("currency", maybe(&reply.currency)),
        ("key", maybe(&reply.key)),
        ("status", maybe(&reply.status)),
        ("settled", list(&reply.settled)),
        ("pending", list(&reply.pending)),
        ("rejected", list(&reply.rejected)),
    ];
    let absence = not_found.as_ref().map(|Absence { status, code }| {
        let code = code.as_ref().map_or(Json::Null, |code| Json::Array(vec![text(&code.at), text(&code.is)]));
        ("not_found", Json::Array(vec![Json::Number(status.to_string()), code]))
    });
    let parts = parts.into_iter().chain(absence);
    Json::Object(parts.map(|(name, value)| (name.to_string(), value)).collect()).to_text()
}
