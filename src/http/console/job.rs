//! One job: what is known, its story, and what can be done now.

use super::page::{self, Here, amount, csrf, job_path, pill_of, quoted, set_out, time};
use super::{Visit, restored, words};
use crate::config::Provider;
use crate::decide::Family;
use crate::eyes;
use crate::http::message::{Content, Problem, Response};
use crate::intent::IntentState;
use crate::job::{Job, JobId, State};
use crate::provider::redact;
use crate::store::{Action, Entry, Preview, Story};
use maud::{Markup, html};
use std::ops::Range;

/// Rows of a story that are shown; of a longer one the middle is left out.
const ROWS: usize = 200;

/// The page; `refused` is why something was not done just now.
pub fn page(visit: &Visit<'_>, id: &str, refused: Option<&Problem>) -> Result<Response, Problem> {
    let story = find(visit, id)?;
    let (job, intent) = (&story.job, &story.intent);
    let money = amount(intent.amount_minor, intent.currency.as_deref());
    let main = html! {
        nav.trail aria-label="Back" { a href="/jobs" { "Jobs" } }
        @if let Some(problem) = refused { p.said.wrong role="alert" { "Not done: " (quoted(problem.detail())) } }
        header.job {
            h1 { (job.key) }
            p.lead {
                (pill_of(job.state, intent.state)) " "
                @if let Some(money) = &money { strong.money { (money) } " " }
                span { (job.kind) @if let Some(provider) = &intent.provider { " at " (provider) } }
            }
            p { (standing(visit, &story)) }
        }
        div.two {
            div {
                (actions(visit, &story)?)
                section aria-labelledby="story" {
                    h2 #story { "The story" }
                    (timeline(&story))
                }
            }
            aside aria-label="Facts" {
                (facts(&story))
                (said(&story))
            }
        }
    };
    let state = match (job.state, intent.state) {
        (State::Parked, IntentState::Requested) => words::state(State::Unknown),
        (state, _) => words::state(state),
    };
    let title = format!("{state}: {}", job.key);
    page::framed(visit, refused.map_or(200, Problem::status), Here::Jobs, &title, &main)
}

/// The job with this number.
pub fn find(visit: &Visit<'_>, id: &str) -> Result<Story, Problem> {
    let digits = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    let number = id.parse().ok().filter(|_| digits).ok_or_else(no_job)?;
    if visit.app.store.has(JobId(number))? {
        Ok(visit.app.store.story_of(JobId(number))?)
    } else {
        Err(no_job())
    }
}

fn no_job() -> Problem {
    Problem::new(404, "not_found", "there is no job with this number")
}

/// Where it stands, in a sentence.
fn standing(visit: &Visit<'_>, story: &Story) -> Markup {
    let (job, intent) = (&story.job, &story.intent);
    if let Some(doubt) = &intent.doubt {
        return restored::standing(visit, story, doubt);
    }
    html! {
        @match (job.state, job.park_reason) {
            (State::Unknown, _) if intent.waits_for_app.is_some() => {
                "It did not happen so far. The app makes this call itself, and is told to, under a new key, when it next asks."
            }
            (State::Parked, Some(reason)) => {
                @let (title, meaning) = words::reason(reason);
                strong { (title) "." } " " (meaning)
            }
            (State::Settled, _) => {
                "It happened once"
                @if let Some(reference) = &intent.reference { ", as " code { (reference) } }
                @if let Some(at) = intent.confirmed { ", confirmed at " (time(at)) }
                ". That is final."
            }
            (State::Unknown, _) => {
                (words::state_meaning(job.state)) " "
                @if intent.generation.accepted { "The provider has taken it. " }
                "Onceward looks again at " (time(job.run_after)) "."
            }
            (State::Scheduled | State::Ready, _) => { (words::state_meaning(job.state)) " Due: " (time(job.run_after)) "." }
            (state, _) => { (words::state_meaning(state)) }
        }
        @if let Some(blocked_by) = &story.blocked_by { " It waits for " code { (blocked_by) } "." }
        @if let (State::Cancelled, IntentState::Rejected) = (job.state, intent.state) { " The provider had refused it." }
        @if !visit.app.config.kinds.contains_key(&job.kind) {
            " Its kind is not in this worker’s config, so nobody here works on it."
        }
    }
}

