//! Rows to types and back. A row that the types do not know is an error, never a guess.

use super::{StoreError, Tx};
use crate::clock::Ms;
use crate::intent::{Earlier, Frozen, Generation, Intent, IntentState, Scope};
use crate::job::{Job, JobId, Key, Lease, Reason, State};
use crate::outcome::Class;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Row, named_params};

/// The columns of a load, so that each is found by its place and not, row after row, by comparing names.
macro_rules! columns {
    ($first:ident = $first_sql:literal, $($name:ident = $sql:literal,)*) => {
        #[derive(Clone, Copy)]
        enum Column { $first, $($name),* }

        impl Column {
            fn name(self) -> &'static str {
                match self {
                    Column::$first => $first_sql,
                    $(Column::$name => $sql),*
                }
            }
        }

        /// One job with its intent. A pruned job has no row of its own any more, hence the outer join.
        const LOAD: &str = concat!("SELECT ", $first_sql, $(", ", $sql,)* "
  FROM onceward_intents i
  LEFT JOIN onceward_jobs j ON j.id = i.id
  LEFT JOIN onceward_owners o ON o.nonce = j.lease_owner
  WHERE i.id = ?1");
    };
}

/// One column of a loaded row.
fn get<T: FromSql>(row: &Row<'_>, column: Column) -> Result<T, rusqlite::Error> {
    row.get(column as usize)
}

columns! {
    Id = "i.id", Key = "i.key", Kind = "i.kind", IntentState = "i.state", Number = "i.generation",
    WireKey = "i.wire_key", EarlierUnknown = "i.earlier_unknown", Provider = "i.provider",
    Account = "i.account", AmountMinor = "i.amount_minor", Currency = "i.currency",
    FrozenMethod = "i.frozen_method", FrozenPath = "i.frozen_path", FrozenHeaders = "i.frozen_headers",
    FrozenBody = "i.frozen_body", FrozenLookup = "i.frozen_lookup", ScopeSend = "i.scope_send",
    ScopeLookup = "i.scope_lookup", Sends = "i.sends", FirstSent = "i.first_sent_ms",
    FirstSentBoot = "i.first_sent_boot_ms", LastSent = "i.last_sent_ms", LastSentBoot = "i.last_sent_boot_ms",
    Unknown = "i.unknown", Accepted = "i.accepted", ServerErrors = "i.server_errors", NoResend = "i.no_resend",
    NotFound = "i.not_found", NotFoundAt = "i.not_found_ms", NotFoundBoot = "i.not_found_boot_ms",
    Lookups = "i.lookups", AskFirst = "i.ask_first", Named = "i.named", Reference = "i.reference",
    Requested = "i.requested_ms", Confirmed = "i.confirmed_ms", Result = "i.result", Created = "i.created_ms",
    JobState = "j.state", Payload = "j.payload", Group = "j.group_name", Sequence = "j.sequence",
    Priority = "j.priority", Attempts = "j.attempts", MaxAttempts = "j.max_attempts", Tries = "j.tries",
    Pauses = "j.pauses", AgeFrom = "j.age_from_ms", RunAfter = "j.run_after_ms", ErrorClass = "j.error_class",
    LastError = "j.last_error", ParkReason = "j.park_reason", Updated = "j.updated_ms",
    LeaseToken = "j.lease_token", LeaseExpires = "j.lease_expires_ms", LeaseBoot = "j.lease_boot_ms", Owner = "o.name",
}

/// Loads one job; `None` if there is no such number.
pub fn load(conn: &Connection, id: JobId) -> Result<Option<(Job, Intent)>, StoreError> {
    let mut statement = conn.prepare_cached(LOAD)?;
    let mut rows = statement.query([id.0])?;
    match rows.next()? {
        Some(row) => Ok(Some((job(row)?, intent(row)?))),
        None => Ok(None),
    }
}

/// Loads one job that a row of another table points to.
pub fn must_load(conn: &Connection, id: JobId) -> Result<(Job, Intent), StoreError> {
    load(conn, id)?.ok_or_else(|| StoreError::Sqlite(format!("job {id} has no intent")))
}

/// The number of a key.
pub fn find(conn: &Connection, key: &str) -> Result<Option<JobId>, StoreError> {
    Ok(conn
        .prepare_cached("SELECT id FROM onceward_intents WHERE key = ?1")?
        .query_row([key], |row| row.get(0).map(JobId))
        .optional()?)
}

fn word<T>(row: &Row<'_>, column: Column, parse: fn(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
    let Some(text): Option<String> = get(row, column)? else { return Ok(None) };
    match parse(&text) {
        Some(value) => Ok(Some(value)),
        None => Err(StoreError::Sqlite(format!(
            "the file says {} = `{text}`, which this program does not know",
            column.name()
        ))),
    }
}

