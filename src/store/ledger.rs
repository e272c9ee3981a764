//! The ledger against its history: every intent and job, a key at a time.
//!
//! The history of each key is folded into what it says of intent and job, and that is compared with the rows. What is not
//! held by it stands in `docs/guarantees.md`, column by column.

use super::StoreError;
use super::audit::Verdict;
use super::facts::{self, COLUMNS, Content, Record, Standing};
use super::history::Action;
use super::totals::{Side, Totals};
use crate::intent::{self, IntentState, hex};
use crate::job::State;
use crate::json::Json;
use rusqlite::{Connection, Row};
use serde::Serialize;

const INTENTS: &str = concat!(
    "SELECT ",
    facts::columns!(),
    ", i.id, i.result, j.id IS NOT NULL, j.kind, j.payload, j.state, j.claimable, j.tries, j.lease_owner IS NOT NULL
  FROM onceward_intents i LEFT JOIN onceward_jobs j ON j.id = i.id ORDER BY i.id"
);
const OF_JOB: &str = "SELECT seq, action, attempt, from_state, to_state, detail, record FROM onceward_history
  WHERE job_id = ?1 ORDER BY seq";

const IN_DOUBT: &str = "SELECT unknown = 1 OR doubt_since_ms IS NOT NULL FROM onceward_intents WHERE id = ?1";

/// Each finds rows that cannot be, with the words for them.
const NEVER: &[(&str, &str)] = &[
    (
        "SELECT h.seq FROM onceward_history h WHERE NOT EXISTS (SELECT 1 FROM onceward_intents i WHERE i.id = h.job_id) LIMIT 1",
        "a row of history belongs to an intent that is not there: row",
    ),
    (
        "SELECT j.id FROM onceward_jobs j WHERE NOT EXISTS (SELECT 1 FROM onceward_intents i WHERE i.id = j.id) LIMIT 1",
        "a job has no intent: job",
    ),
    // Also where the file can only be read, and SQLite's own check knows no CHECK.
    (
        "SELECT id FROM onceward_jobs WHERE claimable NOT IN (0,1) OR due_by_app NOT IN (0,1) OR group_paused NOT IN (0,1)
           OR passed_over NOT IN (0,1) LIMIT 1",
        "a flag is neither 0 nor 1: job",
    ),
    (
        "SELECT id FROM onceward_intents WHERE unknown NOT IN (0,1) OR accepted NOT IN (0,1) OR no_resend NOT IN (0,1)
           OR proved NOT IN (0,1) OR refused_directly NOT IN (0,1) OR earlier_unknown NOT IN (0,1) OR reference_shared NOT IN (0,1) LIMIT 1",
        "a flag is neither 0 nor 1: intent",
    ),
    (
        "SELECT reference FROM onceward_intents WHERE reference IS NOT NULL AND reference_shared = 0
           GROUP BY provider, kind, reference HAVING count(*) > 1 LIMIT 1",
        "two keys of one provider and kind share a reference:",
    ),
    (
        "SELECT key FROM onceward_intents GROUP BY key HAVING count(*) > 1 LIMIT 1",
        "one key has two intents:",
    ),
    (
        "SELECT group_name FROM onceward_jobs WHERE group_name IS NOT NULL
           AND state <> 'waiting' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled' GROUP BY group_name HAVING count(*) > 1 LIMIT 1",
        "two jobs of one group are on their way: group",
    ),
    (
        "SELECT j.id FROM onceward_jobs j JOIN onceward_groups g ON g.name = j.group_name
         WHERE j.state IN ('scheduled','ready') AND (j.sequence > g.passed + 1 OR EXISTS (
           SELECT 1 FROM onceward_jobs w WHERE w.group_name = j.group_name AND w.sequence < j.sequence
             AND w.state IN ('waiting','parked') AND w.passed_over = 0)) LIMIT 1",
        "a job is on its way before its turn: job",
    ),
    (
        "SELECT j.id FROM onceward_jobs j JOIN onceward_groups g ON g.name = j.group_name
         WHERE j.state = 'waiting' AND j.sequence <= g.passed + 1
           AND NOT EXISTS (SELECT 1 FROM onceward_jobs w WHERE w.group_name = j.group_name
             AND w.state <> 'waiting' AND w.state <> 'settled' AND w.state <> 'parked' AND w.state <> 'cancelled')
           AND NOT EXISTS (SELECT 1 FROM onceward_jobs w WHERE w.group_name = j.group_name
             AND w.sequence < j.sequence AND w.state IN ('waiting','parked') AND w.passed_over = 0) LIMIT 1",
        "a job waits though it is its turn: job",
    ),
    (
        "SELECT s.state FROM (SELECT state, count(*) AS n FROM onceward_jobs GROUP BY state) s
         LEFT JOIN onceward_counters c ON c.name = 'jobs:' || s.state WHERE coalesce(c.value, 0) <> s.n LIMIT 1",
        "the figure of jobs is not their number: state",
    ),
    (
        "SELECT c.name FROM onceward_counters c WHERE c.name LIKE 'jobs:%' AND c.value <> 0
           AND NOT EXISTS (SELECT 1 FROM onceward_jobs WHERE state = substr(c.name, 6)) LIMIT 1",
        "a figure counts jobs that are not there:",
    ),
];

