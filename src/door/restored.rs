//! What is said after a restore, by the command line, the console and the alerts alike.

use crate::store::{Fate, InDoubt, OpenRestore, Stats};

/// A count that is kept up to ten thousand.
fn about(n: u64) -> String {
    if n >= 10_000 { "10000 or more".into() } else { n.to_string() }
}

/// What there is to say of one restore.
pub fn open_restore(open: &OpenRestore, in_doubt: u64) -> String {
    format!(
        "the file was put back at {} from a copy of {}, and nobody has closed that restore. Keys in doubt: {}; new since: {}",
        open.restored,
        open.copied,
        about(in_doubt),
        about(open.new_keys)
    )
}

/// What is in doubt, of one kind, currency and fate.
pub fn sum(doubt: &InDoubt) -> String {
    let what = match doubt.fate {
        Fate::Send => "would go out again under the same key",
        Fate::LookUp => "would be looked up",
        Fate::Park => "would be parked for you",
        Fate::Stay => "stay as they are until you speak of them",
    };
    let money = match &doubt.currency {
        Some(currency) => format!(" ({} {currency} in minor units)", doubt.amount_minor),
        None => String::new(),
    };
    format!("{}: {} {what}{money}, {} among them", doubt.kind, doubt.jobs, doubt.example)
}

/// A command, and when to give it.
pub type Step = (&'static str, &'static str);

/// What a person may say next. `no_words`: that was said; `paused`: a restore's pause is still on; `open`: not closed.
pub fn steps(no_words: bool, paused: bool, open: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if open && !no_words {
        steps.push((
            "onceward restore --no-words",
            "if since the copy nobody amended, cancelled, rejected or called anything not applied",
        ));
    }
    if paused {
        steps.push(("onceward resume --all", "lets the providers go on"));
    }
    if open {
        steps.push(("onceward restore --close", "once every app has asked again for what it had asked for"));
    }
    steps
}

/// The same for a file as it stands now.
pub fn next_steps(stats: &Stats) -> Vec<Step> {
    let open = &stats.open_restores;
    let paused = stats.paused.iter().any(crate::store::Pause::by_restore);
    steps(open.iter().all(|open| open.no_words), paused, !open.is_empty())
}
