//! Providers and kinds: how they stand, why, and the switch to stop and to go on.

use super::page::{self, Here, ago, csrf, number, span, time};
use super::{Visit, words};
use crate::config::{Kind, Provider};
use crate::http::message::{Problem, Response};
use crate::store::{Pause, PauseScope, Stats};
use maud::{Markup, html};

/// A provider's state as a person says it.
pub fn state_words(state: &str) -> &'static str {
    match state {
        "ok" => "open",
        "held" => "on hold",
        "probing" => "being tried again",
        "paused" => "paused",
        _ => "in an unknown state",
    }
}

pub fn page(visit: &Visit<'_>) -> Result<Response, Problem> {
    let stats = visit.app.store.stats()?;
    let held = stats.providers.values().filter(|p| p.state != "ok").count() as u64;
    let config = &visit.app.config;
    let open = |provider: &&Provider| stats.providers.get(&provider.name).is_none_or(|p| p.state == "ok");
    let mut providers: Vec<&Provider> = config.providers.values().collect();
    providers.sort_by_key(open);
    let main = html! {
        h1 {
            @match (stats.providers.len(), held) {
                (0, _) => "No provider is in the config.",
                (_, 0) => "All providers are open.",
                (_, 1) => { @for (name, p) in stats.providers.iter().filter(|(_, p)| p.state != "ok") { (name) " is " (state_words(p.state)) "." } }
                (_, n) => { (page::plural(n, "provider is", "providers are")) " not open." }
            }
        }
        p.lead { "A provider on hold costs its jobs nothing: they wait, spend no attempts, and go out when it is back." }
        @if stats.paused.iter().any(Pause::by_restore) { (way_on()) }
        div.cards { @for provider in &providers { (card(visit, &stats, provider)) } }
        @let own: Vec<&Kind> = config.kinds.values().filter(|kind| kind.provider.is_none()).collect();
        @if !own.is_empty() {
            section aria-labelledby="own" {
                h2 #own { "Done by the app itself" }
                (kinds(visit, &stats, &own))
            }
        }
    };
    let title = if held == 0 { "Providers open".into() } else { format!("{} on hold", number(held)) };
    visit.page(Here::Providers, &title, &main)
}

fn card(visit: &Visit<'_>, stats: &Stats, provider: &Provider) -> Markup {
    let name = provider.name.as_str();
    let figures = stats.providers.get(name);
    let state = figures.map_or("ok", |p| p.state);
    let paused = stats.paused.iter().find(|p| p.scope == PauseScope::Provider && p.name == name);
    let kinds: Vec<&Kind> =
        visit.app.config.kinds.values().filter(|kind| kind.provider.as_deref() == Some(name)).collect();
    let profile = &provider.profile;
    let by_restore = paused.is_some_and(Pause::by_restore);
    html! {
        section.card aria-labelledby={ "provider-" (name) } {
            div.row {
                h2 id={ "provider-" (name) } { (name) }
                p { span class={ "pill provider-" (state) } { (state_words(state)) @if by_restore { " by the restore" } } }
            }
            @match figures.filter(|p| p.state != "ok") {
                None => { p { "Requests go out as they come." } }
                Some(p) => {
                    p {
                        @match state {
                            "paused" if by_restore => "The file was put back from a copy, and nothing goes out before a person says so. ",
                            "paused" => "A person stopped it. ",
                            "probing" => "One job goes out to see whether it is back. ",
                            _ => "Nothing goes out until it is tried again. ",
                        }
                        @if let Some(why) = &p.why { "Why: " (page::quoted(why)) ". " }
                        @if let Some(since) = p.since { "Since " (time(since)) ", " (ago(visit.app.clock.now(), since)) "." }
                    }
                }
            }
            @if let Some(pause) = paused { p.sub { "Paused by " (words::actor(&pause.by)) "." } }
            dl.facts {
                @if !provider.base_url.is_empty() { dt { "Address" } dd { (provider.base_url) } }
                dt { "Profile" } dd { (profile.name) span.sub { " " (profile.summary) } }
                dt { "In flight" } dd { (number(figures.map_or(0, |p| p.in_flight))) " of at most " (provider.concurrency) }
                dt { "Rate" } dd { @match provider.rate { Some(rate) => { "at most " (rate) " a second" } None => "no limit" } }
                dt { "Remembers a key" } dd {
                    @match (profile.family, profile.window) {
                        (crate::decide::Family::E, _) => "not at all: nothing in doubt is ever sent again",
                        (_, Some(window)) => { "for " (span(window)) ", so a repeat is safe that long" }
                        (_, None) => "for ever",
                    }
                }
                dt { "Goes on hold" } dd { "after " (provider.breaker_failures) " failures in a row, for " (span(provider.cool_down)) }
            }
            (switch(visit, PauseScope::Provider, name, paused))
            @if !kinds.is_empty() { h3 { "Kinds" } (self::kinds(visit, stats, &kinds)) }
        }
    }
}

