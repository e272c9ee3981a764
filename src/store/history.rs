//! The history: one row a decision, appended and chained.
//!
//! Each row keeps the hash of its words (error and detail, which pruning may null) and the chain's: SHA-256 over the
//! previous chain and over everything else of the row, that hash included. The chain's head is read inside each
//! transaction, so that two processes can't fork it.

use super::{StoreError, Tx, facts, rows};
use crate::clock::Ms;
use crate::intent::Hash;
use crate::job::{JobId, State};
use crate::outcome::{Class, Phase, words};
use rusqlite::{Connection, OptionalExtension, named_params};
use sha2::{Digest, Sha256};

words! {
    /// What a history row is about.
    Action {
        /// A job was asked for.
        Enqueue = "enqueue",
        /// A request was sent.
        Request = "request",
        /// The provider was asked.
        Lookup = "lookup",
        /// The worker died over it.
        Crash = "crash",
        /// Set aside without an attempt.
        Park = "park",
        /// Back to work.
        Replay = "replay",
        /// A person's word on an unknown.
        Resolve = "resolve",
        /// Given up.
        Cancel = "cancel",
        /// The provider's own later word.
        Confirm = "confirm",
        /// The result of an attempt whose lease was gone.
        LateResult = "late_result",
        /// A remark.
        Note = "note",
        /// A claim given back, or a job put off, without an attempt.
        Release = "release",
    }
}

/// One row.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its number in the file; 0 before it is written.
    pub seq: i64,
    /// The job.
    pub job: JobId,
    /// What it is about.
    pub action: Action,
    /// The try's number, for attempts.
    pub attempt: Option<u32>,
    /// State before.
    pub from: Option<State>,
    /// State after.
    pub to: Option<State>,
    /// How the attempt ended.
    pub class: Option<Class>,
    /// How far it got.
    pub phase: Option<Phase>,
    /// The reply's status.
    pub http_status: Option<u16>,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// What else there is to say: the reply, a person's words.
    pub detail: Option<String>,
    /// When it is due next.
    pub run_after: Option<Ms>,
    /// When the attempt began.
    pub started: Option<Ms>,
    /// When it was decided.
    pub at: Ms,
    /// Who did it: `worker:host:pid`, `cli:host:pid`.
    pub actor: String,
    /// What the ledger says from here on, as JSON (`facts.rs`); written when it is appended.
    pub record: Option<String>,
    /// What was asked for changes with this row: the record has all of it. Not kept itself.
    pub content_changed: bool,
}

impl Entry {
    /// A row about `job` with nothing but its action.
    pub fn new(job: JobId, action: Action, at: Ms, actor: &str) -> Entry {
        Entry {
            seq: 0,
            job,
            action,
            attempt: None,
            from: None,
            to: None,
            class: None,
            phase: None,
            http_status: None,
            error: None,
            detail: None,
            run_after: None,
            started: None,
            at,
            actor: actor.to_string(),
            record: None,
            content_changed: false,
        }
    }

    /// SHA-256 over the words, which are the part that pruning may take away.
    pub fn content_hash(&self) -> Hash {
        digest([self.error.as_deref(), self.detail.as_deref()])
    }

    /// What the chain takes up of this row: its words' hash and every other field. So a row whose words were pruned is
    /// still held by the chain in all the rest.
    fn seal(&self) -> Hash {
        let number = |n: Option<i64>| n.map(|n| n.to_string());
        let fields = [
            number(Some(self.job.0)),
            Some(self.action.as_str().to_string()),
            number(self.attempt.map(i64::from)),
            self.from.map(|s| s.to_string()),
            self.to.map(|s| s.to_string()),
            self.class.map(|c| c.to_string()),
            self.phase.map(|p| p.to_string()),
            number(self.http_status.map(i64::from)),
            number(self.run_after.map(|at| at.0)),
            number(self.started.map(|at| at.0)),
            number(Some(self.at.0)),
            Some(self.actor.clone()),
            self.record.clone(),
        ];
        seal(fields.iter().map(Option::as_deref), &self.content_hash())
    }
}

/// SHA-256 over fields, each with its length before it.
pub(super) fn digest<'a>(fields: impl IntoIterator<Item = Option<&'a str>>) -> Hash {
    let mut hash = Sha256::new();
    for field in fields {
        match field {
            Some(text) => {
                hash.update((text.len() as u64 + 1).to_be_bytes());
                hash.update(text.as_bytes());
            }
            None => hash.update(0u64.to_be_bytes()),
        }
    }
    hash.finalize().into()
}

