//! In doubt: requests that may have taken effect. What is known of each, what happens by itself, and how to end it.

use super::page::{self, Here, ago, amount, job_path, number, plural, time};
use super::{Visit, words};
use crate::http::message::{Problem, Response};
use crate::intent::IntentState;
use crate::job::{Reason, State};
use crate::store::{Browse, By, Line, NEEDS_MOST};
use maud::{Markup, html};

/// Jobs of each sort that are shown.
const SHOWN: usize = 30;

/// The reasons under which something may be in doubt.
pub const REASONS: [Reason; 7] = [
    Reason::UnknownOutcome,
    Reason::WindowExpired,
    Reason::ScopeChanged,
    Reason::ContentDiffers,
    Reason::ReferenceTaken,
    Reason::Redirected,
    Reason::Invalid,
];

pub fn page(visit: &Visit<'_>) -> Result<Response, Problem> {
    let store = &visit.app.store;
    let needs = store.needs_a_person()?;
    let mut yours: Vec<Line> = Vec::new();
    for reason in REASONS {
        let of = Browse {
            by: By::Reason(reason),
            intent: Some(IntentState::Requested),
            limit: SHOWN,
            ..Browse::default()
        };
        yours.extend(store.browse(&of)?.lines);
    }
    let asked = store.browse(&Browse { state: Some(State::Unknown), limit: SHOWN, ..Browse::default() })?;
    let total = needs.unknown + needs.parked_unknown;
    let main = html! {
        @if total == 0 {
            h1 { "Nothing is in doubt." }
            p.lead { "When a request leaves and no clear answer comes, it stands here until somebody knows what became of it: Onceward by asking, or you by looking." }
        } @else {
            h1 { (plural(total, "request is", "requests are")) " in doubt." }
            p.lead { "Each may have taken effect, and nothing is sent again that could do it twice." }
        }
        @if needs.parked_unknown > 0 {
            section aria-labelledby="yours" {
                h2 #yours { "Only you can find out " span.count { (number(needs.parked_unknown)) @if needs.parked_unknown >= NEEDS_MOST { "+" } } }
                (how(yours.iter().any(|line| line.doubt_since.is_some())))
                @for line in &yours { (card(visit, line)) }
                @if needs.parked_unknown > yours.len() as u64 { p { a href="/jobs?state=parked" { "See all that is parked" } } }
            }
        }
        @if needs.unknown > 0 {
            section aria-labelledby="asked" {
                h2 #asked { "Onceward is finding out " span.count { (number(needs.unknown)) } }
                p { "There is nothing for you to do: it asks again at the time given, and parks what it cannot find out. If you know already, open the job and say so." }
                @for line in &asked.lines { (card(visit, line)) }
                @if asked.next.is_some() { p { a href="/jobs?state=unknown" { "See all of them" } } }
            }
        }
    };
    let title = if total == 0 { "Nothing in doubt".into() } else { format!("{} in doubt", number(total)) };
    visit.page(Here::Doubt, &title, &main)
}

fn how(restored: bool) -> Markup {
    html! {
        details.how #how open {
            summary { "How to end a doubt" }
            p { "Look at the provider for the amount, the account and our key, around the time it was sent. Then open the job and give one of three answers:" }
            dl {
                dt { "It happened" } dd { "You found it. Enter its reference: the job is done, and nothing is sent." }
                dt { "It did not happen" } dd { "You are sure that it is not there. A new request goes out under a new key." }
                dt { "It was refused" } dd { "The provider turned it down. The job ends, and nothing is sent." }
            }
            @if restored { p { "A job that is in doubt since the file was restored has several keys, and only the first two answers: its page lists them." } }
        }
    }
}

fn card(visit: &Visit<'_>, line: &Line) -> Markup {
    let now = visit.app.clock.now();
    let provider = line.provider.as_ref().and_then(|name| visit.app.config.providers.get(name));
    let host = provider.map(|p| p.base_url.split_once("://").map_or(p.base_url.as_str(), |(_, rest)| rest));
    let host = host.filter(|host| !host.is_empty());
    let lookup = visit.app.config.kinds.get(&line.kind).is_some_and(|kind| kind.terms.lookup.is_some());
    html! {
        article.card aria-label=(line.key) {
            div.row {
                h3 { a.key href=(job_path(line.id)) { (line.key) } }
                @if let Some(amount) = amount(line.amount_minor, line.currency.as_deref()) { p.money { (amount) } }
            }
            p {
                @match line.reason {
                    Some(reason) => { (words::reason(reason).0) "." }
                    None if line.waits_for_app.is_some() => "It waits for its app, which is told to call when it next asks.",
                    None if line.doubt_since.is_some() => "The file was restored, and the lost one may have gone on with it.",
                    None => { @if let Some(class) = line.class { (words::class(class)) "." } @else { "No word has come yet." } }
                }
                @if let Some(error) = &line.error { " " span.sub { (page::quoted(error)) } }
            }
            dl.facts {
                dt { "Where to look" } dd { (line.provider.as_deref().unwrap_or("the app’s own handler")) @if let Some(host) = host { " (" (host) ")" } }
                @if let Some(account) = &line.account { dt { "Account" } dd { (account) } }
                @if let Some(at) = line.first_sent { dt { "Sent" } dd { (time(at)) ", " (ago(now, at)) } }
                @if let Some(at) = line.doubt_since { dt { "In doubt since" } dd { "the copy of " (time(at)) } }
                @if line.state == State::Unknown && line.waits_for_app.is_none() {
                    dt { @if lookup { "Next look-up" } @else { "Next step" } }
                    dd { (time(line.run_after)) ", " (ago(now, line.run_after)) }
                }
            }
            p.actions {
                a.button href={ (job_path(line.id)) "#do" } {
                    @if line.reason.is_some() { "Say what happened" } @else { "See its story" }
                    span.sr { ": " (line.key) }
                }
            }
        }
    }
}
