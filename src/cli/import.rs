//! `import`: JSON Lines, one job a line.
//!
//! Memory is bounded whatever the file: a line that is too long is skipped unread, and a batch goes to the store as
//! soon as it has so many jobs or bytes. A bad line is reported and holds up no other. What was stored stays stored, and
//! its key makes the same line a duplicate the next time, so an import that broke off is simply run again.

use super::{CliError, Context, Opened, actor};
use crate::door::{BATCH_BYTES, BATCH_JOBS, Lines, job_of_line};
use crate::job::{Code, NewJob, Refusal};
use crate::store::{Enqueued, Store};
use crate::worker::BESIDE_PAYLOAD;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub struct ImportArgs {
    /// The file, one JSON object a line; - is stdin
    file: PathBuf,
}

#[derive(Serialize, Default)]
struct Summary {
    created: u64,
    duplicate: u64,
    suppressed: u64,
    /// The app makes these calls itself, and is to make them again under the next generation's wire key.
    #[serde(skip_serializing_if = "is_none")]
    again: u64,
    /// The app may have made these before the file was restored, and must not call.
    #[serde(skip_serializing_if = "is_none")]
    doubtful: u64,
    refused: u64,
}

fn is_none(n: &u64) -> bool {
    *n == 0
}

pub fn import(context: &Context, args: &ImportArgs) -> Result<(), CliError> {
    let opened = context.load()?;
    // The input first: a name that is mistyped makes no store.
    let (input, length) = open(&args.file)?;
    let store = opened.store(true, None)?;
    let longest = opened.config.limits.payload.saturating_add(BESIDE_PAYLOAD);
    let mut import = Import {
        context,
        opened: &opened,
        store,
        actor: actor(),
        bar: bar(context, length),
        batch: Vec::new(),
        batch_bytes: 0,
        summary: Summary::default(),
    };
    let done = import.all(Lines::new(input, longest), &args.file);
    import.bar.finish_and_clear();
    done?;
    let Summary { created, duplicate, suppressed, again, doubtful, refused } = import.summary;
    let told = context.out.result(&import.summary, || {
        let mut text = format!("{created} created, {duplicate} duplicate, {suppressed} suppressed, ");
        for (n, word) in [(again, "again"), (doubtful, "doubtful")].into_iter().filter(|(n, _)| *n > 0) {
            text.push_str(&format!("{n} {word}, "));
        }
        format!("{text}{refused} refused")
    });
    if refused > 0 { Err(CliError::Told(Code::Invalid)) } else { told }
}

fn open(path: &Path) -> Result<(Box<dyn BufRead>, Option<u64>), CliError> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin().lock()), None));
    }
    let io = |error| CliError::Io { what: format!("{} cannot be read", path.display()), error };
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    Ok((Box::new(BufReader::with_capacity(64 * 1024, file)), Some(length)))
}

/// A bar on a terminal, and nothing at all elsewhere.
fn bar(context: &Context, length: Option<u64>) -> ProgressBar {
    if context.out.is_json() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (ProgressBar::new(length), "{wide_bar} {bytes}/{total_bytes} {msg} {eta}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

struct Import<'a> {
    context: &'a Context,
    opened: &'a Opened,
    store: Store,
    actor: String,
    bar: ProgressBar,
    /// Good lines that are not stored yet, with their numbers.
    batch: Vec<(u64, NewJob)>,
    batch_bytes: usize,
    summary: Summary,
}

impl Import<'_> {
    fn all(&mut self, mut lines: Lines<Box<dyn BufRead>>, path: &Path) -> Result<(), CliError> {
        loop {
            let line = match lines.next() {
                Ok(line) => line,
                Err(error) => {
                    // What was read before is good, and stays.
                    self.store_batch()?;
                    return Err(CliError::Io { what: format!("{} cannot be read", path.display()), error });
                }
            };
            let Some(line) = line else { return self.store_batch() };
            self.bar.inc(line.bytes);
            match line.text.and_then(|text| job_of_line(&self.opened.config, &text)) {
                Ok(None) => {}
                Ok(Some(job)) => {
                    self.batch_bytes += job.payload.len();
                    self.batch.push((line.number, job));
                }
                Err(refusal) => self.refuse(line.number, &refusal)?,
            }
            if self.batch.len() >= BATCH_JOBS || self.batch_bytes >= BATCH_BYTES {
                self.store_batch()?;
            }
        }
    }

    fn store_batch(&mut self) -> Result<(), CliError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch_bytes = 0;
        let (numbers, jobs): (Vec<u64>, Vec<NewJob>) = std::mem::take(&mut self.batch).into_iter().unzip();
        let answers = self.store.enqueue_many(jobs, &self.actor)?;
        for (number, answer) in numbers.into_iter().zip(answers) {
            match answer {
                Ok(Enqueued::Created(_)) => self.summary.created += 1,
                Ok(Enqueued::Duplicate(_)) => self.summary.duplicate += 1,
                Ok(Enqueued::Suppressed(_)) => self.summary.suppressed += 1,
                Ok(Enqueued::Again(_)) => self.summary.again += 1,
                Ok(Enqueued::Doubtful(_)) => self.summary.doubtful += 1,
                Err(refusal) => self.refuse(number, &refusal)?,
            }
        }
        self.bar.set_message(format!("{} created", self.summary.created));
        Ok(())
    }

    fn refuse(&mut self, number: u64, refusal: &Refusal) -> Result<(), CliError> {
        self.summary.refused += 1;
        match self.bar.suspend(|| self.context.out.bad_line(number, refusal.code, &refusal.message)) {
            // Nobody reads the report any more; that is no reason to leave the rest of the file out.
            Err(CliError::Closed) => Ok(()),
            told => told,
        }
    }
}
