//! The routes of the API. Each reads what it is asked, calls the store, and writes a view that the command line has too.

use super::message::{Content, Problem, Request, Response, whole};
use super::wire::{Body, Out};
use super::{App, batch, metrics};
use crate::door;
use crate::eyes;
use crate::job::{JobId, State};
use crate::json::unmarked;
use crate::store::{About, Amendment, Filter, PauseScope, Resolution, Which, Word};
use crate::view;
use crate::worker::BESIDE_PAYLOAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::io::{self, Write};
use std::sync::Arc;

/// One route.
pub struct Route {
    /// GET (which answers HEAD too) or POST.
    pub method: &'static str,
    /// As the OpenAPI document has it.
    pub path: &'static str,
    /// Whether the token is asked for.
    pub open: bool,
    run: fn(&Ask<'_>, &mut Body) -> Result<Response, Problem>,
}

const fn get(path: &'static str, run: fn(&Ask<'_>, &mut Body) -> Result<Response, Problem>) -> Route {
    Route { method: "GET", path, open: false, run }
}

const fn post(path: &'static str, run: fn(&Ask<'_>, &mut Body) -> Result<Response, Problem>) -> Route {
    Route { method: "POST", path, open: false, run }
}

/// All routes.
pub const ROUTES: &[Route] = &[
    post("/v1/jobs", enqueue),
    get("/v1/jobs", list),
    post("/v1/jobs/batch", batch::take),
    get("/v1/jobs/{key}", show),
    post("/v1/jobs/{key}/replay", replay),
    post("/v1/jobs/{key}/resolve", resolve),
    post("/v1/jobs/{key}/cancel", cancel),
    post("/v1/jobs/{key}/confirm", confirm),
    post("/v1/jobs/{key}/note", note),
    post("/v1/providers/{name}/pause", |ask, body| pause(ask, body, PauseScope::Provider)),
    post("/v1/providers/{name}/resume", |ask, body| resume(ask, body, PauseScope::Provider)),
    post("/v1/kinds/{name}/pause", |ask, body| pause(ask, body, PauseScope::Kind)),
    post("/v1/kinds/{name}/resume", |ask, body| resume(ask, body, PauseScope::Kind)),
    post("/v1/groups/{name}/pause", |ask, body| pause(ask, body, PauseScope::Group)),
    post("/v1/groups/{name}/resume", |ask, body| resume(ask, body, PauseScope::Group)),
    get("/v1/stats", stats),
    get("/metrics", metrics::scrape),
    Route { method: "GET", path: "/healthz", open: true, run: health },
    get("/openapi.json", openapi),
];

/// What a route is asked.
pub struct Ask<'a> {
    /// What every route has at hand.
    pub app: &'a Arc<App>,
    /// The request.
    pub request: &'a Request,
    /// Who asks, for the history.
    pub actor: String,
    /// The path's parts that stand for `{…}`.
    parts: Vec<&'a str>,
}

/// Finds the route, checks the token, and answers.
pub fn route(app: &Arc<App>, request: &Request, body: &mut Body) -> Result<Response, Problem> {
    let matching: Vec<(&Route, Vec<&str>)> =
        ROUTES.iter().filter_map(|r| Some((r, parts(r.path, &request.path)?))).collect();
    if matching.is_empty() {
        return Err(Problem::new(404, "not_found", "there is nothing at this path: see /openapi.json"));
    }
    let actor = if matching.iter().all(|(r, _)| r.open) {
        body.of_health();
        String::new()
    } else {
        match app.guard.check_token(app.http()?, request) {
            Ok(caller) => {
                body.of_known()?;
                caller.actor
            }
            Err(problem) => {
                if problem.status() == 401 {
                    app.turned_away("api", request, problem.detail())?;
                }
                return Err(problem);
            }
        }
    };
    let method = if request.asks_for_head() { "GET" } else { request.method.as_str() };
    let Some((route, parts)) = matching.iter().find(|(r, _)| r.method == method) else {
        // A path that is written out stands before one with a name in it, as in the document.
        let exact = matching.iter().any(|(_, parts)| parts.is_empty());
        let told = matching.iter().filter(|(_, parts)| parts.is_empty() == exact);
        let mut allow: Vec<&str> = told.map(|(r, _)| r.method).collect();
        if allow.contains(&"GET") {
            allow.push("HEAD");
        }
        let allow = allow.join(", ");
        let why = format!("this path is for {allow}");
        return Err(Problem::new(405, "method_not_allowed", why).with("Allow", allow));
    };
    (route.run)(&Ask { app, request, actor, parts: parts.clone() }, body)
}

