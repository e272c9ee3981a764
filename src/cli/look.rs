//! `list`, `show`, `stats`

use super::{CliError, Context, known_class};
use crate::clock::Ms;
use crate::config::Config;
use crate::door;
use crate::eyes;
use crate::intent::IntentState;
use crate::job::{JobId, State};
use crate::store::{Filter, PauseScope, Stats, Story};
use crate::view;
use clap::Args;
use comfy_table::{Table, presets};
use std::fmt::Write;
use std::time::Duration;

#[derive(Args, Debug)]
pub struct ListArgs {
    /// In this state
    #[arg(long)]
    state: Option<String>,
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Of this group
    #[arg(long)]
    group: Option<String>,
    /// Whose last error class or park reason is this
    #[arg(long)]
    class: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// After this job: its key, or #ID
    #[arg(long)]
    after: Option<String>,
}

pub fn list(context: &Context, args: ListArgs) -> Result<(), CliError> {
    let opened = context.load()?;
    let state = args.state.as_deref().map(|w| door::known(w, State::ALL, State::as_str)).transpose();
    let state = state.map_err(|e| CliError::Usage(format!("--state: {e}")))?;
    args.class.as_deref().map(|w| known_class("--class", w)).transpose()?;
    let kind = args.kind.clone();
    let Some(store) = opened.store_if_there()? else { return know_kind(&opened.config, kind) };
    let after: Option<JobId> = args.after.as_deref().map(|key| super::find(&store, key)).transpose()?;
    let mut filter = Filter { state, kind: args.kind, group: args.group, class: args.class, limit: 0, after };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["ID", "KEY", "KIND", "STATE", "TRIES", "DUE", "REFERENCE OR REASON"]);
    let mut left = args.limit;
    // Page by page, so that no read transaction stays open while the output is slow.
    while left > 0 {
        filter.limit = left.min(500);
        let page = store.list(&filter)?;
        for story in &page {
            if context.out.is_json() {
                context.out.result(&view::job(story, false), String::new)?;
            } else {
                table.add_row(row(story));
            }
        }
        let Some(last) = page.last() else {
            if left == args.limit {
                know_kind(&opened.config, kind)?;
            }
            break;
        };
        filter.after = Some(last.job.id);
        left = left.saturating_sub(u32::try_from(page.len()).unwrap_or(left));
    }
    context.out.text(table.trim_fmt().trim_end())
}

/// Nothing was found.
fn know_kind(config: &Config, kind: Option<String>) -> Result<(), CliError> {
    let known = kind.map(|kind| door::known_kind(config, &kind)).transpose();
    known.map(|_| ()).map_err(|e| CliError::Usage(format!("--kind: {e}")))
}

fn row(story: &Story) -> [String; 7] {
    let job = &story.job;
    let due = match job.state {
        State::Scheduled | State::Ready | State::Unknown => job.run_after.rfc3339(),
        State::Waiting | State::Running | State::Settled | State::Parked | State::Cancelled => String::new(),
    };
    let last = match (&story.intent.reference, job.park_reason) {
        (Some(reference), _) => reference.clone(),
        (None, Some(reason)) => reason.to_string(),
        (None, None) => job.error_class.map(|c| c.to_string()).unwrap_or_default(),
    };
    let attempts = format!("{}/{}", job.attempts, job.max_attempts);
    [job.id.to_string(), job.key.to_string(), job.kind.clone(), job.state.to_string(), attempts, due, last]
}

pub fn show(context: &Context, key: &str) -> Result<(), CliError> {
    let opened = context.load()?;
    let story = match opened.store_if_there()? {
        Some(store) => store.story(key)?,
        None => None,
    };
    let story = story.ok_or_else(|| super::no_job(key))?;
    let kind = opened.config.kinds.get(&story.job.kind);
    let external = kind.is_some_and(|kind| kind.terms.external);
    context.out.result(&view::job(&story, true), || tell(&story, external))
}

