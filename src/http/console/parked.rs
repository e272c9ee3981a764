//! Parked: by reason, in plain words; some or all of a reason go back to work after a page that says what that means.

use super::page::{self, Here, amount, csrf, job_path, number, plural, time};
use super::{Visit, words};
use crate::http::message::{Problem, Response};
use crate::job::{JobId, Reason};
use crate::store::{Browse, By, Line, Preview};
use maud::{Markup, html};

/// Jobs of a reason that the page lists.
const SHOWN: usize = 25;
/// Jobs that go back to work in one go: each is a transaction of its own, and the answer waits for them.
pub const AT_ONCE: usize = 200;

pub fn page(visit: &Visit<'_>) -> Result<Response, Problem> {
    let counters = visit.app.store.parked_by_reason()?;
    let total: u64 = counters.iter().map(|(_, n)| n).sum();
    let main = html! {
        h1 { @if total == 0 { "Nothing is parked." } @else { (plural(total, "job is parked", "jobs are parked")) "." } }
        @if total == 0 {
            p.lead { "When Onceward cannot go on by itself, it sets the job aside here, with its whole story, and waits for you." }
        } @else {
            p.lead { "Each waits for a person, for as long as it takes. Nothing of them is sent before you say so." }
        }
        @for (reason, n) in &counters { (section(visit, *reason, *n)?) }
    };
    let title = if total == 0 { "Nothing parked".into() } else { format!("{} parked", number(total)) };
    visit.page(Here::Parked, &title, &main)
}

fn section(visit: &Visit<'_>, reason: Reason, n: u64) -> Result<Markup, Problem> {
    let (title, meaning) = words::reason(reason);
    let word = reason.as_str();
    let lines = of_reason(visit, reason, SHOWN)?;
    Ok(html! {
        section.reason aria-labelledby=(word) {
            h2 id=(word) { (title) " " span.count { (number(n)) } }
            p { (meaning) }
            form method="get" action="/parked/replay" {
                input type="hidden" name="reason" value=(word);
                ul.picks {
                    @for line in &lines {
                        li {
                            input type="checkbox" name="id" value=(line.id.0) id={ "pick-" (line.id.0) }
                                aria-label={ "Choose " (line.key) };
                            div {
                                a.key href=(job_path(line.id)) { (line.key) }
                                @if let Some(amount) = amount(line.amount_minor, line.currency.as_deref()) { span.money { (amount) } }
                                p.sub {
                                    @if let Some(error) = &line.error { (page::quoted(error)) " · " }
                                    "since " (time(line.updated))
                                    @if let Some(at) = line.doubt_since { " · in doubt since the copy of " (time(at)) }
                                }
                            }
                        }
                    }
                }
                @if n > lines.len() as u64 {
                    p { a href={ "/jobs?state=parked&class=" (word) } { "See all " (number(n)) } }
                }
                p.actions {
                    button type="submit" name="which" value="some" { "Replay the chosen…" }
                    button type="submit" name="which" value="all" { "Replay all " (number(n)) "…" }
                }
            }
        }
    })
}

