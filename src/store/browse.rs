//! Lists for people: newest first, filtered, a page at a time, over any number of jobs.
//!
//! One filter leads and has an index of its own; the others are held against each row that it gives. A page looks at no
//! more than [`WINDOW`] rows, so that a filter that fits little never turns into a scan: the page then says how far it
//! looked, and the next one goes on from there.

use super::figures::counters;
use super::rows::{shown, shown_if_any};
use super::{Store, StoreError};
use crate::clock::Ms;
use crate::intent::IntentState;
use crate::job::{JobId, Reason, State};
use crate::outcome::Class;
use rusqlite::{Connection, OptionalExtension, Row, named_params};

/// The most rows that one page looks at.
pub const WINDOW: usize = 4000;

/// What the list goes by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum By {
    /// All jobs, or what the other filters leave of them.
    #[default]
    All,
    /// Keys that begin with this, in the keys' order.
    Key(String),
    /// This reference of a provider's.
    Reference(String),
    /// This account.
    Account(String),
    /// Parked for this reason, the oldest first.
    Reason(Reason),
}

/// Which jobs a page shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Browse {
    /// What it goes by.
    pub by: By,
    /// In this state, as readers see it.
    pub state: Option<State>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Of this group.
    pub group: Option<String>,
    /// Whose last class or park reason is this.
    pub class: Option<String>,
    /// The intent is in this state.
    pub intent: Option<IntentState>,
    /// Where the page before this one ended.
    pub after: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
}

/// A place in a list: what it is sorted by, and the job's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// A key, a park reason, or a number.
    pub at: String,
    /// The job there.
    pub id: i64,
}

/// One row of a list.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Its number.
    pub id: JobId,
    /// Its key.
    pub key: String,
    /// Its kind.
    pub kind: String,
    /// Its state, as readers see it.
    pub state: State,
    /// Its intent's.
    pub intent: IntentState,
    /// Whose account.
    pub account: Option<String>,
    /// Minor units.
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The provider's own id of the effect.
    pub reference: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// The class of its last attempt, while that is news.
    pub class: Option<Class>,
    /// What went wrong last.
    pub error: Option<String>,
    /// Why it is parked.
    pub reason: Option<Reason>,
    /// When it is due.
    pub run_after: Ms,
    /// When it last changed.
    pub updated: Ms,
    /// When the present generation's first request was begun.
    pub first_sent: Option<Ms>,
    /// In doubt since a restore: when the copy was made.
    pub doubt_since: Option<Ms>,
    /// The app is to be told to call when it next asks: since then.
    pub waits_for_app: Option<Ms>,
}

/// A page of a list.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Page {
    /// The rows.
    pub lines: Vec<Line>,
    /// Where the next page begins; `None`: there is no more.
    pub next: Option<Cursor>,
    /// How many rows were looked at.
    pub looked: usize,
}

/// A query's rows carry what they are sorted by as `at`, and the same columns otherwise.
macro_rules! lines {
    ($at:literal, jobs, $rest:literal) => {
        lines!($at, "onceward_jobs j CROSS JOIN onceward_intents i ON i.id = j.id", $rest)
    };
    // A pruned job has no row of its own any more.
    ($at:literal, intents, $rest:literal) => {
        lines!($at, "onceward_intents i LEFT JOIN onceward_jobs j ON j.id = i.id", $rest)
    };
    ($at:literal, $from:literal, $rest:literal) => {
        concat!(
            "SELECT ", $at, " AS at, i.id, i.key, i.kind, i.state, i.account, i.amount_minor, i.currency, i.provider,
               i.reference, j.state, j.group_name, j.error_class, j.last_error, j.park_reason, j.run_after_ms,
               j.updated_ms, i.first_sent_ms, i.created_ms, i.doubt_since_ms, i.waits_for_app_ms
             FROM ", $from, " ", $rest
        )
    };
}

pub(super) const NEWEST: &str = lines!("j.id", jobs, "WHERE j.id < :id ORDER BY j.id DESC LIMIT :window");
pub(super) const KIND: &str =
    lines!("i.id", intents, "WHERE i.kind = :value AND i.id < :id ORDER BY i.id DESC LIMIT :window");
pub(super) const CLASS: &str = lines!(
    "j.id",
    jobs,
    "WHERE j.error_class = :value AND j.error_class IS NOT NULL AND j.id < :id ORDER BY j.id DESC LIMIT :window"
);
pub(super) const REASON: &str = lines!(
    "j.id",
    jobs,
    "WHERE j.state = 'parked' AND j.park_reason = :value AND j.id > :id ORDER BY j.id LIMIT :window"
);
pub(super) const PARKED: &str = lines!(
    "j.park_reason",
    jobs,
    "WHERE j.state = 'parked' AND (j.park_reason, j.id) > (:at, :id) ORDER BY j.park_reason, j.id LIMIT :window"
);
/// The plus keeps SQLite from walking all jobs by number: as many run as there are threads, and their index has them.
pub(super) const RUNNING: &str =
    lines!("j.id", jobs, "WHERE j.state = 'running' AND +j.id < :id ORDER BY +j.id DESC LIMIT :window");
