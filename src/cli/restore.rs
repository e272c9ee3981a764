//! `restore`, and a person's words about the time between copy and restore.

use super::{CliError, Context, actor};
use crate::clock::Ms;
use crate::door::restored;
use crate::store::{Desk, InDoubt, Options, Restoring, Said, Store};
use crate::view;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The backup; without it, the file that stands in place already
    file: Option<PathBuf>,
    /// When it was copied (RFC 3339), for a file that `onceward backup` did not make
    #[arg(long, value_name = "TIME")]
    copied_at: Option<String>,
    /// Your word that since the copy nobody amended, cancelled, rejected or called anything not applied, and that providers
    /// and accounts in the config are those of then: what they still remember may go again under its key
    #[arg(long)]
    no_words: bool,
    /// Your word that every app has asked again for what it had asked for: new keys are new from now on
    #[arg(long)]
    close: bool,
}

#[derive(Serialize)]
struct RestoreView<'a> {
    store: &'a Path,
    copied_at: String,
    doubtful: u64,
    in_doubt: Vec<DoubtView<'a>>,
    paused: &'a [String],
    seq: i64,
    moved_aside: Vec<PathBuf>,
}

#[derive(Serialize)]
struct DoubtView<'a> {
    kind: &'a str,
    /// `send`, `look_up`, `park` or `stay`.
    will: &'static str,
    jobs: u64,
    currency: Option<&'a str>,
    amount_minor: i128,
    example: &'a str,
}

#[derive(Serialize)]
struct SaidView<'a> {
    open_restores: Vec<view::RestoreView>,
    in_doubt: Vec<DoubtView<'a>>,
}

pub fn restore(context: &Context, args: &RestoreArgs) -> Result<(), CliError> {
    let opened = context.load()?;
    let said = Said { no_words: args.no_words, close: args.close };
    let at =
        |text: &String| Ms::parse_rfc3339(text).map_err(|e| CliError::Usage(format!("--copied-at: {e}")));
    let copied_at = args.copied_at.as_ref().map(at).transpose()?;
    let to = &opened.config.store.path;
    if args.file.is_none() && copied_at.is_none() {
        let store = opened.store(false, None)?;
        if store.copied_at().is_none() {
            return speak(context, &store, said);
        }
    }
    let how = Restoring { copied_at, said, actor: actor() };
    let options = Options { create: false, namespace: opened.config.store.namespace.clone(), watch: None };
    let desk: Arc<dyn Desk> = opened.trade.clone();
    let from = args.file.as_deref().unwrap_or(to);
    let restored = Store::restore(from, to, options, Arc::clone(&opened.clock), desk, &how)?;
    let in_doubt = opened.store(false, None)?.in_doubt_since_restore()?;
    let view = RestoreView {
        store: to,
        copied_at: restored.copied.rfc3339(),
        doubtful: restored.doubtful,
        in_doubt: in_doubt.iter().map(doubt).collect(),
        paused: &restored.paused,
        seq: restored.head.seq,
        moved_aside: restored.aside.iter().map(|(_, new)| new.clone()).collect(),
    };
    context.out.result(&view, || {
        let mut lines = vec![format!("{} is in place as of {}.", to.display(), restored.copied)];
        lines.extend(list(&in_doubt));
        for (old, new) in &restored.aside {
            lines.push(format!("{} stood in the way and is now {}", old.display(), new.display()));
        }
        if restored.paused.is_empty() {
            lines.push("No provider had to be paused.".into());
        } else {
            lines.push(format!("Paused until you resume them: {}", restored.paused.join(", ")));
        }
        lines.extend(next(said));
        lines.join("\n")
    })
}

/// A person's words about restores that were made before.
fn speak(context: &Context, store: &Store, said: Said) -> Result<(), CliError> {
    if said == Said::default() {
        let why = "give the backup: `onceward restore FILE`. For a copy that stands in place already, say when it was made: \
                   --copied-at TIME. Of a restore that was made before: --no-words, --close";
        return Err(CliError::Usage(why.into()));
    }
    let open = store.say_of_restores(said, &actor())?;
    let in_doubt = store.in_doubt_since_restore()?;
    let view = SaidView {
        open_restores: open.iter().filter(|_| !said.close).map(view::open_restore).collect(),
        in_doubt: in_doubt.iter().map(doubt).collect(),
    };
    context.out.result(&view, || {
        let mut lines = Vec::new();
        for restore in &open {
            let of = format!("the restore of {} (a copy of {})", restore.restored, restore.copied);
            if said.no_words {
                lines.push(format!("{of}: nobody gave anything up since the copy, by your word"));
            }
            if said.close {
                lines.push(format!("{of} is closed: keys that are new from now on are new"));
            }
        }
        lines.extend(list(&in_doubt));
        lines.join("\n")
    })
}

fn doubt(doubt: &InDoubt) -> DoubtView<'_> {
    DoubtView {
        kind: &doubt.kind,
        will: doubt.fate.as_str(),
        jobs: doubt.jobs,
        currency: doubt.currency.as_deref(),
        amount_minor: doubt.amount_minor,
        example: &doubt.example,
    }
}

/// What is in doubt, a line a kind, fate and currency.
fn list(in_doubt: &[InDoubt]) -> Vec<String> {
    let jobs: u64 = in_doubt.iter().map(|doubt| doubt.jobs).sum();
    if jobs == 0 {
        return vec!["Nothing is in doubt.".into()];
    }
    let mut lines = vec![format!("In doubt, for the lost file may have gone on with them: {jobs} jobs.")];
    lines.extend(in_doubt.iter().map(|doubt| format!("  {}", restored::sum(doubt))));
    lines
}

/// What there is to do next.
fn next(said: Said) -> Vec<String> {
    let mut lines = vec!["Next:".to_string()];
    let steps = restored::steps(said.no_words, true, !said.close);
    lines.extend(steps.into_iter().map(|(command, when)| format!("  {command:<29} {when}")));
    lines
}