fn timeline(story: &Story) -> Markup {
    let history = &story.history;
    let left_out = history.len().saturating_sub(ROWS);
    let (head, tail) =
        if left_out > 0 { (ROWS / 2, ROWS / 2 + left_out) } else { (history.len(), history.len()) };
    let mut runs = runs(history, 0..head);
    if left_out > 0 {
        runs.push(ROWS / 2..ROWS / 2);
        runs.extend(self::runs(history, tail..history.len()));
    }
    html! {
        ol.story {
            @for run in &runs {
                @if run.start == ROWS / 2 && left_out > 0 {
                    li.gap { p { (page::number(left_out as u64)) " steps are left out here: " a href={ "/audit?key=" (page::encode(story.job.key.as_str())) } { "the audit has them all" } "." } }
                }
                @match &history[run.clone()] {
                    [] => {}
                    [e] => { (step(story, e)) }
                    several => { (alike(story, several)) }
                }
            }
        }
    }
}

/// Look-ups in a row that said the same are one step, from three on.
fn runs(history: &[Entry], part: Range<usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut at = part.start;
    while at < part.end {
        let same =
            |e: &Entry| e.action == Action::Lookup && e.class == history[at].class && e.to == history[at].to;
        let length = history[at..part.end].iter().take_while(|e| same(e)).count();
        let length = if length < 3 { 1 } else { length };
        runs.push(at..at + length);
        at += length;
    }
    runs
}

fn alike(story: &Story, entries: &[Entry]) -> Markup {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return html! {} };
    let (tone, sentence) = words::tell(story, last);
    html! {
        li class=(tone.as_str()) {
            p.when { (time(first.at)) " to " (time(last.at)) }
            p { strong { (entries.len()) " look-ups, all with the same answer." } " " (sentence) }
            details id={ "steps-" (first.seq) } {
                summary { "Each of them" }
                ol.run { @for e in entries { (step(story, e)) } }
            }
        }
    }
}

fn step(story: &Story, e: &Entry) -> Markup {
    let (tone, sentence) = words::tell(story, e);
    let reply = e
        .detail
        .as_deref()
        .filter(|_| matches!(e.action, Action::Request | Action::Lookup | Action::LateResult));
    html! {
        li class=(tone.as_str()) {
            p.when { (time(e.at)) @if let Some(n) = e.attempt { span.sub { " try " (n) } } }
            p { (sentence) }
            p.sub { "By " (quoted(&words::actor(&e.actor))) }
            @if reply.is_some() || e.error.is_some() || e.class.is_some() {
                details id={ "step-" (e.seq) } {
                    summary { "What exactly" }
                    dl.facts {
                        @if let Some(class) = e.class { dt { "Class" } dd { code { (class) } } }
                        @if let Some(phase) = e.phase { dt { "Got as far as" } dd { code { (phase) } } }
                        @if let Some(status) = e.http_status { dt { "HTTP status" } dd { (status) } }
                        @if let Some(started) = e.started { dt { "Began" } dd { (time(started)) } }
                        @if let Some(error) = &e.error { dt { "Error" } dd { (quoted(error)) } }
                    }
                    @if let Some(reply) = reply { p.sub { "The reply, shortened" } pre { code { (set_out(reply)) } } }
                }
            }
        }
    }
}

fn facts(story: &Story) -> Markup {
    let (job, intent) = (&story.job, &story.intent);
    html! {
        section aria-labelledby="facts" {
            h2 #facts { "Facts" }
            dl.facts {
                dt { "Number" } dd { (job.id) }
                dt { "Kind" } dd { (job.kind) }
                @if let Some(account) = &intent.account { dt { "Account" } dd { (account) } }
                @if let Some(money) = amount(intent.amount_minor, intent.currency.as_deref()) { dt { "Amount" } dd.money { (money) } }
                @if let Some(provider) = &intent.provider { dt { "Provider" } dd { (provider) } }
                @if let Some(reference) = &intent.reference { dt { "Reference" } dd { code { (reference) } } }
                dt { "Key at the provider" } dd { code { (intent.wire_key) } }
                @if let Some(doubt) = &intent.doubt { dt { "In doubt since" } dd { "the copy of " (time(doubt.since)) } }
                @if let Some(at) = intent.waits_for_app { dt { "Waits for the app" } dd { "since " (time(at)) } }
                dt { "Generation" } dd { (intent.generation.number) }
                dt { "Tries spent" } dd { (job.attempts) " of " (job.max_attempts) }
                @if let Some(group) = &job.group {
                    dt { "Group" } dd { a href={ "/groups?name=" (page::encode(group)) } { (group) } ", place " (job.sequence.unwrap_or(0)) }
                }
                dt { "Asked for" } dd { (time(job.created)) }
                // A restore says of what was never sent that it may have been since the copy.
                @if let Some(at) = intent.requested.filter(|at| intent.doubt.as_ref().is_none_or(|d| d.since != *at)) {
                    dt { "First request" } dd { (time(at)) }
                }
                @if let Some(at) = intent.confirmed { dt { "Confirmed" } dd { (time(at)) } }
                dt { "In the documents’ words" } dd { code { (job.state) } ", intent " code { (intent.state) } }
            }
        }
    }
}

