//! What is kept back: a provider whose breaker is open or whose credential was refused, and whatever a person paused.
//!
//! The rows are read and written inside the claim's and the record's own transactions, so that all workers of a file
//! agree, a restart changes nothing, and only one probe is out at a time.

use super::rows::shown_if_any;
use super::{ProviderDesk, StoreError, Tx};
use crate::clock::Ms;
use crate::decide::{BreakerTerms, Signal};
use crate::job::JobId;
use rusqlite::{Connection, OptionalExtension};

/// A provider's state as `stats` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// Nothing is wrong.
    Ok,
    /// Held until a time.
    Held,
    /// One job is out as the probe, or may go.
    Probing,
    /// A person paused it.
    Paused,
}

impl Health {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Ok => "ok",
            Health::Held => "held",
            Health::Probing => "probing",
            Health::Paused => "paused",
        }
    }
}

/// A row of onceward_holds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Paused {
    /// Failures in a row.
    pub failures: u32,
    /// Held since.
    pub held: Option<Ms>,
    /// Until.
    pub until: Option<Ms>,
    /// That was set then.
    until_set: Option<Ms>,
    /// Why.
    pub why: Option<String>,
    /// The job that is let through.
    pub probe: Option<JobId>,
    /// Paused by a person since.
    pub paused: Option<Ms>,
    /// Why it was paused: the person's words, or who it was.
    pub paused_why: Option<String>,
    /// Calls that may go at once, and when that was counted.
    pub tokens: Option<(f64, Ms)>,
}

impl Paused {
    /// What it amounts to now.
    pub fn health(&self, now: Ms) -> Health {
        match (self.paused, self.until) {
            (Some(_), _) => Health::Paused,
            (None, None) => Health::Ok,
            (None, Some(until)) if self.probe.is_some() || until <= now => Health::Probing,
            (None, Some(_)) => Health::Held,
        }
    }
}

const READ: &str = "SELECT failures, held_ms, until_ms, why, probe_job, paused_ms, tokens, tokens_ms,
    coalesce(paused_why, 'paused by ' || paused_by), until_set_ms
  FROM onceward_holds WHERE scope = 'provider' AND name = ?1";

/// The row of a provider; the empty one if nothing was ever wrong.
pub fn read(conn: &Connection, provider: &str) -> Result<Paused, StoreError> {
    let row = conn
        .prepare_cached(READ)?
        .query_row([provider], |row| {
            let ms = |i: usize| row.get::<_, Option<i64>>(i).map(|at| at.map(Ms));
            let tokens: Option<f64> = row.get(6)?;
            let why = shown_if_any(row, 3)?;
            // Whatever somebody wrote here by hand, it must be what can be written again: a provider's row that cannot be
            // used would keep back every claim.
            let held = ms(1)?.zip(ms(2)?).map(|(since, until)| (since, until, why.unwrap_or_default()));
            Ok(Paused {
                failures: row.get::<_, i64>(0)?.clamp(0, u32::MAX.into()).try_into().unwrap_or(0),
                held: held.as_ref().map(|held| held.0),
                until: held.as_ref().map(|held| held.1),
                until_set: ms(9)?.filter(|_| held.is_some()),
                probe: row.get::<_, Option<i64>>(4)?.map(JobId).filter(|_| held.is_some()),
                why: held.map(|held| held.2),
                paused: ms(5)?,
                tokens: tokens.zip(ms(7)?),
                paused_why: shown_if_any(row, 8)?,
            })
        })
        .optional()?;
    Ok(row.unwrap_or_default())
}

