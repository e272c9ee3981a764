//! `POST /v1/jobs/batch`: JSON Lines in, one job a line; JSON Lines out, one answer a line, in the same order.
//!
//! It is an import over HTTP, with the same lines, bounds and refusals: a bad line is answered with its error and holds
//! up no other; what was stored stays, and its key makes the same line a duplicate when the batch is sent again. Memory
//! is bounded whatever the body: some hundred jobs, and the answers that the client has not read yet.

use super::App;
use super::api::{Ask, put, to_json};
use super::message::{Content, Problem, Response, cut};
use super::wire::{Body, Out};
use crate::door::{BATCH_BYTES, BATCH_JOBS, Line, Lines, job_of_line};
use crate::job::{Code, NewJob, Refusal};
use crate::view;
use serde::Serialize;
use std::io::BufReader;
use std::sync::Arc;

/// The most lines of one batch: what is beyond it belongs into a further request.
const MOST_LINES: u64 = 100_000;

const TYPES: &[&str] = &[
    "application/x-ndjson",
    "application/jsonl",
    "application/json-lines",
    "application/json",
    "text/plain",
];

/// The route.
pub fn take(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    ask.no_query()?;
    ask.check_type(TYPES)?;
    let (app, actor, longest) = (Arc::clone(ask.app), ask.actor.clone(), ask.most());
    let write = move |body: &mut Body, out: &mut Out| {
        let mut batch = Batch { app: &app, actor, out, answers: Vec::new(), jobs: Vec::new(), bytes: 0 };
        batch.all(Lines::new(BufReader::with_capacity(64 * 1024, body), longest))
    };
    Ok(Response::new(200, "application/x-ndjson", Content::Written(Box::new(write))))
}

struct Batch<'a> {
    app: &'a App,
    actor: String,
    out: &'a mut Out,
    /// Lines that have no answer yet: refused ones with their refusal, good ones with none, in order.
    answers: Vec<(u64, Option<Refusal>)>,
    /// The good ones' jobs.
    jobs: Vec<NewJob>,
    bytes: usize,
}

#[derive(Serialize)]
struct StoredLine<'a> {
    line: u64,
    #[serde(flatten)]
    enqueued: view::EnqueuedView<'a>,
}

#[derive(Serialize)]
struct RefusedLine<'a> {
    line: u64,
    error: ErrorView<'a>,
}

#[derive(Serialize)]
struct ErrorView<'a> {
    code: &'a str,
    message: &'a str,
}

impl Batch<'_> {
    fn all(&mut self, mut lines: Lines<BufReader<&mut Body>>) -> Result<(), Problem> {
        let mut number = 0;
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => return self.store(),
                // What came before it is whole, and stays. Half a line never counts.
                Err(e) => {
                    self.store()?;
                    let problem = cut(&e);
                    return self.refused(number + 1, problem.code(), problem.detail());
                }
            };
            number = line.number;
            if number > MOST_LINES {
                self.store()?;
                let why = format!("a batch has at most {MOST_LINES} lines: send the rest in another one");
                return self.refused(number, Code::TooLarge.as_str(), &why);
            }
            self.read(line);
            if self.answers.len() >= BATCH_JOBS || self.bytes >= BATCH_BYTES {
                self.store()?;
            }
        }
    }

    fn read(&mut self, line: Line) {
        match line.text.and_then(|text| job_of_line(&self.app.config, &text)) {
            Ok(None) => {}
            Ok(Some(job)) => {
                self.bytes += job.payload.len();
                self.jobs.push(job);
                self.answers.push((line.number, None));
            }
            Err(refusal) => self.answers.push((line.number, Some(refusal))),
        }
    }

    /// Stores what has gathered, and answers it once it is on disk.
    fn store(&mut self) -> Result<(), Problem> {
        self.bytes = 0;
        let (jobs, answers) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.answers));
        let stored = if jobs.is_empty() {
            Vec::new()
        } else {
            let stored = self.app.store.enqueue_many(jobs, &self.actor)?;
            self.app.worker.wake();
            stored
        };
        let mut stored = stored.into_iter();
        for (line, refusal) in answers {
            let answer = refusal.map_or_else(|| stored.next(), |refusal| Some(Err(refusal)));
            match answer {
                Some(Ok(enqueued)) => {
                    self.put(&StoredLine { line, enqueued: view::enqueued(&enqueued) })?;
                }
                Some(Err(refusal)) => self.refused(line, refusal.code.as_str(), &refusal.message)?,
                // The store answers each job that it was given.
                None => return Err(Problem::new(500, "internal", "the store gave too few answers")),
            }
        }
        Ok(())
    }

    fn refused(&mut self, line: u64, code: &str, message: &str) -> Result<(), Problem> {
        self.put(&RefusedLine { line, error: ErrorView { code, message } })
    }

    fn put(&mut self, view: &impl Serialize) -> Result<(), Problem> {
        let mut bytes = to_json(view)?;
        bytes.push(b'\n');
        put(self.out, &bytes)
    }
}