/// What was asked for, what was sent, what came back: shortened and masked.
fn said(story: &Story) -> Markup {
    let frozen = story.intent.frozen.as_ref();
    html! {
        section aria-labelledby="said" {
            h2 #said { "Word for word" }
            p.sub { "Shortened; secrets and card numbers are masked." }
            details #payload open[story.job.state != State::Settled] {
                summary { "What the app asked for" }
                (asked_for(&story.job))
            }
            @if let Some(frozen) = frozen {
                details #request {
                    summary { "The request" }
                    pre { code {
                        (frozen.method) " " (redact::words(&frozen.path, &[])) "\n"
                        @for (name, value) in &frozen.headers { (redact::words(&format!("{name}: {value}"), &[])) "\n" }
                        "\n" (set_out(&String::from_utf8_lossy(&frozen.body)))
                    } }
                }
            }
            @if let Some(result) = &story.intent.result {
                details #reply { summary { "The confirming reply" } pre { code { (set_out(result)) } } }
            }
        }
    }
}

/// The payload's beginning, and where all of it is.
fn asked_for(job: &Job) -> Markup {
    let Some(payload) = &job.payload else { return html! { pre { code { "(pruned)" } } } };
    let (shown, whole) = page::payload(payload);
    html! {
        pre { code { (shown) } }
        p.sub {
            @if !whole { "This is its beginning. " }
            a href={ (job_path(job.id)) "/payload.json" } download { "All of it as a file" }
            ", as the app wrote it, nothing masked: " (page::number(payload.len() as u64)) " bytes."
        }
    }
}

/// The whole payload as a file, byte for byte: it can be read, mended and replayed.
pub fn payload(visit: &Visit<'_>, id: &str) -> Result<Response, Problem> {
    let job = find(visit, id)?.job;
    let pruned = || Problem::new(404, "not_found", "the payload of this job was pruned");
    let payload = job.payload.ok_or_else(pruned)?;
    let name = format!("attachment; filename=\"onceward-job-{}.json\"", job.id.0);
    let response =
        Response::new(200, "application/json", Content::Bytes(eyes::escaped(payload).into_bytes()));
    Ok(response.with("Content-Disposition", name))
}

/// What a person needs to find the effect at the provider.
pub fn evidence(provider: Option<&Provider>, story: &Story) -> Markup {
    let (job, intent) = (&story.job, &story.intent);
    let host = provider.map(|p| p.base_url.split_once("://").map_or(p.base_url.as_str(), |(_, rest)| rest));
    // The app itself knows where it calls.
    let host = host.filter(|host| !host.is_empty());
    html! {
        dl.facts {
            dt { "Where" } dd { (words::provider(story)) @if let Some(host) = host { " (" (host) ")" } }
            @if let Some(money) = amount(intent.amount_minor, intent.currency.as_deref()) { dt { "Amount" } dd.money { (money) } }
            @if let Some(account) = &intent.account { dt { "Account" } dd { (account) } }
            @match &intent.doubt {
                Some(doubt) => {
                    dt { "Sent, if it was" }
                    dd { @if let Some(at) = intent.generation.first_sent { (time(at)) ", or later, up to " } @else { (time(doubt.since)) " to " } (time(doubt.restored)) }
                }
                None => { @if let Some(at) = intent.generation.first_sent.or(intent.requested) { dt { "Sent at" } dd { (time(at)) } } }
            }
            dt { "Our key" } dd { code { (job.key) } }
            // One that remembers no keys was sent none.
            @if intent.doubt.is_some() { dt { "Its idempotency keys" } dd { (restored::keys(story)) } }
            @else if provider.is_none_or(|p| p.profile.family != Family::E) { dt { "Its idempotency key" } dd { code { (intent.wire_key) } } }
            @if let Some(named) = &intent.generation.named { dt { "It named" } dd { code { (named) } } }
            @if let Some(path) = intent.frozen.as_ref().and_then(|f| f.lookup_path.as_ref()) {
                dt { "Onceward asks" } dd { code { "GET " (redact::words(path, &[])) } }
            }
        }
    }
}

