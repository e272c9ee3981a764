//! The keeper: a thread that renews leases, takes over from dead workers, makes the jobs of schedules that come due,
//! and watches clock, disk and slow handlers.

use super::rota::Rota;
use super::{Options, Shared, Stop};
use super::{alerts, anchor};
use crate::clock::{Ms, millis};
use crate::pace::Pace;
use crate::store::{Owner, StoreError};
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks around.
const ROUND: Duration = Duration::from_secs(1);
/// An anchor that could not be written is tried again after this.
const UNANCHORED: Duration = Duration::from_secs(60);
/// A wall clock that lags the monotonic one by less than this was not set back, only read at another moment.
const SET_BACK_MIN_MS: i64 = 2000;

/// Ends the keeper when it is dropped.
pub struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Tells it to end, and does not wait: its round may take long on a file that is locked.
    pub fn leave(mut self) {
        drop(self.thread.take());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn start(
    shared: &Arc<Shared>,
    owner: &Owner,
    options: &Options,
    wake: &Stop,
    mut rota: Rota,
) -> Result<Keeper, StoreError> {
    let (stop, stopped) = bounded::<()>(0);
    let (shared, owner, options, wake) = (Arc::clone(shared), owner.clone(), options.clone(), wake.clone());
    let thread = std::thread::Builder::new()
        .name("onceward-keeper".into())
        .spawn(move || {
            let mut watch = Watch::new(shared.store.clock().now().0);
            let mut renewed = Instant::now();
            let (unrenewed, unseen) = (Pace::default(), Pace::default());
            let mut alerts = alerts::Watch::default();
            // When it was last tried, and how long until it is again.
            let mut anchored: Option<(Instant, Duration)> = None;
            let faults = Pace::default();
            while stopped.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
                let round = catch_unwind(AssertUnwindSafe(|| {
                    // First what others depend on.
                    if renewed.elapsed() * 3 >= options.lease {
                        renewed = Instant::now();
                        let kept = shared.store.renew(&owner, options.lease);
                        complain("leases could not be renewed", &unrenewed, kept);
                    }
                    let recovered = shared.store.recover(&owner);
                    if let Ok(n @ 1..) = recovered {
                        log::warn!("{n} jobs of dead workers were taken over");
                        wake.wake();
                    }
                    complain("dead workers' jobs could not be taken over", &unseen, recovered.map(drop));
                    look_at_disk(&shared, options.free_disk);
                    watch.look(&shared);
                    shared.trade.handlers().name_overdue();
                    if rota.look(&shared.store) {
                        wake.wake();
                    }
                    if alerts.look(&shared) {
                        wake.wake();
                    }
                    if let Some(anchor) = &shared.trade.config().anchor
                        && anchored.is_none_or(|(at, pause)| at.elapsed() >= pause)
                    {
                        anchored = Some((Instant::now(), anchor.every.min(UNANCHORED)));
                        if anchor::append(&shared.store, &anchor.file) {
                            anchored = Some((Instant::now(), anchor.every));
                        }
                    }
                }));
                // Whatever it was, the next round comes.
                if round.is_err() && faults.due() {
                    log::error!(
                        "a round of the keeper ended in a fault of this program's own; please report it"
                    );
                }
            }
        })
        .map_err(|e| StoreError::Sqlite(format!("the keeper thread could not be started: {e}")))?;
    Ok(Keeper { stop: Some(stop), thread: Some(thread) })
}

fn complain(what: &str, pace: &Pace, result: Result<(), StoreError>) {
    match result {
        Ok(()) => drop(pace.over()),
        Err(e) if pace.due() => log::error!("{what}: {e}"),
        Err(_) => {}
    }
}

/// The wall clock as the monotonic one would have it.
struct Watch {
    wall: i64,
    at: Instant,
    /// A set-back that is to be recorded, and the last look before it, by the clock as it is since.
    owed: Duration,
    since: Ms,
    unrecorded: Pace,
}

impl Watch {
    fn new(wall: i64) -> Watch {
        Watch { wall, at: Instant::now(), owed: Duration::ZERO, since: Ms(wall), unrecorded: Pace::default() }
    }

    fn look(&mut self, shared: &Shared) {
        let clock = shared.store.clock();
        let (peak, wall, at) = (clock.take_peak().0, clock.now().0, Instant::now());
        let expected = self.wall.saturating_add(millis(at.duration_since(self.at)));
        // Times that were read and written while the clock stood ahead for a moment count as well.
        let back = expected.max(peak).saturating_sub(wall);
        if back > SET_BACK_MIN_MS {
            if self.owed.is_zero() {
                self.since = Ms(self.wall.saturating_sub(back));
            }
            self.owed = self.owed.saturating_add(Duration::from_millis(back.unsigned_abs()));
        }
        (self.wall, self.at) = (wall, at);
        if self.owed.is_zero() {
            return;
        }
        let set_back = shared.store.set_back(self.owed, self.since);
        if set_back.is_ok() {
            self.owed = Duration::ZERO;
        }
        complain("a clock that was set back could not be recorded", &self.unrecorded, set_back);
    }
}

/// Below the floor nothing is claimed: what is claimed must be recordable.
pub fn look_at_disk(shared: &Shared, floor: u64) {
    let folder = shared.store.path().parent().filter(|p| !p.as_os_str().is_empty());
    let free = match fs4::available_space(folder.unwrap_or(std::path::Path::new("."))) {
        Ok(free) => free,
        // Not known is not low: the writes themselves will tell.
        Err(_) => return,
    };
    let low = free < floor;
    shared.disk_low.store(low, Ordering::SeqCst);
    if low && shared.disk_told.due() {
        log::error!(
            "only {free} bytes are free where {} is; below {floor} (limits.free_disk) nothing is claimed: free some space",
            shared.store.path().display()
        );
    } else if !low && shared.disk_told.over() {
        log::warn!("there is room on the disk again: {free} bytes are free");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::config::Config;
    use crate::store::{Desk, Store};
    use crate::worker::Trade;

    #[test]
    fn a_set_back_that_cannot_be_recorded_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::parse("", &dir.path().join("onceward.toml")).unwrap();
        let manual = Arc::new(ManualClock::at(Ms(1_800_000_000_000)));
        let clock: Arc<dyn Clock> = manual.clone();
        let trade = Arc::new(Trade::new(Arc::new(config), Arc::clone(&clock)));
        let file = crate::store::Options { create: true, namespace: String::new(), watch: None };
        let desk: Arc<dyn Desk> = trade.clone();
        let store = Arc::new(Store::open(&dir.path().join("t.db"), file, Arc::clone(&clock), desk).unwrap());
        let shared = Shared::new(store, trade, Duration::from_secs(60), &Stop::new());
        let sql = |text: &'static str| {
            shared.store.write(move |tx| Ok(tx.conn().execute_batch(text)?)).unwrap();
        };
        let recorded = || {
            shared
                .store
                .write(|tx| {
                    let events = "SELECT count(*) FROM onceward_events WHERE action = 'clock'";
                    Ok(tx.conn().query_row(events, [], |row| row.get::<_, i64>(0))?)
                })
                .unwrap()
        };
        let mut watch = Watch::new(clock.now().0);
        sql("ALTER TABLE onceward_holds RENAME TO gone");
        manual.step(-3_600_000);
        watch.look(&shared);
        watch.look(&shared);
        sql("ALTER TABLE gone RENAME TO onceward_holds");
        assert_eq!(recorded(), 0);
        watch.look(&shared);
        watch.look(&shared);
        assert_eq!((recorded(), watch.owed), (1, Duration::ZERO));
    }
}