pub(super) const CANCELLED: &str =
    lines!("j.id", jobs, "WHERE j.state = 'cancelled' AND j.id < :id ORDER BY j.id DESC LIMIT :window");
/// By when it is due, the soonest first.
pub(super) const OPEN: &str = lines!(
    "j.run_after_ms",
    jobs,
    "WHERE j.state = :value AND j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled'
       AND (j.run_after_ms, j.id) > (:due, :id) ORDER BY j.run_after_ms, j.id LIMIT :window"
);
/// By place, the last first; cancelled places are not part of the order.
pub(super) const GROUP: &str = lines!(
    "j.sequence",
    jobs,
    "WHERE j.group_name = :value AND j.group_name IS NOT NULL AND j.state <> 'cancelled' AND j.sequence < :due
     ORDER BY j.sequence DESC LIMIT :window"
);
pub(super) const GROUP_CANCELLED: &str = lines!(
    "j.sequence",
    jobs,
    "WHERE j.group_name = :value AND j.group_name IS NOT NULL AND j.state = 'cancelled'
       AND (j.sequence, j.id) < (:due, :id) ORDER BY j.sequence DESC, j.id DESC LIMIT :window"
);
pub(super) const KEY: &str =
    lines!("i.key", intents, "WHERE i.key >= :value AND i.key > :at ORDER BY i.key LIMIT :window");
pub(super) const REFERENCE: &str = lines!(
    "i.id",
    intents,
    "WHERE i.reference = :value AND i.reference IS NOT NULL AND i.id < :id ORDER BY i.id DESC LIMIT :window"
);
pub(super) const ACCOUNT: &str = lines!(
    "i.id",
    intents,
    "WHERE i.account = :value AND i.account IS NOT NULL AND i.id < :id ORDER BY i.id DESC LIMIT :window"
);

impl Store {
    /// A page of jobs.
    pub fn browse(&self, browse: &Browse) -> Result<Page, StoreError> {
        let conn = self.reader()?;
        let now = self.clock.now();
        let (cursor_id, at) = match &browse.after {
            Some(cursor) => (cursor.id, cursor.at.as_str()),
            None => (i64::MAX, ""),
        };
        let mut walk = Walk { conn: &conn, browse, now, page: Page::default() };
        let ahead = browse.after.as_ref().map_or(0, |cursor| cursor.id);
        let due = || at.parse::<i64>();
        match (&browse.by, browse.state, &browse.group, &browse.class, &browse.kind) {
            (By::Key(prefix), ..) => {
                walk.go(KEY, named_params! {":value": prefix, ":at": at, ":window": WINDOW as i64})?;
            }
            (By::Reference(value), ..) => walk.by_number(REFERENCE, value, cursor_id)?,
            (By::Account(value), ..) => walk.by_number(ACCOUNT, value, cursor_id)?,
            (By::Reason(reason), ..) => walk.by_number(REASON, reason.as_str(), ahead)?,
            (By::All, Some(State::Cancelled), Some(group), ..) => {
                walk.by_place(GROUP_CANCELLED, group, due().unwrap_or(i64::MAX), cursor_id)?;
            }
            (By::All, _, Some(group), ..) => walk.go(
                GROUP,
                named_params! {":value": group, ":due": due().unwrap_or(i64::MAX), ":window": WINDOW as i64},
            )?,
            (By::All, _, None, Some(class), _) if Class::parse(class).is_some() => {
                walk.by_number(CLASS, class, cursor_id)?;
            }
            (By::All, _, None, Some(reason), _) => walk.by_number(REASON, reason, ahead)?,
            (By::All, Some(State::Parked), None, None, _) => {
                walk.go(PARKED, named_params! {":at": at, ":id": ahead, ":window": WINDOW as i64})?;
            }
            (By::All, Some(State::Running), None, None, _) => walk.newest(RUNNING, cursor_id)?,
            (By::All, Some(State::Cancelled), None, None, _) => walk.newest(CANCELLED, cursor_id)?,
            (By::All, Some(state), None, None, _) if state != State::Settled => {
                walk.open(state, due().ok(), ahead)?;
            }
            (By::All, _, None, None, Some(kind)) => walk.by_number(KIND, kind, cursor_id)?,
            (By::All, _, None, None, None) => walk.newest(NEWEST, cursor_id)?,
        }
        Ok(walk.page)
    }
}

