//! What the file says, in sentences for somebody who has never read its documents.
//!
//! A sentence says what is known and not more: what left, what came back, and whether the effect is certain.

use super::page::{clock, quoted, span};
use crate::job::{Reason, State};
use crate::outcome::{Class, Phase};
use crate::store::{Action, Entry, Story};
use maud::{Markup, html};

/// A state as a person says it.
pub fn state(state: State) -> &'static str {
    match state {
        State::Scheduled => "Scheduled",
        State::Ready => "Ready",
        State::Waiting => "Waiting its turn",
        State::Running => "At work",
        State::Unknown => "In doubt",
        State::Settled => "Done",
        State::Parked => "Parked",
        State::Cancelled => "Given up",
    }
}

/// What a state means, as a sentence.
pub fn state_meaning(state: State) -> &'static str {
    match state {
        State::Scheduled => "It is due later.",
        State::Ready => "It is due, and goes out as soon as a worker is free.",
        State::Waiting => "It waits until the job before it in its group is done.",
        State::Running => "A worker is at it at this moment.",
        State::Unknown => "A request may have taken effect, and there is no final word yet.",
        State::Settled => "It happened once, and that is final.",
        State::Parked => "It was set aside, and waits for a person.",
        State::Cancelled => "Nobody wants it any more. That is final.",
    }
}

/// Why a job is parked: a title, and what it means.
pub fn reason(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::UnknownOutcome => (
            "It may have happened",
            "A request may have taken effect, and no further question to the provider can tell. Look at the provider, then say what happened.",
        ),
        Reason::WindowExpired => (
            "Too late to ask again",
            "A request may have taken effect. The provider may have forgotten its key by now, so sending it again could do it twice. Look at the provider, then say what happened.",
        ),
        Reason::ScopeChanged => (
            "It was sent somewhere else",
            "A request may have taken effect under another address, account or look-up than the config has now. Look there, then say what happened.",
        ),
        Reason::ContentDiffers => (
            "The answer is not what was asked for",
            "The provider says that it happened, with another amount, currency or key. Compare the two before anything else.",
        ),
        Reason::ReferenceTaken => (
            "The reference belongs to another job",
            "The provider says that it happened, under a reference that another job has already. Only one of them can be right.",
        ),
        Reason::Redirected => (
            "The provider pointed elsewhere",
            "The provider answered with a redirect. It is never followed, and the request may have taken effect all the same. Check the address in the config.",
        ),
        Reason::Rejected => (
            "The provider refused",
            "It certainly did not happen. Read why, put it right, and replay; or give it up.",
        ),
        Reason::Invalid => (
            "The request cannot be made",
            "The job's content does not fit what the config says. Nothing was sent for this try.",
        ),
        Reason::AttemptsExhausted => {
            ("All tries are spent", "None of them had an effect. When the cause is gone, replay.")
        }
        Reason::TooOld => {
            ("It was tried for too long", "None of the tries had an effect. Replay if it is still wanted.")
        }
    }
}

/// How an attempt ended, in two or three words.
pub fn class(class: Class) -> &'static str {
    match class {
        Class::Ok => "Confirmed",
        Class::Accepted => "Taken, not final yet",
        Class::NotSent => "Never left",
        Class::Timeout => "No answer in time",
        Class::Interrupted => "Connection broke",
        Class::Crashed => "Worker died",
        Class::Throttled => "Told to slow down",
        Class::InProgress => "Still being worked on",
        Class::ServerError => "Provider’s own error",
        Class::BadResponse => "Unclear answer",
        Class::Rejected => "Refused",
        Class::Auth => "Credential refused",
        Class::Redirected => "Pointed elsewhere",
        Class::KeyMismatch => "Key known with other content",
        Class::NotFound => "Look-up: nothing there",
        Class::LookupFailed => "Look-up: no usable answer",
        Class::HandlerError => "Handler’s error",
        Class::HandlerPanic => "Handler broke down",
    }
}

