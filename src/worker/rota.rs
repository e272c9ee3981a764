//! The rota: which schedule comes due when. It asks the store only about a schedule whose time has come.

use crate::clock::{Ms, SANE};
use crate::config::{Config, Request};
use crate::pace::Pace;
use crate::schedule::Schedule;
use crate::store::{Store, StoreError, Turn};
use std::sync::Arc;
use std::time::Duration;

/// A mark that lies further ahead of the clock than this was made by a clock that ran ahead.
const AHEAD: Duration = Duration::from_secs(60);

/// The schedules of a config, each with its next tick.
pub struct Rota {
    config: Arc<Config>,
    turns: Vec<(Arc<Schedule>, Option<Ms>)>,
    failing: Pace,
}

impl Rota {
    /// The schedules of a config; each is looked at once at first, whatever the time.
    pub fn new(config: &Arc<Config>) -> Rota {
        // Any clock that can be right has passed this instant.
        let turns = config.schedules.values().map(|schedule| (Arc::clone(schedule), Some(SANE))).collect();
        Rota { config: Arc::clone(config), turns, failing: Pace::default() }
    }

    /// Looks until nothing is due any more: for a worker that will not be there for long.
    pub fn catch_up(&mut self, store: &Store) {
        while self.look(store) {}
    }

    /// Makes the jobs of the ticks that are due. `true`: there is something new to claim.
    ///
    /// A machine that has not learnt the time yet runs nothing: each schedule would begin in another decade, and then
    /// have decades to make up for.
    pub fn look(&mut self, store: &Store) -> bool {
        let now = store.clock().now();
        let mut created = 0;
        for (schedule, next) in &mut self.turns {
            if next.is_none_or(|next| now < next) {
                continue;
            }
            match run(store, &self.config, schedule) {
                Ok((made, mark)) => {
                    created += made;
                    self.failing.over();
                    if mark > now.plus(AHEAD) {
                        log::warn!(
                            "schedule {}: everything up to {mark} is dealt with, by a clock that ran ahead; it goes on \
                             after that",
                            schedule.name
                        );
                    }
                    *next = schedule.timetable.next(mark);
                }
                Err(e) if self.failing.due() => {
                    log::error!("schedule {} could not be run: {e}", schedule.name)
                }
                Err(_) => {}
            }
        }
        created > 0
    }
}

/// One schedule's due ticks, or as many of them as one transaction takes: the keeper has other work, and what is left is
/// due at the next look. Returns how many jobs were made, and the mark.
fn run(store: &Store, config: &Arc<Config>, schedule: &Arc<Schedule>) -> Result<(usize, Ms), StoreError> {
    let (config, of) = (Arc::clone(config), Arc::clone(schedule));
    let turn = store.run_schedule(schedule, move |slot| {
        let request = Request {
            kind: of.kind.clone(),
            payload: of.payload.clone(),
            key: Some(of.key(slot)),
            ..Request::default()
        };
        config.prepare(request)
    })?;
    tell(schedule, &turn);
    Ok((turn.created, turn.mark))
}

fn tell(schedule: &Schedule, turn: &Turn) {
    if turn.created > 0 {
        log::info!("schedule {}: {} jobs up to {}", schedule.name, turn.created, turn.mark);
    }
    if let Some(passed) = turn.passed {
        log::warn!("schedule {}: {}", schedule.name, passed.words(schedule.missed));
    }
    for (slot, why) in &turn.refused {
        log::error!("schedule {}: the job of {slot} was refused: {}", schedule.name, why.message);
    }
}

#[cfg(test)]
#[path = "rota_tests.rs"]
mod tests;
