//! Doubt after a restore. A restored file does not know what the lost one did between copy and restore: it may have
//! brought any intent to any later generation, under the same wire keys. So every intent of the copy that is not settled,
//! and every key that is new to the file while a restore is open, is in doubt until it settles or a person speaks of all
//! of its generations. Time never ends it.
//!
//! What a machine may send for such an intent is decided in one place, `decide::plan`; here is what it is decided by.
//! Invariant: `doubt_since_ms` only ever gets earlier, and `doubt_restore` stays the first restore that concerns it, for
//! every later one does too.

use super::{Desk, KindDesk, StoreError, Tx, facts, rows, schema};
use crate::clock::Ms;
use crate::decide::{Now, Plan, numbers_after, plan};
use crate::intent::{Doubt, Earlier, Intent, Scope, WireStyle, hex, wire_key};
use crate::job::{Job, JobId, Key, NewJob, Reason};
use rusqlite::{Connection, OptionalExtension, named_params};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// A tick later than this after a restore was none before it.
const TICKS_BEFORE: Duration = Duration::from_secs(3600);

/// The restores that concern new keys, taken together.
pub(super) struct Open {
    /// The earliest of their copies.
    since: Ms,
    /// The first of them.
    first: i64,
    /// When the last of them was.
    restored: Ms,
}

const OPEN: &str =
    "SELECT min(copied_ms), min(id), max(restored_ms) FROM onceward_restores WHERE closed_ms IS NULL";

/// While a restore is open a new key may be one of the lost file's.
pub(super) fn of_new_key(tx: &Tx<'_>, job: &NewJob) -> Result<Option<Open>, StoreError> {
    let row = tx.conn().prepare_cached(OPEN)?.query_row([], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, Option<i64>>(2)?))
    })?;
    let (Some(since), Some(first), Some(restored)) = row else { return Ok(None) };
    let open = Open { since: Ms(since), first, restored: Ms(restored) };
    let later_tick = job.tick.is_some_and(|tick| tick > open.restored.plus(TICKS_BEFORE));
    Ok((!job.never_doubtful && !later_tick).then_some(open))
}

/// Puts a new intent in doubt.
pub(super) fn begin(tx: &Tx<'_>, id: JobId, kind: &str, open: &Open) -> Result<(), StoreError> {
    put(tx, id, open.since, open.first, open.restored, None, true)?;
    scope_of_then(tx, id, kind)
}

const NOTE_SCOPE: &str = "INSERT INTO onceward_meta (name, value) VALUES ('scope:' || ?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value";

/// Where this worker's requests go, a kind: whoever restores a copy of the file can tell whether they still go there.
pub(super) fn note_scopes(tx: &Tx<'_>, desk: &dyn Desk) -> Result<(), StoreError> {
    for kind in desk.kinds() {
        let scope = desk.scope(&kind.kind);
        tx.conn().prepare_cached(NOTE_SCOPE)?.execute((&kind.kind, text(&scope)?))?;
    }
    Ok(())
}

fn text(scope: &Scope) -> Result<String, StoreError> {
    serde_json::to_string(&[&scope.send, &scope.lookup])
        .map_err(|e| StoreError::Sqlite(format!("a scope could not be written as JSON: {e}")))
}

const OF_COPY: &str = "INSERT INTO onceward_meta (name, value)
    SELECT 'copy_scope:' || substr(name, 7), value FROM onceward_meta WHERE name LIKE 'scope:%'
  ON CONFLICT (name) DO UPDATE SET value = '' WHERE value <> excluded.value";

/// Where requests went when the copy was made, and so where the lost file's may have gone. Two files that sent to two
/// places leave no place to ask at.
pub(super) fn keep_scopes(tx: &Tx<'_>) -> Result<(), StoreError> {
    let conn = tx.conn();
    let in_doubt: bool = conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM onceward_restores WHERE closed_ms IS NULL)
           OR EXISTS (SELECT 1 FROM onceward_intents WHERE doubt_since_ms IS NOT NULL AND state <> 'settled')",
        [],
        |row| row.get(0),
    )?;
    if !in_doubt {
        conn.execute("DELETE FROM onceward_meta WHERE name LIKE 'copy_scope:%'", [])?;
    }
    conn.execute(OF_COPY, [])?;
    Ok(())
}

const SCOPE_OF_THEN: &str = "UPDATE onceward_intents SET scope_send = ?2, scope_lookup = ?3
  WHERE id = ?1 AND scope_send IS NULL AND state <> 'settled'";

