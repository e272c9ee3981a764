//! After a restore: the banner on every page while one is open, and what is said of a job that is in doubt since one.

use super::Visit;
use super::page::{Here, csrf, job_path, number, time};
use crate::door::restored::steps;
use crate::http::message::Problem;
use crate::intent::Doubt;
use crate::job::State;
use crate::store::{AfterRestore, Story};
use maud::{Markup, html};

/// What, since when, how much is in doubt, and what to do next; nothing while no restore is open.
pub fn banner(visit: &Visit<'_>, here: Here) -> Result<Markup, Problem> {
    let Some(AfterRestore { open, in_doubt, paused }) = visit.app.store.after_restore()? else {
        return Ok(html! {});
    };
    let no_words = open.iter().all(|open| open.no_words);
    let new = open.iter().map(|open| open.new_keys).max().unwrap_or(0);
    Ok(html! {
        section.restored aria-label="The file was restored" {
            @for open in &open {
                p { strong { "The file was put back" } " at " (time(open.restored)) " from a copy of " (time(open.copied)) "." }
            }
            p {
                strong { (upto(in_doubt)) @if in_doubt == 1 { " job is" } @else { " jobs are" } " in doubt" }
                ", for the lost file may have gone on with " @if in_doubt == 1 { "it" } @else { "them" }
                ". New keys since: " (upto(new)) ". "
                a href="/doubt" { "See what is in doubt" }
            }
            details #next open[here == Here::Today] {
                summary { "What to do next" }
                ul {
                    li { code { "onceward check" } " lists what is in doubt, with sums." }
                    @for (command, when) in steps(no_words, paused, true) {
                        li {
                            code { (command) } " " (when)
                            @if command.contains("resume") { ", as does the page " a href="/providers" { "Providers" } }
                            "."
                        }
                    }
                }
            }
        }
    })
}

/// A count that is kept up to ten thousand.
fn upto(n: u64) -> String {
    if n >= 10_000 { format!("{} or more", number(n)) } else { number(n) }
}

/// Does the app make the calls of this job's kind itself?
pub fn is_external(visit: &Visit<'_>, story: &Story) -> bool {
    visit.app.config.kinds.get(&story.job.kind).is_some_and(|kind| kind.terms.external)
}

/// Where a job stands that is in doubt since a restore.
pub fn standing(visit: &Visit<'_>, story: &Story, doubt: &Doubt) -> Markup {
    let job = &story.job;
    html! {
        strong { "It may have happened." }
        " The file was put back at " (time(doubt.restored)) ", from a copy of " (time(doubt.since))
        ". What the lost file did with this job in between, this one does not know. "
        @match job.state {
            State::Parked => "Only you can find out: look at the provider for each of its keys, then say what happened.",
            State::Cancelled => "It is given up here, but the lost file may have taken it up again.",
            State::Unknown if is_external(visit, story) => "The app makes this call itself, and is told not to until you have said what happened.",
            State::Unknown => {
                "Onceward finds out what it can, next at " (time(job.run_after)) " if its provider is not paused, and parks what it cannot find out."
            }
            State::Waiting => "It waits until the job before it in its group is done.",
            State::Running => "A worker is at it at this moment.",
            State::Scheduled | State::Ready => {
                "A look-up has proved since that nothing happened under its key, so it goes out at " (time(job.run_after)) "."
            }
            State::Settled => "",
        }
        @if is_external(visit, story) {
            " An app that heard " code { "created" } " from the lost file may still be about to call: see to that first."
        }
    }
}

/// The keys to look for at the provider, by generation.
pub fn keys(story: &Story) -> Markup {
    html! {
        ol.keys {
            @for (generation, wire_key) in &story.wire_keys {
                li { code { (wire_key) } span.sub { " generation " (generation) } }
            }
        }
    }
}

/// The answers that count in doubt since a restore: that it happened, or that none of its generations did.
pub fn answers(visit: &Visit<'_>, story: &Story) -> Markup {
    let path = format!("{}/resolve", job_path(story.job.id));
    let note = |id: &str| {
        html! { label for=(id) { "How you know (optional)" } input id=(id) name="note" maxlength="500" autocomplete="off"; }
    };
    let now = visit.app.clock.now();
    html! {
        details.act #settled {
            summary { "It happened" }
            p { "You found it under one of these keys. The job is done for good, under the reference that you enter. Nothing is sent." }
            form method="post" action=(path) {
                (csrf(visit))
                input type="hidden" name="answer" value="settled";
                label for="generation" { "Under which key you found it" }
                select #generation name="generation" {
                    @for (generation, wire_key) in &story.wire_keys {
                        option value=(generation) selected[*generation == story.intent.generation.number] { (wire_key) " (generation " (generation) ")" }
                    }
                    option value="any" { "It does not say under which" }
                }
                label for="reference" { "The provider’s reference of it" }
                input #reference name="reference" required maxlength="255" autocomplete="off" spellcheck="false";
                (note("note-settled"))
                button.main type="submit" { "It happened: close the job" }
            }
        }
        @match visit.app.store.word_is_taken_from(story) {
            None => { p.hint { "It cannot be said that it did not happen: kind " code { (story.job.kind) } " is not in the config." } }
            Some(from) if now < from => {
                p.hint { "From " (time(from)) " on you can say that it did not happen. What the lost file sent last may not be seen at the provider before." }
            }
            Some(_) => {
                details.act #not-applied {
                    summary { "It did not happen (all generations)" }
                    p {
                        strong { (follows(visit, story)) }
                        " The provider will not recognise it. If one of the old ones did take effect after all, it happens twice. So say this only after you have looked for every key above."
                    }
                    form method="post" action=(path) {
                        (csrf(visit))
                        input type="hidden" name="answer" value="not-applied";
                        input type="hidden" name="generation" value="all";
                        div.check {
                            input #sure type="checkbox" name="sure" value="yes" required;
                            label for="sure" { "I have looked at the provider for each of these keys, and nothing is there." }
                        }
                        (note("note-not-applied"))
                        button.grave type="submit" { @if story.job.state == State::Cancelled || is_external(visit, story) { "It did not happen" } @else { "It did not happen: send it anew" } }
                    }
                }
            }
        }
    }
}

/// What comes of the word that nothing happened.
fn follows(visit: &Visit<'_>, story: &Story) -> &'static str {
    match story.job.state {
        State::Cancelled => "The job stays given up, and is in doubt no more.",
        _ if is_external(visit, story) => "The app is told to call, under a new key, when it next asks.",
        _ => "A new request goes out, under a new key.",
    }
}
