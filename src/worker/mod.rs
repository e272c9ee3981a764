//! The worker: claims for idle threads, makes the calls, records how they ended. The only module that knows both the
//! store and the providers.
//!
//! One dispatcher (the caller's thread) claims for idle threads; a fixed pool of threads makes one call each, and a thread
//! that records how its call ended takes its next job in the same commit; a keeper renews leases, finds dead owners, asks
//! the schedules, and watches clock and disk. They talk over channels, and no transaction is open during a call.
//! Invariants: what is claimed must be recordable, so nothing is claimed while a result waits to be written or the disk
//! is low; a result is tried until it is written, for the effect is done; a thread that has a claim ends by recording
//! or releasing it, or the process ends and the claim is recovered.

mod alerts;
pub mod anchor;
mod inbox;
mod keeper;
mod running;
mod rota;
mod trade;

pub use running::{Running, spawn};
pub use trade::{BESIDE_PAYLOAD, Trade, TradeBuilder, TradeError};

use crate::config::Config;
use crate::crash;
use crate::outcome::{Class, Outcome, Phase};
use crate::pace::Pace;
use crate::provider::{self, Call, ProgramRecord};
use crate::store::{Claim, Owner, Store, StoreError, Unrecorded, Want};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rota::Rota;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When a worker ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Only when it is told to.
    Stopped,
    /// When nothing is ready, scheduled, running or unknown that this worker could bring forward.
    Idle,
    /// When what was due has had its turn.
    Once,
}

/// How to work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Calls at once.
    pub threads: usize,
    /// How long a claim is good for unless renewed.
    pub lease: Duration,
    /// How long a stop waits for calls in flight.
    pub grace: Duration,
    /// Below so many free bytes nothing is claimed.
    pub free_disk: u64,
    /// When to end.
    pub until: Until,
    /// `host:pid`
    pub name: String,
}

impl Options {
    /// As the config says, until stopped, named after this host and process.
    pub fn new(config: &Config) -> Options {
        let host = gethostname::gethostname();
        let host: String = host.to_string_lossy().chars().filter(|c| !c.is_control()).take(64).collect();
        Options {
            threads: config.worker.threads,
            lease: config.worker.lease,
            grace: config.worker.shutdown_grace,
            free_disk: config.limits.free_disk,
            until: Until::Stopped,
            name: format!("{host}:{}", std::process::id()),
        }
    }
}

/// Why a worker ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Everything in flight was finished and recorded.
    Finished,
    /// Calls were still in flight: the next worker finds them as `crashed` and asks what became of them.
    Abandoned(usize),
}

/// A worker that is to end by itself gives up after so many claims that failed in a row.
const FAILURES: u32 = 5;
/// How long a worker waits when it knows of nothing to wait for.
const ROUND: Duration = Duration::from_secs(1);
/// A worker that has not gone round for so long is not well.
const PULSE: Duration = Duration::from_secs(10);

enum Event {
    /// Something may be due.
    Wake,
    /// A thread is idle again.
    Done,
    /// Claim no more; the second time: end at once.
    Stop,
}

/// Ends a worker from another thread or a signal handler's thread.
#[derive(Clone, Debug)]
pub struct Stop {
    events: Sender<Event>,
    inbox: Receiver<Event>,
    pulse: Arc<Mutex<Option<Instant>>>,
    /// When the dispatcher last went round, whatever came of it.
    turn: Arc<Mutex<Option<Instant>>>,
    /// Somebody has asked politely.
    asked: Arc<AtomicBool>,
    /// When somebody first did.
    since: Arc<OnceLock<Instant>>,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Event::Wake => "Wake",
            Event::Done => "Done",
            Event::Stop => "Stop",
        })
    }
}

impl Stop {
    /// A handle for one run of a worker.
    pub fn new() -> Stop {
        let (events, inbox) = unbounded();
        Stop {
            events,
            inbox,
            pulse: Arc::default(),
            turn: Arc::default(),
            asked: Arc::default(),
            since: Arc::default(),
        }
    }

    /// Claim no more, finish what is in flight. The second call ends the worker at once.
    pub fn request(&self) {
        self.since.get_or_init(Instant::now);
        self.asked.store(true, Ordering::SeqCst);
        let _ = self.events.send(Event::Stop);
    }

    /// The same for whoever may not be the first to ask (a signal, the end of a pipe, an owner that goes out of scope): it
    /// is never the second call.
    pub fn request_once(&self) {
        self.since.get_or_init(Instant::now);
        if !self.asked.swap(true, Ordering::SeqCst) {
            let _ = self.events.send(Event::Stop);
        }
    }