/// The story of a job for a person. `external`: the app makes the call itself.
fn tell(story: &Story, external: bool) -> String {
    let (job, intent) = (&story.job, &story.intent);
    let mut out = format!("{} {}  {}\n", job.id, job.key, job.state);
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {name:<11} {}", eyes::line(&value));
        }
    };
    let currency = intent.currency.as_deref().unwrap_or("");
    let open = matches!(job.state, State::Scheduled | State::Ready | State::Unknown)
        && intent.waits_for_app.is_none();
    line("kind", Some(job.kind.clone()));
    line("payload", Some(job.payload.clone().unwrap_or_else(|| "pruned".into())));
    line("account", intent.account.clone());
    line("amount", intent.amount_minor.map(|a| format!("{a} {currency} (minor units)")));
    line("group", job.group.as_ref().map(|g| format!("{g}, place {}", job.sequence.unwrap_or(0))));
    line("blocked by", story.blocked_by.clone());
    line("program", story.program.clone());
    line("attempts", Some(format!("{} of {}", job.attempts, job.max_attempts)));
    line("due", open.then(|| job.run_after.rfc3339()));
    let asks = "the app, which is told to call, under this wire key, when it next asks; since";
    line("waits for", intent.waits_for_app.map(|since| format!("{asks} {since}")));
    line("parked", job.park_reason.map(|r| r.to_string()));
    line("last error", job.last_error.clone());
    line("intent", Some(format!("{}, generation {}", intent.state, intent.generation.number)));
    line("provider", intent.provider.clone());
    line("wire key", Some(intent.wire_key.clone()));
    line("reference", intent.reference.clone());
    // A restore says of what was never sent that it may have been since the copy.
    let requested = intent.requested.filter(|at| intent.doubt.as_ref().is_none_or(|d| d.since != *at));
    line("requested", requested.map(Ms::rfc3339));
    line("confirmed", intent.confirmed.map(Ms::rfc3339));
    if let Some(doubt) = &intent.doubt {
        let _ = write!(
            out,
            "  in doubt since the copy of {}: the file was restored at {}, and the lost one may have gone on with this\n    \
             wire keys to look for at the provider, by generation\n",
            doubt.since, doubt.restored
        );
        for (generation, wire_key) in &story.wire_keys {
            let _ = writeln!(out, "      {generation:<3} {wire_key}");
        }
        if external {
            out.push_str(
                "    beware: an app that heard `created` from the lost file may still be about to call: see to that first\n",
            );
        }
    }
    out.push_str("  history\n");
    for e in &story.history {
        let to = e.to.map(|s| format!(" -> {s}")).unwrap_or_default();
        let class = e.class.map(|c| format!(" {c}")).unwrap_or_default();
        let status = e.http_status.map(|s| format!(" ({s})")).unwrap_or_default();
        let why = [&e.error, &e.detail]
            .into_iter()
            .flatten()
            .map(|w| format!(": {}", eyes::line(w)))
            .collect::<String>();
        let why = why.replace('\n', " ");
        let _ = writeln!(out, "    {}  {}{class}{status}{to}{why}  [{}]", e.at, e.action, e.actor);
    }
    out.push_str(&advice(story));
    out.trim_end().to_string()
}

/// What a person may do now, ready to be copied into a POSIX shell.
fn advice(story: &Story) -> String {
    let key = story.job.key.as_str().replace('\'', r"'\''");
    let settled = format!("onceward resolve --settled REFERENCE -- '{key}'");
    let generation = match story.intent.generation.number {
        1 => String::new(),
        n => format!(" --generation {n}"),
    };
    match (story.job.state, story.intent.state) {
        (State::Running, _) => String::new(),
        (State::Parked | State::Cancelled | State::Unknown | State::Waiting, _)
            if story.intent.doubt.is_some() =>
        {
            format!(
                "  it may have taken effect, under any of those wire keys: look for each, then say what happened\n    {settled}\n    \
             onceward resolve --not-applied --all-generations -- '{key}'\n"
            )
        }
        (State::Parked, IntentState::Requested) => format!(
            "  it may have taken effect: look at the provider, then say what happened\n    {settled}\n    \
             onceward resolve --not-applied{generation} -- '{key}'\n"
        ),
        (State::Parked, _) => format!(
            "  it certainly had no effect: put it back to work, or give it up\n    \
             onceward replay -- '{key}'\n    onceward cancel -- '{key}'\n"
        ),
        (_, _) => String::new(),
    }
}

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