/// Checks every intent and job.
pub fn check(
    conn: &Connection,
    verdict: &mut Verdict,
    progress: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    for (query, what) in NEVER {
        let mut statement = conn.prepare(query)?;
        let mut rows = statement.query([])?;
        if let Some(row) = rows.next()? {
            let which = match row.get_ref(0)? {
                rusqlite::types::ValueRef::Integer(n) => n.to_string(),
                other => other.as_str().unwrap_or_default().to_string(),
            };
            verdict.report(None, None, format!("{what} {which}"));
        }
    }
    let mut statement = conn.prepare(INTENTS)?;
    let mut rows = statement.query([])?;
    let mut totals = Totals::default();
    while let Some(row) = rows.next()? {
        let one = match One::read(row) {
            Ok(one) => one,
            Err(StoreError::Row(what)) => {
                let id = row.get(COLUMNS)?;
                verdict.report(None, Some(id), format!("its row cannot be read: {what}"));
                verdict.intents += 1;
                continue;
            }
            Err(e) => return Err(e),
        };
        let fold = Fold::of(conn, one.id, verdict)?;
        one.against(&fold, verdict);
        one.total(&fold, &mut totals, verdict)?;
        if let Some(what) = rest_differs(conn, &one, &fold)? {
            verdict.report(Some(fold.last_seq), Some(one.id), what);
        }
        verdict.intents += 1;
        if verdict.intents.is_multiple_of(1000) {
            progress(verdict.intents);
        }
    }
    totals.differing(|account, currency, ledger, history| {
        let account = account.map_or("no account".to_string(), |account| format!("account {account}"));
        let currency = currency.unwrap_or("no currency");
        verdict.report(
            None,
            None,
            format!("settled for {account} in {currency}: the ledger has {ledger}, the history {history} (minor units)"),
        );
    })?;
    for (currency, total) in verdict.totals.clone() {
        if total.ledger_minor != total.history_minor {
            let (ledger, history) = (total.ledger_minor, total.history_minor);
            verdict.report(
                None,
                None,
                format!(
                    "settled in {currency}: the ledger has {ledger}, the history {history} (minor units)"
                ),
            );
        }
    }
    Ok(())
}

/// What the history says of one key.
#[derive(Default)]
struct Fold {
    rows: u64,
    last_seq: i64,
    state: Option<State>,
    attempts: i64,
    content: Option<Content>,
    first_wire_key: Option<String>,
    standing: Option<Standing>,
    /// The provider's words at the settlement.
    result: Option<String>,
    settled: bool,
    pruned: bool,
    /// The generation and SHA-256 of its request, as far as the rows tell: older versions tell only what is in doubt.
    frozen: Option<(i64, Option<String>)>,
    /// What the last row says of everything else, and of the limit of tries; `None`: an older version's.
    held: Option<String>,
    max: Option<i64>,
}