/// What to do before that goes on which a restore paused.
fn way_on() -> Markup {
    html! {
        p.lead {
            "Before you resume what the restore paused, look at " a href="/doubt" { "what is in doubt" } " (" code { "onceward check" } " has the sums). "
            "If since the copy nobody amended, cancelled, rejected or called anything not applied, say " code { "onceward restore --no-words" }
            " first: then what a provider still remembers may go out again under its key. What cannot be asked about is parked for you."
        }
    }
}

fn kinds(visit: &Visit<'_>, stats: &Stats, kinds: &[&Kind]) -> Markup {
    html! {
        ul.kinds {
            @for kind in kinds {
                @let paused = stats.paused.iter().find(|p| p.scope == PauseScope::Kind && p.name == kind.name);
                // A kind that the app or a program does stands as its own provider.
                @let own = stats.paused.iter().find(|p| {
                    p.scope == PauseScope::Provider && p.name == kind.name && kind.provider.is_none()
                });
                li {
                    div.row {
                        p { a href={ "/jobs?kind=" (page::encode(&kind.name)) } { (kind.name) }
                            @if paused.or(own).is_some() { " " span.pill.provider-paused { "paused" @if own.is_some_and(Pause::by_restore) { " by the restore" } } } }
                    }
                    @for pause in [paused, own].into_iter().flatten() { (why(visit, pause)) }
                    @if own.is_some() { (switch(visit, PauseScope::Provider, &kind.name, own)) }
                    @if paused.is_some() || own.is_none() { (switch(visit, PauseScope::Kind, &kind.name, paused)) }
                }
            }
        }
    }
}

/// Why something is paused.
pub fn why(visit: &Visit<'_>, pause: &Pause) -> Markup {
    html! {
        p.sub {
            @if let Some(why) = &pause.why { (page::quoted(why)) ". " }
            "By " (words::actor(&pause.by)) ", " (ago(visit.app.clock.now(), pause.since)) "."
        }
    }
}

/// The form that pauses or resumes.
pub fn switch(visit: &Visit<'_>, scope: PauseScope, name: &str, paused: Option<&Pause>) -> Markup {
    let id = format!("{scope}-{}", page::encode(name));
    let what = format!("{scope} {name}");
    html! {
        @if paused.is_some() {
            form.inline method="post" action="/resume" {
                (csrf(visit))
                input type="hidden" name="scope" value=(scope.as_str());
                input type="hidden" name="name" value=(name);
                p.hint { "Jobs that waited go out at once, within its limits." }
                button.main type="submit" { "Resume " (what) }
            }
        } @else {
            details.act id={ "pause-" (id) } {
                summary { "Pause " (what) }
                p { "Nothing new goes out for it; what is in flight ends as usual. It stays paused through restarts, until somebody resumes it." }
                form method="post" action="/pause" {
                    (csrf(visit))
                    input type="hidden" name="scope" value=(scope.as_str());
                    input type="hidden" name="name" value=(name);
                    label for={ "why-" (id) } { "Why, for whoever finds it so" }
                    input id={ "why-" (id) } name="why" maxlength="500" autocomplete="off";
                    button.grave type="submit" { "Pause " (what) }
                }
            }
        }
    }
}
