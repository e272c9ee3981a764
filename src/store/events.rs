//! Events: what happened that belongs to no single job, appended and chained like the history, in a chain of its own.
//!
//! An event is written in the transaction of what it tells of, so that neither is there without the other. Nothing
//! deletes or changes one.

use super::audit::Head;
use super::history::{digest, link};
use super::{PauseScope, Store, StoreError, Tx};
use crate::clock::Ms;
use crate::intent::Hash;
use crate::outcome::words;
use rusqlite::{Connection, OptionalExtension, named_params};
use std::time::Duration;

words! {
    /// What happened.
    EventAction {
        /// A person stopped a provider, a kind or a group.
        Pause = "pause",
        /// A person let it go on.
        Resume = "resume",
        /// A place of a group was given up.
        Skip = "skip",
        /// A job was refused that no history could speak of.
        Refuse = "refuse",
        /// A worker began.
        Start = "start",
        /// A worker ended with nothing in flight. A start without one is a crash, or a worker that still runs.
        Stop = "stop",
        /// Somebody was turned away at a door.
        Denied = "denied",
        /// The file was brought to a newer schema.
        Migrate = "migrate",
        /// A copy of the file was made.
        Backup = "backup",
        /// The file was put in the place of another.
        Restore = "restore",
        /// Old content was taken out.
        Prune = "prune",
        /// The clock was set back.
        Clock = "clock",
        /// The config is another in something that matters to the record: a credential's fingerprint, say.
        Config = "config",
        /// Somebody was let in at a door.
        Login = "login",
        /// The history was read whole: verified, or taken out.
        Audit = "audit",
    }
}

words! {
    /// What it happened to.
    EventScope {
        /// A provider.
        Provider = "provider",
        /// A kind of job.
        Kind = "kind",
        /// A group.
        Group = "group",
        /// A worker.
        Worker = "worker",
        /// The file.
        Store = "store",
        /// A way in: the API, the console.
        Door = "door",
    }
}

impl From<PauseScope> for EventScope {
    fn from(scope: PauseScope) -> EventScope {
        match scope {
            PauseScope::Provider => EventScope::Provider,
            PauseScope::Kind => EventScope::Kind,
            PauseScope::Group => EventScope::Group,
        }
    }
}

/// One event, to be written by [`record`]. Its time is the transaction's.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What happened.
    pub action: EventAction,
    /// To what sort of thing.
    pub scope: EventScope,
    /// To which.
    pub name: &'a str,
    /// Who did it: `cli:user@host`, `worker:host:pid`.
    pub actor: &'a str,
    /// Where from: an address, a terminal; `None`: this process, as `host:pid`.
    pub origin: Option<&'a str>,
    /// The place in a group: needed for `skip`, allowed for `refuse`, and for no other action.
    pub sequence: Option<i64>,
    /// A person's words, or the reason.
    pub why: Option<&'a str>,
    /// Further facts. Never a secret.
    pub detail: Option<&'a str>,
}

impl<'a> Event<'a> {
    /// An event with nothing but what every event has.
    pub fn new(action: EventAction, scope: EventScope, name: &'a str, actor: &'a str) -> Event<'a> {
        Event { action, scope, name, actor, origin: None, sequence: None, why: None, detail: None }
    }
}

/// This process: `host:pid`.
pub(super) fn here() -> String {
    let host = gethostname::gethostname();
    let host: String = host.to_string_lossy().chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{host}:{}", std::process::id())
}

/// Appends an event to the transaction.
pub fn record(tx: &Tx<'_>, event: Event<'_>) -> Result<(), StoreError> {
    let here = here();
    let row = Row {
        seq: None,
        at: tx.now().0,
        actor: event.actor,
        origin: Some(event.origin.unwrap_or(&here)),
        action: event.action.as_str(),
        scope: event.scope.as_str(),
        name: event.name,
        sequence: event.sequence,
        why: event.why,
        detail: event.detail,
    };
    row.append(tx.conn())
}

/// A row as it is hashed and written; words are not read, so that a row of any version can be.
pub(super) struct Row<'a> {
    /// Its number; `None`: the next one.
    pub seq: Option<i64>,
    pub at: i64,
    pub actor: &'a str,
    pub origin: Option<&'a str>,
    pub action: &'a str,
    pub scope: &'a str,
    pub name: &'a str,
    pub sequence: Option<i64>,
    pub why: Option<&'a str>,
    pub detail: Option<&'a str>,
}

const HEAD: &str = "SELECT chain FROM onceward_events ORDER BY seq DESC LIMIT 1";
const APPEND: &str = "INSERT INTO onceward_events
    (seq, at_ms, actor, origin, action, scope, name, sequence, why, detail, content_hash, chain)
  VALUES (:seq, :at, :actor, :origin, :action, :scope, :name, :sequence, :why, :detail, :content, :chain)";

impl Row<'_> {
    fn content_hash(&self) -> Hash {
        let (at, sequence) = (self.at.to_string(), self.sequence.map(|n| n.to_string()));
        digest([
            Some(at.as_str()),
            Some(self.actor),
            self.origin,
            Some(self.action),
            Some(self.scope),
            Some(self.name),
            sequence.as_deref(),
            self.why,
            self.detail,
        ])
    }

    /// Appends it to the chain, whose head is read inside the transaction.
    pub fn append(&self, conn: &Connection) -> Result<(), StoreError> {
        let previous: Option<Vec<u8>> =
            conn.prepare_cached(HEAD)?.query_row([], |row| row.get(0)).optional()?;
        let content = self.content_hash();
        let chain = link(&previous.unwrap_or_default(), &content);
        conn.prepare_cached(APPEND)?.execute(named_params! {
            ":seq": self.seq, ":at": self.at, ":actor": self.actor, ":origin": self.origin,
            ":action": self.action, ":scope": self.scope, ":name": self.name, ":sequence": self.sequence,
            ":why": self.why, ":detail": self.detail, ":content": content.as_slice(), ":chain": chain.as_slice(),
        })?;
        Ok(())
    }
}