impl Fold {
    fn of(conn: &Connection, id: i64, verdict: &mut Verdict) -> Result<Fold, StoreError> {
        let mut fold = Fold::default();
        let mut statement = conn.prepare_cached(OF_JOB)?;
        let mut rows = statement.query([id])?;
        while let Some(row) = rows.next()? {
            match fold.take(row) {
                Ok(Ok(())) => {}
                Ok(Err(what)) => verdict.report(Some(fold.last_seq), Some(id), what),
                Err(StoreError::Row(_)) => {
                    verdict.report(Some(fold.last_seq), Some(id), "a text of it is not UTF-8");
                }
                Err(e) => return Err(e),
            }
        }
        if fold.rows == 0 {
            verdict.report(None, Some(id), "the intent has no row of history");
        }
        Ok(fold)
    }

    fn take(&mut self, row: &Row<'_>) -> Result<Result<(), String>, StoreError> {
        self.rows += 1;
        self.last_seq = row.get(0)?;
        let word: String = row.get(1)?;
        let Some(action) = Action::parse(&word) else {
            return Ok(Err(format!("its action `{word}` is none")));
        };
        if (action == Action::Enqueue) != (self.rows == 1) {
            return Ok(Err("a key's history begins with its one enqueue".into()));
        }
        if let Some(attempt) = row.get::<_, Option<i64>>(2)? {
            let due = self.attempts + 1;
            self.attempts = attempt;
            if attempt != due {
                return Ok(Err(format!("it is attempt {attempt}, and {due} was next")));
            }
        }
        let record = match row.get::<_, Option<String>>(6)?.map(|text| serde_json::from_str(&text)) {
            None => Record::default(),
            Some(Ok(record)) => record,
            Some(Err(e)) => return Ok(Err(format!("its record cannot be read: {e}"))),
        };
        self.pruned |= record.pruned;
        if (record.held.is_some() && action != Action::Note) || record.frozen_sha256.is_some() {
            let generation = record.standing.as_ref().map_or(1, |s| s.generation);
            self.frozen = Some((generation, record.frozen_sha256));
        }
        if record.held.is_some() || action != Action::Note {
            (self.held, self.max) = (record.held, record.max);
        }
        self.content = record.content.or(self.content.take());
        if action == Action::Note {
            return Ok(Ok(()));
        }
        let state = |word: Option<String>| word.as_deref().and_then(State::parse);
        let (from, to) = (state(row.get(3)?), state(row.get(4)?));
        if action == Action::Enqueue {
            self.first_wire_key = record.standing.as_ref().and_then(|s| s.wire_key.clone());
        }
        // Older versions ended a try under a call that was out with a row that does not name it.
        if row.get::<_, Option<i64>>(2)?.is_none()
            && from == Some(State::Running)
            && to == Some(State::Settled)
        {
            self.attempts += 1;
        }
        self.standing = Some(record.standing.unwrap_or_else(|| Standing::usual(to)));
        if to == Some(State::Settled) && from != to {
            self.settled = true;
            let replied = matches!(action, Action::Request | Action::Lookup | Action::LateResult);
            self.result = if replied { row.get(5)? } else { None };
        }
        self.state = to;
        Ok(Ok(()))
    }
}

/// One key as the tables have it.
struct One {
    id: i64,
    content: Content,
    standing: Standing,
    result: Option<String>,
    job: Option<JobRow>,
}

struct JobRow {
    kind: String,
    payload: String,
    state: Option<State>,
    claimable: bool,
    tries: i64,
    leased: bool,
}