/// The parts of a path that a template leaves open; `None` if it does not fit.
fn parts<'a>(template: &str, path: &'a [String]) -> Option<Vec<&'a str>> {
    let names: Vec<&str> = template.split('/').skip(1).collect();
    if names.len() != path.len() {
        return None;
    }
    let mut open = Vec::new();
    for (name, part) in names.iter().zip(path) {
        match name.starts_with('{') {
            true => open.push(part.as_str()),
            false if name == part => {}
            false => return None,
        }
    }
    Some(open)
}

impl<'a> Ask<'a> {
    /// The path's open part.
    fn name(&self) -> &'a str {
        self.parts.first().copied().unwrap_or_default()
    }

    /// The most bytes of a body here.
    pub fn most(&self) -> usize {
        self.app.config.limits.payload.saturating_add(BESIDE_PAYLOAD)
    }

    /// 415 unless the body is of one of these types, or names none.
    pub fn check_type(&self, types: &[&str]) -> Result<(), Problem> {
        let Some(given) = self.request.header("content-type")? else { return Ok(()) };
        let given = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if types.contains(&given.as_str()) {
            return Ok(());
        }
        let why = format!("the body must be {}, and this says {given:?}", types.join(" or "));
        Err(Problem::new(415, "unsupported_media_type", why))
    }

    /// Nothing is asked beside the path.
    pub fn no_query(&self) -> Result<(), Problem> {
        match self.request.query.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::invalid(format!("{name:?} is not asked here"))),
        }
    }

    /// The body's text.
    fn text(&self, body: &mut Body) -> Result<String, Problem> {
        self.no_query()?;
        self.check_type(&["application/json"])?;
        let bytes = whole(body, self.most())?;
        let text = String::from_utf8(bytes).map_err(|_| Problem::invalid("the body is not UTF-8"))?;
        Ok(unmarked(&text).to_string())
    }

    /// The body as one object; no body is an empty object.
    fn object<T: DeserializeOwned>(&self, body: &mut Body) -> Result<T, Problem> {
        let text = self.text(body)?;
        let text = if text.is_empty() { "{}" } else { &text };
        // A sequence would fill a struct too. White space is what JSON says it is.
        if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
            return Err(Problem::invalid("the body is not a JSON object"));
        }
        serde_json::from_str(text).map_err(|e| Problem::invalid(format!("the body cannot be used: {e}")))
    }

    /// The job that the path names: its number and its key.
    fn job(&self) -> Result<(JobId, String), Problem> {
        let id = door::find(&self.app.store, self.name())?;
        Ok((id, self.app.store.story_of(id)?.job.key.as_str().to_string()))
    }

    fn changed(&self, key: &str, state: State) -> Result<Response, Problem> {
        self.app.worker.wake();
        let generation = self.app.store.find(key)?.map(|id| self.app.store.generation(id)).transpose()?;
        Response::json(200, &view::state(key, state, generation.unwrap_or(1)))
    }
}

fn enqueue(ask: &Ask<'_>, body: &mut Body) -> Result<Response, Problem> {
    let header = ask.request.header("idempotency-key")?.map(str::to_string);
    let text = ask.text(body)?;
    let mut request = door::request(&text).map_err(Problem::invalid)?;
    if let (Some(header), Some(key)) = (&header, &request.key)
        && header != key
    {
        return Err(Problem::invalid(
            "the Idempotency-Key field and the body's key differ: send one of them",
        ));
    }
    request.key = request.key.or(header);
    let job = ask.app.config.prepare(request)?;
    let enqueued = ask.app.store.enqueue(job, &ask.actor)?;
    ask.app.worker.wake();
    let status = if matches!(enqueued, crate::store::Enqueued::Created(_)) { 201 } else { 200 };
    Response::json(status, &view::enqueued(&enqueued))
}

/// The most jobs in one answer.
const LIST_MOST: u32 = 1000;
/// Jobs that are in memory at once.
const PAGE: usize = 50;

fn list(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    let app = Arc::clone(ask.app);
    let mut filter = Filter { limit: 100, ..Filter::default() };
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in &ask.request.query {
        if seen.contains(&name.as_str()) {
            return Err(Problem::invalid(format!("{name:?} is asked twice")));
        }
        seen.push(name);
        let wrong = |why: String| Problem::invalid(format!("{name}: {why}"));
        match name.as_str() {
            "state" => filter.state = Some(door::known(value, State::ALL, State::as_str).map_err(wrong)?),
            "class" => {
                door::known_class(value).map_err(wrong)?;
                filter.class = Some(value.clone());
            }
            "kind" => filter.kind = Some(value.clone()),
            "group" => filter.group = Some(value.clone()),
            "after" => filter.after = Some(door::find(&app.store, value)?),
            "limit" => {
                let digits = value.bytes().all(|b| b.is_ascii_digit());
                let limit = value.parse().ok().filter(|n| digits && (1..=LIST_MOST).contains(n));
                filter.limit = limit.ok_or_else(|| wrong(format!("a number from 1 to {LIST_MOST}")))?;
            }
            _ => {
                let why = format!("{name:?} is not known; known are state, kind, group, class, limit, after");
                return Err(Problem::invalid(why));
            }
        }
    }
    let write = move |_: &mut Body, out: &mut Out| write_list(&app, filter, out);
    Ok(Response::new(200, "application/json", Content::Written(Box::new(write))))
}