/// How a sentence sounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Confirmed.
    Good,
    /// Refused, or for a person.
    Bad,
    /// Nobody knows.
    Doubt,
    /// Something went by.
    Plain,
}

impl Tone {
    /// Its class in the style sheet.
    pub fn as_str(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Doubt => "doubt",
            Tone::Plain => "plain",
        }
    }
}

/// Whoever carries it out, as a sentence names it.
pub fn provider(story: &Story) -> &str {
    story.intent.provider.as_deref().unwrap_or("the app’s own handler")
}

/// What is not known of a request without an answer.
pub fn open_question(story: &Story) -> &'static str {
    match story.intent.amount_minor {
        Some(_) => "whether the money moved is not known",
        None => "whether it took effect is not known",
    }
}

/// One row of a job's history as a sentence or two.
pub fn tell(story: &Story, e: &Entry) -> (Tone, Markup) {
    match e.action {
        Action::Request => attempt(story, e),
        Action::Lookup => look_up(story, e),
        Action::Crash => crash(story, e),
        Action::LateResult => late(story, e),
        Action::Enqueue => (Tone::Plain, html! { "The job was asked for." }),
        Action::Park => (
            Tone::Bad,
            html! { "It was set aside for a person" @if let Some(why) = &e.error { ": " (quoted(why)) } "." },
        ),
        Action::Replay => (Tone::Plain, html! { "A person put it back to work. " (follows(e)) }),
        Action::Resolve => resolve(e),
        Action::Cancel => (Tone::Plain, html! { "A person gave it up: nothing more is sent." }),
        Action::Confirm => (
            match e.error {
                Some(_) => Tone::Bad,
                None => Tone::Good,
            },
            html! {
                "The provider’s own confirmation was entered"
                @if let Some(detail) = &e.detail { ": " (quoted(detail)) }
                @if let Some(error) = &e.error { ": " (quoted(error)) }
                "."
            },
        ),
        Action::Note => note(e),
        Action::Release => (
            Tone::Plain,
            html! {
                @match &e.detail {
                    // Only a restore says more than what went wrong.
                    Some(detail) => { "The file was put back: " (quoted(detail)) }
                    None => "It was put off without an attempt",
                }
                @if let Some(why) = &e.error { ": " (quoted(why)) }
                ". " (follows(e))
            },
        ),
    }
}

fn http(e: &Entry) -> String {
    e.http_status.map(|status| format!(" (HTTP {status})")).unwrap_or_default()
}

fn within(e: &Entry) -> String {
    e.started.map(|started| format!(" within {}", span(e.at.since(started)))).unwrap_or_default()
}

/// What comes after a row: it is on file before anybody waits for it.
fn follows(e: &Entry) -> Markup {
    let due = e.run_after;
    html! {
        @match (e.to, due) {
            (Some(State::Scheduled | State::Ready), Some(due)) => { "It is tried again at " (clock(due, e.at)) "." }
            (Some(State::Scheduled | State::Ready), None) => { "It is due again." }
            (Some(State::Unknown), Some(due)) => { "It is followed up at " (clock(due, e.at)) "." }
            (Some(State::Unknown), None) => { "It is followed up." }
            (Some(State::Parked), _) => { "It was set aside for a person." }
            (Some(State::Waiting), _) => { "It waits its turn in its group." }
            (Some(State::Settled), _) => { "It is done, for good." }
            (Some(State::Running | State::Cancelled) | None, _) => {}
        }
    }
}