    /// How long ago somebody first asked it to stop; `None`: nobody did.
    pub fn asked_for(&self) -> Option<Duration> {
        self.since.get().map(Instant::elapsed)
    }

    /// Whether the worker goes round: it runs, is not stopping, could claim a moment ago unless all its threads are at work
    /// or the disk is low, and has no outcome that could not be written.
    pub fn is_alive(&self) -> bool {
        let pulse = *self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        pulse.is_some_and(|beat| beat.elapsed() < PULSE)
    }

    /// Whether the worker went round within this time, be it that the file could not be used.
    pub fn goes_round_within(&self, limit: Duration) -> bool {
        let turn = *self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.is_some_and(|at| at.elapsed() < limit)
    }

    fn beat(&self, beat: Option<Instant>) {
        *self.pulse.lock().unwrap_or_else(PoisonError::into_inner) = beat;
    }

    /// Something may be due: an enqueue in this process.
    pub fn wake(&self) {
        // Whatever is queued already leads to a claim that sees this commit too. So nothing piles up once the worker has
        // ended and an app goes on.
        if self.inbox.is_empty() {
            let _ = self.events.send(Event::Wake);
        }
    }
}

impl Default for Stop {
    fn default() -> Stop {
        Stop::new()
    }
}

/// What the threads of a worker share.
struct Shared {
    store: Arc<Store>,
    trade: Arc<Trade>,
    /// Results that could not be written yet.
    unrecorded: AtomicUsize,
    /// How often it is said that they could not.
    unrecorded_told: Pace,
    disk_low: AtomicBool,
    /// How often it is said that the disk is low.
    disk_told: Pace,
    /// The worker ends: nothing more is claimed or begun.
    ended: AtomicBool,
    /// And so once somebody has asked for it.
    asked: Arc<AtomicBool>,
    /// A thread is idle, or the dispatcher is just about to see whether one is.
    idle: AtomicBool,
    /// How long a claim is good for unless renewed.
    lease: Duration,
}

impl Shared {
    fn new(store: Arc<Store>, trade: Arc<Trade>, lease: Duration, stop: &Stop) -> Arc<Shared> {
        Arc::new(Shared {
            store,
            trade,
            unrecorded: AtomicUsize::new(0),
            unrecorded_told: Pace::default(),
            disk_low: AtomicBool::new(false),
            disk_told: Pace::default(),
            ended: AtomicBool::new(false),
            asked: Arc::clone(&stop.asked),
            idle: AtomicBool::new(true),
            lease,
        })
    }

    /// May anything be claimed? What is claimed must be recordable.
    fn may_claim(&self) -> bool {
        !self.is_stopping()
            && !self.disk_low.load(Ordering::SeqCst)
            && self.unrecorded.load(Ordering::SeqCst) == 0
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.ended.load(Ordering::SeqCst) || self.asked.load(Ordering::SeqCst)
    }

    /// Gives a claim back that was not begun.
    fn give_back(&self, claim: Claim) {
        let key = claim.job().key.clone();
        if let Err(e) = self.store.release(claim) {
            log::warn!("{key} was claimed and not begun, and could not be given back yet: {e}");
        }
    }
}

