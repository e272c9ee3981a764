//! The changes: each is one form, one call of the store, and a page that says what came of it.

use super::form::Form;
use super::page::{self, Here, framed, job_path, number, plural, quoted};
use super::parked::{AT_ONCE, chosen};
use super::{Visit, job, restored, see};
use crate::http::message::{Problem, Response};
use crate::job::{Code, State};
use crate::store::{About, PauseScope, Resolution, StoreError, Story, Word};
use maud::html;

/// What a page says after a change, by the word in its address: nothing of an address is ever shown as it is.
pub fn said(word: &str) -> Option<&'static str> {
    Some(match word {
        "replay" => "It is back at work. The story below goes on from here.",
        "settled" => "It is on record: it happened. The job is done.",
        "not-applied" => "It is on record: it did not happen. A new request goes out under a new key.",
        "not-applied-app" => {
            "It is on record: it did not happen. The app is told to call, under a new key, when it next asks."
        }
        "not-applied-ended" => "It is on record: it did not happen. The job stays given up.",
        "said-before" => {
            "That was on record: it was about an earlier request. What is shown now is a later one, and nothing changed."
        }
        "rejected" => "It is on record: it was refused. Nothing more is sent.",
        "cancel" => "The job is given up.",
        "confirm" => "The confirmation is on record. The job is done.",
        "note" => "The remark is in the story.",
        "pause" => "It is paused. What is in flight ends as usual; nothing new goes out.",
        "paused-before" => "It was paused already, and stays so.",
        "resume" => "It goes on.",
        "resumed-before" => "It was not paused.",
        "skip" => "The place is given up, and the group goes on when it gets there.",
        "skipped-before" => "The place was given up before.",
        _ => return None,
    })
}

/// A change of one job. What is refused is said on the job's own page.
pub fn on_job(visit: &Visit<'_>, id: &str, verb: &str, form: &Form) -> Result<Response, Problem> {
    let story = job::find(visit, id)?;
    match change(visit, &story, verb, form) {
        Ok(word) => {
            visit.app.worker.wake();
            Ok(see(&format!("{}?done={word}", job_path(story.job.id))))
        }
        Err(problem) if problem.status() == 503 || problem.status() == 404 => Err(problem),
        Err(problem) => job::page(visit, id, Some(&problem)),
    }
}