impl One {
    fn read(row: &Row<'_>) -> Result<One, StoreError> {
        let (content, standing) = facts::read(row)?;
        let at = |i: usize| COLUMNS + i;
        let job = match row.get(at(2))? {
            false => None,
            true => {
                let state: String = row.get(at(5))?;
                Some(JobRow {
                    kind: row.get(at(3))?,
                    payload: row.get(at(4))?,
                    state: State::parse(&state),
                    claimable: row.get(at(6))?,
                    tries: row.get(at(7))?,
                    leased: row.get(at(8))?,
                })
            }
        };
        Ok(One { id: row.get(at(0))?, content, standing, result: row.get(at(1))?, job })
    }

    fn against(&self, fold: &Fold, verdict: &mut Verdict) {
        let id = Some(self.id);
        let seq = Some(fold.last_seq).filter(|seq| *seq > 0);
        let settled = self.standing.state == IntentState::Settled.as_str();
        match (&fold.content, &fold.standing) {
            (Some(content), Some(standing)) => {
                if let Some(what) = differs(content, &self.content) {
                    verdict.report(seq, id, what);
                }
                if let Some(what) = self.standing_differs(standing, fold) {
                    verdict.report(seq, id, what);
                }
            }
            _ => verdict.uncovered += 1,
        }
        if settled != fold.settled {
            verdict.report(
                seq,
                id,
                if settled {
                    "it is settled, and no row of history settled it"
                } else {
                    "the history settled it, and it is not settled"
                },
            );
        }
        // Pruning takes the words from both.
        let result = fold.result.as_ref().filter(|_| settled);
        if self.result.as_ref() != result && !(fold.pruned && self.result.is_none()) {
            verdict.report(seq, id, "the provider's answer (result) is not the one that settled it");
        }
        match &self.job {
            None if fold.pruned => verdict.pruned += 1,
            None => verdict.report(seq, id, "its job is gone, and no prune is on record"),
            Some(_) if fold.pruned => verdict.report(seq, id, "it was pruned, and has a job all the same"),
            Some(job) => {
                if let Some(what) = self.job_differs(job, fold) {
                    verdict.report(seq, id, what);
                }
            }
        }
    }

    /// Adds it to the sums, from either side.
    fn total(&self, fold: &Fold, totals: &mut Totals, verdict: &mut Verdict) -> Result<(), StoreError> {
        let told = fold.content.as_ref().unwrap_or(&self.content);
        let mut add = |side: Side, content: &Content| {
            let (account, currency) = (content.account.as_deref(), content.currency.as_deref());
            totals.add(side, account, currency, content.amount_minor.unwrap_or(0))
        };
        if self.standing.state == IntentState::Settled.as_str() {
            add(Side::Ledger, &self.content)?;
            let currency = self.content.currency.clone().unwrap_or_default();
            let total = verdict.totals.entry(currency).or_default();
            total.settled += 1;
            total.ledger_minor += i128::from(self.content.amount_minor.unwrap_or(0));
        }
        if fold.settled {
            add(Side::History, told)?;
            let currency = told.currency.clone().unwrap_or_default();
            verdict.totals.entry(currency).or_default().history_minor +=
                i128::from(told.amount_minor.unwrap_or(0));
        }
        Ok(())
    }

    fn standing_differs(&self, standing: &Standing, fold: &Fold) -> Option<String> {
        let mut told = Standing {
            wire_key: standing.wire_key.clone().or(fold.first_wire_key.clone()),
            ..standing.clone()
        };
        // A claim writes no row of its own: what it claimed may have been sent.
        if self.job.as_ref().is_some_and(|job| job.state == Some(State::Running)) {
            told.state = IntentState::Requested.as_str().to_string();
        }
        differs(&told, &self.standing)
    }

