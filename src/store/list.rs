//! Lists for programs: by number, oldest first, so that a list can be walked while jobs come and go.
//!
//! One filter leads by an index of its own and the others are held against what it gives, so that the cost follows the
//! jobs that the leading filter fits, not the file. People's lists, in the orders that people want, are in `browse`.

use super::read::Story;
use super::{Store, StoreError};
use crate::clock::Ms;
use crate::job::{JobId, State};
use rusqlite::named_params;

/// Which jobs a list shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// In this state.
    pub state: Option<State>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Of this group.
    pub group: Option<String>,
    /// Whose last class or park reason is this.
    pub class: Option<String>,
    /// At most so many.
    pub limit: u32,
    /// With a higher number than this.
    pub after: Option<JobId>,
}

/// The rows that the leading filter gives, held against the others. Those that it answers by itself are given as NULL,
/// so that SQLite need not look at the row. INDEXED BY makes a missing index an error and not a scan.
macro_rules! rows {
    ($from:literal, $lead:literal) => {
        rows!("j.id", $from, $lead)
    };
    ($id:literal, $from:literal, $lead:literal) => {
        concat!(
            "SELECT ", $id, " AS id FROM ", $from, " WHERE ", $lead, " AND ", $id, " > :after
               AND (:state IS NULL
                 OR :state = CASE WHEN j.state = 'scheduled' AND j.run_after_ms <= :now THEN 'ready' ELSE j.state END)
               AND (:kind IS NULL OR j.kind = :kind) AND (:group IS NULL OR j.group_name = :group)
               AND (:class IS NULL OR j.error_class = :class OR j.park_reason = :class)"
        )
    };
}
macro_rules! list {
    ($($part:expr),+) => { concat!($($part),+, " ORDER BY id LIMIT :limit") };
}

pub(super) const ALL: &str = list!(rows!("onceward_jobs j", "1"));
pub(super) const KIND: &str = list!(rows!(
    "i.id",
    "onceward_intents i INDEXED BY onceward_intents_by_kind CROSS JOIN onceward_jobs j ON j.id = i.id",
    "i.kind = :value"
));
/// The union leaves out the second of what is in both.
pub(super) const CLASS: &str = list!(
    rows!(
        "onceward_jobs j INDEXED BY onceward_jobs_by_class",
        "j.error_class = :value AND j.error_class IS NOT NULL"
    ),
    " UNION ",
    rows!("onceward_jobs j INDEXED BY onceward_jobs_parked", "j.state = 'parked' AND j.park_reason = :value")
);
pub(super) const GROUP: &str = list!(
    rows!(
        "onceward_jobs j INDEXED BY onceward_jobs_place",
        "j.group_name = :value AND j.group_name IS NOT NULL AND j.state <> 'cancelled'"
    ),
    " UNION ALL ",
    rows!(
        "onceward_jobs j INDEXED BY onceward_jobs_given_up",
        "j.group_name = :value AND j.group_name IS NOT NULL AND j.state = 'cancelled'"
    )
);
pub(super) const PARKED: &str =
    list!(rows!("onceward_jobs j INDEXED BY onceward_jobs_parked", "j.state = 'parked'"));
pub(super) const RUNNING: &str =
    list!(rows!("onceward_jobs j INDEXED BY onceward_jobs_running", "j.state = 'running'"));
pub(super) const CANCELLED: &str =
    list!(rows!("onceward_jobs j INDEXED BY onceward_jobs_cancelled", "j.state = 'cancelled'"));
pub(super) const OPEN: &str = list!(rows!(
    "onceward_jobs j INDEXED BY onceward_jobs_open",
    "j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled' AND j.state = :value"
));
pub(super) const LATER: &str = list!(rows!(
    "onceward_jobs j INDEXED BY onceward_jobs_open",
    "j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled' AND j.state = 'scheduled' AND j.run_after_ms > :now"
));
/// A due `scheduled` is seen as `ready`.
pub(super) const READY: &str = list!(
    rows!(
        "onceward_jobs j INDEXED BY onceward_jobs_open",
        "j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled' AND j.state = 'ready'"
    ),
    " UNION ALL ",
    rows!(
        "onceward_jobs j INDEXED BY onceward_jobs_open",
        "j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled' AND j.state = 'scheduled' AND j.run_after_ms <= :now"
    )
);

/// Which statement leads, its value, and whether it answers the state by itself.
fn lead(filter: &Filter) -> (&'static str, Option<&str>, bool) {
    let Filter { state, kind, group, class, .. } = filter;
    // What is running or in doubt is little, in any file; a group or a class comes before the states that may be much.
    match (state, group, class) {
        (Some(State::Running), ..) => (RUNNING, None, true),
        (Some(State::Unknown), ..) => (OPEN, Some("unknown"), true),
        (_, Some(group), _) => (GROUP, Some(group), false),
        (_, _, Some(class)) => (CLASS, Some(class), false),
        (Some(State::Parked), ..) => (PARKED, None, true),
        (Some(State::Cancelled), ..) => (CANCELLED, None, true),
        (Some(State::Ready), ..) => (READY, None, true),
        (Some(State::Scheduled), ..) => (LATER, None, true),
        (Some(State::Waiting), ..) => (OPEN, Some("waiting"), true),
        (Some(State::Settled) | None, ..) => match kind {
            Some(kind) => (KIND, Some(kind), false),
            None => (ALL, None, false),
        },
    }
}

impl Store {
    /// Jobs by number, oldest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Story>, StoreError> {
        self.stories(&self.listed(filter)?)
    }

    /// The numbers of what a list shows.
    pub fn listed(&self, filter: &Filter) -> Result<Vec<JobId>, StoreError> {
        let now: Ms = self.clock.now();
        let (sql, value, leads) = lead(filter);
        let state = filter.state.filter(|_| !leads).map(State::as_str);
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(sql)?;
        let mut parameters: Vec<(&str, &dyn rusqlite::ToSql)> = Vec::new();
        let after = filter.after.map_or(0, |id| id.0);
        let all = named_params! {
            ":after": after, ":state": state, ":kind": filter.kind, ":group": filter.group,
            ":class": filter.class, ":now": now.0, ":limit": filter.limit, ":value": value,
        };
        for (name, bound) in all {
            // Not every statement has a value.
            if statement.parameter_index(name)?.is_some() {
                parameters.push((name, *bound));
            }
        }
        let ids = statement.query_map(parameters.as_slice(), |row| row.get(0).map(JobId))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// The stories of these jobs, without their histories. What was pruned meanwhile is left out.
    pub fn stories(&self, ids: &[JobId]) -> Result<Vec<Story>, StoreError> {
        let conn = self.reader()?;
        ids.iter().filter_map(|id| self.story_without_history(&conn, *id).transpose()).collect()
    }
}