const ALL: &str =
    "SELECT seq, at_ms, actor, origin, action, scope, name, sequence, why, detail, content_hash, chain
  FROM onceward_events ORDER BY seq";

/// Walks the events' chain. `Ok(n)`: n events, all in order. `Err` names the first that is not as it was written.
pub(super) fn verify(conn: &Connection) -> Result<Result<u64, String>, StoreError> {
    let mut statement = conn.prepare(ALL)?;
    let mut rows = statement.query([])?;
    let mut previous: Vec<u8> = Vec::new();
    let mut count: i64 = 0;
    while let Some(row) = rows.next()? {
        let utf8 = |i: usize| row.get_ref(i).is_ok_and(|text| text.as_str_or_null().is_ok());
        if ![2, 3, 4, 5, 6, 8, 9].into_iter().all(utf8) {
            return Ok(Err(format!("event {} cannot be read: one of its texts is not UTF-8", count + 1)));
        }
        let text = |i: usize| row.get_ref(i)?.as_str_or_null().map_err(rusqlite::Error::from);
        let word = |i: usize| text(i).map(Option::unwrap_or_default);
        let entry = Row {
            seq: Some(row.get(0)?),
            at: row.get(1)?,
            actor: word(2)?,
            origin: text(3)?,
            action: word(4)?,
            scope: word(5)?,
            name: word(6)?,
            sequence: row.get(7)?,
            why: text(8)?,
            detail: text(9)?,
        };
        let (content, chain): (Hash, Hash) = (row.get(10)?, row.get(11)?);
        count += 1;
        if entry.seq != Some(count) {
            return Ok(Err(format!("event {count} is missing")));
        }
        if entry.content_hash() != content {
            return Ok(Err(format!("event {count} was changed")));
        }
        if link(&previous, &content) != chain {
            return Ok(Err(format!("the chain breaks at event {count}")));
        }
        previous = chain.to_vec();
    }
    Ok(Ok(count.unsigned_abs()))
}

/// So many refusals within [`DENIED_SPAN`] are written one by one; more are only counted. Whoever knocks has no token,
/// and must not be able to fill the disk.
const DENIED_MAX: i64 = 60;
const DENIED_SPAN: Duration = Duration::from_secs(60);
const DENIED_NOW: &str = "SELECT count(*) FROM
    (SELECT action, at_ms FROM onceward_events ORDER BY seq DESC LIMIT ?1)
  WHERE action = 'denied' AND at_ms > ?2";

impl Store {
    /// The end of the events' chain; `None` if nothing was recorded yet.
    pub fn events_head(&self) -> Result<Option<Head>, StoreError> {
        Ok(self
            .reader()?
            .prepare_cached("SELECT seq, chain FROM onceward_events ORDER BY seq DESC LIMIT 1")?
            .query_row([], |row| Ok(Head { seq: row.get(0)?, chain: row.get(1)? }))
            .optional()?)
    }

    /// The chain hash of one event; `None` if there is no such event.
    pub fn events_chain_at(&self, seq: i64) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self
            .reader()?
            .prepare_cached("SELECT chain FROM onceward_events WHERE seq = ?1")?
            .query_row([seq], |row| row.get(0))
            .optional()?)
    }

    /// Somebody was turned away at `door` (`api`, `console`), coming from `origin` (an address). Each is counted in
    /// `denied`; at most 60 a minute are written as events. What comes from outside is shortened, and is written
    /// without control characters; give no part of the token itself. `unwritten`: so many more were turned away since the
    /// last call, and are counted with this one.
    pub fn denied(&self, door: &str, origin: &str, why: &str, unwritten: u64) -> Result<(), StoreError> {
        let (door, origin, why) = (plain(door), plain(origin), plain(why));
        let more = (unwritten > 0).then(|| format!("and {unwritten} more since the last that is on record"));
        self.write(move |tx| {
            tx.count("denied", i64::try_from(unwritten.saturating_add(1)).unwrap_or(i64::MAX));
            let since = Ms(tx.now().0).minus(DENIED_SPAN);
            let written: i64 =
                tx.conn().prepare_cached(DENIED_NOW)?.query_row((DENIED_MAX, since.0), |row| row.get(0))?;
            if written >= DENIED_MAX {
                return Ok(());
            }
            // Nobody is known to have done it.
            let event = Event::new(EventAction::Denied, EventScope::Door, &door, "unknown");
            record(tx, Event { origin: Some(&origin), why: Some(&why), detail: more.as_deref(), ..event })
        })
    }
}

impl Store {
    /// Somebody was let in at `door`, coming from `origin` (an address), and acts as `actor` from now on.
    pub fn let_in(&self, door: &str, origin: &str, actor: &str) -> Result<(), StoreError> {
        let (door, origin, actor) = (plain(door), plain(origin), plain(actor));
        self.write(move |tx| {
            let event = Event::new(EventAction::Login, EventScope::Door, &door, &actor);
            record(tx, Event { origin: Some(&origin), ..event })
        })
    }
}

pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
