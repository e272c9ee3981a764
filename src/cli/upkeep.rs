//! `backup`, `restore` and `prune`

use super::audit::bar;
use super::{CliError, Context};
use crate::clock::Ms;
use crate::intent::hex;
use crate::store::{Desk, Options, Restoring, Store};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// When it was copied (RFC 3339), for a file that `onceward backup` did not make
    #[arg(long, value_name = "TIME")]
    copied_at: Option<String>,
    /// Your word that no key was asked for since the copy: new keys are then sent at once
    #[arg(long)]
    trust_new_keys: bool,
}

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

#[derive(Serialize)]
struct RestoreView<'a> {
    store: &'a Path,
    copied_at: String,
    doubtful: u64,
    seq: i64,
    moved_aside: Vec<PathBuf>,
}

pub fn restore(context: &Context, args: &RestoreArgs) -> Result<(), CliError> {
    let opened = context.load()?;
    let at =
        |text: &String| Ms::parse_rfc3339(text).map_err(|e| CliError::Usage(format!("--copied-at: {e}")));
    let how = Restoring {
        copied_at: args.copied_at.as_ref().map(at).transpose()?,
        trust_new_keys: args.trust_new_keys,
    };
    let options = Options { create: false, namespace: opened.config.store.namespace.clone(), watch: None };
    let desk: Arc<dyn Desk> = opened.trade.clone();
    let to = &opened.config.store.path;
    let restored = Store::restore(&args.file, to, options, Arc::clone(&opened.clock), desk, &how)?;
    let view = RestoreView {
        store: to,
        copied_at: restored.copied.rfc3339(),
        doubtful: restored.doubtful,
        seq: restored.head.seq,
        moved_aside: restored.aside.iter().map(|(_, new)| new.clone()).collect(),
    };
    context.out.result(&view, || {
        let mut text = format!(
            "{} is in place as of {}. {} jobs may have been sent since: they are looked up, sent again where the provider \
             answers a repeat from memory, or parked.",
            to.display(),
            restored.copied,
            restored.doubtful
        );
        for (old, new) in &restored.aside {
            text.push_str(&format!("\n{} stood in the way and is now {}", old.display(), new.display()));
        }
        text
    })
}