fn ms(row: &Row<'_>, column: Column) -> Result<Option<Ms>, rusqlite::Error> {
    Ok(get::<Option<i64>>(row, column)?.map(Ms))
}

fn job(row: &Row<'_>) -> Result<Job, StoreError> {
    let intent_state = word(row, Column::IntentState, IntentState::parse)?;
    let pruned = match intent_state {
        Some(IntentState::Settled) => State::Settled,
        _ => State::Cancelled,
    };
    let lease = match (get(row, Column::Owner)?, ms(row, Column::LeaseExpires)?) {
        (Some(owner), Some(expires)) => {
            let (token, boot) = (get(row, Column::LeaseToken)?, get(row, Column::LeaseBoot)?);
            Some(Lease { owner, token, expires, boot })
        }
        _ => None,
    };
    let key: String = get(row, Column::Key)?;
    let created = Ms(get(row, Column::Created)?);
    Ok(Job {
        id: JobId(get(row, Column::Id)?),
        key: Key::new(key)
            .map_err(|why| StoreError::Sqlite(format!("the file holds a key that cannot be: {why}")))?,
        kind: get(row, Column::Kind)?,
        state: word(row, Column::JobState, State::parse)?.unwrap_or(pruned),
        payload: get(row, Column::Payload)?,
        group: get(row, Column::Group)?,
        sequence: get(row, Column::Sequence)?,
        priority: get::<Option<i64>>(row, Column::Priority)?.unwrap_or(0),
        attempts: get::<Option<u32>>(row, Column::Attempts)?.unwrap_or(0),
        max_attempts: get::<Option<u32>>(row, Column::MaxAttempts)?.unwrap_or(0),
        tries: get::<Option<u32>>(row, Column::Tries)?.unwrap_or(0),
        pauses: get::<Option<u32>>(row, Column::Pauses)?.unwrap_or(0),
        age_from: ms(row, Column::AgeFrom)?,
        run_after: ms(row, Column::RunAfter)?.unwrap_or(created),
        error_class: word(row, Column::ErrorClass, Class::parse)?,
        last_error: get(row, Column::LastError)?,
        park_reason: word(row, Column::ParkReason, Reason::parse)?,
        created,
        updated: ms(row, Column::Updated)?.unwrap_or(created),
        lease,
    })
}

fn intent(row: &Row<'_>) -> Result<Intent, StoreError> {
    let frozen = match get::<Option<String>>(row, Column::FrozenMethod)? {
        None => None,
        Some(method) => {
            let headers: String = get(row, Column::FrozenHeaders)?;
            Some(Frozen {
                method,
                path: get(row, Column::FrozenPath)?,
                headers: serde_json::from_str(&headers).map_err(|e| {
                    StoreError::Sqlite(format!("the file's frozen_headers are not JSON: {e}"))
                })?,
                body: get(row, Column::FrozenBody)?,
                lookup_path: get(row, Column::FrozenLookup)?,
            })
        }
    };
    let scope = match get::<Option<String>>(row, Column::ScopeSend)? {
        None => None,
        Some(send) => Some(Scope { send, lookup: get(row, Column::ScopeLookup)? }),
    };
    Ok(Intent {
        state: word(row, Column::IntentState, IntentState::parse)?.unwrap_or(IntentState::Requested),
        generation: Generation {
            number: get(row, Column::Number)?,
            sends: get(row, Column::Sends)?,
            first_sent: ms(row, Column::FirstSent)?,
            first_sent_boot: get(row, Column::FirstSentBoot)?,
            last_sent: ms(row, Column::LastSent)?,
            last_sent_boot: get(row, Column::LastSentBoot)?,
            unknown: get(row, Column::Unknown)?,
            accepted: get(row, Column::Accepted)?,
            server_errors: get(row, Column::ServerErrors)?,
            no_resend: get(row, Column::NoResend)?,
            not_found: get(row, Column::NotFound)?,
            not_found_at: ms(row, Column::NotFoundAt)?,
            not_found_boot: get(row, Column::NotFoundBoot)?,
            lookups: get(row, Column::Lookups)?,
            ask_first: get(row, Column::AskFirst)?,
            named: get(row, Column::Named)?,
        },
        earlier: Earlier::default(),
        earlier_unknown: get(row, Column::EarlierUnknown)?,
        wire_key: get(row, Column::WireKey)?,
        provider: get(row, Column::Provider)?,
        account: get(row, Column::Account)?,
        amount_minor: get(row, Column::AmountMinor)?,
        currency: get(row, Column::Currency)?,
        frozen,
        scope,
        reference: get(row, Column::Reference)?,
        requested: ms(row, Column::Requested)?,
        confirmed: ms(row, Column::Confirmed)?,
        result: get(row, Column::Result)?,
    })
}

