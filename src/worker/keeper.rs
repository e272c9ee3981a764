//! The keeper: a thread that renews leases, takes over from dead workers, makes the jobs of schedules that come due,
//! and watches clock, disk and slow handlers.

use super::rota::Rota;
use super::{Options, Shared, Stop};
use super::{alerts, anchor};
use crate::clock::millis;
use crate::pace::Pace;
use crate::store::{Owner, StoreError};
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks around.
const ROUND: Duration = Duration::from_secs(1);
/// A wall clock that lags the monotonic one by less than this was not set back, only read at another moment.
const SET_BACK_MIN_MS: i64 = 2000;

/// Ends the keeper when it is dropped.
pub struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
            let mut watch = Watch { wall: shared.store.clock().now().0, at: Instant::now() };
            let mut renewed = Instant::now();
            let (unrenewed, unseen) = (Pace::default(), Pace::default());
            let mut alerts = alerts::Watch::default();
            let mut anchored: Option<Instant> = None;
            while stopped.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
                look_at_disk(&shared, options.free_disk);
                watch.look(&shared);
                shared.trade.handlers().name_overdue();
                if let Some(anchor) = &shared.trade.config().anchor
                    && anchored.is_none_or(|at| at.elapsed() >= anchor.every)
                {
                    anchored = Some(Instant::now());
                    anchor::append(&shared.store, &anchor.file);
                }
                if alerts.look(&shared) {
                    wake.wake();
                }
                if rota.look(&shared.store) {
                    wake.wake();
                }
                if renewed.elapsed() * 3 >= options.lease {
                    renewed = Instant::now();
                    complain(
                        "leases could not be renewed",
                        &unrenewed,
                        shared.store.renew(&owner, options.lease),
                    );
                }
                let recovered = shared.store.recover(&owner);
                if let Ok(n @ 1..) = recovered {
                    log::warn!("{n} jobs of dead workers were taken over");
                    wake.wake();
                }
                complain("dead workers' jobs could not be taken over", &unseen, recovered.map(drop));
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
}

impl Watch {
    fn look(&mut self, shared: &Shared) {
        let clock = shared.store.clock();
        let (peak, wall, at) = (clock.take_peak().0, clock.now().0, Instant::now());
        let expected = self.wall.saturating_add(millis(at.duration_since(self.at)));
        // Times that were read and written while the clock stood ahead for a moment count as well.
        let back = expected.max(peak).saturating_sub(wall);
        (self.wall, self.at) = (wall, at);
        if back > SET_BACK_MIN_MS {
            let back = Duration::from_millis(back.unsigned_abs());
            let set_back = shared.store.set_back(back);
            complain("a clock that was set back could not be recorded", &Pace::default(), set_back);
        }
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