/// Page by page, so that memory is bounded and no read transaction stays open while the client is slow. `next` is what
/// `after` must say to go on, or null at the end.
fn write_list(app: &App, mut filter: Filter, out: &mut Out) -> Result<(), Problem> {
    let most = filter.limit as usize;
    // One more than is shown tells whether there are more.
    filter.limit += 1;
    let ids = {
        let _turn = app.reads.enter()?;
        app.store.listed(&filter)?
    };
    if let (true, Some(kind)) = (ids.is_empty(), &filter.kind) {
        door::known_kind(&app.config, kind).map_err(|e| Problem::invalid(format!("kind: {e}")))?;
    }
    let mut last: Option<String> = None;
    put(out, b"{\"jobs\":[")?;
    for ids in ids[..ids.len().min(most)].chunks(PAGE) {
        let page = {
            let _turn = app.reads.enter()?;
            app.store.stories(ids)?
        };
        for story in &page {
            if last.is_some() {
                put(out, b",")?;
            }
            put(out, &to_json(&view::job(story, false))?)?;
            last = Some(story.job.key.as_str().to_string());
        }
    }
    let next = last.filter(|_| ids.len() > most);
    put(out, b"],\"next\":")?;
    put(out, &to_json(&next)?)?;
    put(out, b"}")
}

/// JSON text.
pub fn to_json(view: &impl serde::Serialize) -> Result<Vec<u8>, Problem> {
    let text = eyes::json(view).map_err(|e| Problem::new(500, "internal", e.to_string()))?;
    Ok(text.into_bytes())
}

/// Writes a part of an answer.
pub fn put(out: &mut impl Write, bytes: &[u8]) -> Result<(), Problem> {
    let gone = |e: io::Error| Problem::new(408, "timeout", format!("the answer could not be written: {e}"));
    out.write_all(bytes).map_err(gone)
}

fn show(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    ask.no_query()?;
    let id = door::find(&ask.app.store, ask.name())?;
    Response::json(200, &view::job(&ask.app.store.story_of(id)?, true))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    payload: Option<Box<RawValue>>,
    #[serde(default)]
    amend_money: bool,
}

fn replay(ask: &Ask<'_>, body: &mut Body) -> Result<Response, Problem> {
    let Replay { payload, amend_money } = ask.object(body)?;
    let (app, (id, key)) = (ask.app, ask.job()?);
    let amendment: Option<Amendment> = match payload {
        Some(payload) => {
            let (story, text) = (app.store.story_of(id)?, payload.get().to_string());
            Some(door::amendment(&app.config, &story, text, amend_money)?)
        }
        None if amend_money => return Err(Problem::invalid("amend_money needs a payload")),
        None => None,
    };
    ask.changed(&key, app.store.replay(id, amendment, &ask.actor)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    settled: Option<String>,
    #[serde(default)]
    not_applied: bool,
    generation: Option<Generations>,
    rejected: Option<String>,
    note: Option<String>,
}

/// `2`, or `"all"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Generations {
    One(u32),
    Word(String),
}

impl Generations {
    fn about(generation: Option<Generations>) -> Result<About, Problem> {
        match generation {
            None => Ok(About::Unsaid),
            Some(Generations::One(n)) => Ok(About::Generation(n)),
            Some(Generations::Word(word)) if word == "all" => Ok(About::All),
            Some(Generations::Word(_)) => Err(Problem::invalid("generation: a number from 1 on, or \"all\"")),
        }
    }
}