/// A row's fields, all but the words, in the order of the table, and the words' hash.
pub(super) fn seal<'a>(fields: impl IntoIterator<Item = Option<&'a str>>, content: &Hash) -> Hash {
    let mut hash = Sha256::new();
    hash.update(digest(fields));
    hash.update(content);
    hash.finalize().into()
}

/// The next link of the chain.
pub fn link(previous: &[u8], row: &Hash) -> Hash {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(row);
    hash.finalize().into()
}

const HEAD: &str = "SELECT chain FROM onceward_history ORDER BY seq DESC LIMIT 1";
const APPEND: &str = "INSERT INTO onceward_history (job_id, action, attempt, from_state, to_state, class, phase,
    http_status, error, detail, run_after_ms, started_ms, at_ms, actor, record, content_hash, chain)
  VALUES (:job, :action, :attempt, :from, :to, :class, :phase, :status, :error, :detail, :run_after, :started, :at,
    :actor, :record, :content, :chain)";

/// Appends a row, with what the ledger says of the intent by now: whoever changes an intent does it before.
pub fn append(tx: &Tx<'_>, entry: &Entry) -> Result<(), StoreError> {
    let record = match &entry.record {
        None => facts::record(tx.conn(), entry)?,
        given => given.clone(),
    };
    let entry = &Entry { record, ..entry.clone() };
    let previous: Option<Vec<u8>> =
        tx.conn().prepare_cached(HEAD)?.query_row([], |row| row.get(0)).optional()?;
    let content = entry.content_hash();
    let chain = link(&previous.unwrap_or_default(), &entry.seal());
    tx.conn().prepare_cached(APPEND)?.execute(named_params! {
        ":job": entry.job.0, ":action": entry.action.as_str(), ":attempt": entry.attempt,
        ":from": entry.from.map(State::as_str), ":to": entry.to.map(State::as_str),
        ":class": entry.class.map(Class::as_str), ":phase": entry.phase.map(Phase::as_str),
        ":status": entry.http_status, ":error": entry.error, ":detail": entry.detail,
        ":run_after": entry.run_after.map(|at| at.0), ":started": entry.started.map(|at| at.0), ":at": entry.at.0,
        ":actor": entry.actor, ":record": entry.record, ":content": content.as_slice(), ":chain": chain.as_slice(),
    })?;
    Ok(())
}

const OF_JOB: &str =
    "SELECT seq, job_id, action, attempt, from_state, to_state, class, phase, http_status, error, detail,
    run_after_ms, started_ms, at_ms, actor, record
  FROM onceward_history WHERE job_id = ?1 ORDER BY seq";

/// A job's rows, oldest first.
pub fn of_job(conn: &Connection, id: JobId) -> Result<Vec<Entry>, StoreError> {
    let mut statement = conn.prepare_cached(OF_JOB)?;
    let mut rows = statement.query([id.0])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(read(row)?);
    }
    Ok(entries)
}

/// A row for whoever shows it: what cannot be read of it is left out or replaced, for the audit tells of that.
pub(super) fn read(row: &rusqlite::Row<'_>) -> Result<Entry, StoreError> {
    let text = |i: usize| rows::shown_if_any(row, i);
    let word = rows::shown(row, 2)?;
    let action = Action::parse(&word);
    let unknown = action.is_none().then(|| format!("its action `{word}` is none that this program knows"));
    Ok(Entry {
        seq: row.get(0)?,
        job: JobId(row.get(1)?),
        action: action.unwrap_or(Action::Note),
        attempt: row.get::<_, Option<i64>>(3)?.and_then(|n| n.try_into().ok()),
        from: text(4)?.as_deref().and_then(State::parse),
        to: text(5)?.as_deref().and_then(State::parse),
        class: text(6)?.as_deref().and_then(Class::parse),
        phase: text(7)?.as_deref().and_then(Phase::parse),
        http_status: row.get::<_, Option<i64>>(8)?.and_then(|n| n.try_into().ok()),
        error: unknown.or(text(9)?),
        detail: text(10)?,
        run_after: row.get::<_, Option<i64>>(11)?.map(Ms),
        started: row.get::<_, Option<i64>>(12)?.map(Ms),
        at: Ms(row.get(13)?),
        actor: rows::shown(row, 14)?,
        record: text(15)?,
        content_changed: false,
    })
}