const WRITE: &str = "INSERT INTO onceward_holds (scope, name, failures, held_ms, until_ms, why, probe_job, tokens, tokens_ms, until_set_ms)
  VALUES ('provider', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
  ON CONFLICT (scope, name) DO UPDATE SET failures = ?2, held_ms = ?3, until_ms = ?4, why = ?5, probe_job = ?6,
    tokens = ?7, tokens_ms = ?8, until_set_ms = ?9";

fn write(tx: &Tx<'_>, provider: &str, row: &Paused) -> Result<(), StoreError> {
    tx.conn().prepare_cached(WRITE)?.execute((
        provider,
        row.failures,
        row.held.map(|at| at.0),
        row.until.map(|at| at.0),
        &row.why,
        row.probe.map(|id| id.0),
        row.tokens.map(|(tokens, _)| tokens),
        row.tokens.map(|(_, at)| at.0),
        row.until_set.map(|at| at.0),
    ))?;
    Ok(())
}

/// How many calls may go to a provider now.
pub struct Room {
    /// So many.
    pub calls: usize,
    /// The call that goes is the probe of a hold that is over.
    pub probe: bool,
    /// When there will be more, if something but a finishing call makes it.
    pub again: Option<Ms>,
    row: Paused,
}

/// Room at a provider: none while it is held or paused, one for a probe, else by concurrency and rate.
pub fn room(tx: &Tx<'_>, provider: &ProviderDesk, in_flight: u32) -> Result<Room, StoreError> {
    let now = tx.now();
    let row = read(tx.conn(), &provider.name)?;
    let (calls, probe, again) = match row.health(now) {
        Health::Paused => (0, false, None),
        Health::Held => (0, false, row.until),
        Health::Probing if row.probe.is_some() => (0, false, None),
        Health::Probing => (1, true, None),
        Health::Ok => {
            let free = provider.concurrency.saturating_sub(in_flight) as usize;
            match provider.rate {
                None => (free, false, None),
                Some(rate) => {
                    // A count of tokens is small and not negative.
                    let tokens = refill(rate, row.tokens, now);
                    let whole = tokens as usize;
                    let wait = ((1.0 - tokens.fract()) / rate * 1000.0).ceil();
                    let again = (whole < free).then_some(Ms(now.0.saturating_add(wait as i64)));
                    (free.min(whole), false, again)
                }
            }
        }
    };
    Ok(Room { calls, probe, again, row })
}

/// The bucket holds a tenth of a second's worth, at least one: calls are spaced, not bundled.
fn refill(rate: f64, tokens: Option<(f64, Ms)>, now: Ms) -> f64 {
    let size = (rate / 10.0).max(1.0);
    match tokens {
        None => size,
        // A clock that was set back gives no tokens, and takes none away.
        Some((left, at)) => (left + now.since(at).as_secs_f64() * rate).clamp(0.0, size),
    }
}

/// Writes down what a claim used of the room.
pub fn use_room(
    tx: &Tx<'_>,
    provider: &ProviderDesk,
    room: Room,
    claimed: &[JobId],
) -> Result<(), StoreError> {
    let Some(first) = claimed.first() else { return Ok(()) };
    let mut row = room.row;
    if room.probe {
        row.probe = Some(*first);
    }
    if let Some(rate) = provider.rate {
        row.tokens = Some((refill(rate, row.tokens, tx.now()) - claimed.len() as f64, tx.now()));
    }
    if room.probe || provider.rate.is_some() {
        write(tx, &provider.name, &row)?;
    }
    Ok(())
}

/// If the job was out as a probe it is not any more, and another one may go.
pub fn give_up_probe(tx: &Tx<'_>, job: JobId) -> Result<(), StoreError> {
    tx.conn()
        .prepare_cached("UPDATE onceward_holds SET probe_job = NULL WHERE probe_job = ?1")?
        .execute([job.0])?;
    Ok(())
}

/// What an attempt's end says about its provider.
pub fn note(
    tx: &Tx<'_>,
    provider: &str,
    job: JobId,
    signal: Signal,
    terms: BreakerTerms,
    why: &str,
) -> Result<(), StoreError> {
    let mut row = read(tx.conn(), provider)?;
    let before = row.clone();
    let was_probe = row.probe == Some(job);
    let hold = |row: &mut Paused, why: String| {
        row.held = row.held.or(Some(tx.now()));
        row.until = Some(tx.now().plus(terms.cool_down));
        row.until_set = Some(tx.now());
        row.why = Some(why);
        row.probe = None;
    };
    match signal {
        // It answered; that it wants no more is a pause, which is not this row's part of the hold.
        Signal::Good | Signal::Disable => {
            row.failures = 0;
            // A call that began before the hold proves nothing about it; only the probe ends it.
            if was_probe {
                (row.held, row.until, row.until_set) = (None, None, None);
                (row.why, row.probe) = (None, None);
            }
        }
        Signal::Failure => {
            row.failures = row.failures.saturating_add(1);
            if was_probe || (row.held.is_none() && row.failures >= terms.failures) {
                let failures = row.failures;
                hold(&mut row, format!("{failures} failures in a row, the last: {why}"));
            }
        }
        Signal::Hold => hold(&mut row, why.to_string()),
        // It said nothing: another job goes as the probe.
        Signal::None if was_probe => row.probe = None,
        Signal::None => {}
    }
    if row != before {
        if row.held != before.held {
            let (provider, why) = (provider.to_string(), row.why.clone());
            tx.say(move || match why {
                Some(why) => log::warn!("provider {provider} is held: {why}"),
                None => log::info!("provider {provider} answers again"),
            });
        }
        write(tx, provider, &row)?;
    }
    Ok(())
}
