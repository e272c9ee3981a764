//! A job whose row cannot be read, or that the file's own rules do not let be written, is set aside for a person, so that
//! it keeps nobody from the rest.
//!
//! The statements here read and write nothing of what may be wrong with it. Whatever may have been sent stays in doubt,
//! and what its call brought is kept in the history. Mended, the job is replayed or resolved as any parked one.

use super::history::{Action, Entry};
use super::record::Recorder;
use super::rows::{self, shown, shown_if_any};
use super::{Claim, Desk, Owner, Recorded, Store, StoreError, Tx, history, holds, order};
use crate::decide::OnParked;
use crate::job::{JobId, Reason, State, Step};
use crate::outcome::{Class, Outcome};
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use std::sync::Arc;

/// What is known of the call that was out for it, if one was.
#[derive(Clone, Copy)]
pub(super) enum CallOut<'a> {
    /// It was not begun.
    NotBegun,
    /// Its worker died.
    Crashed,
    /// It ended so.
    Ended(&'a Outcome),
}

/// What of the row is needed, as far as it can be read.
struct Aside {
    state: Option<State>,
    reason: Option<Reason>,
    tries: Option<u32>,
    step: Option<String>,
    kind: String,
    group: Option<String>,
}

const ASIDE: &str =
    "SELECT state, park_reason, tries, lease_step, kind, group_name FROM onceward_jobs WHERE id = ?1";
const PARK: &str = "UPDATE onceward_jobs SET state = 'parked', claimable = 0, park_reason = 'invalid', last_error = :why,
    lease_owner = NULL, lease_expires_ms = NULL, lease_started_ms = NULL, lease_step = NULL, lease_phase = NULL,
    lease_boot_ms = NULL, lease_process = NULL, passed_over = 0, updated_ms = :now
  WHERE id = :id";
/// Where even that is refused: out of the claim's sight, and no more.
const HIDE: &str = "UPDATE onceward_jobs SET claimable = 0, run_after_ms = 9223372036854775807 WHERE id = ?1";
const SENT: &str = "UPDATE onceward_intents SET state = 'requested', unknown = 1, sends = max(sends, 0) + 1,
    first_sent_ms = coalesce(first_sent_ms, (SELECT lease_started_ms FROM onceward_jobs WHERE id = :id), :now),
    last_sent_ms = :now, last_sent_boot_ms = NULL, not_found = 0, not_found_ms = NULL, not_found_boot_ms = NULL
  WHERE id = :id AND state <> 'settled'";
const NOT_SENT: &str =
    "UPDATE onceward_intents SET state = 'pending' WHERE id = ?1 AND state = 'requested' AND unknown = 0
       AND doubt_since_ms IS NULL";
const IN_DOUBT: &str =
    "SELECT state IN ('pending','rejected','cancelled') FROM onceward_intents WHERE id = ?1";
const PASS: &str = "UPDATE onceward_jobs SET passed_over = 1 WHERE id = ?1 AND state = 'parked'";

fn aside(row: &Row<'_>) -> Result<Aside, rusqlite::Error> {
    let word = |i: usize| shown_if_any(row, i);
    Ok(Aside {
        state: word(0)?.as_deref().and_then(State::parse),
        reason: word(1)?.as_deref().and_then(Reason::parse),
        tries: row.get::<_, i64>(2)?.try_into().ok(),
        step: word(3)?,
        kind: shown(row, 4)?,
        group: word(5)?,
    })
}

/// Parks the job, whatever is wrong with its row: `why` says what.
pub(super) fn set_aside(
    tx: &Tx<'_>,
    desk: &dyn Desk,
    id: JobId,
    why: &str,
    actor: &str,
    call: CallOut<'_>,
) -> Result<(), StoreError> {
    let Some(found) = tx.conn().prepare_cached(ASIDE)?.query_row([id.0], aside).optional()? else {
        return Ok(());
    };
    match tx.part(|| park(tx, &found, id, why, actor, call)) {
        Err(StoreError::Row(_)) => drop(tx.conn().prepare_cached(HIDE)?.execute([id.0])?),
        other => other?,
    }
    holds::give_up_probe(tx, id)?;
    if let Some(group) = &found.group {
        // The group may be what is wrong.
        match tx.part(|| let_group_go(tx, desk, id, &found.kind, group)) {
            Ok(()) | Err(StoreError::Row(_)) => {}
            Err(e) => return Err(e),
        }
    }
    let why = why.to_string();
    tx.say(move || log::error!("{id} is set aside for a person: {why}"));
    Ok(())
}

fn park(
    tx: &Tx<'_>,
    found: &Aside,
    id: JobId,
    why: &str,
    actor: &str,
    call: CallOut<'_>,
) -> Result<(), StoreError> {
    let conn = tx.conn();
    let out = found.state == Some(State::Running);
    let sent = out && found.step.as_deref() == Some(Step::Send.as_str());
    let begun = !matches!(call, CallOut::NotBegun);
    if sent && begun {
        conn.prepare_cached(SENT)?.execute(named_params! { ":id": id.0, ":now": tx.now().0 })?;
    } else if sent {
        conn.prepare_cached(NOT_SENT)?.execute([id.0])?;
    }
    conn.prepare_cached(PARK)?.execute(named_params! { ":id": id.0, ":why": why, ":now": tx.now().0 })?;
    rows::moved(tx, found.state, Some(State::Parked));
    if let Some(reason) = found.reason.filter(|_| found.state == Some(State::Parked)) {
        tx.count(format!("parked:{reason}"), -1);
    }
    tx.count(format!("parked:{}", Reason::Invalid), 1);
    let mut entry = Entry::new(id, Action::Park, tx.now(), actor);
    (entry.from, entry.to, entry.error) = (found.state, Some(State::Parked), Some(why.to_string()));
    entry.detail = Some(Reason::Invalid.to_string());
    if out {
        entry.attempt = found.tries;
        match call {
            CallOut::NotBegun => {}
            CallOut::Crashed => entry.class = Some(Class::Crashed),
            CallOut::Ended(outcome) => tell(&mut entry, why, outcome),
        }
    }
    append(tx, &entry)
}

