//! The keeper: a thread that renews leases, takes over from dead workers, makes the jobs of schedules that come due,
//! and watches disk and slow handlers.

use super::rota::Rota;
use super::{Options, Shared, Stop};
use super::{alerts, anchor};
use crate::log_buffer;
use crate::pace::Pace;
use crate::store::{Owner, Store, StoreError, Tx, Voice};
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
    mut voice: Option<Voice>,
) -> Result<Keeper, StoreError> {
    let (stop, stopped) = bounded::<()>(0);
    let (shared, owner, options, wake) = (Arc::clone(shared), owner.clone(), options.clone(), wake.clone());
    let thread = std::thread::Builder::new()
        .name("onceward-keeper".into())
        .spawn(move || {
            let mut renewed = Instant::now();
            let (unrenewed, unseen) = (Pace::default(), Pace::default());
            let mut alerts = alerts::Watch::default();
            // When it was last tried, and how long until it is again.
            let mut anchored: Option<(Instant, Duration)> = None;
            let faults = Pace::default();
            while stopped.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
                let round = catch_unwind(AssertUnwindSafe(|| {
                    if let Some(voice) = &mut voice {
                        voice.say(shared.store.trouble());
                    }
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
                    note_dropped_lines(&shared.store);
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

/// Adds the log lines that nobody read in time to the figures.
pub fn note_dropped_lines(store: &Store) {
    let dropped = log_buffer::take_dropped();
    let count = i64::try_from(dropped).unwrap_or(i64::MAX);
    let count_them = move |tx: &Tx<'_>| {
        tx.count("log_lines_dropped", count);
        Ok(())
    };
    if dropped > 0 && store.write(count_them).is_err() {
        log_buffer::give_back(dropped);
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