/// Works until told to stop, or as `options.until` says.
pub fn run(store: Arc<Store>, trade: Arc<Trade>, options: Options, stop: Stop) -> Result<Ended, StoreError> {
    store.check_after_crash()?;
    if let Some(anchor) = &trade.config().anchor {
        anchor::refuse_rolled_back(&store, &anchor.file)?;
    }
    let (owner, lock) = store.register(&options.name)?;
    note_credentials(&store, trade.config(), &owner)?;
    match store.recover(&owner) {
        Ok(0) => {}
        Ok(recovered) => log::warn!("{recovered} jobs of dead workers were taken over"),
        // Whoever waits for the end learns why there is none.
        Err(e) if options.until != Until::Stopped => return Err(e),
        // One row that cannot be read keeps nobody from the rest; the keeper goes on trying.
        Err(e) => log::error!("dead workers' jobs could not be taken over: {e}"),
    }
    let shared = Shared::new(store, trade, options.lease, &stop);
    let wake = stop.clone();
    shared.store.on_foreign_commit(move || wake.wake());
    keeper::look_at_disk(&shared, options.free_disk);
    // Before the first claim, so that `Once` does what its schedules ask for too.
    let mut rota = Rota::new(shared.trade.config());
    match options.until {
        Until::Stopped => drop(rota.look(&shared.store)),
        Until::Idle | Until::Once => rota.catch_up(&shared.store),
    }
    let keeper = keeper::start(&shared, &owner, &options, &stop, rota, lock.voice())?;
    let mut dispatcher = Dispatcher::start(Arc::clone(&shared), owner.clone(), options, stop)?;
    log::info!("worker {} works on {}", owner.name(), shared.store.path().display());
    // Given back by itself only where no call can be in flight any more, so not in a panic.
    let lock = ManuallyDrop::new(lock);
    let ended = dispatcher.serve();
    dispatcher.stop.beat(None);
    match ended {
        Ok(Ended::Abandoned(_)) => keeper.leave(),
        Ok(Ended::Finished) | Err(_) => {
            drop(keeper);
            dispatcher.join();
        }
    }
    match &ended {
        Ok(Ended::Finished) => {
            keeper::note_dropped_lines(&shared.store);
            shared.store.unregister(&owner, ManuallyDrop::into_inner(lock))?;
            if let Some(anchor) = &shared.trade.config().anchor {
                anchor::append(&shared.store, &anchor.file);
            }
            log::info!("worker {} ends, nothing in flight", owner.name());
        }
        // Its lock ends with the process, and so whoever comes next knows at once.
        Ok(Ended::Abandoned(n)) => {
            log::warn!(
                "worker {} ends with {n} calls in flight: their outcome is asked about at the next start",
                owner.name()
            );
        }
        Err(_) => drop(ManuallyDrop::into_inner(lock)),
    }
    ended
}

/// Tells the events by which credentials this worker goes, where they are not as before. One that cannot be read is told
/// by the calls that need it.
fn note_credentials(store: &Store, config: &Config, owner: &Owner) -> Result<(), StoreError> {
    let seen: Vec<(String, String)> = config
        .providers
        .values()
        .filter_map(|p| Some((p.name.clone(), provider::credentials(p).ok()?)))
        .collect();
    store.note_credentials(&seen, owner.actor())
}

struct Dispatcher {
    shared: Arc<Shared>,
    owner: Owner,
    options: Options,
    stop: Stop,
    work: Option<Sender<Claim>>,
    threads: Vec<JoinHandle<()>>,
    busy: usize,
    /// Claims that failed in a row: their pauses and log lines are spaced.
    failures: u32,
    inbox: inbox::Inbox,
}

impl Dispatcher {
    fn start(
        shared: Arc<Shared>,
        owner: Owner,
        options: Options,
        stop: Stop,
    ) -> Result<Dispatcher, StoreError> {
        let (work, claims) = bounded::<Claim>(options.threads);
        // An app's closure may want a common stack; this program's own calls, and a write for all who wait, need less.
        let stack = if shared.trade.handlers().is_empty() { 1024 * 1024 } else { 2 * 1024 * 1024 };
        let mut threads = Vec::with_capacity(options.threads);
        for n in 0..options.threads {
            let (shared, claims, stop) = (Arc::clone(&shared), claims.clone(), stop.clone());
            let thread = std::thread::Builder::new()
                .name(format!("onceward-call-{n}"))
                .stack_size(stack)
                .spawn(move || {
                    for claim in claims {
                        let mut next = Some(claim);
                        while let Some(claim) = next {
                            if shared.is_stopping() {
                                shared.give_back(claim);
                                break;
                            }
                            next = attempt(&shared, claim);
                            // What ended may have set more free than the one job that this thread took.
                            if next.is_some() && shared.idle.load(Ordering::SeqCst) {
                                stop.wake();
                            }
                        }
                        let _ = stop.events.send(Event::Done);
                    }
                })
                .map_err(|e| StoreError::Sqlite(format!("a worker thread could not be started: {e}")))?;
            threads.push(thread);
        }
        let (work, inbox) = (Some(work), inbox::Inbox::default());
        Ok(Dispatcher { shared, owner, options, stop, work, threads, busy: 0, failures: 0, inbox })
    }