/// How much waits for a person or an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// In doubt, and followed up by itself.
    pub unknown: u64,
    /// Parked.
    pub parked: u64,
    /// Of those, in doubt; counted up to [`NEEDS_MOST`].
    pub parked_unknown: u64,
}

/// Parked unknowns are counted so far.
pub const NEEDS_MOST: u64 = 1000;

/// Reasons that leave nothing in doubt are not even looked at.
pub(super) const PARKED_UNKNOWN: &str = "SELECT count(*) FROM (SELECT 1 FROM onceward_jobs j
    CROSS JOIN onceward_intents i ON i.id = j.id
  WHERE j.state = 'parked' AND j.park_reason IN ('unknown_outcome','window_expired','scope_changed','content_differs',
    'reference_taken','redirected','invalid') AND i.state = 'requested' LIMIT 1000)";
const COUNTER: &str = "SELECT value FROM onceward_counters WHERE name = ?1";

impl Store {
    /// How much waits for a person or an answer, from counters.
    pub fn needs_a_person(&self) -> Result<Needs, StoreError> {
        let conn = self.reader()?;
        let counter = |name: &str| -> Result<u64, StoreError> {
            let value: Option<i64> =
                conn.prepare_cached(COUNTER)?.query_row([name], |row| row.get(0)).optional()?;
            Ok(value.unwrap_or(0).max(0).unsigned_abs())
        };
        Ok(Needs {
            unknown: counter("jobs:unknown")?,
            parked: counter("jobs:parked")?,
            parked_unknown: conn.prepare_cached(PARKED_UNKNOWN)?.query_row([], |row| row.get(0))?,
        })
    }

    /// How many are parked for each reason, from counters.
    pub fn parked_by_reason(&self) -> Result<Vec<(Reason, u64)>, StoreError> {
        let counters = counters(&*self.reader()?)?;
        let of = |reason: &Reason| {
            let n = counters.get(&format!("parked:{reason}")).copied().unwrap_or(0);
            (*reason, n.max(0).unsigned_abs())
        };
        Ok(Reason::ALL.iter().map(of).filter(|(_, n)| *n > 0).collect())
    }

    /// How many jobs there are in all states together, from counters.
    pub fn all_jobs(&self) -> Result<u64, StoreError> {
        let counters = counters(&*self.reader()?)?;
        let of = |state: &State| counters.get(&format!("jobs:{state}")).copied().unwrap_or(0);
        Ok(State::ALL.iter().map(of).sum::<i64>().max(0).unsigned_abs())
    }
}

struct Walk<'a> {
    conn: &'a Connection,
    browse: &'a Browse,
    now: Ms,
    page: Page,
}