/// An intent that was never rendered in this file: its requests, if there were any, went where the kind's went then.
pub(super) fn scope_of_then(tx: &Tx<'_>, id: JobId, kind: &str) -> Result<(), StoreError> {
    let Some(kept) = schema::meta(tx.conn(), &format!("copy_scope:{kind}"))? else { return Ok(()) };
    let [send, lookup]: [String; 2] = serde_json::from_str(&kept).unwrap_or_default();
    tx.conn().prepare_cached(SCOPE_OF_THEN)?.execute((id.0, send, lookup))?;
    Ok(())
}

const PUT: &str =
    "UPDATE onceward_intents SET doubt_since_ms = min(coalesce(doubt_since_ms, :since), :since),
    doubt_restore = coalesce(doubt_restore, :restore), proved = 0, refused_directly = 0, not_found = 0,
    not_found_ms = NULL, not_found_boot_ms = NULL, last_sent_ms = :restored, last_sent_boot_ms = :boot,
    state = CASE WHEN :live THEN 'requested' ELSE state END,
    requested_ms = CASE WHEN :live THEN coalesce(requested_ms, :since) ELSE requested_ms END
  WHERE id = :id AND state <> 'settled'";

/// Puts an intent in doubt by a restore. It counts as sent at the latest when the file was restored, so that a look-up's
/// lag runs from there, and nothing that was not found before counts. `live`: its job is not at its end.
pub(super) fn put(
    tx: &Tx<'_>,
    id: JobId,
    since: Ms,
    restore: i64,
    restored: Ms,
    boot: Option<i64>,
    live: bool,
) -> Result<(), StoreError> {
    tx.conn().prepare_cached(PUT)?.execute(named_params! {
        ":id": id.0, ":since": since.0, ":restore": restore, ":restored": restored.0, ":boot": boot, ":live": live,
    })?;
    Ok(())
}

const END: &str = "UPDATE onceward_intents SET doubt_since_ms = NULL, doubt_restore = NULL, proved = 0
  WHERE id = ?1 AND state <> 'settled'";

/// A person has spoken of all generations.
pub(super) fn end(tx: &Tx<'_>, id: JobId) -> Result<(), StoreError> {
    tx.conn().prepare_cached(END)?.execute([id.0])?;
    Ok(())
}

const CONCERNING: &str =
    "SELECT max(restored_ms), min(no_words_ms IS NOT NULL) FROM onceward_restores WHERE id >= ?1";