    fn job_differs(&self, job: &JobRow, fold: &Fold) -> Option<String> {
        let Some(state) = job.state else { return Some("its job's state is none".into()) };
        let told = fold.state.map_or("nothing", State::as_str);
        if !follows(fold.state, state, self.standing.state == IntentState::Requested.as_str()) {
            return Some(format!("its job is {state}, and the history left it {told}"));
        }
        if (state == State::Running) != job.leased {
            return Some(format!("its job is {state}, which does not go with its lease"));
        }
        if (state == State::Ready && !job.claimable)
            || (job.claimable && !matches!(state, State::Ready | State::Unknown))
        {
            return Some(format!(
                "its job is {state}, which does not go with its place in the claim's index"
            ));
        }
        let tries = fold.attempts + i64::from(state == State::Running);
        if job.tries != tries {
            return Some(format!("its job counts {} tries, the history {tries}", job.tries));
        }
        if job.kind != self.content.kind {
            return Some(format!(
                "its job is of kind {}, the intent of kind {}",
                job.kind, self.content.kind
            ));
        }
        let Ok(payload) = Json::parse(&job.payload) else { return Some("its payload is no JSON".into()) };
        if hex(&intent::payload_hash(&payload)) != self.content.payload_sha256 {
            return Some("its payload is not the one that was asked for".into());
        }
        let content = intent::Content {
            kind: &self.content.kind,
            payload: &payload,
            account: self.content.account.as_deref(),
            amount_minor: self.content.amount_minor,
            currency: self.content.currency.as_deref(),
        };
        (hex(&content.hash()) != self.content.content_sha256)
            .then(|| "kind, payload, account, amount and currency do not give its content hash".to_string())
    }
}

/// What else the last row says of the intent and its job: the frozen request of the present generation, and what is held by
/// one hash.
fn rest_differs(conn: &Connection, one: &One, fold: &Fold) -> Result<Option<String>, StoreError> {
    let running = one.job.as_ref().is_some_and(|job| job.state == Some(State::Running));
    if fold.held.is_some() && facts::held(conn, one.id)? != fold.held {
        return Ok(Some(
            "its working figures (sends, window, look-ups, doubts, earlier generations, the job's place, tries and last \
             words) are not what its last row left"
                .into(),
        ));
    }
    let max = facts::max_attempts(conn, one.id)?;
    if fold.held.is_some() && !running && max != fold.max {
        return Ok(Some("its limit of tries is not what its last row left".into()));
    }
    let settled = one.standing.state == IntentState::Settled.as_str();
    let Some((generation, told)) = &fold.frozen else { return Ok(None) };
    if settled || fold.pruned || one.standing.generation != *generation {
        return Ok(None);
    }
    let in_doubt: bool = conn.prepare_cached(IN_DOUBT)?.query_row([one.id], |row| row.get(0))?;
    // A claim renders what was not rendered yet, and addresses anew what is not in doubt, and writes no row.
    let rendered = told.as_ref().is_some_and(|told| !told.starts_with(facts::UNRENDERED));
    if running && !(in_doubt && rendered) {
        return Ok(None);
    }
    let found = facts::frozen_sha256(conn, one.id)?;
    Ok((found != *told).then(|| "its frozen request is not the one that its history knows".to_string()))
}

/// May a job be in `now` when its last row of history left it in `then`? Claims, promotions and turns in a group write none.
fn follows(then: Option<State>, now: State, in_doubt: bool) -> bool {
    let open = matches!(now, State::Scheduled | State::Ready | State::Waiting | State::Running);
    match then {
        None => false,
        Some(State::Settled | State::Parked | State::Cancelled) => Some(now) == then,
        Some(State::Unknown) => matches!(now, State::Unknown | State::Running),
        Some(State::Waiting) => open || (now == State::Unknown && in_doubt),
        Some(State::Running) => now == State::Running,
        Some(State::Scheduled | State::Ready) => open,
    }
}

/// The first field in which the two differ, in words.
fn differs<T: Serialize>(told: &T, found: &T) -> Option<String> {
    let (told, found) = (serde_json::to_value(told).ok()?, serde_json::to_value(found).ok()?);
    let (told, found) = (told.as_object()?, found.as_object()?);
    let show = |value: Option<&serde_json::Value>| value.map_or("nothing".to_string(), ToString::to_string);
    told.keys().chain(found.keys()).find(|name| told.get(*name) != found.get(*name)).map(|name| {
        format!("{name} is {}, and the history says {}", show(found.get(name)), show(told.get(name)))
    })
}
