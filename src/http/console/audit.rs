//! Audit: who did what and when, for all jobs, searched and taken away as JSON Lines.

use super::page::{self, Here, instant, job_path, number, quoted, time};
use super::{Visit, words};
use crate::clock::Ms;
use crate::eyes;
use crate::http::message::{Content, Problem, Response};
use crate::http::wire::{Body, Out};
use crate::job::JobId;
use crate::json::Json;
use crate::provider::redact;
use crate::store::events::EventAction;
use crate::store::{Deed, Entry, EventRow, Store, TrailFilter, TrailRow};
use crate::view;
use maud::{Markup, html};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

/// Rows on a page.
const ROWS: usize = 100;
/// Rows of an export that are in memory at once.
const CHUNK: usize = 500;

struct Asked {
    key: String,
    actor: String,
    from: String,
    to: String,
    events: bool,
    filter: TrailFilter,
    /// There is no such key, so there is no row.
    nothing: bool,
}

impl Asked {
    fn read(visit: &Visit<'_>) -> Result<Asked, Problem> {
        let word = |name: &str| visit.query(name).unwrap_or_default().to_string();
        let (key, actor, from, to) = (word("key"), word("actor"), word("from"), word("to"));
        let job: Option<JobId> = if key.is_empty() { None } else { visit.app.store.find(&key)? };
        let after = match (visit.query("at").map(str::parse), visit.query("seq").map(str::parse)) {
            (Some(Ok(at)), Some(Ok(seq))) => Some((Ms(at), seq)),
            _ => None,
        };
        let filter = TrailFilter {
            job,
            actor: Some(actor.clone()).filter(|actor| !actor.is_empty()),
            from: moment("from", &from)?,
            to: moment("to", &to)?,
            after,
            limit: ROWS,
        };
        let nothing = job.is_none() && !key.is_empty();
        Ok(Asked { key, actor, from, to, events: word("of") == "events", filter, nothing })
    }

    fn query(&self) -> String {
        let pairs = [("key", &self.key), ("actor", &self.actor), ("from", &self.from), ("to", &self.to)];
        let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
        pairs.map(|(name, value)| format!("{name}={}", page::encode(value))).collect::<Vec<_>>().join("&")
    }
}

/// A time as a form gives it (`2026-11-29T14:00`, UTC), a day, or RFC 3339.
fn moment(name: &str, text: &str) -> Result<Option<Ms>, Problem> {
    let wrong = |_| Problem::invalid(format!("{name}: write the time as 2026-11-29T14:00 (UTC)"));
    Ok(match text.len() {
        0 => None,
        10 => Some(Ms::parse_rfc3339(&format!("{text}T00:00:00Z")).map_err(wrong)?),
        16 => Some(Ms::parse_rfc3339(&format!("{text}:00Z")).map_err(wrong)?),
        19 => Some(Ms::parse_rfc3339(&format!("{text}Z")).map_err(wrong)?),
        _ => Some(Ms::parse_rfc3339(text).map_err(wrong)?),
    })
}

pub fn page(visit: &Visit<'_>) -> Result<Response, Problem> {
    let asked = Asked::read(visit)?;
    let store = &visit.app.store;
    let main = html! {
        h1 { "Audit" }
        p.lead { "Every decision is one row, written with what it decided, chained to the row before it, and never changed." }
        p.switch {
            a href="/audit" aria-current=[(!asked.events).then_some("true")] { "Jobs" }
            a href="/audit?of=events" aria-current=[asked.events.then_some("true")] { "Everything else" }
        }
        @if asked.events { (events(visit)?) } @else { (form(&asked)) (rows(store, &asked)?) }
    };
    visit.page(Here::Audit, "Audit", &main)
}