/// Everything that can be done now, each with what it will do.
fn actions(visit: &Visit<'_>, story: &Story) -> Result<Markup, Problem> {
    let (job, intent) = (&story.job, &story.intent);
    let path = job_path(job.id);
    let doubtful = intent.doubt.is_some()
        && matches!(job.state, State::Parked | State::Unknown | State::Waiting | State::Cancelled);
    let waits_for_app = intent.waits_for_app.is_some();
    let in_doubt = doubtful
        || (intent.state == IntentState::Requested
            && !waits_for_app
            && matches!(job.state, State::Parked | State::Unknown));
    let can_cancel = (waits_for_app && job.state == State::Unknown)
        || matches!(job.state, State::Scheduled | State::Ready | State::Waiting | State::Parked)
            && matches!(intent.state, IntentState::Pending | IntentState::Rejected | IntentState::Cancelled);
    let sent = intent.requested.is_some() || intent.generation.sends > 0 || intent.generation.number > 1;
    let can_confirm =
        sent && intent.state != IntentState::Settled && !in_doubt && job.state != State::Running;
    let preview = visit.app.store.preview_replay(story)?;
    let provider = intent.provider.as_ref().and_then(|name| visit.app.config.providers.get(name));
    Ok(html! {
        section.do aria-labelledby="do" {
            h2 #do { "What you can do" }
            @if job.state == State::Running { p { "A worker is at it. Wait a moment: the page shows what came of it." } }
            @if in_doubt {
                details.act #look open[job.state == State::Parked] {
                    summary { "Look at the provider" }
                    p { "Search there for this. What you find decides between the answers below." }
                    (evidence(provider, story))
                }
                @if doubtful { (restored::answers(visit, story)) } @else { (answers(visit, story)) }
            }
            (replay(visit, story, preview))
            @if can_confirm { (confirm(visit, &path)) }
            @if can_cancel {
                details.act #cancel {
                    summary { "Give it up" }
                    p { "The job ends, and nothing is sent for it any more. Nothing of it has happened. If it stands at the head of a group, the group goes on." }
                    form method="post" action={ (path) "/cancel" } {
                        (csrf(visit))
                        button.grave type="submit" { "Give up this job" }
                    }
                }
            }
            (note(visit, story, &path))
        }
    })
}

/// The three answers to "what happened?", each with what follows from it.
fn answers(visit: &Visit<'_>, story: &Story) -> Markup {
    let path = format!("{}/resolve", job_path(story.job.id));
    // The page may be old by the time that the form is sent: the word is about the generation that it showed.
    let about = html! { input type="hidden" name="generation" value=(story.intent.generation.number); };
    let external = restored::is_external(visit, story);
    let anew = match external {
        true => "The app is told to call, under a new key, when it next asks.",
        false => "A new request goes out, under a new key.",
    };
    let note = |id: &str| {
        html! { label for=(id) { "How you know (optional)" } input id=(id) name="note" maxlength="500" autocomplete="off"; }
    };
    html! {
        details.act #settled {
            summary { "It happened" }
            p { "The job is done for good, under the reference that you enter. Nothing is sent." }
            form method="post" action=(path) {
                (csrf(visit))
                input type="hidden" name="answer" value="settled";
                (about)
                label for="reference" { "The provider’s reference of it" }
                input #reference name="reference" required maxlength="255" autocomplete="off" spellcheck="false";
                (note("note-settled"))
                button.main type="submit" { "It happened: close the job" }
            }
        }
        details.act #not-applied {
            summary { "It did not happen" }
            p { strong { (anew) } " The provider will not recognise it. If the first one did take effect after all, it happens twice. So say this only after you have looked." }
            form method="post" action=(path) {
                (csrf(visit))
                input type="hidden" name="answer" value="not-applied";
                (about)
                div.check {
                    input #sure type="checkbox" name="sure" value="yes" required;
                    label for="sure" { "I have looked at the provider, and it is not there." }
                }
                (note("note-not-applied"))
                button.grave type="submit" { @if external { "It did not happen" } @else { "It did not happen: send it anew" } }
            }
        }
        details.act #rejected {
            summary { "It was refused" }
            p { "The job ends as refused, and nothing more is sent. If it stands at the head of a group, the group goes on." }
            form method="post" action=(path) {
                (csrf(visit))
                input type="hidden" name="answer" value="rejected";
                (about)
                label for="why" { "Why it was refused" }
                input #why name="why" required maxlength="500" autocomplete="off";
                (note("note-rejected"))
                button.grave type="submit" { "It was refused: end the job" }
            }
        }
    }
}

