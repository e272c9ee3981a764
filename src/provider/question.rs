//! `check --online` for look-ups: each is asked for a key that cannot exist, and its answer read as a worker would read it.
//! If "nothing there" is not understood, a mistyped path is found now, and not when money is in doubt.

use super::online::Found;
use super::reply::NOT_TAKEN;
use super::{Call, Providers, request};
use crate::clock::Ms;
use crate::config::{Kind, Lookup, Provider};
use crate::intent::{Earlier, Frozen, Generation, Intent, IntentState, wire_key};
use crate::job::{Job, JobId, Key, State, Step};
use crate::json::Json;
use crate::outcome::{Class, Outcome};
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

impl Providers {
    /// Asks the look-ups of a provider's kinds. A GET each, with the credential, and nothing else.
    pub(super) fn ask_look_ups(&self, provider: &Provider, found: &mut Found<'_>) {
        let of_provider = |kind: &&Kind| kind.provider.as_deref() == Some(provider.name.as_str());
        for kind in self.config.kinds.values().filter(of_provider) {
            let Some(lookup) = &kind.lookup else { continue };
            let made_up = match MadeUp::new(kind, provider, lookup) {
                Ok(made_up) => made_up,
                Err(why) => {
                    found.add(true, "lookup", format!("kind {}: not tried: {why}", kind.name));
                    continue;
                }
            };
            let outcome = self.call(&made_up.call());
            let (ok, words) = judge(lookup, &outcome);
            found.add(ok, "lookup", format!("kind {}: {words}", kind.name));
        }
    }
}

/// A job that nobody asked for.
struct MadeUp {
    job: Job,
    intent: Intent,
    frozen: Frozen,
}

impl MadeUp {
    fn new(kind: &Kind, provider: &Provider, lookup: &Lookup) -> Result<MadeUp, String> {
        // A name of our own and the time: no event was ever named so.
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("onceward check {nanos}").as_bytes());
        let headers = kind.request.iter().flat_map(|request| &request.headers).map(|(_, value)| value);
        let templates = headers.chain([&lookup.path]).chain(&kind.key);
        let mut payload = Json::Object(Vec::new());
        for field in templates.flat_map(|template| template.fields()) {
            put(&mut payload, field, &name.to_string())?;
        }
        let key = Key::new(format!("onceward-check-{name}"))?;
        let intent = intent(wire_key(kind.terms.wire_style, "", &key, 1), &name.to_string());
        let job = job(kind, key, payload.to_text());
        let frozen = request::question(kind, provider, lookup, &job, &intent)?;
        Ok(MadeUp { job, intent, frozen })
    }

    fn call(&self) -> Call<'_> {
        let MadeUp { job, intent, frozen } = self;
        Call {
            step: Step::LookUp,
            job,
            intent,
            frozen,
            scope: None,
            before_first_byte: &|| Ok(()),
            program: None,
        }
    }
}

fn job(kind: &Kind, key: Key, payload: String) -> Job {
    Job {
        id: JobId(0),
        key,
        kind: kind.name.clone(),
        state: State::Unknown,
        payload: Some(payload),
        group: None,
        sequence: None,
        priority: 0,
        attempts: 1,
        max_attempts: 1,
        tries: 1,
        pauses: 0,
        age_from: None,
        run_after: Ms(0),
        error_class: None,
        last_error: None,
        park_reason: None,
        created: Ms(0),
        updated: Ms(0),
        lease: None,
    }
}

fn intent(wire_key: String, account: &str) -> Intent {
    Intent {
        state: IntentState::Requested,
        generation: Generation { number: 1, ..Generation::default() },
        earlier: Earlier::default(),
        doubt: None,
        waits_for_app: None,
        earlier_unknown: false,
        wire_key,
        provider: None,
        account: Some(account.to_string()),
        amount_minor: Some(1),
        currency: Some("EUR".to_string()),
        frozen: None,
        scope: None,
        reference: None,
        requested: None,
        confirmed: None,
        result: None,
    }
}

/// Puts a text where a payload field is looked for.
fn put(payload: &mut Json, field: &[String], text: &str) -> Result<(), String> {
    let Some((last, way)) = field.split_last() else { return Ok(()) };
    let mut at = payload;
    for name in way.iter().chain([last]) {
        let Json::Object(members) = at else {
            return Err(format!("{{{}}} is a field of a field that has a value itself", field.join(".")));
        };
        let index = match members.iter().position(|(n, _)| n == name) {
            Some(index) => index,
            None => {
                members.push((name.clone(), Json::Object(Vec::new())));
                members.len() - 1
            }
        };
        at = &mut members[index].1;
    }
    *at = Json::String(text.to_string());
    Ok(())
}

/// Whether the answer is understood as "nothing there", and what to change if not.
fn judge(lookup: &Lookup, outcome: &Outcome) -> (bool, String) {
    const ASKED: &str = "its look-up was asked for a key that cannot exist, and";
    let said = outcome.error.as_deref().unwrap_or("the provider answered");
    let said = said.strip_suffix(NOT_TAKEN).unwrap_or(said);
    let fields: Vec<String> = lookup.path.fields().map(|field| format!("{{{}}}", field.join("."))).collect();
    let beside = match fields.as_slice() {
        [] => String::new(),
        fields => format!(" (or is it that {} was made up too?)", fields.join(", ")),
    };
    match (outcome.class, outcome.http_status) {
        (Class::NotFound, Some(404)) if lookup.not_found.is_none() => (
            true,
            format!(
                "{ASKED} a 404 came, which counts here. A gateway's for a mistyped path would too: name the provider's own \
                 with lookup.not_found"
            ),
        ),
        (Class::NotFound, _) => (true, format!("{ASKED} says that there is nothing, as it should")),
        (Class::Ok | Class::Accepted | Class::Rejected, _) => (
            false,
            format!(
                "{ASKED} found an object: what the path asks by does not choose it. Ask by {{$wire_key}} or {{$key}}{beside}"
            ),
        ),
        (_, Some(401 | 403)) => {
            (false, format!("{ASKED} {said}: the credential is refused, put a good one in its place"))
        }
        (_, Some(404)) => (
            false,
            format!(
                "{ASKED} {said}, which is not understood as \"nothing there\": correct lookup.path{beside}; if it is the \
                 provider's own word for it, name it with lookup.not_found"
            ),
        ),
        (_, Some(200)) => (
            false,
            format!(
                "{ASKED} the answer is not understood: {said}. \"Nothing there\" is a null or an empty list on the way to \
                 lookup.reference, or the answer that lookup.not_found names{beside}"
            ),
        ),
        (_, Some(_)) => (
            false,
            format!(
                "{ASKED} {said}, which is not understood as \"nothing there\"{beside}: correct lookup.path, or name that answer \
                 with lookup.not_found"
            ),
        ),
        (_, None) => (false, format!("{ASKED} no answer came: {said}")),
    }
}
