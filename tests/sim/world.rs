//! One run: a machine with a clock and a disk, the store's file on it, workers and people at work, providers elsewhere.

#[path = "end.rs"]
mod end;

use crate::faults;
use crate::ops::{Op, Verb};
use crate::oracle::{Oracle, Row, ensure};
use crate::people::GROUPS;
use crate::provider::Bank;
use crate::restores::{Copy, Since};
use crate::setup::Setup;
use fastrand::Rng;
use onceward::clock::{Clock, ManualClock, Ms};
use onceward::job::JobId;
use onceward::outcome::Outcome;
use onceward::provider::Providers;
use onceward::store::{Claim, Desk, Options, Owner, OwnerLock, PauseScope, Store, StoreError};
use onceward::worker::Trade;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const SECRET: &str = "s3cret-of-the-simulation";
pub const OTHER_SECRET: &str = "s3cond-of-the-simulation";
const NOON: Ms = Ms(1_800_000_000_000);
pub const LEASE: Duration = Duration::from_secs(60);

/// What a worker has in its hands of one attempt.
pub enum Hand {
    /// Not sent yet.
    Claimed(Claim),
    /// Ended, not recorded; with the number of its request among those that reached a provider.
    Answered(Claim, Outcome, Option<usize>),
}

impl Hand {
    pub fn job(&self) -> JobId {
        match self {
            Hand::Claimed(claim) | Hand::Answered(claim, ..) => claim.job().id,
        }
    }
}

/// A process that works.
pub struct Running {
    pub store: Store,
    pub providers: Providers,
    pub owner: Owner,
    pub lock: OwnerLock,
    pub hands: Vec<Hand>,
    pub frozen: bool,
    /// Its lock file was deleted: others take its jobs when their leases are over.
    pub forsaken: bool,
    /// Jobs whose result could not be written: it claims nothing until it is.
    pub unheard: BTreeSet<JobId>,
    /// The config that it started with.
    pub version: u32,
}

impl Running {
    /// The jobs that nobody else may have in hand. What could not be recorded may be on file already, and what a forsaken
    /// worker has others take: the next attempt of it may be under way.
    pub fn under_way(&self) -> impl Iterator<Item = JobId> {
        let heard = |job: &JobId| !self.forsaken && !self.unheard.contains(job);
        self.hands.iter().map(Hand::job).filter(heard)
    }

    /// Does it work by this config? Then it tells the file where its requests go, as it does at each renewal.
    pub fn tells_its_scopes(&self, version: u32) -> bool {
        self.version == version && self.store.renew(&self.owner, LEASE).is_ok()
    }
}

/// What was asked for under a key.
#[derive(Clone)]
pub struct Asked {
    pub kind: String,
    pub amount: i64,
    pub group: Option<String>,
    pub sequence: Option<i64>,
    /// Not before a time that the app said.
    pub delayed: bool,
}

/// A dedup window.
#[derive(Clone)]
pub struct Window {
    pub kind: String,
    pub id: String,
    /// By the boot clock.
    pub opened: i64,
    pub length: Duration,
}

impl Window {
    /// Must it suppress now, and may it? A clock that is set forward ends it early. One that is set back moves it, unless it was
    /// opened before that time: then it is open until its end by that clock.
    pub fn open(&self, now: i64, steps: &[(i64, i64)]) -> (bool, bool) {
        let length = self.length.as_millis() as i64;
        let lasts = |from: i64| now - from <= length + SLACK;
        let since = || steps.iter().filter(|(at, _)| *at >= self.opened);
        let must = now - self.opened + SLACK < length && since().all(|(_, by)| *by < SLACK);
        (must, lasts(self.opened) || since().any(|(at, by)| *by < 0 && lasts(*at)))
    }
}

/// Steps of the clock that add up to less may go unnoticed.
const SLACK: i64 = 2000;