fn attempt(story: &Story, e: &Entry) -> (Tone, Markup) {
    let (who, open, status) = (provider(story), open_question(story), http(e));
    let left = html! { "The request left at " (clock(e.started.unwrap_or(e.at), e.at)) };
    let nothing_in_doubt = matches!(e.to, Some(State::Scheduled | State::Ready | State::Waiting));
    let Some(class) = e.class else { return (Tone::Plain, html! { "A request was made. " (follows(e)) }) };
    let (tone, said) = match class {
        Class::Ok if e.to == Some(State::Settled) => {
            (Tone::Good, html! { (left) " and " (who) " confirmed it" (reference(story, e)) "." })
        }
        Class::Ok => (
            Tone::Bad,
            html! { (left) " and " (who) " says that it happened, but not as it was asked for" (why(e)) "." },
        ),
        Class::Accepted => (
            Tone::Doubt,
            html! { (left) " and " (who) " has taken it" (status) ". Its final word is still to come." },
        ),
        Class::NotSent => (
            Tone::Plain,
            html! { "The request did not leave: no connection to " (who) " could be made" (why(e)) ". Nothing was sent, so nothing happened." },
        ),
        Class::Timeout => {
            let what = match e.phase {
                Some(Phase::Headers | Phase::Body) => "the answer began and did not end",
                _ => "no answer came",
            };
            (Tone::Doubt, html! { (left) " and " (what) (within(e)) ": " (open) "." })
        }
        Class::Interrupted => (
            Tone::Doubt,
            html! { (left) " and the connection broke before a whole answer had come: " (open) "." },
        ),
        Class::Crashed => return crash(story, e),
        Class::Throttled => (
            Tone::Plain,
            html! { (who) " asked for a pause" (status) ". Nothing happened, and the attempt does not count." },
        ),
        Class::InProgress => (
            Tone::Doubt,
            html! { (who) " is still working on an earlier request of this key" (status) ". What comes of it is not known yet." },
        ),
        Class::ServerError => (
            Tone::Doubt,
            html! { (left) " and " (who) " answered with an error of its own" (status) ": " (open) "." },
        ),
        Class::BadResponse => (
            Tone::Doubt,
            html! { (left) " and " (who) " answered" (status) ", but the answer does not say what it should" (why(e)) ": " (open) "." },
        ),
        Class::Rejected => {
            (Tone::Bad, html! { (who) " refused the request" (status) ". This request had no effect." })
        }
        Class::Auth => (
            Tone::Bad,
            html! { (who) " did not accept the credential" (status) ". Nothing happened; sending to it is on hold until the credential works." },
        ),
        Class::Redirected => (
            Tone::Doubt,
            html! { (left) " and " (who) " pointed to another address" (status) ", which is never followed: " (open) "." },
        ),
        Class::KeyMismatch => (
            Tone::Doubt,
            html! { (who) " knows this key with other content" (status) ": an earlier request may have taken effect." },
        ),
        Class::HandlerError if nothing_in_doubt => {
            (Tone::Plain, html! { "The app’s handler says that nothing happened" (why(e)) "." })
        }
        Class::HandlerError => {
            (Tone::Doubt, html! { "The app’s handler reported an error" (why(e)) ": " (open) "." })
        }
        Class::HandlerPanic => (Tone::Doubt, html! { "The app’s handler broke down: " (open) "." }),
        Class::NotFound | Class::LookupFailed => return look_up(story, e),
    };
    let settled = e.to == Some(State::Settled);
    (tone, html! { (said) @if !settled { " " (follows(e)) } })
}

fn why(e: &Entry) -> String {
    e.error.as_deref().map(|why| format!(" ({})", quoted(why))).unwrap_or_default()
}

fn reference(story: &Story, e: &Entry) -> Markup {
    let reference = story.intent.reference.as_deref().filter(|_| e.to == Some(State::Settled));
    html! { @if let Some(reference) = reference { " as " code { (reference) } } }
}

