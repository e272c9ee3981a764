//! Rows to types and back. A row that the types do not know is an error, never a guess.

use super::{StoreError, Tx};
use crate::clock::Ms;
use crate::intent::{Earlier, Frozen, Generation, Intent, IntentState, Scope};
use crate::job::{Job, JobId, Key, Lease, Reason, State};
use crate::outcome::Class;
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use std::cell::RefCell;

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
        /// All of them.
        const EACH: &str = concat!("SELECT ", $first_sql, $(", ", $sql,)* "
  FROM onceward_intents i
  LEFT JOIN onceward_jobs j ON j.id = i.id
  LEFT JOIN onceward_owners o ON o.nonce = j.lease_owner
  ORDER BY i.id");
    };
}

/// A loaded row, and what of it could not be read, for whoever shows it all the same.
struct Found<'r> {
    row: &'r Row<'r>,
    faults: Option<RefCell<Vec<String>>>,
}

impl Found<'_> {
    /// One column.
    fn get<T: FromSql + Default>(&self, column: Column) -> Result<T, StoreError> {
        self.row.get(column as usize).or_else(|e| self.fault(column, &e.to_string()))
    }

    fn ms(&self, column: Column) -> Result<Option<Ms>, StoreError> {
        Ok(self.get::<Option<i64>>(column)?.map(Ms))
    }

    fn word<T>(&self, column: Column, parse: fn(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
        let Some(text): Option<String> = self.get(column)? else { return Ok(None) };
        match parse(&text) {
            Some(value) => Ok(Some(value)),
            None => self.fault(column, &format!("`{text}`, which this program does not know")),
        }
    }

    fn is_there(&self, column: Column) -> bool {
        !matches!(self.row.get_ref(column as usize), Ok(ValueRef::Null) | Err(_))
    }

    fn fault<T: Default>(&self, column: Column, why: &str) -> Result<T, StoreError> {
        let what = format!("{} is {why}", column.name());
        match &self.faults {
            None => Err(StoreError::Row(what)),
            Some(faults) => {
                let mut faults = faults.borrow_mut();
                if !faults.contains(&what) {
                    faults.push(what);
                }
                Ok(T::default())
            }
        }
    }
}

columns! {
    Id = "i.id", Key = "i.key", Kind = "i.kind", IntentState = "i.state", Number = "i.generation",
    WireKey = "i.wire_key", EarlierUnknown = "i.earlier_unknown", Provider = "i.provider",
    Account = "i.account", AmountMinor = "i.amount_minor", Currency = "i.currency",
    FrozenMethod = "i.frozen_method", FrozenPath = "i.frozen_path", FrozenHeaders = "i.frozen_headers",
    FrozenBody = "i.frozen_body", FrozenLookup = "i.frozen_lookup", ScopeSend = "i.scope_send",
    ScopeLookup = "i.scope_lookup", Sends = "i.sends", FirstSent = "i.first_sent_ms",
    FirstSentBoot = "i.first_sent_boot_ms", LastSent = "i.last_sent_ms", LastSentBoot = "i.last_sent_boot_ms",
    Unknown = "i.unknown", Accepted = "i.accepted", ServerErrors = "i.server_errors", BadResponses = "i.bad_responses", NoResend = "i.no_resend",
    NotFound = "i.not_found", NotFoundAt = "i.not_found_ms", NotFoundBoot = "i.not_found_boot_ms",
    Lookups = "i.lookups", Proved = "i.proved",
    RefusedDirectly = "i.refused_directly", DoubtSince = "i.doubt_since_ms", DoubtRestore = "i.doubt_restore",
    WaitsForApp = "i.waits_for_app_ms", Named = "i.named", Reference = "i.reference",
    Requested = "i.requested_ms", Confirmed = "i.confirmed_ms", Result = "i.result", Created = "i.created_ms",
    JobState = "j.state", Payload = "j.payload", Group = "j.group_name", Sequence = "j.sequence",
    Priority = "j.priority", Attempts = "j.attempts", MaxAttempts = "j.max_attempts", Tries = "j.tries",
    Pauses = "j.pauses", AgeFrom = "j.age_from_ms", RunAfter = "j.run_after_ms", ErrorClass = "j.error_class",
    LastError = "j.last_error", ParkReason = "j.park_reason", Updated = "j.updated_ms",
    LeaseToken = "j.lease_token", LeaseExpires = "j.lease_expires_ms", LeaseBoot = "j.lease_boot_ms", Owner = "o.name",
}