/// The call's end in the row of whoever cannot take it as it is.
fn tell(entry: &mut Entry, why: &str, outcome: &Outcome) {
    let reference =
        outcome.reference.as_deref().map(|r| format!(", with the reference {r}")).unwrap_or_default();
    let words = outcome.error.as_deref().map(|e| format!(" ({e})")).unwrap_or_default();
    entry.error = Some(format!("{why}. Its call ended as {}{reference}{words}", outcome.class));
    (entry.class, entry.phase, entry.http_status) = (Some(outcome.class), outcome.phase, outcome.http_status);
    entry.started = Some(outcome.started);
    entry.detail = outcome.result.clone().or(entry.detail.take());
}

/// Appends a row, and if the intent cannot be read, without what the ledger says of it.
fn append(tx: &Tx<'_>, entry: &Entry) -> Result<(), StoreError> {
    match history::append(tx, entry) {
        Err(StoreError::Row(_)) => history::append(tx, &Entry { record: Some("{}".into()), ..entry.clone() }),
        other => other,
    }
}

/// What a restore means for a job that was set aside: its intent was changed, and so there is a row that says it.
pub(super) fn note_doubt(tx: &Tx<'_>, id: JobId, why: &str, actor: &str) -> Result<(), StoreError> {
    let mut entry = Entry::new(id, Action::Release, tx.now(), actor);
    (entry.from, entry.to) = (Some(State::Parked), Some(State::Parked));
    entry.detail = Some(why.to_string());
    append(tx, &entry)
}

/// Its group waits for it, unless its kind lets the group go on past what certainly had no effect.
fn let_group_go(tx: &Tx<'_>, desk: &dyn Desk, id: JobId, kind: &str, group: &str) -> Result<(), StoreError> {
    let skips = desk.kind(kind).is_some_and(|kind| kind.terms.on_parked == OnParked::Skip);
    let certain: Option<bool> =
        tx.conn().prepare_cached(IN_DOUBT)?.query_row([id.0], |row| row.get(0)).optional()?;
    if skips && certain == Some(true) {
        tx.conn().prepare_cached(PASS)?.execute([id.0])?;
    }
    order::advance(tx, group)
}

const STATE: &str = "SELECT state FROM onceward_jobs WHERE id = ?1";

impl Store {
    /// The outcome of a job that cannot be recorded as it should, for what stands in its row: kept in the history.
    pub(super) fn record_aside(
        &self,
        shared: &Arc<(Claim, Outcome)>,
        why: &str,
    ) -> Result<Recorded, StoreError> {
        let (desk, inside, why) = (Arc::clone(&self.desk), Arc::clone(shared), why.to_string());
        self.write(move |tx| {
            let (claim, outcome) = &*inside;
            let (id, owner): (JobId, &Owner) = (claim.job().id, &claim.owner);
            if Recorder::holds(tx, id, owner, claim.token)? {
                set_aside(tx, desk.as_ref(), id, &why, owner.actor(), CallOut::Ended(outcome))?;
                return Ok(Recorded::As { state: State::Parked, due: None });
            }
            let state = tx.conn().prepare_cached(STATE)?.query_row([id.0], |row| shown(row, 0)).optional()?;
            let state = state.as_deref().and_then(State::parse);
            let mut entry = Entry::new(id, Action::LateResult, tx.now(), owner.actor());
            (entry.from, entry.to) = (state, state);
            tell(&mut entry, &why, outcome);
            append(tx, &entry)?;
            Ok(Recorded::Late)
        })
    }

    /// The jobs whose rows cannot be read: how many, and the first `most` with what is wrong. Reads the whole file.
    pub fn unreadable(&self, most: usize) -> Result<(u64, Vec<(JobId, String)>), StoreError> {
        rows::unreadable(&*self.reader()?, most)
    }
}

/// Runs `work` for one job. If `careful`, in a savepoint, and a row of its that cannot be used sets it aside: `None`.
pub(super) fn apart<T>(
    tx: &Tx<'_>,
    desk: &dyn Desk,
    id: JobId,
    actor: &str,
    careful: bool,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    if !careful {
        return work().map(Some);
    }
    match tx.part(work) {
        Err(StoreError::Row(why)) => {
            set_aside(tx, desk, id, &why, actor, CallOut::NotBegun)?;
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Whether a job is there at all, whatever stands in its row.
pub(super) fn is_there(conn: &Connection, id: JobId) -> Result<bool, StoreError> {
    Ok(conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM onceward_intents WHERE id = ?1)")?
        .query_row([id.0], |row| row.get(0))?)
}