pub fn stats(context: &Context, watch: bool) -> Result<(), CliError> {
    let opened = context.load()?;
    let mut store = opened.store_if_there()?;
    loop {
        let stats = store.as_ref().map_or_else(|| Ok(Stats::empty()), |store| store.stats())?;
        if !watch {
            return context.out.result(&view::stats(&stats), || figures(&stats));
        }
        context
            .out
            .redrawn(&view::stats(&stats), || format!("{}\n\n{}", opened.clock.now(), figures(&stats)))?;
        std::thread::sleep(EVERY);
        // The first enqueue may come while somebody watches.
        if store.is_none() {
            store = opened.store_if_there()?;
        }
    }
}

fn figures(stats: &Stats) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let counter = |name: &str| stats.counters.get(name).copied().unwrap_or(0);
    rows.extend(stats.jobs.iter().map(|(state, n)| (state.to_string(), n.to_string())));
    rows.push(("oldest ready".into(), format!("{:.1} s", stats.oldest_ready_age_s)));
    rows.push(("oldest unknown".into(), format!("{:.1} s", stats.oldest_unknown_age_s)));
    rows.push(("unconfirmed".into(), stats.unconfirmed.to_string()));
    for name in ["duplicate_keys", "key_mismatches", "suppressed", "double_effects"] {
        rows.push((name.replace('_', " "), counter(name).to_string()));
    }
    if stats.inbox_refused > 0 {
        let rows_refused = format!("{} rows: `onceward check` says why", stats.inbox_refused);
        rows.push(("inbox refused".into(), rows_refused));
    }
    for (name, n) in stats.counters.iter().filter(|(_, n)| **n != 0) {
        match name.split_once(':') {
            Some(("class", class)) => rows.push((format!("attempts {class}"), n.to_string())),
            Some(("parked", reason)) => rows.push((format!("parked {reason}"), n.to_string())),
            _ => {}
        }
    }
    for (name, p) in &stats.providers {
        let why = p.why.as_deref().map(|w| format!(": {}", eyes::line(w))).unwrap_or_default();
        rows.push((format!("provider {name}"), format!("{}{why}", p.state)));
    }
    for g in &stats.blocked_groups {
        let what = format!("{} wait behind {} since {}", g.waiting, g.head, g.since);
        rows.push((format!("group {}", g.group), what));
    }
    for p in stats.paused.iter().filter(|p| p.scope != PauseScope::Provider) {
        let why = p.why.as_deref().map(|w| format!(": {}", eyes::line(w))).unwrap_or_default();
        rows.push((format!("{} {}", p.scope, p.name), format!("paused by {}{why}", p.by)));
    }
    for open in &stats.open_restores {
        let what = format!(
            "at {} from a copy of {}: {} new keys since; `onceward check` says what is next",
            open.restored, open.copied, open.new_keys
        );
        rows.push(("restored".into(), what));
    }
    if !stats.open_restores.is_empty() || stats.in_doubt_since_restore > 0 {
        rows.push(("in doubt since restore".into(), stats.in_doubt_since_restore.to_string()));
    }
    for kind in &stats.unclaimed_kinds {
        rows.push(("unclaimed kind".into(), format!("{kind}: jobs wait, and no running worker knows it")));
    }
    rows.iter().map(|(name, value)| format!("{name:<24} {value}")).collect::<Vec<_>>().join("\n")
}
