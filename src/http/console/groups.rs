//! Groups: which stand still, for whom or for what they wait, and what can be done.

use super::Visit;
use super::page::{self, Here, csrf, number, pill, plural};
use super::providers::{switch, why};
use crate::http::message::{Problem, Response};
use crate::job::State;
use crate::store::{BlockedGroup, Gap, GroupStory, Pause, PauseScope};
use maud::{Markup, html};

/// Blocked groups that are shown.
const SHOWN: usize = 200;

pub fn page(visit: &Visit<'_>) -> Result<Response, Problem> {
    match visit.query("name") {
        Some(name) => one(visit, name),
        None => all(visit),
    }
}

fn all(visit: &Visit<'_>) -> Result<Response, Problem> {
    let store = &visit.app.store;
    let stats = store.stats()?;
    let missing = store.gaps()?;
    // A group that waits for a missing place is in both.
    let gap = |group: &str| missing.iter().any(|gap| gap.group == group);
    let blocked: Vec<&BlockedGroup> = stats.blocked_groups.iter().filter(|b| !gap(&b.group)).collect();
    let paused: Vec<&Pause> = stats.paused.iter().filter(|p| p.scope == PauseScope::Group).collect();
    let still = (blocked.len() + missing.len() + paused.len()) as u64;
    let main = html! {
        h1 { @if still == 0 { "No group stands still." } @else { (plural(still, "group stands", "groups stand")) " still." } }
        p.lead { "Jobs of one group run one after another. When the one at the head cannot go on, those behind it wait; other groups never do." }
        form.filters.narrow method="get" action="/groups" {
            div.grow {
                label for="name" { "A group’s name" }
                input #name type="search" name="name" required spellcheck="false" autocomplete="off";
            }
            button.main type="submit" { "Show its queue" }
        }
        @if !blocked.is_empty() {
            section aria-labelledby="blocked" {
                h2 #blocked { "Blocked by the job at the head " span.count { (number(blocked.len() as u64)) } }
                ul.needs { @for group in blocked.iter().take(SHOWN) { (blocked_item(visit, group)) } }
            }
        }
        @if !missing.is_empty() {
            section aria-labelledby="missing" {
                h2 #missing { "Waiting for a place that has not arrived " span.count { (number(missing.len() as u64)) } }
                ul.needs { @for place in missing.iter().take(SHOWN) { (missing_item(visit, place)) } }
            }
        }
        @if !paused.is_empty() {
            section aria-labelledby="paused" {
                h2 #paused { "Paused by a person " span.count { (number(paused.len() as u64)) } }
                ul.needs {
                    @for pause in paused { li.plain { a href=(path(&pause.name)) { (pause.name) } (why(visit, pause)) } }
                }
            }
        }
        @if still == 0 {
            div.teach {
                p { "Order is for jobs that must not overtake each other, such as payouts of one account. A kind asks for it with a group:" }
                pre { code { "[kinds.payout]\ngroup = \"account:{account_id}\"" } }
            }
        }
    };
    let title = if still == 0 {
        "No group blocked".into()
    } else {
        format!("{} blocked", plural(still, "group", "groups"))
    };
    visit.page(Here::Groups, &title, &main)
}

fn path(group: &str) -> String {
    format!("/groups?name={}", page::encode(group))
}

fn blocked_item(visit: &Visit<'_>, group: &BlockedGroup) -> Markup {
    html! {
        li.bad {
            a href=(path(&group.group)) { (group.group) }
            p { (plural(group.waiting, "job waits", "jobs wait")) " behind " code { (group.head) } ", for "
                (page::span(visit.app.clock.now().since(group.since))) "." }
        }
    }
}

fn missing_item(visit: &Visit<'_>, place: &Gap) -> Markup {
    html! {
        li.bad {
            a href=(path(&place.group)) { (place.group) }
            p { "Place " (place.sequence) " has not arrived; " (plural(place.waiting, "job waits", "jobs wait")) " for it, for "
                (page::span(visit.app.clock.now().since(place.since))) "." }
        }
    }
}

fn one(visit: &Visit<'_>, name: &str) -> Result<Response, Problem> {
    let none = || Problem::new(404, "not_found", format!("no job was ever in the group {name:?}"));
    let group = visit.app.store.group(name)?.ok_or_else(none)?;
    let missing = match group.jobs.first() {
        Some(first) if first.state == State::Waiting && group.blocked_by.is_some() => Some(group.passed + 1),
        _ => None,
    };
    let main = html! {
        nav.trail aria-label="Back" { a href="/groups" { "Groups" } }
        h1 { (group.group) }
        p.lead { (standing(&group, missing)) }
        @if let Some(pause) = &group.paused { (why(visit, pause)) }
        @if let Some(sequence) = missing { (give_up(visit, &group, sequence)) }
        (switch(visit, PauseScope::Group, &group.group, group.paused.as_ref()))
        section aria-labelledby="queue" {
            h2 #queue { "The queue" }
            @if group.jobs.is_empty() { p { "Nothing of it is open." } }
            @else {
                div.scroll role="region" aria-labelledby="queue" tabindex="0" {
                    table.list role="table" {
                        thead role="rowgroup" { tr role="row" { th.n role="columnheader" scope="col" { "Place" } th role="columnheader" scope="col" { "Key" } th role="columnheader" scope="col" { "State" } } }
                        tbody role="rowgroup" {
                            @for place in &group.jobs {
                                tr role="row" {
                                    td.n role="cell" { (place.sequence) }
                                    th role="rowheader" scope="row" { a.key href={ "/jobs?by=key&q=" (page::encode(&place.key)) } { (place.key) } }
                                    td role="cell" { (pill(place.state)) }
                                }
                            }
                        }
                    }
                }
            }
            p { a href={ "/jobs?group=" (page::encode(&group.group)) } { "All jobs of the group" } }
        }
    };
    visit.page(Here::Groups, &format!("Group {name}"), &main)
}

fn standing(group: &GroupStory, missing: Option<i64>) -> Markup {
    let numbered = if group.numbering == "app" { "the app" } else { "arrival" };
    html! {
        "Numbered by " (numbered) ", done up to place " (group.passed) ". "
        @match (missing, &group.blocked_by) {
            (Some(place), _) => { (plural(group.waiting, "job waits", "jobs wait")) " for place " (place) ", which has not arrived." }
            (None, Some(key)) => { (plural(group.waiting, "job waits", "jobs wait")) " behind " code { (key) } ", which needs you or an answer." }
            (None, None) => { @if group.waiting > 0 { (plural(group.waiting, "job waits its", "jobs wait their")) " turn." } @else { "Nothing waits." } }
        }
    }
}

fn give_up(visit: &Visit<'_>, group: &GroupStory, sequence: i64) -> Markup {
    html! {
        details.act #skip open {
            summary { "Give up place " (sequence) }
            p { "The group goes on without it. If a job for this place comes later, it is refused. Do this only if the app will never send it." }
            form method="post" action="/groups/skip" {
                (csrf(visit))
                input type="hidden" name="name" value=(group.group);
                input type="hidden" name="sequence" value=(sequence);
                button.grave type="submit" { "Give up place " (sequence) }
            }
        }
    }
}
