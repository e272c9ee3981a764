//! The console: pages for a person, from the same binary, behind a login with the API's token.
//!
//! A GET changes nothing. A change is a form that carries the session's CSRF token, from this site, and goes through the
//! store's own functions as the command line's does, with `console:ADDRESS` as its actor. Pages work without JavaScript;
//! nothing on them is inline, so that the content policy lets no other script run, whatever a payload or a provider
//! says. All that comes from outside is escaped where it is put in (`maud`), and shortened and masked before
//! (`provider::redact`).
//!
//! `session` is who is logged in, `form` reads what a form says, `page` is the frame of each page, `words` the sentences,
//! `chart` the pictures, `act` the changes; the rest is one file a page.

mod act;
mod audit;
mod chart;
mod doubt;
mod form;
mod groups;
mod job;
mod jobs;
mod login;
mod page;
mod parked;
mod providers;
mod restored;
mod session;
mod today;
mod words;

pub use session::Sessions;

use super::App;
use super::guard;
use super::message::{Content, Problem, Request, Response};
use super::wire::Body;
use crate::eyes;
use form::Form;
use page::Here;
use std::sync::Arc;

/// What may be loaded and run: our own files, and nothing inline. `connect-src` is for the refresh.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The fields of forms that hold a person's words, and what they are called.
const WORDS: &[(&str, &str)] = &[("note", "note"), ("why", "reason"), ("text", "remark"), ("name", "name")];

/// One request of somebody who is logged in.
struct Visit<'a> {
    app: &'a Arc<App>,
    request: &'a Request,
    /// Who acts, for the history.
    actor: String,
    /// What each form must carry.
    csrf: String,
}

/// Answers what is the console's; `None`: it is not.
pub fn route(app: &Arc<App>, request: &Request, body: &mut Body) -> Option<Response> {
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    match path.first()? {
        &"" if path.len() > 1 => return None,
        &("" | "login" | "logout" | "jobs" | "job" | "parked" | "doubt" | "providers" | "groups"
        | "audit")
        | &("audit.jsonl" | "pause" | "resume" | "assets" | "favicon.ico") => {}
        _ => return None,
    }
    let answer = check_method(request, &path).and_then(|()| {
        open_to_all(app, request, &path, body).unwrap_or_else(|| inside(app, request, &path, body))
    });
    Some(secured(answer.unwrap_or_else(|problem| page::alone(&problem))))
}

/// Every answer of the console carries these.
fn secured(response: Response) -> Response {
    response
        .with("Content-Security-Policy", POLICY)
        .with("Referrer-Policy", "same-origin")
        .with("X-Frame-Options", "DENY")
        .with("Cross-Origin-Opener-Policy", "same-origin")
        .with("Cross-Origin-Resource-Policy", "same-origin")
}

/// What nobody needs to be logged in for.
fn open_to_all(
    app: &Arc<App>,
    request: &Request,
    path: &[&str],
    body: &mut Body,
) -> Option<Result<Response, Problem>> {
    match (method(request), path) {
        ("GET", ["assets", name]) => Some(page::asset(name, request)),
        ("GET", ["favicon.ico"]) => Some(page::asset("icon.svg", request)),
        ("GET", ["login"]) => Some(login::ask(request)),
        ("POST", ["login"]) => Some(login::take(app, request, body)),
        _ => None,
    }
}

/// 405 for a method that a page is not for.
fn check_method(request: &Request, path: &[&str]) -> Result<(), Problem> {
    let allow = match path {
        ["login"] | ["parked", "replay"] => &["GET", "HEAD", "POST"][..],
        ["logout" | "pause" | "resume"] | ["groups", "skip"] => &["POST"],
        ["job", _, what] if *what != "payload.json" => &["POST"],
        _ => &["GET", "HEAD"],
    };
    if allow.contains(&request.method.as_str()) {
        return Ok(());
    }
    let allow = allow.join(", ");
    let why = format!("this page is for {allow}");
    Err(Problem::new(405, "method_not_allowed", why).with("Allow", allow))
}

/// HEAD is answered as GET is.
fn method(request: &Request) -> &str {
    if request.asks_for_head() { "GET" } else { &request.method }
}