    fn serve(&mut self) -> Result<Ended, StoreError> {
        loop {
            *self.stop.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            let more = self.take_inbox();
            let mut round = self.claim();
            let waits = self.shared.unrecorded.load(Ordering::SeqCst) > 0;
            if !waits && !matches!(round, Round::Failed { .. }) {
                self.stop.beat(Some(Instant::now()));
            }
            if self.busy == 0 && self.options.until != Until::Stopped {
                if let Some(error) = self.inbox.given_up(FAILURES) {
                    return Err(error);
                }
                match &mut round {
                    Round::Nothing { .. } if self.is_over() => return Ok(Ended::Finished),
                    // Whoever waits for the end learns why there is none; a worker that stays goes on trying.
                    Round::Failed { error, .. } if self.failures >= FAILURES => {
                        return Err(std::mem::replace(error, StoreError::Closed));
                    }
                    Round::NoRoom => {
                        return Err(StoreError::Full("less is free than limits.free_disk".into()));
                    }
                    Round::Nothing { .. } | Round::Some { .. } | Round::Failed { .. } => {}
                }
            }
            let pause = match round {
                Round::Some { .. } | Round::Nothing { .. } if more => Duration::ZERO,
                Round::Some { next } | Round::Nothing { next } => next,
                Round::NoRoom => ROUND,
                Round::Failed { pause, .. } => pause,
            };
            self.shared.idle.store(self.busy < self.options.threads, Ordering::SeqCst);
            match self.wait(pause) {
                Some(Event::Stop) => return Ok(self.finish()),
                Some(Event::Wake | Event::Done) | None => {}
            }
        }
    }

    /// Makes jobs of what apps have put into the SQL inbox, whether or not a thread is idle. Not while results wait to
    /// be written or the disk is low: the rows are safe where they are.
    fn take_inbox(&mut self) -> bool {
        let disk_low = self.shared.disk_low.load(Ordering::SeqCst);
        let unrecorded = self.shared.unrecorded.load(Ordering::SeqCst);
        !disk_low && unrecorded == 0 && self.inbox.take(&self.shared.store)
    }

    /// Claims for the idle threads and hands the claims out.
    fn claim(&mut self) -> Round {
        if self.shared.disk_low.load(Ordering::SeqCst) {
            return Round::NoRoom;
        }
        self.shared.idle.store(true, Ordering::SeqCst);
        let idle = self.options.threads.saturating_sub(self.busy);
        if idle == 0 || self.shared.is_stopping() || self.shared.unrecorded.load(Ordering::SeqCst) > 0 {
            return Round::Some { next: ROUND };
        }
        match self.shared.store.claim(&self.owner, idle, self.options.lease) {
            Ok(claimed) => {
                self.failures = 0;
                let nothing = claimed.claims.is_empty() && !claimed.more;
                let until = claimed.next.map_or(ROUND, |next| next.since(self.shared.store.clock().now()));
                self.hand_out(claimed.claims);
                // With a thread idle there may be more to claim at once.
                let at_once = claimed.more && self.busy < self.options.threads;
                let next =
                    if at_once { Duration::ZERO } else { until.clamp(Duration::from_millis(1), ROUND) };
                if nothing { Round::Nothing { next } } else { Round::Some { next } }
            }
            Err(e) => {
                self.failures = self.failures.saturating_add(1);
                let (base, cap) = (Duration::from_millis(100), Duration::from_secs(60));
                let pause = crate::retry::backoff(self.failures, base, cap, 1.0);
                let file = self.shared.store.path().display();
                log::error!("nothing could be claimed from {file}: {e}; next try in {pause:?}");
                Round::Failed { pause, error: e }
            }
        }
    }

    fn hand_out(&mut self, claims: Vec<Claim>) {
        let Some(work) = &self.work else { return };
        for claim in claims {
            // The channel holds as many claims as there are threads, so this never blocks.
            match work.send(claim) {
                Ok(()) => self.busy += 1,
                Err(unsent) => self.shared.give_back(unsent.0),
            }
        }
    }

    /// Waits for an event, and takes all that are queued with it; those after a stop are for [`Dispatcher::finish`].
    fn wait(&mut self, pause: Duration) -> Option<Event> {
        let mut event = self.stop.inbox.recv_timeout(pause).ok()?;
        loop {
            match event {
                Event::Stop => return Some(event),
                Event::Done => self.busy = self.busy.saturating_sub(1),
                Event::Wake => {}
            }
            match self.stop.inbox.try_recv() {
                Ok(next) => event = next,
                Err(_) => return Some(event),
            }
        }
    }