/// Puts it back to work, and says what that comes to.
fn replay(visit: &Visit<'_>, story: &Story, preview: Preview) -> Markup {
    let who = words::provider(story);
    let (title, effect) = match preview {
        Preview::NotNow => return html! {},
        Preview::UnknownKind => {
            return html! {
                p.hint { "It cannot be replayed now: kind " code { (story.job.kind) } " is not in the config." }
            };
        }
        Preview::CannotAsk(_) => {
            return html! {
                p.hint { "It cannot simply be replayed: it may have happened, and there is no way to ask. Say above what you found." }
            };
        }
        Preview::FirstSend => (
            "Replay",
            html! { "The request goes out to " (who) ". Nothing of this job has taken effect so far. Tries begin anew." },
        ),
        Preview::SameKey => (
            "Replay",
            html! {
                "The same request goes out to " (who) " again, under the same key: it was refused, and " (who) " does not keep refusals. Nothing has happened yet. Tries begin anew. "
                "If the cause is still there, it will be refused again."
            },
        ),
        Preview::NextGeneration => (
            "Replay",
            html! {
                "A new request goes out to " (who) ", under a new key (generation " (story.intent.generation.number.saturating_add(1)) "). The last one was refused, so nothing has happened yet. Tries begin anew. "
                "If the cause is still there, it will be refused again."
            },
        ),
        Preview::SameAgain => (
            "Send the same again",
            html! {
                "The same request goes out once more, byte for byte, under the same key. " (who) " recognises the key: if it acted the first time, it gives the first answer again and does not act twice."
            },
        ),
        Preview::LookUp => (
            "Ask the provider again",
            html! {
                (who) " is asked what became of the request. The question itself moves nothing. If it certainly did not happen and the look-up can prove that, the request goes out anew."
            },
        ),
        Preview::AppsTurn => (
            "Hand it back to the app",
            html! { "The app makes this call itself. The job waits for its word again." },
        ),
    };
    html! {
        details.act #replay open[!matches!(preview, Preview::SameAgain | Preview::LookUp)] {
            summary { (title) }
            p { (effect) }
            form method="post" action={ (job_path(story.job.id)) "/replay" } {
                (csrf(visit))
                button.main type="submit" { (title) }
            }
        }
    }
}

fn confirm(visit: &Visit<'_>, path: &str) -> Markup {
    html! {
        details.act #confirm {
            summary { "Enter the provider’s confirmation" }
            p { "For a webhook, an e-mail or a statement that says that it happened. The job is done for good, and nothing more is sent for it." }
            form method="post" action={ (path) "/confirm" } {
                (csrf(visit))
                label for="confirmed" { "The provider’s reference of it" }
                input #confirmed name="reference" required maxlength="255" autocomplete="off" spellcheck="false";
                button.main type="submit" { "Confirm" }
            }
        }
    }
}

fn note(visit: &Visit<'_>, story: &Story, path: &str) -> Markup {
    html! {
        details.act #note {
            summary { "Leave a remark" }
            p { "It is added to the story, with the time and where it came from. Nothing else changes." }
            form method="post" action={ (path) "/note" } {
                (csrf(visit))
                label for="text" { "Remark" }
                textarea #text name="text" rows="3" required maxlength="2000" {}
                @if story.intent.state == IntentState::Settled {
                    label for="reversed" { "It came back: reference of the refund or chargeback (optional)" }
                    input #reversed name="reversed" maxlength="255" autocomplete="off" spellcheck="false";
                }
                button.main type="submit" { "Add the remark" }
            }
        }
    }
}
