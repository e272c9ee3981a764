//! Events that the surfaces bring: what a person did to the file as a whole, and which credentials a worker goes by.

use super::events::{self, Event, EventAction, EventScope, plain};
use super::{Store, StoreError, schema};
use rusqlite::OptionalExtension;

/// What a person did to the file as a whole, for the events. Words are shortened and lose control characters.
#[derive(Clone, Copy, Debug)]
pub struct Deed<'a> {
    /// `backup`, `prune` or `audit`; a restore writes its own.
    pub action: EventAction,
    /// What it is about: the copy, `verify`, `export`.
    pub name: &'a str,
    /// Who: `cli:user@host`.
    pub actor: &'a str,
    /// Where from; `None`: this process.
    pub origin: Option<&'a str>,
    /// What came of it, or how much is meant.
    pub detail: &'a str,
}

/// A credential's fingerprint as it was last seen: `credential:PROVIDER`.
const KNOWN: &str = "SELECT value FROM onceward_meta WHERE name = 'credential:' || ?1";
const KEEP: &str = "INSERT INTO onceward_meta (name, value) VALUES ('credential:' || ?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value";

impl Store {
    /// Puts a deed on record. Refused for a backup that was not restored, which takes no writes.
    pub fn tell(&self, deed: Deed<'_>) -> Result<(), StoreError> {
        let (action, name, actor) = (deed.action, plain(deed.name), plain(deed.actor));
        let (origin, detail) = (deed.origin.map(plain), plain(deed.detail));
        self.write(move |tx| {
            let event = Event::new(action, EventScope::Store, &name, &actor);
            events::record(tx, Event { origin: origin.as_deref(), detail: Some(&detail), ..event })
        })
    }

    /// A worker goes by these credentials: provider and fingerprint, which is empty without one. What is not as it was
    /// when a worker last began becomes an event; the fingerprint is kept, never the credential.
    pub fn note_credentials(&self, seen: &[(String, String)], actor: &str) -> Result<(), StoreError> {
        let conn = self.reader()?;
        let mut new = Vec::new();
        for (provider, fingerprint) in seen {
            if schema::meta(&conn, &format!("credential:{provider}"))?.as_deref() != Some(fingerprint) {
                new.push((provider.clone(), fingerprint.clone()));
            }
        }
        drop(conn);
        if new.is_empty() {
            return Ok(());
        }
        let actor = actor.to_string();
        self.write(move |tx| {
            for (provider, fingerprint) in &new {
                let conn = tx.conn();
                let known: Option<String> =
                    conn.prepare_cached(KNOWN)?.query_row([provider], |row| row.get(0)).optional()?;
                // Another worker that began at the same time has told of it.
                if known.as_ref() == Some(fingerprint) {
                    continue;
                }
                conn.prepare_cached(KEEP)?.execute((provider, fingerprint))?;
                let shown = |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
                let detail = match &known {
                    None => format!("the credential is {}", shown(fingerprint)),
                    Some(known) => {
                        format!("the credential is {}, and was {}", shown(fingerprint), shown(known))
                    }
                };
                let event = Event::new(EventAction::Config, EventScope::Provider, provider, &actor);
                events::record(tx, Event { detail: Some(&detail), ..event })?;
            }
            Ok(())
        })
    }
}