impl Walk<'_> {
    fn newest(&mut self, sql: &str, id: i64) -> Result<(), StoreError> {
        self.go(sql, named_params! {":id": id, ":window": WINDOW as i64})
    }

    fn by_number(&mut self, sql: &str, value: &str, id: i64) -> Result<(), StoreError> {
        self.go(sql, named_params! {":value": value, ":id": id, ":window": WINDOW as i64})
    }

    fn by_place(&mut self, sql: &str, value: &str, due: i64, id: i64) -> Result<(), StoreError> {
        self.go(sql, named_params! {":value": value, ":due": due, ":id": id, ":window": WINDOW as i64})
    }

    /// Takes rows until the page is full, the window is over, or there are no more.
    fn go(&mut self, sql: &str, parameters: &[(&str, &dyn rusqlite::ToSql)]) -> Result<(), StoreError> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(parameters)?;
        let (mut looked, before, mut last) = (0, self.page.lines.len(), None);
        while let Some(row) = rows.next()? {
            let line = line(row, self.now)?;
            if let By::Key(prefix) = &self.browse.by
                && !line.key.starts_with(prefix.as_str())
            {
                // Keys of one prefix stand together.
                return Ok(());
            }
            if self.page.lines.len() - before >= self.browse.limit {
                self.page.next = last;
                return Ok(());
            }
            looked += 1;
            self.page.looked += 1;
            last = Some(Cursor { at: at(row)?, id: line.id.0 });
            if self.fits(&line) {
                self.page.lines.push(line);
            }
        }
        if looked == WINDOW {
            self.page.next = last;
        }
        Ok(())
    }

    /// What is still open, by when it is due. A due `scheduled` is seen as `ready`, so both are read, each in its own
    /// order; the page ends where the first of them did.
    fn open(&mut self, state: State, due: Option<i64>, id: i64) -> Result<(), StoreError> {
        let (from, stored): (i64, &[State]) = match state {
            State::Ready => (i64::MIN, &[State::Ready, State::Scheduled]),
            // Later than now is what `scheduled` means to a reader.
            State::Scheduled => (self.now.0, &[State::Scheduled]),
            _ => (i64::MIN, &[state]),
        };
        // Without a place to go on from, everything at `from` itself is left out: nothing is due at the beginning of time.
        let begin = if due.is_some_and(|due| due >= from) { id } else { i64::MAX };
        let due = due.unwrap_or(from).max(from);
        let mut ends: Vec<(i64, i64)> = Vec::new();
        for stored in stored {
            self.by_place(OPEN, stored.as_str(), due, begin)?;
            ends.extend(self.page.next.take().and_then(|c| Some((c.at.parse().ok()?, c.id))));
        }
        self.page.lines.sort_by_key(|line| (line.run_after, line.id));
        if let Some(end) = ends.into_iter().min() {
            self.page.lines.retain(|line| (line.run_after.0, line.id.0) <= end);
            self.page.next = Some(Cursor { at: end.0.to_string(), id: end.1 });
        }
        if self.page.lines.len() > self.browse.limit {
            self.page.lines.truncate(self.browse.limit);
            let last = self.page.lines.last();
            self.page.next = last.map(|line| Cursor { at: line.run_after.0.to_string(), id: line.id.0 });
        }
        Ok(())
    }

    fn fits(&self, line: &Line) -> bool {
        let Browse { state, kind, group, class, intent, .. } = self.browse;
        let class_is = |class: &String| {
            line.class.is_some_and(|c| c.as_str() == class)
                || line.reason.is_some_and(|r| r.as_str() == class)
        };
        state.is_none_or(|state| line.state == state)
            && intent.is_none_or(|intent| line.intent == intent)
            && kind.as_ref().is_none_or(|kind| line.kind == *kind)
            && group.as_ref().is_none_or(|group| line.group.as_ref() == Some(group))
            && class.as_ref().is_none_or(class_is)
    }
}

fn at(row: &Row<'_>) -> Result<String, StoreError> {
    Ok(match row.get_ref(0)? {
        rusqlite::types::ValueRef::Integer(n) => n.to_string(),
        _ => shown(row, 0)?,
    })
}

/// What cannot be read of a row is said in place of its last error, and the row is shown all the same.
fn line(row: &Row<'_>, now: Ms) -> Result<Line, StoreError> {
    let mut faults = Vec::new();
    let text = |i: usize| shown_if_any(row, i);
    let intent_word = shown(row, 4)?;
    let intent = IntentState::parse(&intent_word).unwrap_or_else(|| {
        faults.push(format!("its intent is `{intent_word}`"));
        IntentState::Requested
    });
    let created = Ms(row.get(18)?);
    let run_after = row.get::<_, Option<i64>>(15)?.map_or(created, Ms);
    let state = match (text(10)?, intent) {
        (Some(word), _) => match State::parse(&word) {
            Some(State::Scheduled) if run_after <= now => State::Ready,
            Some(state) => state,
            None => {
                faults.push(format!("its state is `{word}`"));
                State::Parked
            }
        },
        // Pruned.
        (None, IntentState::Settled) => State::Settled,
        (None, _) => State::Cancelled,
    };
    let (class, reason) = (text(12)?, text(14)?);
    let (class_read, reason_read) =
        (class.as_deref().and_then(Class::parse), reason.as_deref().and_then(Reason::parse));
    faults.extend(class.filter(|_| class_read.is_none()).map(|word| format!("its class is `{word}`")));
    faults.extend(reason.filter(|_| reason_read.is_none()).map(|word| format!("its reason is `{word}`")));
    let error = match faults.is_empty() {
        true => text(13)?,
        false => Some(format!("its row cannot be read: {}", faults.join(", "))),
    };
    Ok(Line {
        id: JobId(row.get(1)?),
        key: shown(row, 2)?,
        kind: shown(row, 3)?,
        state,
        intent,
        account: text(5)?,
        amount_minor: row.get(6)?,
        currency: text(7)?,
        provider: text(8)?,
        reference: text(9)?,
        group: text(11)?,
        class: class_read,
        error,
        reason: reason_read,
        run_after,
        updated: row.get::<_, Option<i64>>(16)?.map_or(created, Ms),
        first_sent: row.get::<_, Option<i64>>(17)?.map(Ms),
        doubt_since: row.get::<_, Option<i64>>(19)?.map(Ms).filter(|_| intent != IntentState::Settled),
        waits_for_app: row.get::<_, Option<i64>>(20)?.map(Ms),
    })
}
