//! The way in and out.

use super::form::Form;
use super::{cookie_name, html, page, same_site, see, session_id};
use crate::config::Http;
use crate::http::App;
use crate::http::guard::console_actor;
use crate::http::message::{Problem, Request, Response};
use crate::http::wire::Body;
use maud::html;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;

/// The most bytes of the login's form: anybody may send one.
const FORM: usize = 4 * 1024;

/// To the login, and back to where one wanted to go.
pub fn first(request: &Request) -> Response {
    let path = request.path.join("/");
    // What was a change is not done after the login, and is not a page.
    if request.method != "GET" || path.is_empty() {
        return see("/login");
    }
    let mut query: Vec<String> = Vec::new();
    for (name, value) in &request.query {
        query.push(format!("{}={}", encode(name), encode(value)));
    }
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    see(&format!("/login?next={}", encode(&format!("/{path}{query}"))))
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A path of this console and nothing else: no other host, no control character that would end the header.
fn inner(next: &str) -> Option<&str> {
    let rest = next.strip_prefix('/')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "/?=&%-._".contains(c);
    (!rest.starts_with('/') && rest.chars().all(plain)).then_some(next)
}

/// The form.
pub fn ask(request: &Request) -> Result<Response, Problem> {
    let next = request.query.iter().find(|(name, _)| name == "next").map_or("", |(_, value)| value.as_str());
    let left = request.query.iter().any(|(name, _)| name == "left");
    Ok(page(200, next, left.then_some("You are logged out."), false))
}

/// Takes the token.
pub fn take(app: &Arc<App>, request: &Request, body: &mut Body) -> Result<Response, Problem> {
    same_site(request)?;
    let form = Form::read(request, body, FORM)?;
    let next = form.get("next").unwrap_or_default();
    let http = app.http()?;
    let given = form.get("token").unwrap_or_default();
    let (caller, hash) = match app.guard.check_login(http, request, given) {
        Ok(pair) => pair,
        Err(problem) => {
            if problem.status() == 401 {
                app.turned_away("console", request, "a wrong token at the login")?;
            }
            let words = match problem.status() {
                401 => "This is not the token.".to_string(),
                _ => sentence(problem.detail()),
            };
            let answer = page(problem.status(), next, Some(&words), true);
            return Ok(problem.fields().iter().fold(answer, |answer, (name, value)| {
                // The browser's own password window would come up.
                if *name == "WWW-Authenticate" { answer } else { answer.with(name, value.clone()) }
            }));
        }
    };
    let Some(opened) = app.sessions.open(hash) else {
        return Err(
            Problem::new(503, "internal", "the system gives no random numbers").with("Retry-After", "5")
        );
    };
    app.store.let_in("console", &address(http, request), &caller.actor)?;
    log::info!("{} has logged in to the console", caller.actor);
    let cookie = cookie(request, http.behind_proxy, &opened.id, "");
    Ok(see(inner(next).unwrap_or("/")).with("Set-Cookie", cookie))
}

/// Ends the session.
pub fn leave(visit: &super::Visit<'_>) -> Response {
    if let Some(id) = session_id(visit.request) {
        visit.app.sessions.end(id);
    }
    let secure = visit.app.config.http.as_ref().is_some_and(|http| http.behind_proxy);
    see("/login?left=1").with("Set-Cookie", cookie(visit.request, secure, "", "; Max-Age=0"))
}

/// Where the request comes from, as the actor says it.
fn address(http: &Http, request: &Request) -> String {
    let actor = console_actor(http, request);
    actor.strip_prefix("console:").unwrap_or(&actor).to_string()
}

fn cookie(request: &Request, secure: bool, id: &str, more: &str) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{more}", cookie_name(request))
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

fn page(status: u16, next: &str, said: Option<&str>, wrong: bool) -> Response {
    let main = html! {
        main.door id="main" {
            (page::mark())
            h1 { "Onceward" }
            p.quiet { "Every business effect, once." }
            @if let Some(said) = said {
                p.said.wrong[wrong] role=(if wrong { "alert" } else { "status" }) id="said" { (said) }
            }
            form method="post" action="/login" {
                input type="hidden" name="next" value=(inner(next).unwrap_or_default());
                label for="token" { "Token" }
                input #token type="password" name="token" required autocomplete="current-password" autofocus
                    aria-describedby="where" spellcheck="false";
                p.hint #where { "The one that " code { "[http] token" } " in " code { "onceward.toml" } " points to." }
                button.main type="submit" { "Log in" }
            }
        }
    };
    html(status, page::document("Log in", &main))
}
