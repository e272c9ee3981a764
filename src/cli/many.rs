//! `resolve --not-applied --all-generations --all`: one word about many jobs that are in doubt since a restore. Whoever
//! says it has seen how many they are and what they come to, and types their number; each is then spoken of by itself.

use super::{CliError, Context, act, actor, exit_code, known_class, output};
use crate::job::{Code, Refusal, State};
use crate::store::{Desk, Meant, Selection, Store, StoreError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufRead, Read};

/// What is read of the answer: a number has fewer digits.
const ANSWER_MAX: u64 = 64;

#[derive(Serialize)]
struct MeantView<'a> {
    jobs: usize,
    meant: Vec<SumView<'a>>,
}

#[derive(Serialize)]
struct SumView<'a> {
    kind: &'a str,
    /// `send`, `app` or `stay`.
    then: &'static str,
    jobs: u64,
    currency: Option<&'a str>,
    amount_minor: i128,
    example: &'a str,
}

/// What follows from the word: a name, and a sentence.
fn then(job: &Meant, desk: &dyn Desk) -> (&'static str, &'static str) {
    let kind = desk.kind(&job.kind).or_else(|| desk.elsewhere(&job.kind));
    match job.state {
        State::Cancelled => ("stay", "stay cancelled, and are in doubt no more"),
        _ if kind.is_some_and(|kind| kind.terms.external) => {
            ("app", "wait for their app, which is told to call when it next asks")
        }
        _ => ("send", "go out anew, under a new key"),
    }
}

fn sums<'a>(jobs: &'a [Meant], desk: &dyn Desk) -> Vec<(SumView<'a>, &'static str)> {
    let mut sums: BTreeMap<(&str, &str, Option<&str>), (SumView<'_>, &'static str)> = BTreeMap::new();
    for job in jobs {
        let ((then, words), currency) = (then(job, desk), job.currency.as_deref());
        let new = || {
            let (kind, example) = (job.kind.as_str(), job.key.as_str());
            (SumView { kind, then, jobs: 0, currency, amount_minor: 0, example }, words)
        };
        let (sum, _) = sums.entry((&job.kind, then, currency)).or_insert_with(new);
        sum.jobs += 1;
        sum.amount_minor += i128::from(job.amount_minor.unwrap_or(0));
    }
    sums.into_values().collect()
}

pub fn resolve(context: &Context, class: Option<String>, note: Option<String>) -> Result<(), CliError> {
    class.as_deref().map(|class| known_class("--class", class)).transpose()?;
    let store = context.load()?.store(false, None)?;
    let jobs = store.doubtful(&class.map_or(Selection::All, Selection::Class))?;
    let sums = sums(&jobs, store.desk().as_ref());
    let lines: Vec<String> = sums.iter().map(|(sum, words)| line(sum, words)).collect();
    let view = MeantView { jobs: jobs.len(), meant: sums.into_iter().map(|(sum, _)| sum).collect() };
    context.out.result(&view, || told(jobs.len(), &lines))?;
    if jobs.is_empty() {
        return Ok(());
    }
    output::talk("type the number of jobs to say it of all of them; anything else changes nothing");
    let answer = answer()?;
    if answer != jobs.len().to_string() {
        let why = format!(
            "nothing was said, and nothing is changed: `{answer}` is not the number of jobs that are meant"
        );
        return Err(Refusal::new(Code::NotAllowed, why).into());
    }
    each(context, &store, &jobs, note.as_deref())
}

fn line(sum: &SumView<'_>, words: &str) -> String {
    let money = match sum.currency {
        Some(currency) => format!(" ({} {currency} in minor units)", sum.amount_minor),
        None => String::new(),
    };
    format!("  {}: {} {words}{money}, {} among them", sum.kind, sum.jobs, sum.example)
}

fn told(jobs: usize, lines: &[String]) -> String {
    if jobs == 0 {
        return "no job that is in doubt since a restore is meant by this".into();
    }
    format!(
        "You say of {jobs} jobs that nothing of them has happened, under any of their wire keys:\n{}\nWhat did happen after \
         all happens twice: look at the provider for each first.",
        lines.join("\n")
    )
}

/// The line that is typed.
fn answer() -> Result<String, CliError> {
    let mut line = Vec::new();
    let io = |error| CliError::Io { what: "the number could not be read".into(), error };
    std::io::stdin().lock().take(ANSWER_MAX).read_until(b'\n', &mut line).map_err(io)?;
    Ok(String::from_utf8_lossy(&line).trim().to_string())
}

/// Each job by itself: what is refused is told, and the rest goes on.
fn each(context: &Context, store: &Store, jobs: &[Meant], note: Option<&str>) -> Result<(), CliError> {
    let mut worst: Option<Code> = None;
    for job in jobs {
        match store.none_applied(job, note.map(str::to_string), &actor()) {
            Ok(state) => act::done(context, store, job.id, &job.key, state)?,
            Err(e @ (StoreError::Refused(_) | StoreError::Row(_))) => {
                context.out.refusal(Some(&job.key), e.code(), &e.to_string());
                if worst.is_none_or(|worst| exit_code(worst) < exit_code(e.code())) {
                    worst = Some(e.code());
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    worst.map_or(Ok(()), |code| Err(CliError::Told(code)))
}
