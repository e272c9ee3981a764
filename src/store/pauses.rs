//! Pauses: a person stops a provider, a kind or a group, and lets it go on. Who, when and why stay in the file.
//!
//! A paused provider has no room, the heads of a paused kind are not read, and the one job of a paused group that is
//! out of `waiting` is in no index that the claim walks. So a pause costs the claim nothing however much waits behind
//! it. What is in flight ends as it would have.

use super::events::{self, Event, EventAction};
use super::rows::{shown, shown_if_any};
use super::{Store, StoreError, Tx};
use crate::clock::Ms;
use crate::job::{Code, Refusal};
use crate::outcome::words;
use rusqlite::{Connection, OptionalExtension};
use std::collections::BTreeSet;

words! {
    /// What can be paused.
    PauseScope {
        /// Every call to a provider.
        Provider = "provider",
        /// Every job of a kind.
        Kind = "kind",
        /// Every job of a group.
        Group = "group",
    }
}

/// One pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// What sort of thing is paused.
    pub scope: PauseScope,
    /// Its name.
    pub name: String,
    /// Since when.
    pub since: Ms,
    /// Who did it.
    pub by: String,
    /// Why, in that person's words.
    pub why: Option<String>,
}

impl Pause {
    /// The file was restored, and nobody has let this go on since.
    pub fn by_restore(&self) -> bool {
        self.by.starts_with(BY_RESTORE)
    }
}

impl Store {
    /// Stops claiming for a provider, a kind or a group. `false`: it was paused already, and stays as it was.
    pub fn pause(
        &self,
        scope: PauseScope,
        name: &str,
        why: Option<String>,
        actor: &str,
    ) -> Result<bool, StoreError> {
        self.known(scope, name)?;
        let why = why.filter(|why| !why.trim().is_empty());
        let (name, actor) = (name.to_string(), actor.to_string());
        self.write(move |tx| set(tx, scope, &name, why.as_deref(), &actor))
    }

    /// Lets it go on. `false`: it was not paused.
    pub fn resume(
        &self,
        scope: PauseScope,
        name: &str,
        why: Option<String>,
        actor: &str,
    ) -> Result<bool, StoreError> {
        // What the config has dropped may still be paused in the file.
        let paused = read(&*self.reader()?, scope, name)?.is_some();
        if !paused {
            self.known(scope, name)?;
        }
        let (name, actor) = (name.to_string(), actor.to_string());
        self.write(move |tx| {
            if read(tx.conn(), scope, &name)?.is_none() {
                return Ok(false);
            }
            // A provider's row also carries its breaker and its tokens.
            let sql = if scope == PauseScope::Provider { RESUME } else { FORGET };
            tx.conn().prepare_cached(sql)?.execute((scope.as_str(), &name))?;
            mark_group(tx, scope, &name, false)?;
            let event = Event::new(EventAction::Resume, scope.into(), &name, &actor);
            events::record(tx, Event { why: why.as_deref(), ..event })?;
            let words = format!("{scope} {name} is resumed by {actor}");
            tx.say(move || log::warn!("{words}"));
            Ok(true)
        })
    }

    /// Lets everything go on that a restore paused. Returns what went on, and what a person paused and so stays.
    pub fn resume_restored(&self, actor: &str) -> Result<(Vec<Pause>, Vec<Pause>), StoreError> {
        let (resumed, left) = all(&*self.reader()?)?.into_iter().partition::<Vec<_>, _>(Pause::by_restore);
        for pause in &resumed {
            self.resume(pause.scope, &pause.name, None, actor)?;
        }
        Ok((resumed, left))
    }

    /// A provider or kind must be in the config. A group may be paused before its first job comes.
    fn known(&self, scope: PauseScope, name: &str) -> Result<(), StoreError> {
        let there = match scope {
            PauseScope::Provider => self.desk.providers().iter().any(|p| p.name == name),
            PauseScope::Kind => self.desk.kind(name).is_some(),
            PauseScope::Group => !name.is_empty(),
        };
        if there {
            return Ok(());
        }
        Err(match scope {
            PauseScope::Group => Refusal::new(Code::Invalid, "the group's name is empty"),
            PauseScope::Provider | PauseScope::Kind => {
                Refusal::new(Code::NotFound, format!("there is no {scope} `{name}` in the config"))
            }
        }
        .into())
    }
}

/// What a restore pauses is paused by this and who restored.
const BY_RESTORE: &str = "restore:";