/// What is about to be done, and to how many. Changes nothing.
pub fn confirm(visit: &Visit<'_>) -> Result<Response, Problem> {
    let word = visit.query("reason").unwrap_or_default();
    let reason =
        Reason::parse(word).ok_or_else(|| Problem::invalid("choose a reason on the page of parked jobs"))?;
    let (ids, all) = if visit.query("which") == Some("all") {
        let counted = visit.app.store.parked_by_reason()?.into_iter().find(|(r, _)| *r == reason);
        let ids: Vec<JobId> = of_reason(visit, reason, AT_ONCE)?.iter().map(|line| line.id).collect();
        (ids, counted.map_or(0, |(_, n)| n))
    } else {
        let ids =
            chosen(visit.request.query.iter().filter(|(name, _)| name == "id").map(|(_, id)| id.as_str()));
        let all = ids.len() as u64;
        (ids, all)
    };
    let (title, _) = words::reason(reason);
    let batch = &ids[..ids.len().min(AT_ONCE)];
    let (effects, go) = effects(visit, batch)?;
    let main = html! {
        nav.trail aria-label="Back" { a href="/parked" { "Parked" } }
        @if ids.is_empty() {
            h1 { "Nothing is chosen." }
            p.lead { "Go back, choose jobs by their boxes, and ask again." }
        } @else {
            h1 { @if go == 0 { "None of them can go back to work." } @else { "Put " (plural(go, "job", "jobs")) " back to work?" } }
            p.lead { (title) ". " @if go > 0 { "This is what happens:" } @else { "This is why:" } }
            ul.effects {
                @for (effect, n) in &effects { li { strong { (number(*n)) } " " (effect) } }
            }
            @if all > batch.len() as u64 {
                p { "There are " (number(all)) " in all. They go in batches of " (number(AT_ONCE as u64)) ", the oldest first." }
            }
            @if go == 0 { p.actions { a.button href="/parked" { "Back" } } }
            @else { form method="post" action="/parked/replay" {
                (csrf(visit))
                input type="hidden" name="reason" value=(word);
                @for id in batch { input type="hidden" name="id" value=(id.0); }
                p.actions {
                    button.main type="submit" { "Put " (plural(go, "job", "jobs")) " back to work" }
                    a.button href="/parked" { "Change nothing" }
                }
            } }
        }
    };
    visit.page(Here::Parked, &format!("Replay {}?", plural(batch.len() as u64, "job", "jobs")), &main)
}

/// Job numbers out of a form or an address; what is no number is left out, and each counts once.
pub fn chosen<'i>(ids: impl Iterator<Item = &'i str>) -> Vec<JobId> {
    let mut ids: Vec<JobId> = ids.filter_map(|id| id.parse().ok().map(JobId)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn of_reason(visit: &Visit<'_>, reason: Reason, limit: usize) -> Result<Vec<Line>, Problem> {
    Ok(visit.app.store.browse(&Browse { by: By::Reason(reason), limit, ..Browse::default() })?.lines)
}

/// What happens, and to how many.
type Effects = Vec<(&'static str, u64)>;

/// How many of them each effect will have, and how many do go back to work.
fn effects(visit: &Visit<'_>, ids: &[JobId]) -> Result<(Effects, u64), Problem> {
    let mut effects: Effects = Vec::new();
    let mut go = 0;
    for id in ids {
        // A number of no job is refused when it comes to it.
        let Ok(story) = visit.app.store.story_of(*id) else { continue };
        let preview = visit.app.store.preview_replay(&story)?;
        let stays = matches!(preview, Preview::CannotAsk(_) | Preview::UnknownKind | Preview::NotNow);
        go += u64::from(!stays);
        let effect = match preview {
            Preview::FirstSend => "go out, as nothing of them has left yet.",
            Preview::SameKey => {
                "go out again under the same key: they were refused, and the provider does not keep refusals."
            }
            Preview::NextGeneration => {
                "go out anew under a new key: the last request certainly had no effect."
            }
            Preview::SameAgain => {
                "go out again with the same key and the same bytes: the provider recognises them and does not act twice."
            }
            Preview::LookUp => "are asked about: the provider says what became of them, and nothing is sent.",
            Preview::AppsTurn => "go back to the app, which makes these calls itself.",
            Preview::CannotAsk(_) => {
                "stay parked: they may have happened and cannot be asked about. Say of each what happened."
            }
            Preview::UnknownKind => "stay parked: their kind is not in the config.",
            Preview::NotNow => "are not parked any more, and are left alone.",
        };
        match effects.iter_mut().find(|(e, _)| *e == effect) {
            Some((_, n)) => *n += 1,
            None => effects.push((effect, 1)),
        }
    }
    Ok((effects, go))
}
