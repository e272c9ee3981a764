//! `backup` and `prune`

use super::audit::{bar, not_new};
use super::output::talk;
use super::{CliError, Context, actor};
use crate::config::Kind;
use crate::eyes;
use crate::intent::hex;
use crate::job::{Code, JobId, Refusal};
use crate::store::events::EventAction;
use crate::store::{Deed, Freed, NewFile, PRUNE_BATCH, Retention, Store, StoreError};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Serialize)]
struct BackupView<'a> {
    file: &'a Path,
    copied_at: String,
    intents: u64,
    bytes: u64,
    seq: i64,
    chain: String,
}

pub fn backup(context: &Context, file: &Path) -> Result<(), CliError> {
    let store = context.load()?.store(false, None)?;
    let bar = bar(context, "backup");
    let copied = store.backup(file, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let copied = copied?;
    let ends =
        format!("as of {}, ends at row {} with {}", copied.at, copied.head.seq, hex(&copied.head.chain));
    on_record(&store, EventAction::Backup, &file.display().to_string(), &ends);
    let view = BackupView {
        file,
        copied_at: copied.at.rfc3339(),
        intents: copied.intents,
        bytes: copied.bytes,
        seq: copied.head.seq,
        chain: hex(&copied.head.chain),
    };
    context.out.result(&view, || {
        format!(
            "{} is a copy as of {}: {} intents, {} rows of history, {} bytes, checked.\nput it back with `onceward restore {}`",
            file.display(),
            copied.at,
            copied.intents,
            copied.head.seq,
            copied.bytes,
            file.display()
        )
    })
}

/// Puts on record what was done to the file, or that it was read whole. Where that cannot be written (a backup, a file
/// that is read-only, a full disk), it is said, and what was done stands.
pub fn on_record(store: &Store, action: EventAction, name: &str, detail: &str) {
    let actor = actor();
    if let Err(e) = store.tell(Deed { action, name, actor: &actor, origin: None, detail }) {
        talk(&format!("not on record in the file's events ({action}): {e}"));
    }
}

#[derive(Args, Debug)]
pub struct PruneArgs {
    /// Say how many would go, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep what goes in this file (JSON Lines), which must not be there yet: `audit verify --archive` checks it
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Also kinds that move money and keep less than 365 days
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct PruneView<'a> {
    pruned: u64,
    by_kind: BTreeMap<&'a str, u64>,
    dry_run: bool,
    archive: Option<&'a Path>,
    shrunk_bytes: u64,
    free_bytes: u64,
}

/// Records of payments are asked for within a year of any day.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

pub fn prune(context: &Context, args: &PruneArgs) -> Result<(), CliError> {
    let opened = context.load()?;
    let kinds = &opened.config.kinds;
    let moves_money = |kind: &Kind| kind.amount_minor.is_some() || kind.currency.is_some();
    if let Some(kind) = kinds.values().find(|k| !args.force && k.keep < YEAR && moves_money(k)) {
        let why = format!(
            "kind {} moves money and keeps less than 365 days (kinds.{}.keep): say --force if that is meant",
            kind.name, kind.name
        );
        return Err(Refusal::new(Code::NotAllowed, why).into());
    }
    let store = opened.store(false, None)?;
    let now = opened.clock.now();
    let mut found: Vec<(Retention, Vec<JobId>)> = kinds
        .values()
        .map(|kind| {
            let retention = Retention { kind: kind.name.clone(), before: now.minus(kind.keep) };
            Ok((retention.clone(), prunable(&store, &retention)?))
        })
        .collect::<Result<_, CliError>>()?;
    // What is added to a job's history from here on is not in the archive: such a job stays.
    let up_to = store.chain_head()?.seq;
    if let (Some(path), false) = (&args.archive, args.dry_run) {
        archive(&store, path, &mut found)?;
    }
    if !args.dry_run && found.iter().any(|(_, ids)| !ids.is_empty()) {
        // Before anything goes, and it goes only if this is on record.
        let store: &Store = &store;
        let (actor, detail) = (actor(), meant(&found, args));
        store.tell(Deed {
            action: EventAction::Prune,
            name: "jobs",
            actor: &actor,
            origin: None,
            detail: &detail,
        })?;
    }
    let mut by_kind = BTreeMap::new();
    let bar = bar(context, "prune");
    bar.set_length(found.iter().map(|(_, ids)| ids.len() as u64).sum());
    for (retention, ids) in &found {
        let mut pruned = 0;
        for batch in ids.chunks(PRUNE_BATCH) {
            pruned += match args.dry_run {
                true => batch.len() as u64,
                false => store.prune(batch, retention.before, up_to, &actor())?,
            };
            bar.inc(batch.len() as u64);
        }
        if pruned > 0 {
            by_kind.insert(retention.kind.as_str(), pruned);
        }
    }
    bar.finish_and_clear();
    let freed = match args.dry_run {
        true => Freed { shrunk: 0, free: 0 },
        false => store.give_back()?,
    };
    let view = PruneView {
        pruned: by_kind.values().sum(),
        by_kind,
        dry_run: args.dry_run,
        archive: args.archive.as_deref().filter(|_| !args.dry_run),
        shrunk_bytes: freed.shrunk,
        free_bytes: freed.free,
    };
    context.out.result(&view, || {
        let mut lines: Vec<String> =
            view.by_kind.iter().map(|(kind, n)| format!("{n} of kind {kind}")).collect();
        let done = if args.dry_run { "would be pruned" } else { "are pruned" };
        lines.push(format!("{} jobs {done}; their keys, references and hashes stay", view.pruned));
        lines.extend(room(freed));
        lines.join("\n")
    })
}

/// What became of the room. A file that onceward did not make, or made before it gave pages back, never shrinks.
fn room(freed: Freed) -> Option<String> {
    match freed {
        Freed { shrunk: 0, free: 0 } => None,
        Freed { shrunk: 0, free } => Some(format!(
            "the file stays as long as it is, for it was not made to shrink: {free} bytes in it are free and will be used again"
        )),
        Freed { shrunk, .. } => {
            Some(format!("the file is {shrunk} bytes shorter once its log is folded into it"))
        }
    }
}

/// What a prune sets out to do, for the events.
fn meant(found: &[(Retention, Vec<JobId>)], args: &PruneArgs) -> String {
    let kinds: Vec<String> = found
        .iter()
        .filter(|(_, ids)| !ids.is_empty())
        .map(|(retention, ids)| {
            format!("{} of kind {} before {}", ids.len(), retention.kind, retention.before)
        })
        .collect();
    let archive = match &args.archive {
        Some(path) => format!("archive {}", path.display()),
        None => "no archive".into(),
    };
    format!("{archive}{}; up to {}", if args.force { ", --force" } else { "" }, kinds.join(", "))
}

fn prunable(store: &Store, retention: &Retention) -> Result<Vec<JobId>, CliError> {
    let mut all = Vec::new();
    loop {
        let page = store.prunable(retention, all.last().copied().unwrap_or(JobId(0)), 1000)?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// Whole and on disk before anything goes. A job whose row cannot be read is not in it, and so it stays.
fn archive(store: &Store, path: &Path, found: &mut [(Retention, Vec<JobId>)]) -> Result<(), CliError> {
    let io = |error| not_new(path, error);
    let (new, file) = NewFile::create(path).map_err(io)?;
    let mut out = BufWriter::new(file);
    for (_, ids) in found {
        let mut kept = Vec::with_capacity(ids.len());
        for id in ids.drain(..) {
            let (job, rows) = match store.archived(id) {
                Ok(archived) => archived,
                Err(StoreError::Row(why)) => {
                    talk(&format!("{id} stays: {why}"));
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            writeln!(out, "{}", eyes::json(&job).map_err(|e| io(e.into()))?).map_err(io)?;
            for row in rows {
                writeln!(out, "{}", eyes::json(&row).map_err(|e| io(e.into()))?).map_err(io)?;
            }
            kept.push(id);
        }
        *ids = kept;
    }
    out.flush().map_err(io)?;
    drop(out);
    new.finish().map_err(io)
}