pub struct World {
    pub setup: Setup,
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
    pub clock: Arc<ManualClock>,
    pub bank: RefCell<Bank>,
    pub oracle: Oracle,
    pub workers: Vec<Option<Running>>,
    /// The command line's store, of whoever asks and of the operator.
    pub desk: Option<Store>,
    pub trade: Arc<Trade>,
    pub version: u32,
    pub asked: BTreeMap<String, Asked>,
    pub amended: BTreeSet<i64>,
    pub windows: Vec<Window>,
    /// When the wall clock was set, by the boot clock, and by how much.
    steps: Vec<(i64, i64)>,
    /// Wire keys of which the provider has said that they came with other content.
    pub forbidden: BTreeSet<String>,
    pub skipped: BTreeSet<(String, i64)>,
    pub paused: BTreeSet<(String, String)>,
    /// An error of the file has been made on purpose, so callers may hear of it.
    pub disk_trouble: bool,
    pub opened: u64,
    pub copies: Vec<Copy>,
    /// Keys that only a lost file knew.
    pub lost: BTreeMap<String, Asked>,
    /// What was asked for under a key the first time.
    pub first_asked: BTreeMap<String, Asked>,
    /// How often a person gave something up, or the config or a credential changed.
    pub words: u64,
    /// The restores that are not closed, each as it was at its copy.
    pub open: Vec<Since>,
    /// Words about a generation that were said once: key and generation.
    pub said: Vec<(String, u32)>,
    /// Keys that were ever given.
    pub keys: usize,
    /// The other credential is in use.
    pub swapped: bool,
    /// How often the providers moved or the credential was replaced.
    pub places: u64,
    pub counts: BTreeMap<String, u64>,
}

impl World {
    pub fn new(setup: Setup) -> World {
        let dir = match std::fs::metadata("/dev/shm") {
            Ok(m) if m.is_dir() => tempfile::tempdir_in("/dev/shm"),
            _ => tempfile::tempdir(),
        };
        let dir = dir.unwrap();
        std::fs::write(dir.path().join("secret"), SECRET).unwrap();
        let clock = Arc::new(ManualClock::at(NOON));
        let path = dir.path().join("sim.db");
        let trade = Arc::new(Trade::new(Arc::new(setup.config(0, dir.path())), clock.clone()));
        let desk = open(&path, &clock, &trade, 0).unwrap();
        let oracle = Oracle::new(&path);
        let workers: Vec<Option<Running>> = (0..setup.workers).map(|_| None).collect();
        let mut world = World {
            setup,
            dir,
            path,
            clock,
            bank: RefCell::default(),
            oracle,
            workers,
            desk: Some(desk),
            trade,
            version: 0,
            asked: BTreeMap::new(),
            amended: BTreeSet::new(),
            windows: Vec::new(),
            steps: Vec::new(),
            forbidden: BTreeSet::new(),
            skipped: BTreeSet::new(),
            paused: BTreeSet::new(),
            disk_trouble: false,
            opened: 0,
            copies: Vec::new(),
            lost: BTreeMap::new(),
            first_asked: BTreeMap::new(),
            words: 0,
            open: Vec::new(),
            said: Vec::new(),
            keys: 0,
            swapped: false,
            places: 0,
            counts: BTreeMap::new(),
        };
        for _ in 1..world.setup.workers {
            world.start().unwrap();
        }
        world
    }