/// Writes what is known about the present generation. A frozen request stays until a new generation begins.
const GENERATION: &str = "UPDATE onceward_intents SET generation = :number, wire_key = :wire_key, sends = :sends,
    first_sent_ms = :first_sent, first_sent_boot_ms = :first_boot, last_sent_ms = :last_sent, unknown = :unknown,
    accepted = :accepted, server_errors = :server_errors, no_resend = :no_resend, not_found = :not_found,
    not_found_ms = :not_found_at, lookups = :lookups, ask_first = :ask_first, named = :named,
    last_sent_boot_ms = :last_sent_boot, not_found_boot_ms = :not_found_boot
  WHERE id = :id AND state <> 'settled'";

pub fn write_generation(tx: &Tx<'_>, id: JobId, g: &Generation, wire_key: &str) -> Result<(), StoreError> {
    tx.conn().prepare_cached(GENERATION)?.execute(named_params! {
        ":id": id.0, ":number": g.number, ":wire_key": wire_key, ":sends": g.sends,
        ":first_sent": g.first_sent.map(|at| at.0), ":first_boot": g.first_sent_boot,
        ":last_sent": g.last_sent.map(|at| at.0), ":unknown": g.unknown, ":accepted": g.accepted,
        ":server_errors": g.server_errors, ":no_resend": g.no_resend, ":not_found": g.not_found,
        ":not_found_at": g.not_found_at.map(|at| at.0), ":lookups": g.lookups, ":ask_first": g.ask_first, ":named": g.named,
        ":last_sent_boot": g.last_sent_boot, ":not_found_boot": g.not_found_boot,
    })?;
    Ok(())
}

/// A new generation renders anew, wherever it then goes.
const THAW: &str =
    "UPDATE onceward_intents SET frozen_method = NULL, frozen_path = NULL, frozen_headers = NULL,
    frozen_body = NULL, frozen_lookup = NULL, scope_send = NULL, scope_lookup = NULL WHERE id = ?1";

pub fn thaw(tx: &Tx<'_>, id: JobId) -> Result<(), StoreError> {
    tx.conn().prepare_cached(THAW)?.execute([id.0])?;
    Ok(())
}

/// Where a job goes, apart from a claim. The lease ends here whatever it was.
pub struct Move<'a> {
    pub state: State,
    pub run_after: Ms,
    pub attempts: u32,
    pub pauses: u32,
    pub age_from: Option<Ms>,
    pub error_class: Option<Class>,
    pub last_error: Option<&'a str>,
    pub park_reason: Option<Reason>,
}

const MOVE: &str = "UPDATE onceward_jobs SET state = :state, claimable = :claimable, run_after_ms = :run_after,
    due_by_app = 0, attempts = :attempts, pauses = :pauses, age_from_ms = :age_from, error_class = :class,
    last_error = :error, park_reason = :reason, lease_owner = NULL, lease_expires_ms = NULL, lease_started_ms = NULL,
    lease_step = NULL, lease_phase = NULL, lease_boot_ms = NULL, passed_over = 0, updated_ms = :now
  WHERE id = :id";

/// Moves a job (whoever passes over a parked one says so afterwards), keeps the figures in step, and lets its group go on if this was its end.
pub fn move_job(tx: &Tx<'_>, job: &Job, to: &Move<'_>) -> Result<State, StoreError> {
    let due = to.run_after <= tx.now();
    let state = match to.state {
        State::Scheduled if due => State::Ready,
        other => other,
    };
    let claimable = due && matches!(state, State::Ready | State::Unknown);
    let there = tx.conn().prepare_cached(MOVE)?.execute(named_params! {
        ":id": job.id.0, ":state": state.as_str(), ":claimable": claimable, ":run_after": to.run_after.0,
        ":attempts": to.attempts, ":pauses": to.pauses, ":age_from": to.age_from.map(|at| at.0),
        ":class": to.error_class.map(Class::as_str), ":error": to.last_error,
        ":reason": to.park_reason.map(Reason::as_str), ":now": tx.now().0,
    })?;
    if there == 0 {
        // Pruned: only the intent is left to change.
        return Ok(state);
    }
    moved(tx, Some(job.state), Some(state));
    if let Some(reason) = job.park_reason {
        tx.count(format!("parked:{reason}"), -1);
    }
    if let Some(reason) = to.park_reason {
        tx.count(format!("parked:{reason}"), 1);
    }
    super::order::after_move(tx, job, state)
}

/// Keeps the figure of jobs by state.
pub fn moved(tx: &Tx<'_>, from: Option<State>, to: Option<State>) {
    if from == to {
        return;
    }
    if let Some(from) = from {
        tx.count(format!("jobs:{from}"), -1);
    }
    if let Some(to) = to {
        tx.count(format!("jobs:{to}"), 1);
    }
}