/// A restored file's providers go on when a person says so. `name` may stand for a kind without a provider.
pub fn by_restore(tx: &Tx<'_>, name: &str, copied: Ms, actor: &str) -> Result<(), StoreError> {
    let why = format!("restored from a copy of {copied}");
    set(tx, PauseScope::Provider, name, Some(&why), &format!("{BY_RESTORE}{actor}")).map(drop)
}

/// A provider that wants no more requests is paused as a person would do it, and only a person resumes it.
pub fn by_the_provider(tx: &Tx<'_>, provider: &str, why: &str, actor: &str) -> Result<(), StoreError> {
    let why = format!("it wants no more requests: {why}");
    set(tx, PauseScope::Provider, provider, Some(&why), actor).map(drop)
}

fn set(
    tx: &Tx<'_>,
    scope: PauseScope,
    name: &str,
    why: Option<&str>,
    actor: &str,
) -> Result<bool, StoreError> {
    if read(tx.conn(), scope, name)?.is_some() {
        return Ok(false);
    }
    tx.conn().prepare_cached(PAUSE)?.execute((scope.as_str(), name, tx.now().0, actor, why))?;
    mark_group(tx, scope, name, true)?;
    let event = Event::new(EventAction::Pause, scope.into(), name, actor);
    events::record(tx, Event { why, ..event })?;
    let words = format!("{scope} {name} is paused by {actor}: {}", why.unwrap_or("no reason given"));
    tx.say(move || log::warn!("{words}"));
    Ok(true)
}

const PAUSE: &str = "INSERT INTO onceward_holds (scope, name, paused_ms, paused_by, paused_why)
  VALUES (?1, ?2, ?3, ?4, ?5)
  ON CONFLICT (scope, name) DO UPDATE SET paused_ms = ?3, paused_by = ?4, paused_why = ?5";
const RESUME: &str = "UPDATE onceward_holds SET paused_ms = NULL, paused_by = NULL, paused_why = NULL
  WHERE scope = ?1 AND name = ?2";
const FORGET: &str = "DELETE FROM onceward_holds WHERE scope = ?1 AND name = ?2";
/// At most one job of a group is out of `waiting`; the others are marked when they are set free.
pub(super) const MARK: &str = "UPDATE onceward_jobs SET group_paused = ?2
  WHERE group_name = ?1 AND group_name IS NOT NULL AND state <> 'waiting' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled'";

fn mark_group(tx: &Tx<'_>, scope: PauseScope, name: &str, paused: bool) -> Result<(), StoreError> {
    if scope == PauseScope::Group {
        tx.conn().prepare_cached(MARK)?.execute((name, paused))?;
    }
    Ok(())
}

const READ: &str = "SELECT paused_ms, paused_by, paused_why FROM onceward_holds
  WHERE scope = ?1 AND name = ?2 AND paused_ms IS NOT NULL";

/// The pause of one thing, if it is paused.
pub fn read(conn: &Connection, scope: PauseScope, name: &str) -> Result<Option<Pause>, StoreError> {
    Ok(conn
        .prepare_cached(READ)?
        .query_row((scope.as_str(), name), |row| {
            Ok(Pause {
                scope,
                name: name.to_string(),
                since: Ms(row.get(0)?),
                by: shown(row, 1)?,
                why: shown_if_any(row, 2)?,
            })
        })
        .optional()?)
}

/// The names of paused kinds.
pub fn kinds(conn: &Connection) -> Result<BTreeSet<String>, StoreError> {
    let mut statement = conn
        .prepare_cached("SELECT name FROM onceward_holds WHERE scope = 'kind' AND paused_ms IS NOT NULL")?;
    let names = statement.query_map([], |row| shown(row, 0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

const ALL: &str = "SELECT scope, name, paused_ms, paused_by, paused_why FROM onceward_holds
  WHERE paused_ms IS NOT NULL ORDER BY paused_ms, scope, name LIMIT 1000";

/// All pauses, the oldest first.
pub fn all(conn: &Connection) -> Result<Vec<Pause>, StoreError> {
    let mut statement = conn.prepare_cached(ALL)?;
    let mut rows = statement.query([])?;
    let mut pauses = Vec::new();
    while let Some(row) = rows.next()? {
        let scope = shown(row, 0)?;
        // The table's CHECK has no other words.
        let Some(scope) = PauseScope::parse(&scope) else { continue };
        pauses.push(Pause {
            scope,
            name: shown(row, 1)?,
            since: Ms(row.get(2)?),
            by: shown(row, 3)?,
            why: shown_if_any(row, 4)?,
        });
    }
    Ok(pauses)
}