    pub fn desk(&self) -> &Store {
        self.desk.as_ref().unwrap()
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub fn steps(&self) -> &[(i64, i64)] {
        &self.steps
    }

    pub fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// One step and its check.
    pub fn step(&mut self, op: &Op) -> Result<(), String> {
        let mut rng = Rng::with_seed(op.roll);
        self.count(format!("op {:?}", op.verb));
        self.apply(op.verb, &mut rng)?;
        self.check()
    }

    pub fn check(&mut self) -> Result<(), String> {
        let mut bank = self.bank.borrow_mut();
        if let Some(broken) = bank.broken_rule.take() {
            return Err(broken);
        }
        self.oracle.look(&self.setup, &mut bank, &self.amended)?;
        drop(bank);
        self.oracle.figures()?;
        let mut live = BTreeSet::new();
        for job in self.workers.iter().flatten().flat_map(Running::under_way) {
            ensure!(live.insert(job), "two attempts of job {job} are under way");
        }
        Ok(())
    }

    fn apply(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        match verb {
            Verb::Enqueue | Verb::Repeat | Verb::Mismatch => return self.ask(verb, rng),
            Verb::Backup => return self.backup(),
            Verb::Restore => return self.restore(rng),
            Verb::AskAgain => return self.ask_again(rng),
            Verb::Speak => return self.speak(rng),
            Verb::ResumeAll => return self.resume_all(),
            Verb::LateWord => return self.late_word(rng),
            Verb::Swap => self.swap_credential(),
            Verb::Replay | Verb::Amend | Verb::Resolve | Verb::Cancel | Verb::Confirm | Verb::Note => {
                return self.operate(verb, rng);
            }
            Verb::Pause | Verb::Resume | Verb::Skip => return self.steer(verb, rng),
            Verb::Pass => self.clock.advance(Duration::from_millis(rng.u64(1..200_000))),
            Verb::PassLong => self.clock.advance(Duration::from_secs(rng.u64(3_600..200_000))),
            Verb::SetClock => self.set_clock(rng),
            Verb::Start => return self.start(),
            Verb::Config => self.change_config(rng.u32(..4)),
            Verb::DiskFull => self.every_store(faults::full),
            Verb::DiskFree => self.every_store(faults::mended),
            Verb::CommitFails | Verb::CommitUnheard | Verb::Undone => {
                self.disk_trouble = true;
                let (good, which) = (rng.u32(..3), rng.usize(..=self.workers.len()));
                let store = match self.workers.get(which) {
                    Some(worker) => worker.as_ref().map(|w| &w.store),
                    None => self.desk.as_ref(),
                };
                match (store, verb) {
                    (None, _) => {}
                    (Some(store), Verb::Undone) => faults::undone(store),
                    (Some(store), verb) => faults::commit_fails(store, good, verb == Verb::CommitUnheard),
                }
            }
            Verb::Edge | Verb::Blink | Verb::Revive | Verb::ClearUp | Verb::FailAtDesk => {
                return self.aim(verb, rng);
            }
            Verb::Claim
            | Verb::Call
            | Verb::CallAndDie
            | Verb::Record
            | Verb::Release
            | Verb::Work
            | Verb::Doze
            | Verb::Renew
            | Verb::Recover
            | Verb::Kill
            | Verb::Stop
            | Verb::Freeze
            | Verb::Thaw
            | Verb::Overtake
            | Verb::Tidy
            | Verb::Meddle
            | Verb::FailAt => return self.labour(verb, rng),
        }
        Ok(())
    }

    pub fn every_store(&mut self, fault: fn(&Store)) {
        self.disk_trouble = true;
        self.workers.iter().flatten().map(|w| &w.store).chain(&self.desk).for_each(fault);
    }

    fn set_clock(&mut self, rng: &mut Rng) {
        let by = [700, 5_000, 3_600_000, 86_400_000, 31_536_000_000][rng.usize(..5)];
        self.set_by(if rng.bool() { by } else { -by });
    }

    /// Somebody sets the wall clock.
    pub fn set_by(&mut self, by: i64) {
        self.clock.step(by);
        self.steps.push((self.clock.boot_ms(), by));
    }

    /// Whoever starts from now on, the command line too, has another config.
    fn change_config(&mut self, version: u32) {
        self.places += u64::from((self.version >= 2) != (version >= 2));
        self.version = version;
        let config = Arc::new(self.setup.config(version, self.dir.path()));
        self.trade = Arc::new(Trade::new(config, self.clock.clone()));
        self.words += 1;
        self.reopen();
    }

    pub fn reopen(&mut self) {
        self.desk = None;
        self.opened += 1;
        self.desk = Some(open(&self.path, &self.clock, &self.trade, self.opened).unwrap());
    }

    /// The first worker that is down starts as `work` does.
    pub fn start(&mut self) -> Result<(), String> {
        let Some(free) = self.workers.iter().position(Option::is_none) else { return Ok(()) };
        self.clock.advance(Duration::from_millis(1));
        self.opened += 1;
        let started = || -> Result<Running, StoreError> {
            let store = open(&self.path, &self.clock, &self.trade, self.opened)?;
            store.check_after_crash()?;
            let (owner, lock) = store.register(&format!("w{free}:1"))?;
            store.recover(&owner)?;
            let config = Arc::clone(self.trade.config());
            let providers = Providers::new(config, self.clock.clone());
            let hands = Vec::new();
            let (frozen, forsaken, unheard) = (false, false, BTreeSet::new());
            let version = self.version;
            Ok(Running { store, providers, owner, lock, hands, frozen, forsaken, unheard, version })
        };
        match started() {
            Ok(running) => self.workers[free] = Some(running),
            Err(e) => self.excuse(&e)?,
        }
        Ok(())
    }

    /// Errors of the file are only heard when one was made.
    pub fn excuse(&self, error: &StoreError) -> Result<(), String> {
        let refused = matches!(error, StoreError::Refused(_));
        ensure!(refused || self.disk_trouble, "the store failed by itself: {error}");
        Ok(())
    }
}

/// Opens the file as a process would; the writer's own draws come from the run.
fn open(path: &Path, clock: &Arc<ManualClock>, trade: &Arc<Trade>, n: u64) -> Result<Store, StoreError> {
    let options = Options { create: true, namespace: String::new(), watch: None };
    let desk: Arc<dyn Desk> = trade.clone();
    let store = Store::open(path, options, clock.clone(), desk)?;
    store.write(move |_| {
        fastrand::seed(n);
        Ok(())
    })?;
    Ok(store)
}
