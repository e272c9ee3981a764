//! What must hold after every step, checked by code that shares nothing with the product: it reads the file by its own
//! connection and knows the contract only.

use crate::provider::Bank;
use crate::setup::{Family, Setup};
use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fails the run with words.
macro_rules! ensure {
    ($cond:expr, $($words:tt)+) => {
        if !$cond {
            return Err(format!($($words)+));
        }
    };
}
pub(crate) use ensure;

/// A job and its intent as the file has them.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub id: i64,
    pub key: String,
    pub kind: String,
    pub content: String,
    pub amount: i64,
    pub istate: String,
    pub generation: i64,
    pub wire: String,
    pub unknown: bool,
    pub accepted: bool,
    pub reference: Option<String>,
    pub confirmed: Option<i64>,
    pub state: String,
    pub attempts: i64,
    pub max_attempts: i64,
    pub tries: i64,
    pub reason: Option<String>,
    pub group: Option<String>,
    pub sequence: Option<i64>,
    pub passed_over: bool,
    pub lease_phase: Option<String>,
    pub lease_token: i64,
    pub run_after: i64,
    pub claimable: bool,
    pub frozen: Option<String>,
    /// In doubt since the file was restored.
    pub doubt: bool,
}

impl Row {
    /// Nothing more happens to it by itself.
    pub fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "settled" | "parked" | "cancelled")
    }
}

const ROWS: &str = "SELECT i.id, i.key, i.kind, hex(i.content_hash), coalesce(i.amount_minor, -1), i.state, i.generation,
    i.wire_key, i.unknown, i.accepted, i.reference, i.confirmed_ms, j.state, j.attempts, j.max_attempts, j.tries,
    j.park_reason, j.group_name, j.sequence, j.passed_over, j.lease_phase, j.lease_token, j.run_after_ms, j.claimable,
    CAST(i.frozen_body AS TEXT), i.doubt_since_ms IS NOT NULL
  FROM onceward_intents i JOIN onceward_jobs j ON j.id = i.id WHERE ?1 IS NULL OR i.id = ?1 ORDER BY i.id";

/// One row of history.
#[derive(Clone, Debug)]
pub struct Line {
    pub job: i64,
    pub action: String,
    pub attempt: Option<i64>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub class: Option<String>,
    pub phase: Option<String>,
    pub detail: Option<String>,
}

pub struct Oracle {
    conn: Connection,
    pub rows: BTreeMap<i64, Row>,
    seq: i64,
    chain: Vec<u8>,
    /// All lines of each job.
    pub lines: BTreeMap<i64, Vec<Line>>,
    attempts: BTreeMap<i64, i64>,
    pub classes: BTreeMap<String, i64>,
    /// Ids and keys that somebody was told are stored.
    pub acked: BTreeSet<String>,
    pub hash: Sha256,
}