    /// Claims no more and waits for what is in flight, within the grace.
    fn finish(&mut self) -> Ended {
        self.stop.beat(None);
        self.shared.ended.store(true, Ordering::SeqCst);
        log::info!("stopping: {} calls in flight", self.busy);
        let deadline = Instant::now() + self.options.grace;
        while self.busy > 0 {
            match self.stop.inbox.recv_deadline(deadline) {
                Ok(Event::Done) => self.busy = self.busy.saturating_sub(1),
                Ok(Event::Stop) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Ended::Abandoned(self.busy);
                }
                Ok(Event::Wake) => {}
            }
        }
        Ended::Finished
    }

    fn is_over(&self) -> bool {
        let left = match self.options.until {
            Until::Stopped => return false,
            Until::Once => self.shared.store.inbox_waits(),
            Until::Idle => self.shared.store.something_to_do(),
        };
        match left {
            Ok(something) => !something,
            Err(e) => {
                log::error!("whether there is anything left to do could not be read: {e}");
                false
            }
        }
    }

    fn join(&mut self) {
        drop(self.work.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Dispatcher {
    /// However it ends, its threads take no more jobs by themselves.
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }
}

/// How one try to claim went.
enum Round {
    /// Something was claimed, or all threads are busy.
    Some { next: Duration },
    /// Nothing is due.
    Nothing { next: Duration },
    /// The disk is too full to record anything.
    NoRoom,
    /// The file could not be read or written.
    Failed { pause: Duration, error: StoreError },
}

/// One attempt, from claim to record; the thread's next claim came with the record, if there was something to claim.
fn attempt(shared: &Arc<Shared>, claim: Claim) -> Option<Claim> {
    crash::point("claimed");
    let outcome = call(shared, &claim);
    crash::point("answer in memory");
    let asks = Arc::clone(shared);
    let want = Want { lease: shared.lease, still: Box::new(move || asks.may_claim()) };
    let unrecorded = match shared.store.record_and_claim(claim, outcome, Some(want)) {
        Ok((_, next)) => return next,
        Err(unrecorded) => unrecorded,
    };
    // Nothing else is claimed meanwhile: what cannot be recorded must not be sent.
    shared.unrecorded.fetch_add(1, Ordering::SeqCst);
    record_in_the_end(shared, *unrecorded);
    if shared.unrecorded.fetch_sub(1, Ordering::SeqCst) == 1 && shared.unrecorded_told.over() {
        log::warn!("every outcome that was kept is written now");
    }
    None
}

/// Tries until it is written, for the effect is done. Takes no next job, so that the dispatcher looks afterwards at what
/// a COMMIT may have left behind that failed.
fn record_in_the_end(shared: &Shared, mut unrecorded: Unrecorded) {
    let mut tries = 0u32;
    loop {
        tries = tries.saturating_add(1);
        let pause =
            crate::retry::backoff(tries, Duration::from_millis(20), Duration::from_secs(5), fastrand::f64());
        // A full disk meets every thread: one line a step tells of them all.
        if shared.unrecorded_told.due() {
            log::error!(
                "the outcome of {} could not be written to {} ({}); {} in all are kept and tried again, and nothing is \
                 claimed meanwhile",
                unrecorded.claim.job().key,
                shared.store.path().display(),
                unrecorded.error,
                shared.unrecorded.load(Ordering::SeqCst)
            );
        }
        std::thread::sleep(pause);
        match shared.store.record(unrecorded.claim, unrecorded.outcome) {
            Ok(_) => return,
            Err(again) => unrecorded = *again,
        }
    }
}

fn call(shared: &Shared, claim: &Claim) -> Outcome {
    let before_first_byte = || {
        crash::point("connected");
        shared.store.before_first_byte(claim)?;
        crash::point("before the first byte");
        Ok(())
    };
    let file = shared.store.run_file(claim);
    let keep = |record| shared.store.keep_program(claim, record).map_err(|e| e.to_string());
    let call = Call {
        step: claim.step(),
        job: claim.job(),
        intent: claim.intent(),
        frozen: claim.frozen(),
        scope: Some(claim.scope()),
        before_first_byte: &before_first_byte,
        program: Some(ProgramRecord { file: &file, keep: &keep }),
    };
    // The provider layer does not panic; if it did, the outcome would be what a cut line's is.
    catch_unwind(AssertUnwindSafe(|| shared.trade.call(&call))).unwrap_or_else(|_| {
        let mut outcome = Outcome::new(Class::Interrupted, claim.started());
        outcome.phase = Some(Phase::Sending);
        outcome.error = Some("the call ended in a fault of this program's own; please report it".into());
        outcome
    })
}

#[cfg(test)]
mod tests;