fn look_up(story: &Story, e: &Entry) -> (Tone, Markup) {
    let (who, status) = (provider(story), http(e));
    let (tone, said) = match e.class {
        Some(Class::Ok) if e.to == Some(State::Settled) => {
            (Tone::Good, html! { (who) " was asked, and says that it happened" (reference(story, e)) "." })
        }
        Some(Class::Ok) => (
            Tone::Bad,
            html! { (who) " was asked, and says that something happened, but not what was asked for" (why(e)) "." },
        ),
        Some(Class::Accepted | Class::InProgress) => {
            (Tone::Doubt, html! { (who) " was asked, and has no final word yet." })
        }
        Some(Class::NotFound) => (
            Tone::Doubt,
            html! { (who) " was asked, and knows nothing of it. It may only be late, so one such answer proves nothing." },
        ),
        Some(Class::Rejected) => {
            (Tone::Bad, html! { (who) " was asked, and says that it was refused" (status) "." })
        }
        Some(Class::Throttled) => {
            (Tone::Plain, html! { (who) " was asked, and wants a pause first" (status) "." })
        }
        _ => (Tone::Doubt, html! { (who) " was asked, and gave no usable answer" (status) (why(e)) "." }),
    };
    let settled = e.to == Some(State::Settled);
    (tone, html! { (said) @if !settled { " " (follows(e)) } })
}

fn crash(story: &Story, e: &Entry) -> (Tone, Markup) {
    let nothing_left = matches!(e.to, Some(State::Scheduled | State::Ready | State::Waiting));
    let said = if nothing_left {
        html! { "The worker died over it, and it is on record that nothing had left. " }
    } else {
        html! { "The worker died over it. A request may have left: " (open_question(story)) ". " }
    };
    (if nothing_left { Tone::Plain } else { Tone::Doubt }, html! { (said) (follows(e)) })
}

fn late(story: &Story, e: &Entry) -> (Tone, Markup) {
    let said = e.class.map_or("something", class).to_lowercase();
    let tone = if e.to == Some(State::Settled) { Tone::Good } else { Tone::Plain };
    (
        tone,
        html! {
            "An answer came after the worker had lost its claim: " (said) (http(e)) (why(e)) ". "
            @if e.to == Some(State::Settled) {
                "Good news is kept: the job is done" (reference(story, e)) "."
            } @else { "It is on record and changes nothing." }
        },
    )
}

fn resolve(e: &Entry) -> (Tone, Markup) {
    let detail = quoted(e.detail.as_deref().unwrap_or_default());
    if let Some(error) = &e.error {
        return (Tone::Bad, html! { "A person said what happened: " (quoted(error)) "." });
    }
    match detail.split_once(' ') {
        _ if detail.starts_with("not-applied") => {
            let note = detail.split_once(": ").map(|(_, note)| note);
            (
                Tone::Plain,
                html! {
                    "A person looked and said: it did not happen."
                    @if let Some(note) = note { " (" (note) ")" }
                    @match e.to {
                        Some(State::Cancelled) => " It stays given up.",
                        Some(State::Unknown) => " The app is told to call, under a new key, when it next asks.",
                        _ => " It goes out again under a new key.",
                    }
                },
            )
        }
        Some(("settled", rest)) => {
            (Tone::Good, html! { "A person looked and said: it happened, as " code { (rest) } "." })
        }
        Some(("rejected", rest)) => (
            Tone::Bad,
            html! { "A person looked and said: it was refused (" (rest) "). Nothing more is sent." },
        ),
        _ => (Tone::Plain, html! { "A person said what happened: " (detail) "." }),
    }
}

fn note(e: &Entry) -> (Tone, Markup) {
    let text = quoted(e.detail.as_deref().unwrap_or_default());
    match text.strip_prefix("reversed ").and_then(|rest| rest.split_once(": ")) {
        Some((reference, text)) => (
            Tone::Bad,
            html! { "It came back later (a refund or chargeback, " code { (reference) } "): " (text) },
        ),
        None => (Tone::Plain, html! { "Remark: " (text) }),
    }
}

/// Who did something, as a person says it.
pub fn actor(actor: &str) -> String {
    match actor.split_once(':') {
        Some(("worker", name)) => format!("worker {name}"),
        Some(("cli", name)) => format!("{name} at the command line"),
        Some(("api", name)) => format!("the API, from {name}"),
        Some(("console", name)) => format!("the console, from {name}"),
        Some(("restore", who)) => format!("the restore, by {}", self::actor(who)),
        _ => actor.to_string(),
    }
}