/// The doubt of an intent, by the restores that concern it.
pub(super) fn read(conn: &Connection, since: Ms, restore: Option<i64>) -> Result<Doubt, StoreError> {
    let (restored, no_words): (Option<i64>, Option<bool>) = conn
        .prepare_cached(CONCERNING)?
        .query_row([restore.unwrap_or(0)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // A restore that is not on file has nobody's word.
    Ok(Doubt { since, restored: restored.map_or(since, Ms), no_words: no_words.unwrap_or(false) })
}

const EARLIER: &str =
    "SELECT g.wire_key, g.reference FROM onceward_generations g JOIN onceward_intents i ON i.id = g.intent_id
  WHERE g.intent_id = ?1 AND g.generation < i.generation ORDER BY g.generation";

/// What the generations before the present one were.
pub(super) fn earlier(conn: &Connection, id: JobId) -> Result<Earlier, StoreError> {
    let mut statement = conn.prepare_cached(EARLIER)?;
    let mut rows = statement.query([id.0])?;
    let mut earlier = Earlier::default();
    while let Some(row) = rows.next()? {
        earlier.wire_keys.push(row.get(0)?);
        earlier.references.extend(row.get::<_, Option<String>>(1)?);
    }
    Ok(earlier)
}

/// So many generations further than one that is known the lost file may have gone.
const FURTHER: u32 = 5;
const KNOWN: &str = "SELECT generation, wire_key FROM onceward_generations WHERE intent_id = ?1
  UNION SELECT generation, wire_key FROM onceward_intents WHERE id = ?1";
/// Those that the lost file had seen itself: all that concern the intent but the last.
const SEEN_BY_THE_LOST: &str = "SELECT restored_ms FROM onceward_restores
  WHERE id >= (SELECT coalesce(doubt_restore, 0) FROM onceward_intents WHERE id = ?1)
    AND id < (SELECT max(id) FROM onceward_restores)";

/// The keys under which a request may have left for an intent in doubt, by generation: those that this file knows, and
/// the next ones, which the lost file may have come to. Where that one was a restored file too, its numbers may have gone
/// on from that restore.
pub(super) fn wire_keys(
    conn: &Connection,
    id: JobId,
    key: &Key,
    namespace: &str,
) -> Result<BTreeMap<u32, String>, StoreError> {
    let mut known: BTreeMap<u32, String> = conn
        .prepare_cached(KNOWN)?
        .query_map([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    // Keys say themselves of which style they are, whatever the config says by now.
    let raw = known.iter().any(|(n, wire)| *wire == wire_key(WireStyle::Raw, namespace, key, *n));
    let style = if raw { WireStyle::Raw } else { WireStyle::Uuid };
    let mut from: Vec<u32> = known.keys().copied().collect();
    let mut statement = conn.prepare_cached(SEEN_BY_THE_LOST)?;
    for at in statement.query_map([id.0], |row| row.get(0).map(Ms))? {
        from.push(numbers_after(at?));
    }
    for n in from.into_iter().flat_map(|n| n..=n.saturating_add(FURTHER)) {
        known.entry(n).or_insert_with(|| wire_key(style, namespace, key, n));
    }
    Ok(known)
}

/// Those of them that this file has not given out itself.
pub(super) fn lost_keys(conn: &Connection, job: &Job, intent: &Intent) -> Result<Vec<String>, StoreError> {
    let namespace = schema::meta(conn, "namespace")?.unwrap_or_default();
    let all = wire_keys(conn, job.id, &job.key, &namespace)?;
    let own = |key: &String| *key == intent.wire_key || intent.earlier.wire_keys.contains(key);
    Ok(all.into_values().filter(|key| !own(key)).collect())
}

const KEEP: &str =
    "INSERT INTO onceward_generations (intent_id, generation, wire_key, reference) VALUES (?1, ?2, ?3, ?4)
  ON CONFLICT (intent_id, generation) DO UPDATE SET wire_key = excluded.wire_key,
    reference = coalesce(excluded.reference, reference)";

/// Keeps the key of a generation that is left, or the object that an answer named and that did not settle it.
pub(super) fn keep_generation(
    tx: &Tx<'_>,
    id: JobId,
    intent: &Intent,
    reference: Option<&str>,
) -> Result<(), StoreError> {
    let generation = intent.generation.number;
    tx.conn().prepare_cached(KEEP)?.execute((id.0, generation, &intent.wire_key, reference))?;
    Ok(())
}

const OF_WIRE_KEY: &str =
    "SELECT generation FROM onceward_generations WHERE intent_id = ?1 AND wire_key = ?2";
const LAST_SENT: &str =
    "SELECT max(generation) FROM onceward_generations WHERE intent_id = ?1 AND generation < ?2";

/// The generation that had this wire key.
pub(super) fn generation_of(
    conn: &Connection,
    id: JobId,
    intent: &Intent,
    wire_key: &str,
) -> Result<Option<u32>, StoreError> {
    if intent.wire_key == wire_key {
        return Ok(Some(intent.generation.number));
    }
    Ok(conn.prepare_cached(OF_WIRE_KEY)?.query_row((id.0, wire_key), |row| row.get(0)).optional()?)
}

/// The generation before the present one.
pub(super) fn generation_before(
    conn: &Connection,
    id: JobId,
    present: u32,
) -> Result<Option<u32>, StoreError> {
    Ok(conn.prepare_cached(LAST_SENT)?.query_row((id.0, present), |row| row.get(0))?)
}

/// What a due job may do next. What is in doubt at a provider that its kind has left stays there: the new one knows
/// nothing of it.
pub(super) fn plan_for(job: &Job, intent: &Intent, kind: &KindDesk, scope: &Scope, now: &Now) -> Plan {
    if intent.in_doubt() && !kind.terms.external && intent.provider != kind.called {
        return Plan::Park(Reason::ScopeChanged);
    }
    plan(job, intent, &kind.terms, scope, now)
}

const RESTORES: &str =
    "SELECT id, copied_ms, restored_ms, restored_by, after_id, copy_seq, no_words_ms, no_words_by, closed_ms, closed_by
  FROM onceward_restores ORDER BY id";
const LAST_TOLD: &str =
    "SELECT detail FROM onceward_events WHERE action = 'restore' ORDER BY seq DESC LIMIT 1";
/// Before the hash of all restores, in the events about them: so their chain holds the table too.
const TOLD: &str = "; the restores on file have sha256 ";

/// What an event about a restore, or about a word on restores, ends with.
pub(super) fn held(conn: &Connection) -> Result<String, StoreError> {
    let mut statement = conn.prepare_cached(RESTORES)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut hash = Sha256::new();
    while let Some(row) = rows.next()? {
        for i in 0..columns {
            facts::take(&mut hash, row.get_ref(i)?);
        }
    }
    Ok(format!("{TOLD}{}", hex(&hash.finalize())))
}

/// Are the restores on file what the last event about them says? Files of an older version have no such event.
pub(super) fn verify(conn: &Connection) -> Result<bool, StoreError> {
    let told = conn.prepare_cached(LAST_TOLD)?.query_row([], |row| rows::shown_if_any(row, 0)).optional()?;
    match told.flatten().as_deref().and_then(|detail| detail.find(TOLD).map(|at| detail[at..].to_string())) {
        Some(told) => Ok(told == held(conn)?),
        None => Ok(true),
    }
}