fn change(visit: &Visit<'_>, story: &Story, verb: &str, form: &Form) -> Result<&'static str, Problem> {
    let (store, actor, id) = (&visit.app.store, visit.actor.as_str(), story.job.id);
    let text = |name: &str| form.get(name).map(str::to_string);
    Ok(match verb {
        "replay" => {
            store.replay(id, None, actor)?;
            "replay"
        }
        "resolve" => {
            let (resolution, word) = match form.get("answer") {
                Some("settled") => (
                    Resolution::Settled(form.need("reference", "the provider’s reference")?.into()),
                    "settled",
                ),
                Some("not-applied") if form.get("sure") == Some("yes") => {
                    (Resolution::NotApplied, "not-applied")
                }
                Some("not-applied") => {
                    let why =
                        "look at the provider first, and say so with the box: a new request would go out";
                    return Err(Problem::invalid(why));
                }
                Some("rejected") => {
                    (Resolution::Rejected(form.need("why", "the reason")?.into()), "rejected")
                }
                _ => return Err(Problem::invalid("choose one of the three answers")),
            };
            let about = match form.need("generation", "the generation")? {
                "all" => About::All,
                "any" if word == "settled" => About::Unsaid,
                n => About::Generation(
                    n.parse().map_err(|_| Problem::invalid("the generation is a number, or all"))?,
                ),
            };
            // What was said of an earlier generation stands, and says nothing of the present one.
            let before = matches!(about, About::Generation(n) if n < store.generation(id)?);
            match store.resolve(id, Word { says: resolution, about }, text("note"), actor)? {
                _ if before && word != "settled" => "said-before",
                State::Cancelled if word == "not-applied" => "not-applied-ended",
                _ if word == "not-applied" && restored::is_external(visit, story) => "not-applied-app",
                _ => word,
            }
        }
        "cancel" => {
            store.cancel(id, actor)?;
            "cancel"
        }
        "confirm" => {
            store.confirm(id, form.need("reference", "the provider’s reference")?, actor)?;
            "confirm"
        }
        "note" => {
            store.note(id, form.need("text", "the remark")?, text("reversed"), actor)?;
            "note"
        }
        _ => return Err(super::nothing_here()),
    })
}

/// Several parked jobs back to work, each by itself: what is refused is told, and the rest goes on.
pub fn replay_several(visit: &Visit<'_>, form: &Form) -> Result<Response, Problem> {
    let ids = chosen(form.all("id"));
    if ids.is_empty() || ids.len() > AT_ONCE {
        return Err(Problem::invalid(format!("choose 1 to {AT_ONCE} jobs")));
    }
    let (mut done, mut refused) = (0, Vec::new());
    for id in &ids {
        match visit.app.store.replay(*id, None, &visit.actor) {
            Ok(_) => done += 1,
            Err(StoreError::Refused(refusal)) => {
                let name = match refusal.code {
                    Code::NotFound => id.to_string(),
                    _ => visit.app.store.story_of(*id)?.job.key.to_string(),
                };
                refused.push((*id, name, refusal.message));
            }
            Err(e) => return Err(e.into()),
        }
    }
    visit.app.worker.wake();
    let main = html! {
        nav.trail aria-label="Back" { a href="/parked" { "Parked" } }
        h1 { (plural(done, "job is", "jobs are")) " back at work." }
        @if refused.is_empty() {
            p.lead { "Their stories go on from here." }
        } @else {
            p.lead { (number(refused.len() as u64)) " stayed as they were:" }
            ul.refused {
                @for (id, name, why) in &refused {
                    li { a.key href=(job_path(*id)) { (name) } p.sub { (quoted(why)) } }
                }
            }
        }
        p { a.button href="/parked" { "Back to what is parked" } }
    };
    framed(visit, 200, Here::Parked, &format!("{} replayed", number(done)), &main)
}

fn scope_and_name(form: &Form) -> Result<(PauseScope, &str), Problem> {
    let scope = form.get("scope").and_then(PauseScope::parse);
    let scope =
        scope.ok_or_else(|| Problem::invalid("provider, kind or group: one of them must be named"))?;
    Ok((scope, form.need("name", "the name")?))
}

fn back_to(scope: PauseScope, name: &str, word: &str) -> Response {
    match scope {
        PauseScope::Provider | PauseScope::Kind => see(&format!("/providers?done={word}")),
        PauseScope::Group => see(&format!("/groups?name={}&done={word}", page::encode(name))),
    }
}

/// Stops new calls of a provider, a kind or a group.
pub fn pause(visit: &Visit<'_>, form: &Form) -> Result<Response, Problem> {
    let (scope, name) = scope_and_name(form)?;
    let why = form.get("why").map(str::to_string);
    let changed = visit.app.store.pause(scope, name, why, &visit.actor)?;
    Ok(back_to(scope, name, if changed { "pause" } else { "paused-before" }))
}

/// Lets it go on.
pub fn resume(visit: &Visit<'_>, form: &Form) -> Result<Response, Problem> {
    let (scope, name) = scope_and_name(form)?;
    let why = form.get("why").map(str::to_string);
    let changed = visit.app.store.resume(scope, name, why, &visit.actor)?;
    visit.app.worker.wake();
    Ok(back_to(scope, name, if changed { "resume" } else { "resumed-before" }))
}

/// Gives up a place of a group that nobody holds.
pub fn skip(visit: &Visit<'_>, form: &Form) -> Result<Response, Problem> {
    let name = form.need("name", "the group")?;
    let sequence = form.need("sequence", "the place")?.parse();
    let sequence = sequence.map_err(|_| Problem::invalid("the place is a whole number from 1 on"))?;
    let changed = visit.app.store.skip_place(name, sequence, &visit.actor)?;
    visit.app.worker.wake();
    Ok(back_to(PauseScope::Group, name, if changed { "skip" } else { "skipped-before" }))
}