/// Loads one job; `None` if there is no such number. A row that cannot be read is an error that names it.
pub fn load(conn: &Connection, id: JobId) -> Result<Option<(Job, Intent)>, StoreError> {
    let mut statement = conn.prepare_cached(LOAD)?;
    let mut rows = statement.query([id.0])?;
    match rows.next()? {
        Some(row) => {
            let found = Found { row, faults: None };
            let (job, mut intent) = read(&found).map_err(|e| match e {
                StoreError::Row(what) => StoreError::Row(format!("job {id} cannot be read: {what}")),
                e => e,
            })?;
            // What is settled is in doubt no more, whatever its row keeps of it.
            let open = intent.state != IntentState::Settled;
            if let Some(since) = found.ms(Column::DoubtSince)?.filter(|_| open) {
                intent.doubt = Some(super::doubt::read(conn, since, found.get(Column::DoubtRestore)?)?);
            }
            if intent.generation.number > 1 {
                intent.earlier = super::doubt::earlier(conn, id)?;
            }
            if intent.doubt.is_some() {
                intent.earlier.lost = super::doubt::lost_keys(conn, &job, &intent)?;
            }
            Ok(Some((job, intent)))
        }
        None => Ok(None),
    }
}

/// The same for whoever only shows it: what cannot be read is left out, and said in place of its last error.
pub fn seen(conn: &Connection, id: JobId) -> Result<Option<(Job, Intent)>, StoreError> {
    match load(conn, id) {
        Err(StoreError::Row(_)) => {}
        other => return other,
    }
    let mut statement = conn.prepare_cached(LOAD)?;
    let mut rows = statement.query([id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let found = Found { row, faults: Some(RefCell::default()) };
    let (mut job, intent) = read(&found)?;
    let faults = found.faults.map(RefCell::into_inner).unwrap_or_default();
    job.last_error = Some(format!("its row cannot be read: {}", faults.join("; ")));
    Ok(Some((job, intent)))
}

fn read(found: &Found<'_>) -> Result<(Job, Intent), StoreError> {
    Ok((job(found)?, intent(found)?))
}

/// Every job whose row cannot be read: how many they are, and the first `most` with what is wrong. Reads all of them.
pub fn unreadable(conn: &Connection, most: usize) -> Result<(u64, Vec<(JobId, String)>), StoreError> {
    let mut statement = conn.prepare(EACH)?;
    let mut rows = statement.query([])?;
    let (mut count, mut first) = (0, Vec::new());
    while let Some(row) = rows.next()? {
        let Err(StoreError::Row(what)) = read(&Found { row, faults: None }) else { continue };
        count += 1;
        if first.len() < most {
            first.push((JobId(row.get(Column::Id as usize)?), what));
        }
    }
    Ok((count, first))
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

/// A text for whoever only shows it: bytes that are not UTF-8 are replaced.
pub fn shown(row: &Row<'_>, i: usize) -> Result<String, rusqlite::Error> {
    match row.get_ref(i)? {
        ValueRef::Text(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => row.get(i),
    }
}

/// The same where there may be none.
pub fn shown_if_any(row: &Row<'_>, i: usize) -> Result<Option<String>, rusqlite::Error> {
    match row.get_ref(i)? {
        ValueRef::Null => Ok(None),
        _ => shown(row, i).map(Some),
    }
}

fn job(row: &Found<'_>) -> Result<Job, StoreError> {
    let intent_state = row.word(Column::IntentState, IntentState::parse)?;
    let pruned = match intent_state {
        Some(IntentState::Settled) => State::Settled,
        _ => State::Cancelled,
    };
    let lease = match (row.get(Column::Owner)?, row.ms(Column::LeaseExpires)?) {
        (Some(owner), Some(expires)) => {
            let (token, boot) = (row.get(Column::LeaseToken)?, row.get(Column::LeaseBoot)?);
            Some(Lease { owner, token, expires, boot })
        }
        _ => None,
    };
    let key: String = row.get(Column::Key)?;
    let created = Ms(row.get(Column::Created)?);
    Ok(Job {
        id: JobId(row.get(Column::Id)?),
        key: match Key::new(key.as_str()) {
            Ok(key) => key,
            Err(why) => {
                row.fault::<()>(Column::Key, &format!("no key: {why}"))?;
                Key::of_an_unreadable_row(&key)
            }
        },
        kind: row.get(Column::Kind)?,
        state: match row.word(Column::JobState, State::parse)? {
            Some(state) => state,
            // Its word is none; whoever shows it says so.
            None if row.is_there(Column::JobState) => State::Parked,
            None => pruned,
        },
        payload: row.get(Column::Payload)?,
        group: row.get(Column::Group)?,
        sequence: row.get(Column::Sequence)?,
        priority: row.get::<Option<i64>>(Column::Priority)?.unwrap_or(0),
        attempts: row.get::<Option<u32>>(Column::Attempts)?.unwrap_or(0),
        max_attempts: row.get::<Option<u32>>(Column::MaxAttempts)?.unwrap_or(0),
        tries: row.get::<Option<u32>>(Column::Tries)?.unwrap_or(0),
        pauses: row.get::<Option<u32>>(Column::Pauses)?.unwrap_or(0),
        age_from: row.ms(Column::AgeFrom)?,
        run_after: row.ms(Column::RunAfter)?.unwrap_or(created),
        error_class: row.word(Column::ErrorClass, Class::parse)?,
        last_error: row.get(Column::LastError)?,
        park_reason: row.word(Column::ParkReason, Reason::parse)?,
        created,
        updated: row.ms(Column::Updated)?.unwrap_or(created),
        lease,
    })
}

fn intent(row: &Found<'_>) -> Result<Intent, StoreError> {
    let frozen = match row.get::<Option<String>>(Column::FrozenMethod)? {
        None => None,
        Some(method) => {
            let headers: String = row.get(Column::FrozenHeaders)?;
            Some(Frozen {
                method,
                path: row.get(Column::FrozenPath)?,
                headers: serde_json::from_str(&headers)
                    .or_else(|e| row.fault(Column::FrozenHeaders, &format!("no JSON: {e}")))?,
                body: row.get(Column::FrozenBody)?,
                lookup_path: row.get(Column::FrozenLookup)?,
            })
        }
    };
    let scope = match row.get::<Option<String>>(Column::ScopeSend)? {
        None => None,
        Some(send) => Some(Scope { send, lookup: row.get(Column::ScopeLookup)? }),
    };
    Ok(Intent {
        state: row.word(Column::IntentState, IntentState::parse)?.unwrap_or(IntentState::Requested),
        generation: Generation {
            number: row.get(Column::Number)?,
            sends: row.get(Column::Sends)?,
            first_sent: row.ms(Column::FirstSent)?,
            first_sent_boot: row.get(Column::FirstSentBoot)?,
            last_sent: row.ms(Column::LastSent)?,
            last_sent_boot: row.get(Column::LastSentBoot)?,
            unknown: row.get(Column::Unknown)?,
            accepted: row.get(Column::Accepted)?,
            server_errors: row.get(Column::ServerErrors)?,
            bad_responses: row.get(Column::BadResponses)?,
            no_resend: row.get(Column::NoResend)?,
            not_found: row.get(Column::NotFound)?,
            not_found_at: row.ms(Column::NotFoundAt)?,
            not_found_boot: row.get(Column::NotFoundBoot)?,
            lookups: row.get(Column::Lookups)?,
            proved: row.get(Column::Proved)?,
            refused_directly: row.get(Column::RefusedDirectly)?,
            named: row.get(Column::Named)?,
        },
        earlier: Earlier::default(),
        doubt: None,
        waits_for_app: row.ms(Column::WaitsForApp)?,
        earlier_unknown: row.get(Column::EarlierUnknown)?,
        wire_key: row.get(Column::WireKey)?,
        provider: row.get(Column::Provider)?,
        account: row.get(Column::Account)?,
        amount_minor: row.get(Column::AmountMinor)?,
        currency: row.get(Column::Currency)?,
        frozen,
        scope,
        reference: row.get(Column::Reference)?,
        requested: row.ms(Column::Requested)?,
        confirmed: row.ms(Column::Confirmed)?,
        result: row.get(Column::Result)?,
    })
}

/// Writes what is known about the present generation. A frozen request stays until a new generation begins.
const GENERATION: &str = "UPDATE onceward_intents SET generation = :number, wire_key = :wire_key, sends = :sends,
    first_sent_ms = :first_sent, first_sent_boot_ms = :first_boot, last_sent_ms = :last_sent, unknown = :unknown,
    accepted = :accepted, server_errors = :server_errors, bad_responses = :bad_responses, no_resend = :no_resend, not_found = :not_found,
    not_found_ms = :not_found_at, lookups = :lookups, proved = :proved,
    refused_directly = :refused_directly, named = :named,
    last_sent_boot_ms = :last_sent_boot, not_found_boot_ms = :not_found_boot
  WHERE id = :id AND state <> 'settled'";

pub fn write_generation(tx: &Tx<'_>, id: JobId, g: &Generation, wire_key: &str) -> Result<(), StoreError> {
    tx.conn().prepare_cached(GENERATION)?.execute(named_params! {
        ":id": id.0, ":number": g.number, ":wire_key": wire_key, ":sends": g.sends,
        ":first_sent": g.first_sent.map(|at| at.0), ":first_boot": g.first_sent_boot,
        ":last_sent": g.last_sent.map(|at| at.0), ":unknown": g.unknown, ":accepted": g.accepted,
        ":server_errors": g.server_errors, ":bad_responses": g.bad_responses, ":no_resend": g.no_resend, ":not_found": g.not_found,
        ":not_found_at": g.not_found_at.map(|at| at.0), ":lookups": g.lookups, ":proved": g.proved,
        ":refused_directly": g.refused_directly, ":named": g.named,
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
    lease_step = NULL, lease_phase = NULL, lease_boot_ms = NULL, lease_process = NULL, passed_over = 0, updated_ms = :now
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