impl Oracle {
    pub fn new(path: &Path) -> Oracle {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags).unwrap();
        conn.set_prepared_statement_cache_capacity(32);
        Oracle {
            conn,
            rows: BTreeMap::new(),
            seq: 0,
            chain: Vec::new(),
            lines: BTreeMap::new(),
            attempts: BTreeMap::new(),
            classes: BTreeMap::new(),
            acked: BTreeSet::new(),
            hash: Sha256::new(),
        }
    }

    /// A copy has taken the file's place: what it says is taken as it is, and judged from here on.
    pub fn anew(path: &Path, before: &Oracle, acked: BTreeSet<String>) -> Oracle {
        let mut oracle = Oracle::new(path);
        oracle.hash = before.hash.clone();
        oracle.acked = acked;
        if let Err(e) = oracle.history() {
            panic!("the copy's history: {e}");
        }
        oracle.rows = oracle.read(None).into_iter().map(|r| (r.id, r)).collect();
        oracle
    }

    pub fn by_key(&self, key: &str) -> Option<&Row> {
        self.rows.values().find(|r| r.key == key)
    }

    /// One row as the file has it at this moment.
    pub fn now(&self, id: i64) -> Option<Row> {
        self.read(Some(id)).pop()
    }

    fn read(&self, id: Option<i64>) -> Vec<Row> {
        let mut statement = self.conn.prepare_cached(ROWS).unwrap();
        let row = |r: &rusqlite::Row<'_>| {
            Ok(Row {
                id: r.get(0)?,
                key: r.get(1)?,
                kind: r.get(2)?,
                content: r.get(3)?,
                amount: r.get(4)?,
                istate: r.get(5)?,
                generation: r.get(6)?,
                wire: r.get(7)?,
                unknown: r.get(8)?,
                accepted: r.get(9)?,
                reference: r.get(10)?,
                confirmed: r.get(11)?,
                state: r.get(12)?,
                attempts: r.get(13)?,
                max_attempts: r.get(14)?,
                tries: r.get(15)?,
                reason: r.get(16)?,
                group: r.get(17)?,
                sequence: r.get(18)?,
                passed_over: r.get(19)?,
                lease_phase: r.get(20)?,
                lease_token: r.get(21)?,
                run_after: r.get(22)?,
                claimable: r.get(23)?,
                frozen: r.get(24)?,
                doubt: r.get(25)?,
            })
        };
        statement.query_map([id], row).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Looks at the file after a step.
    pub fn look(&mut self, setup: &Setup, bank: &mut Bank, amended: &BTreeSet<i64>) -> Result<(), String> {
        let fresh = self.history()?;
        let rows: BTreeMap<i64, Row> = self.read(None).into_iter().map(|r| (r.id, r)).collect();
        let mut keys = BTreeSet::new();
        for row in rows.values() {
            ensure!(keys.insert(&row.key), "two intents of key {}", row.key);
            let mine: Vec<_> = fresh.iter().filter(|l| l.job == row.id).collect();
            self.row(setup, bank, row)?;
            match self.rows.get(&row.id) {
                Some(before) => self.change(setup, before, row, &mine, amended)?,
                None => ensure!(row.generation == 1, "{} begins with generation {}", row.key, row.generation),
            }
            if self.rows.get(&row.id).is_some_and(|b| b.generation < row.generation) {
                // The change was judged; what went out before is closed by it.
                bank.seen.iter_mut().filter(|s| s.key == row.key).for_each(|s| s.doubtful = false);
            }
        }
        for key in &self.acked {
            ensure!(keys.contains(key), "{key} was taken and is gone");
        }
        let gone = self.rows.keys().find(|id| !rows.contains_key(id));
        ensure!(gone.is_none(), "job {gone:?} is gone");
        self.rows = rows;
        Ok(())
    }

    /// New lines of history: no gap, chained, each hash what it says, attempts numbered 1, 2, 3.
    fn history(&mut self) -> Result<Vec<Line>, String> {
        let sql = "SELECT seq, job_id, action, attempt, from_state, to_state, class, phase, http_status, error, detail,
            run_after_ms, started_ms, at_ms, actor, record, content_hash, chain FROM onceward_history WHERE seq > ?1 ORDER BY seq";
        let mut statement = self.conn.prepare_cached(sql).unwrap();
        let mut rows = statement.query([self.seq]).unwrap();
        let mut fresh = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let seq: i64 = row.get(0).unwrap();
            ensure!(seq == self.seq + 1, "history row {} is missing", self.seq + 1);
            let digest = |columns: &[usize]| {
                let mut hash = Sha256::new();
                for column in columns {
                    let text = match row.get_ref(*column).unwrap() {
                        rusqlite::types::ValueRef::Null => None,
                        rusqlite::types::ValueRef::Integer(n) => Some(n.to_string()),
                        other => Some(other.as_str().unwrap().to_string()),
                    };
                    hash.update(text.as_ref().map_or(0, |t| t.len() as u64 + 1).to_be_bytes());
                    hash.update(text.unwrap_or_default());
                }
                hash.finalize()
            };
            // The words, which a prune may take away; and everything else, over which the chain goes.
            let words = digest(&[9, 10]);
            ensure!(
                row.get::<_, Vec<u8>>(16).unwrap() == words[..],
                "history row {seq} does not say what its hash does"
            );
            let rest = digest(&[1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15]);
            let sealed = Sha256::new().chain_update(rest).chain_update(words).finalize();
            let chain = Sha256::new().chain_update(&self.chain).chain_update(sealed).finalize().to_vec();
            ensure!(row.get::<_, Vec<u8>>(17).unwrap() == chain, "the chain breaks at history row {seq}");
            self.hash.update(&chain);
            let line = Line {
                job: row.get(1).unwrap(),
                action: row.get(2).unwrap(),
                attempt: row.get(3).unwrap(),
                from: row.get(4).unwrap(),
                to: row.get(5).unwrap(),
                class: row.get(6).unwrap(),
                phase: row.get(7).unwrap(),
                detail: row.get(10).unwrap(),
            };
            if let Some(n) = line.attempt {
                let last = self.attempts.insert(line.job, n).unwrap_or(0);
                ensure!(n == last + 1, "job {}: attempt {n} follows attempt {last}", line.job);
            }
            if let (Some(class), "request" | "lookup" | "crash") = (&line.class, line.action.as_str()) {
                *self.classes.entry(class.clone()).or_default() += 1;
            }
            (self.seq, self.chain) = (seq, chain);
            fresh.push(line);
        }
        drop(rows);
        drop(statement);
        for line in &fresh {
            self.lines.entry(line.job).or_default().push(line.clone());
        }
        Ok(fresh)
    }

    /// One row by itself, and beside the provider's truth.
    fn row(&self, setup: &Setup, bank: &Bank, row: &Row) -> Result<(), String> {
        let (key, state, istate) = (&row.key, row.state.as_str(), row.istate.as_str());
        let effects: Vec<_> = bank.effects(key).collect();
        ensure!(effects.len() <= 1, "{key} took effect {} times: {effects:?}", effects.len());
        // What the lost file did stands, and this one does not know of it.
        if matches!(istate, "pending" | "rejected" | "cancelled") && !row.doubt {
            ensure!(effects.is_empty(), "{key} is {istate} and took effect: {effects:?}");
            ensure!(
                !row.unknown || istate == "rejected" || state == "cancelled",
                "{key} is {istate} and in doubt"
            );
        }
        if istate == "settled" {
            let [effect] = effects[..] else { return Err(format!("{key} is settled and took no effect")) };
            ensure!(
                row.reference.as_deref() == Some(&effect.id),
                "{key}: {:?} is not {}",
                row.reference,
                effect.id
            );
            ensure!(state == "settled", "{key} is settled and its job {state}");
            let person = self
                .lines
                .get(&row.id)
                .is_some_and(|l| l.iter().any(|l| matches!(l.action.as_str(), "resolve" | "confirm")));
            let fits = effect.amount == row.amount || person;
            ensure!(fits, "{key} is settled with {} instead of {}", effect.amount, row.amount);
        }
        ensure!(state != "settled" || istate == "settled", "{key}: job settled, intent {istate}");
        ensure!(
            state != "unknown" || (istate == "requested" && (row.unknown || row.doubt)),
            "{key} is unknown and {istate}"
        );
        let certain = matches!(state, "scheduled" | "ready");
        ensure!(
            !certain || (istate == "pending" && !row.unknown),
            "{key} is {state} and {istate}, in doubt: {}",
            row.unknown
        );
        ensure!(row.attempts <= row.max_attempts, "{key} spent {} attempts", row.attempts);
        let spent = self.spent(row.id, false) + i64::from(state == "running");
        ensure!(row.attempts <= spent, "{key} spent {} attempts, and made {spent}", row.attempts);
        let recorded = self.attempts.get(&row.id).copied().unwrap_or(0);
        let open = i64::from(state == "running");
        ensure!(
            row.tries == recorded + open,
            "{key} is {state} with {} tries, {recorded} of them in the history",
            row.tries
        );
        let doubt = matches!(
            row.reason.as_deref(),
            Some(
                "unknown_outcome"
                    | "window_expired"
                    | "scope_changed"
                    | "content_differs"
                    | "reference_taken"
            )
        );
        ensure!(!doubt || istate == "requested", "{key} is parked {:?} and {istate}", row.reason);
        ensure!(
            row.reason.as_deref() != Some("rejected") || istate == "rejected" || row.doubt,
            "{key}: rejected and {istate}"
        );
        ensure!(setup.kind(&row.kind).is_some(), "{key} has a kind {}", row.kind);
        Ok(())
    }

    /// How many requests spent an attempt; `lately`: since a person last put the job back to work.
    pub fn spent(&self, id: i64, lately: bool) -> i64 {
        let lines = self.lines.get(&id).map_or(&[][..], Vec::as_slice);
        let begins = lines.iter().rposition(|l| matches!(l.action.as_str(), "replay" | "resolve"));
        let free = |l: &Line| {
            let class = l.class.as_deref().unwrap_or_default();
            l.attempt.is_none()
                || matches!(l.action.as_str(), "lookup" | "release")
                || matches!(class, "not_sent" | "throttled" | "in_progress" | "auth")
        };
        let from = begins.filter(|_| lately).map_or(0, |at| at + 1);
        lines[from..].iter().filter(|l| !free(l)).count() as i64
    }

    /// What a step may have made of a row.
    fn change(
        &self,
        setup: &Setup,
        before: &Row,
        row: &Row,
        fresh: &[&Line],
        amended: &BTreeSet<i64>,
    ) -> Result<(), String> {
        let key = &row.key;
        ensure!(before.key == *key && before.kind == row.kind, "{key} was {}", before.key);
        if !amended.contains(&row.id) {
            ensure!(
                before.content == row.content && before.amount == row.amount,
                "the content of {key} changed"
            );
        }
        if before.istate == "settled" {
            let same = (&before.reference, before.confirmed, before.generation, &before.state);
            ensure!(
                same == (&row.reference, row.confirmed, row.generation, &row.state),
                "{key} was settled: {row:?}"
            );
        }
        ensure!(row.generation >= before.generation, "the generation of {key} fell");
        ensure!(row.generation <= before.generation + 1 || before.doubt, "{key} skipped a generation");
        let ended = fresh.iter().any(|l| l.detail.as_deref().is_some_and(|d| d.contains("all generations")));
        ensure!(
            !before.doubt || row.doubt || row.istate == "settled" || ended,
            "{key} is not in doubt since the restore any more, and nobody spoke of all generations"
        );
        ensure!(row.lease_token >= before.lease_token, "the token of {key} fell");
        let said = |action: &str| fresh.iter().any(|l| l.action == action);
        let moved = before.state != row.state && !quiet(&before.state, &row.state);
        ensure!(!moved || !fresh.is_empty(), "{key} went from {} to {} unsaid", before.state, row.state);
        let ended = before.state == "running" && row.state != "running";
        let end = ["request", "lookup", "crash", "release", "confirm", "late_result", "resolve"];
        ensure!(!ended || end.iter().any(|a| said(a)), "an attempt of {key} ended unsaid");
        if before.generation == row.generation {
            if before.unknown && !row.unknown {
                let decisive = fresh.iter().any(|l| l.class.as_deref() == Some("rejected"));
                ensure!(
                    decisive || row.istate == "settled",
                    "{key} is not in doubt any more, and nothing says why"
                );
            }
            let frozen = before.frozen.is_some() && row.frozen != before.frozen;
            ensure!(!frozen || amended.contains(&row.id), "the frozen request of {key} changed");
            ensure!(before.wire == row.wire, "the wire key of {key} changed");
        } else {
            ensure!(before.wire != row.wire, "{key} has a new generation and the old wire key");
            self.generation(setup, before, row, fresh)?;
        }
        for line in fresh {
            self.line(setup, before, row, line)?;
        }
        Ok(())
    }

    /// A new generation needs proof that the one before had no effect.
    fn generation(&self, setup: &Setup, before: &Row, row: &Row, fresh: &[&Line]) -> Result<(), String> {
        let proof = fresh.iter().any(|l| match (l.action.as_str(), l.class.as_deref()) {
            ("resolve", _) if before.doubt => {
                l.detail.as_deref().is_some_and(|d| d.contains("all generations"))
            }
            ("resolve", _) => l.detail.as_deref().is_some_and(|d| d.starts_with("not-applied")),
            ("replay", _) => {
                before.istate == "rejected" || (l.detail.is_some() && before.istate == "pending")
            }
            ("request", Some("rejected")) => true,
            ("lookup", Some("not_found")) => self.looked_up(setup, before),
            _ => false,
        });
        let story: Vec<_> =
            self.lines[&row.id].iter().map(|l| format!("{} {:?} {:?}", l.action, l.class, l.to)).collect();
        ensure!(proof, "{} is at generation {} without proof: {story:?}", row.key, row.generation);
        Ok(())
    }

    /// Twice, by a look-up whose word counts, and never accepted.
    fn looked_up(&self, setup: &Setup, before: &Row) -> bool {
        let authoritative = setup.kind(&before.kind).and_then(|k| k.lookup).is_some_and(|l| l.authoritative);
        let lines = self.lines.get(&before.id).map_or(&[][..], Vec::as_slice);
        let since = lines.iter().rposition(|l| {
            let left = !matches!(l.class.as_deref(), Some("not_sent" | "auth"));
            // A crash may have been a look-up's.
            let restored =
                l.action == "release" && l.detail.as_deref().is_some_and(|d| d.starts_with("restored"));
            matches!(l.action.as_str(), "resolve" | "replay") || (l.action == "request" && left) || restored
        });
        let nothing = lines[since.unwrap_or(0)..].iter().filter(|l| l.class.as_deref() == Some("not_found"));
        // Only what asks by the key sees the lost file's other generations, and only if it shows what is not final.
        let for_all =
            setup.kind(&before.kind).and_then(|k| k.lookup).is_some_and(|l| l.by_key && l.lists_pending);
        authoritative && !before.accepted && nothing.count() >= 2 && (for_all || !before.doubt)
    }

    /// One decision against the table of outcomes.
    fn line(&self, setup: &Setup, before: &Row, row: &Row, line: &Line) -> Result<(), String> {
        let to = line.to.as_deref().unwrap_or_default();
        let again = matches!(to, "scheduled" | "ready" | "waiting");
        let asked = matches!(to, "unknown" | "parked");
        let kind = setup.kind(&row.kind);
        let forgets = kind.is_some_and(|k| k.family == Family::E);
        let looks = kind.and_then(|k| k.lookup);
        let class = line.class.as_deref().unwrap_or_default();
        let allowed = match (line.action.as_str(), class) {
            ("request" | "lookup", "ok") => matches!(to, "settled" | "parked"),
            ("request" | "lookup", "accepted") => asked,
            ("request", "not_sent" | "throttled" | "auth") if before.unknown || before.doubt => {
                to == "unknown"
            }
            ("request", "not_sent" | "throttled" | "auth") => again || to == "parked",
            ("request", "timeout" | "interrupted" | "server_error" | "bad_response" | "in_progress") => asked,
            ("request", "key_mismatch") => asked,
            ("request", "redirected") => {
                if before.unknown || before.doubt {
                    asked
                } else {
                    to == "parked"
                }
            }
            ("request", "rejected") => asked || (again && kind.is_some_and(|k| k.retry_on)),
            ("crash", "crashed") => asked || (again && forgets && line.phase.as_deref() == Some("claimed")),
            ("lookup", "rejected") => to == "parked" && (row.istate == "rejected" || row.doubt),
            ("lookup", "not_found") => asked || (again && looks.is_some_and(|l| l.authoritative)),
            ("lookup", "lookup_failed") => asked,
            ("late_result", _) => {
                to == line.from.as_deref().unwrap_or_default() || (class == "ok" && to == "settled")
            }
            ("cancel", "") => to == "cancelled",
            ("confirm", "") => to == "settled",
            ("park", "") => to == "parked",
            ("release", "") => again || to == "unknown" || to == line.from.as_deref().unwrap_or_default(),
            ("resolve", "") => matches!(to, "settled" | "cancelled") || again,
            ("replay", "") => again || to == "unknown",
            ("enqueue" | "note", "") => true,
            _ => false,
        };
        ensure!(allowed, "{}: {} {class} from {:?} to {to} is not allowed", row.key, line.action, line.from);
        Ok(())
    }

    /// The figures are those of the rows.
    pub fn figures(&self) -> Result<(), String> {
        let sql = "SELECT name, value FROM onceward_counters";
        let mut statement = self.conn.prepare_cached(sql).unwrap();
        let pairs = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
        let counters: BTreeMap<String, i64> = pairs.collect::<Result<_, _>>().unwrap();
        let figure = |name: String| counters.get(&name).copied().unwrap_or(0);
        let mut total = 0;
        for state in ["scheduled", "ready", "waiting", "running", "unknown", "settled", "parked", "cancelled"]
        {
            let counted = self.rows.values().filter(|r| r.state == state).count() as i64;
            total += counted;
            ensure!(figure(format!("jobs:{state}")) == counted, "{counted} are {state}: {counters:?}");
        }
        ensure!(total == self.rows.len() as i64, "{total} of {} jobs have a state", self.rows.len());
        for (class, counted) in &self.classes {
            ensure!(figure(format!("class:{class}")) == *counted, "{counted} ended {class}: {counters:?}");
        }
        for (name, value) in counters.iter().filter_map(|(n, v)| Some((n.strip_prefix("parked:")?, v))) {
            let parked = self.rows.values().filter(|r| r.reason.as_deref() == Some(name)).count() as i64;
            ensure!(parked == *value, "{parked} are parked {name}: {counters:?}");
        }
        Ok(())
    }

    /// What costs more: the file's own checks, and that no secret is in it.
    pub fn file(&self, path: &Path, secret: &str) -> Result<(), String> {
        let check: String = self.conn.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
        ensure!(check == "ok", "{check}");
        let broken = self.conn.prepare("PRAGMA foreign_key_check").unwrap().exists([]).unwrap();
        ensure!(!broken, "a foreign key leads nowhere");
        for end in ["", "-wal"] {
            let mut name = path.as_os_str().to_os_string();
            name.push(end);
            let bytes = std::fs::read(&name).unwrap_or_default();
            let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
            ensure!(!found, "the secret is in {name:?}");
        }
        Ok(())
    }
}

/// Moves that no line of history tells of: time passed, or the group's turn came.
fn quiet(from: &str, to: &str) -> bool {
    matches!(
        (from, to),
        ("scheduled", "ready")
            | ("waiting", "ready" | "scheduled" | "unknown")
            | ("ready" | "scheduled", "waiting")
            | (_, "running")
    )
}

impl Oracle {
    /// Adds to the trace.
    pub fn hash_text(&mut self, text: &str) {
        self.hash.update(text);
    }

    /// The trace so far.
    pub fn digest(&self) -> Vec<u8> {
        self.hash.clone().finalize().to_vec()
    }
}