fn inside(app: &Arc<App>, request: &Request, path: &[&str], body: &mut Body) -> Result<Response, Problem> {
    let Some(visit) = Visit::begin(app, request)? else { return Ok(login::first(request)) };
    body.of_known()?;
    let answer = if method(request) == "GET" { visit.look(path) } else { visit.change(path, body) };
    Ok(answer.unwrap_or_else(|problem| page::trouble(&visit, &problem)))
}

impl<'a> Visit<'a> {
    /// `None`: nobody is logged in.
    fn begin(app: &'a Arc<App>, request: &'a Request) -> Result<Option<Visit<'a>>, Problem> {
        let http = app.http()?;
        let Some(id) = session_id(request) else { return Ok(None) };
        let touch = request.header("x-onceward-refresh")?.is_none();
        let csrf = app.sessions.csrf(id, &guard::token_hash(http)?, touch);
        Ok(csrf.map(|csrf| Visit { app, request, actor: guard::console_actor(http, request), csrf }))
    }

    fn look(&self, path: &[&str]) -> Result<Response, Problem> {
        // What is written bit by bit takes its turns itself.
        if path == ["audit.jsonl"] {
            return audit::export(self);
        }
        let _turn = self.app.reads.enter()?;
        match path {
            [""] => today::page(self),
            ["jobs"] => jobs::page(self),
            ["job", id] => job::page(self, id, None),
            ["job", id, "payload.json"] => job::payload(self, id),
            ["parked"] => parked::page(self),
            ["parked", "replay"] => parked::confirm(self),
            ["doubt"] => doubt::page(self),
            ["providers"] => providers::page(self),
            ["groups"] => groups::page(self),
            ["audit"] => audit::page(self),
            _ => Err(nothing_here()),
        }
    }

    fn change(&self, path: &[&str], body: &mut Body) -> Result<Response, Problem> {
        let form = Form::read(self.request, body, form::MOST)?;
        self.check(&form)?;
        // A person's words are kept for ever, whichever form they stand in.
        for (name, what) in WORDS {
            self.app.config.refuse_card_in(what, form.get(name))?;
        }
        match path {
            ["logout"] => Ok(login::leave(self)),
            ["job", id, verb] => act::on_job(self, id, verb, &form),
            ["parked", "replay"] => act::replay_several(self, &form),
            ["pause"] => act::pause(self, &form),
            ["resume"] => act::resume(self, &form),
            ["groups", "skip"] => act::skip(self, &form),
            _ => Err(nothing_here()),
        }
    }

    /// 403 unless the form is one of ours, sent from a page of ours. Origin was checked for every request.
    fn check(&self, form: &Form) -> Result<(), Problem> {
        same_site(self.request)?;
        if form.carries(&self.csrf) {
            return Ok(());
        }
        let why = "this form is not one of the page that you are logged in to: load the page again, and nothing was changed";
        Err(Problem::new(403, "forbidden", why))
    }

    /// A value of the query; the first if there are several.
    fn query(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.request.query.iter();
        pairs.find(|(n, value)| n == name && !value.trim().is_empty()).map(|(_, value)| value.trim())
    }

    /// The frame of a page.
    fn page(&self, here: Here, title: &str, main: &maud::Markup) -> Result<Response, Problem> {
        page::framed(self, 200, here, title, main)
    }
}

/// 403 if the browser says that another site sent this.
fn same_site(request: &Request) -> Result<(), Problem> {
    match request.header("sec-fetch-site")? {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(Problem::new(403, "forbidden", "a page of another site may not ask this server")),
    }
}

fn nothing_here() -> Problem {
    Problem::new(404, "not_found", "there is no such page")
}

/// Two consoles on one machine have one jar of cookies, so the port is part of the name.
fn cookie_name(request: &Request) -> String {
    format!("onceward_{}", request.local.port())
}

fn session_id(request: &Request) -> Option<&str> {
    let name = cookie_name(request);
    let cookies = request.header("cookie").ok().flatten()?;
    cookies.split(';').find_map(|pair| {
        let (n, value) = pair.split_once('=')?;
        (n.trim() == name).then_some(value.trim())
    })
}

/// A page's answer.
fn html(status: u16, markup: maud::Markup) -> Response {
    let text = eyes::page(&markup.into_string());
    Response::new(status, "text/html; charset=utf-8", Content::Bytes(text.into_bytes()))
}

/// On to another page, with GET. `to` is one of our own paths, encoded.
fn see(to: &str) -> Response {
    Response::new(303, "text/plain; charset=utf-8", Content::Bytes(Vec::new())).with("Location", to)
}