fn form(asked: &Asked) -> Markup {
    html! {
        form.filters.times method="get" action="/audit" role="search" {
            div.grow { label for="key" { "Key or #number" } input #key type="search" name="key" value=(asked.key) spellcheck="false" autocomplete="off"; }
            div { label for="actor" { "Who (part of it)" } input #actor name="actor" value=(asked.actor) placeholder="console:" spellcheck="false" autocomplete="off"; }
            div { label for="from" { "From (UTC)" } input #from type="datetime-local" name="from" value=(asked.from); }
            div { label for="to" { "Before (UTC)" } input #to type="datetime-local" name="to" value=(asked.to); }
            button.main type="submit" { "Search" }
            @if !asked.query().is_empty() { a.clear href="/audit" { "Clear" } }
        }
    }
}

fn rows(store: &Store, asked: &Asked) -> Result<Markup, Problem> {
    let found = if asked.nothing { Default::default() } else { store.trail(&asked.filter)? };
    Ok(html! {
        @if found.rows.is_empty() {
            p.found role="status" {
                @if asked.nothing { "There is no job with this key." }
                @else if found.next.is_some() { "Nothing among the " (number(found.looked as u64)) " rows looked at so far." }
                @else if asked.query().is_empty() { "Nothing has happened yet. The first job’s first row will show up here." }
                @else { "No row fits." }
            }
        } @else {
            p.export { a href={ "/audit.jsonl?" (asked.query()) } download="onceward-audit.jsonl" { "Take these rows away as JSON Lines" } }
            div.scroll role="region" aria-label="History" tabindex="0" {
                table.list role="table" {
                    thead role="rowgroup" { tr role="row" { th role="columnheader" scope="col" { "When" } th role="columnheader" scope="col" { "Key" } th role="columnheader" scope="col" { "What" } th role="columnheader" scope="col" { "Who" } } }
                    tbody role="rowgroup" { @for row in &found.rows { (audit_row(row)) } }
                }
            }
        }
        @if let Some((at, seq)) = found.next {
            p.further {
                a.button href={ "/audit?" (asked.query()) "&at=" (at.0) "&seq=" (seq) } {
                    @if found.rows.is_empty() { "Look further back" } @else { "Older rows" }
                }
            }
        }
    })
}

fn audit_row(row: &TrailRow) -> Markup {
    let e = &row.entry;
    html! {
        tr role="row" {
            td.when role="cell" { (time(e.at)) }
            th role="rowheader" scope="row" { a.key href=(job_path(e.job)) { (row.key) } span.sub { "row " (e.seq) } }
            td role="cell" {
                (action_words(e.action.as_str()))
                @if let Some(class) = e.class { ": " (words::class(class).to_lowercase()) }
                @if let Some(to) = e.to { span.sub { " → " (words::state(to).to_lowercase()) } }
            }
            td role="cell" { (quoted(&words::actor(&e.actor))) }
        }
    }
}

fn action_words(action: &str) -> &str {
    match action {
        "enqueue" => "Asked for",
        "request" => "Request",
        "lookup" => "Look-up",
        "crash" => "Worker died",
        "park" => "Parked",
        "replay" => "Replayed",
        "resolve" => "Resolved",
        "cancel" => "Given up",
        "confirm" => "Confirmed",
        "late_result" => "Late answer",
        "note" => "Remark",
        "release" => "Put off",
        "pause" => "Paused",
        "resume" => "Resumed",
        "skip" => "Place given up",
        "refuse" => "Place refused",
        "denied" => "Turned away",
        "login" => "Logged in",
        "start" => "Started",
        "stop" => "Stopped",
        "migrate" => "Brought forward",
        "backup" => "Copied",
        "restore" => "Restored",
        "prune" => "Pruned",
        "clock" => "Clock set back",
        "config" => "Config changed",
        "audit" => "Read whole",
        other => other,
    }
}

fn events(visit: &Visit<'_>) -> Result<Markup, Problem> {
    let before = visit.query("seq").and_then(|seq| seq.parse().ok());
    let found = visit.app.store.events(before, ROWS)?;
    Ok(html! {
        @if found.rows.is_empty() { p.found { "Nothing has happened beside the jobs." } }
        @else {
            div.scroll role="region" aria-label="Events" tabindex="0" {
                table.list role="table" {
                    thead role="rowgroup" { tr role="row" { th role="columnheader" scope="col" { "When" } th role="columnheader" scope="col" { "What" } th role="columnheader" scope="col" { "Who" } th role="columnheader" scope="col" { "Why" } } }
                    tbody role="rowgroup" { @for row in &found.rows { (event_row(row)) } }
                }
            }
        }
        @if let Some(next) = found.next { p.further { a.button href={ "/audit?of=events&seq=" (next) } { "Older ones" } } }
    })
}

fn event_row(row: &EventRow) -> Markup {
    html! {
        tr role="row" {
            td.when role="cell" { (time(row.at)) }
            th role="rowheader" scope="row" {
                (action_words(&row.action)) ": " (row.scope) " " (row.name)
                @if let Some(place) = row.sequence { ", place " (place) }
            }
            td role="cell" { (quoted(&words::actor(&row.actor)))
                @if let Some(origin) = row.origin.as_ref().filter(|origin| !row.actor.contains(origin.as_str())) { span.sub { " from " (quoted(origin)) } } }
            td role="cell" {
                (row.why.as_deref().map(quoted).unwrap_or_default())
                @if let Some(detail) = &row.detail { " " (quoted(detail)) }
            }
        }
    }
}

#[derive(Serialize)]
struct Exported<'a> {
    key: &'a str,
    #[serde(flatten)]
    entry: view::EntryView<'a>,
}

/// What fits, the newest first, one row a line. A page at a time, so that no read transaction lasts as long as a slow
/// client does.
pub fn export(visit: &Visit<'_>) -> Result<Response, Problem> {
    let Asked { mut filter, nothing, .. } = Asked::read(visit)?;
    let app = Arc::clone(visit.app);
    log::info!("{} takes the audit away (until {})", visit.actor, instant(app.clock.now()));
    let (name, actor) = ("export from the console", visit.actor.as_str());
    let origin = actor.strip_prefix("console:");
    // Nobody is kept from reading by a disk that is full.
    if let Err(e) = app.store.tell(Deed { action: EventAction::Audit, name, actor, origin, detail: "jsonl" })
    {
        log::error!("not on record in the file's events: {actor} took the audit away ({e})");
    }
    filter.limit = CHUNK;
    let write = move |_: &mut Body, out: &mut Out| {
        let gone =
            |e: std::io::Error| Problem::new(408, "timeout", format!("the answer could not be written: {e}"));
        loop {
            // There is no such key, so there is no row.
            if nothing {
                break;
            }
            let found = {
                let _turn = app.reads.enter()?;
                app.store.trail(&filter)?
            };
            for row in &found.rows {
                let shown = masked(&row.entry);
                let line = Exported { key: &row.key, entry: view::entry(&shown) };
                let text = eyes::json(&line).map_err(|e| Problem::new(500, "internal", e.to_string()))?;
                writeln!(out, "{text}").map_err(gone)?;
            }
            match found.next {
                Some(next) => filter.after = Some(next),
                None => break,
            }
        }
        Ok(())
    };
    let response = Response::new(200, "application/jsonl", Content::Written(Box::new(write)));
    Ok(response.with("Content-Disposition", "attachment; filename=\"onceward-audit.jsonl\""))
}

/// As the pages show it: an amendment's row holds the payload that was there before.
fn masked(entry: &Entry) -> Entry {
    let shown = |text: &String| match Json::parse(text) {
        Ok(_) => redact::body(text.as_bytes(), &[]).unwrap_or_default(),
        Err(_) => quoted(text),
    };
    Entry {
        error: entry.error.as_ref().map(shown),
        detail: entry.detail.as_ref().map(shown),
        ..entry.clone()
    }
}