fn resolve(ask: &Ask<'_>, body: &mut Body) -> Result<Response, Problem> {
    let Resolve { settled, not_applied, generation, rejected, note } = ask.object(body)?;
    ask.app.refuse_cards(&[("note", note.as_deref()), ("reason", rejected.as_deref())])?;
    let about = Generations::about(generation)?;
    let says = match (settled, not_applied, rejected) {
        (Some(reference), false, None) => Resolution::Settled(reference),
        (None, true, None) => Resolution::NotApplied,
        (None, false, Some(why)) => Resolution::Rejected(why),
        _ => {
            let why = "say one thing: {\"settled\":\"REFERENCE\"}, {\"not_applied\":true,\"generation\":1} or {\"rejected\":\"WHY\",\"generation\":1}";
            return Err(Problem::invalid(why));
        }
    };
    // A program may repeat its request when the answer was lost: by then the word would be about another generation.
    if about == About::Unsaid && !matches!(says, Resolution::Settled(_)) {
        let why = "generation: say which one you looked for (the `intent.generation` that you saw), for a word is about one \
                   generation; \"all\" in doubt after a restore";
        return Err(Problem::invalid(why));
    }
    let (id, key) = ask.job()?;
    ask.changed(&key, ask.app.store.resolve(id, Word { says, about }, note, &ask.actor)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn cancel(ask: &Ask<'_>, body: &mut Body) -> Result<Response, Problem> {
    let Nothing {} = ask.object(body)?;
    let (id, key) = ask.job()?;
    ask.changed(&key, ask.app.store.cancel(id, &ask.actor)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirm {
    reference: String,
    generation: Option<u32>,
}

fn confirm(ask: &Ask<'_>, body: &mut Body) -> Result<Response, Problem> {
    let Confirm { reference, generation } = ask.object(body)?;
    let (id, key) = ask.job()?;
    let of = generation.map(Which::Generation);
    ask.changed(&key, ask.app.store.confirm_of(id, &reference, of, &ask.actor)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    text: String,
    reversed: Option<String>,
}

fn note(ask: &Ask<'_>, body: &mut Body) -> Result<Response, Problem> {
    let Note { text, reversed } = ask.object(body)?;
    ask.app.refuse_cards(&[("remark", Some(&text))])?;
    let (id, key) = ask.job()?;
    ask.changed(&key, ask.app.store.note(id, &text, reversed, &ask.actor)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    why: Option<String>,
}

fn pause(ask: &Ask<'_>, body: &mut Body, scope: PauseScope) -> Result<Response, Problem> {
    let Why { why } = ask.object(body)?;
    ask.app.refuse_cards(&[("name", Some(ask.name())), ("reason", why.as_deref())])?;
    let changed = ask.app.store.pause(scope, ask.name(), why, &ask.actor)?;
    Response::json(200, &view::paused(scope, ask.name(), true, changed))
}

fn resume(ask: &Ask<'_>, body: &mut Body, scope: PauseScope) -> Result<Response, Problem> {
    let Why { why } = ask.object(body)?;
    ask.app.refuse_cards(&[("name", Some(ask.name())), ("reason", why.as_deref())])?;
    let changed = ask.app.store.resume(scope, ask.name(), why, &ask.actor)?;
    ask.app.worker.wake();
    Response::json(200, &view::paused(scope, ask.name(), false, changed))
}

fn stats(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    ask.no_query()?;
    let stats = {
        let _turn = ask.app.reads.enter()?;
        ask.app.store.stats()?
    };
    Response::json(200, &view::stats(&stats))
}

/// 200 only while the worker goes round, no outcome waits to be written, the store's own thread runs, and the file is the
/// one that was opened. Whoever has no token learns no path.
fn health(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    if ask.app.store.trouble().is_some() {
        let why = "the file of [store] path was moved, linked or replaced, or its log is gone: the log and `onceward check` say more";
        return Err(Problem::new(503, "database", why).with("Retry-After", "5"));
    }
    if ask.app.worker.is_alive() && ask.app.store.writer_is_alive() {
        return Response::json(200, &serde_json::json!({ "status": "ok" }));
    }
    let why = "the worker does not go round: it is stopping, or cannot use the file";
    Err(Problem::new(503, "busy", why).with("Retry-After", "5"))
}

/// What the API can do, for programs.
pub const OPENAPI: &str = include_str!("openapi.json");

fn openapi(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    ask.no_query()?;
    Ok(Response::new(200, "application/json", Content::Bytes(OPENAPI.as_bytes().to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_in_the_document_and_everything_in_the_document_is_a_route() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let mut told = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let methods = operations.as_object().unwrap().keys().filter(|name| *name != "parameters");
            told.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
        }
        let routes: BTreeSet<String> = ROUTES.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
        assert_eq!(told, routes);
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.method.to_lowercase()];
            assert_eq!(route.open, operation["security"] == serde_json::json!([]), "{}", route.path);
        }
    }

    #[test]
    fn a_part_of_a_path_is_decoded_by_itself_and_never_becomes_two() {
        let path = |text: &str| text.split('|').map(str::to_string).collect::<Vec<_>>();
        assert_eq!(parts("/v1/jobs/{key}", &path("v1|jobs|a/b")), Some(vec!["a/b"]));
        assert_eq!(parts("/v1/jobs/{key}", &path("v1|jobs|a|b")), None);
        assert_eq!(parts("/v1/jobs/{key}/note", &path("v1|jobs||note")), Some(vec![""]));
        assert_eq!(parts("/v1/stats", &path("v1|Stats")), None);
    }
}
