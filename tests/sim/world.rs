//! One run: a machine with a clock and a disk, the store's file on it, workers and people at work, providers elsewhere.

#[path = "end.rs"]
mod end;

use crate::faults;
use crate::ops::{Op, Verb};
use crate::oracle::{Oracle, Row, ensure};
use crate::people::GROUPS;
use crate::provider::{Bank, host};
use crate::setup::{Family, Setup};
use fastrand::Rng;
use onceward::clock::{Clock, ManualClock, Ms};
use onceward::job::{JobId, Step};
use onceward::outcome::{Class, Outcome, Phase};
use onceward::provider::{Broken, Call, Providers};
use onceward::store::{
    Claim, Desk, Options, Owner, OwnerLock, PauseScope, Recorded, Store, StoreError, Want,
};
use onceward::worker::Trade;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub const SECRET: &str = "s3cret-of-the-simulation";
const NOON: Ms = Ms(1_800_000_000_000);
const LEASE: Duration = Duration::from_secs(60);

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
    providers: Providers,
    owner: Owner,
    lock: OwnerLock,
    pub hands: Vec<Hand>,
    frozen: bool,
    /// Its lock file was deleted: others take its jobs when their leases are over.
    forsaken: bool,
    /// Jobs whose result could not be written: it claims nothing until it is.
    unheard: BTreeSet<JobId>,
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
pub struct Window {
    pub kind: String,
    pub id: String,
    /// By the boot clock.
    pub opened: i64,
    pub length: Duration,
}

impl Window {
    /// Must it suppress now, and may it? A clock that is set forward ends it early. One that is set back moves it, unless it
    /// was opened before that time: then it may last once more as long.
    pub fn open(&self, now: i64, steps: &[(i64, i64)]) -> (bool, bool) {
        let since = || steps.iter().filter(|(at, _)| *at >= self.opened);
        let (age, length) = (now - self.opened, self.length.as_millis() as i64);
        let backs = since().filter(|(_, by)| *by < 0).count() as i64;
        let must = age + SLACK < length && since().all(|(_, by)| *by < SLACK);
        (must, age <= length * (1 + backs) + SLACK)
    }
}

/// Steps of the clock that add up to less may go unnoticed.
const SLACK: i64 = 2000;

pub struct World {
    pub setup: Setup,
    dir: tempfile::TempDir,
    pub path: PathBuf,
    pub clock: Arc<ManualClock>,
    pub bank: RefCell<Bank>,
    pub oracle: Oracle,
    pub workers: Vec<Option<Running>>,
    /// The command line's store, of whoever asks and of the operator.
    pub desk: Option<Store>,
    pub trade: Arc<Trade>,
    version: u32,
    pub asked: BTreeMap<String, Asked>,
    pub amended: BTreeSet<i64>,
    pub windows: Vec<Window>,
    /// When the wall clock was set, by the boot clock, and by how much.
    steps: Vec<(i64, i64)>,
    pub skipped: BTreeSet<(String, i64)>,
    pub paused: BTreeSet<(String, String)>,
    /// An error of the file has been made on purpose, so callers may hear of it.
    pub disk_trouble: bool,
    opened: u64,
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
            skipped: BTreeSet::new(),
            paused: BTreeSet::new(),
            disk_trouble: false,
            opened: 0,
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

    pub fn steps(&self) -> &[(i64, i64)] {
        &self.steps
    }

    fn count(&mut self, what: impl Into<String>) {
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
        for worker in self.workers.iter().flatten().filter(|w| !w.forsaken) {
            // What could not be recorded may be on file already, and the next attempt of it under way.
            for hand in worker.hands.iter().filter(|h| !worker.unheard.contains(&h.job())) {
                ensure!(live.insert(hand.job()), "two attempts of job {} are under way", hand.job());
            }
        }
        Ok(())
    }

    fn apply(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        match verb {
            Verb::Enqueue | Verb::Repeat | Verb::Mismatch => return self.ask(verb, rng),
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
            | Verb::Tidy => return self.labour(verb, rng),
        }
        Ok(())
    }

    fn every_store(&mut self, fault: fn(&Store)) {
        self.disk_trouble = true;
        self.workers.iter().flatten().map(|w| &w.store).chain(&self.desk).for_each(fault);
    }

    fn set_clock(&mut self, rng: &mut Rng) {
        let by = [700, 5_000, 3_600_000, 86_400_000, 31_536_000_000][rng.usize(..5)];
        let by = if rng.bool() { by } else { -by };
        self.clock.step(by);
        self.steps.push((self.clock.boot_ms(), by));
    }

    /// Whoever starts from now on, the command line too, has another config.
    fn change_config(&mut self, version: u32) {
        self.version = version;
        let config = Arc::new(self.setup.config(version, self.dir.path()));
        self.trade = Arc::new(Trade::new(config, self.clock.clone()));
        self.desk = None;
        self.opened += 1;
        self.desk = Some(open(&self.path, &self.clock, &self.trade, self.opened).unwrap());
    }

    /// The first worker that is down starts as `work` does.
    fn start(&mut self) -> Result<(), String> {
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
            Ok(Running { store, providers, owner, lock, hands, frozen, forsaken, unheard })
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

    /// A step of one worker.
    fn labour(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        let ended =
            |w: &Running| !w.hands.is_empty() && w.hands.iter().all(|h| matches!(h, Hand::Answered(..)));
        let wanted = |w: &Option<Running>| {
            w.as_ref().is_some_and(|w| match verb {
                // What is sent after a take-over is beyond the contract; what ended before it is a late result.
                Verb::Tidy => ended(w),
                verb => w.frozen == (verb == Verb::Thaw),
            })
        };
        let able: Vec<usize> = (0..self.workers.len()).filter(|n| wanted(&self.workers[*n])).collect();
        if able.is_empty() {
            return Ok(());
        }
        let n = able[rng.usize(..able.len())];
        let Some(mut worker) = self.workers[n].take() else { return Ok(()) };
        let lives = self.labour_of(&mut worker, verb, rng);
        if lives == Ok(true) {
            self.workers[n] = Some(worker);
        } else if verb == Verb::Stop && lives == Ok(false) {
            let _ = worker.store.unregister(&worker.owner, worker.lock);
        }
        lives.map(|_| ())
    }

    /// `false`: it is gone.
    fn labour_of(&mut self, worker: &mut Running, verb: Verb, rng: &mut Rng) -> Result<bool, String> {
        match verb {
            Verb::Claim => drop(self.claim(worker, rng.usize(1..4))?),
            Verb::Call => self.call(worker, rng, None)?,
            Verb::CallAndDie => {
                let before = worker.hands.iter().filter(|h| matches!(h, Hand::Claimed(_))).count();
                self.call(worker, rng, Some(rng.clone().u8(..3)))?;
                return Ok(before == 0);
            }
            Verb::Record => self.record(worker, rng)?,
            Verb::Work | Verb::Doze => {
                let next = self.claim(worker, 1)?;
                let wait = next.map(|next| next.since(self.clock.now()));
                if let Some(wait) = wait.filter(|w| worker.hands.is_empty() && *w < Duration::from_secs(3600))
                {
                    self.clock.advance(wait);
                    self.claim(worker, 1)?;
                }
                if verb == Verb::Doze {
                    self.clock.advance(Duration::from_secs([700, 4_000, 90_000][rng.usize(..3)]));
                }
                self.call(worker, rng, None)?;
                self.record(worker, rng)?;
            }
            Verb::Release => {
                let at = worker.hands.iter().position(|h| matches!(h, Hand::Claimed(_)));
                if let Some(Hand::Claimed(claim)) = at.map(|at| worker.hands.swap_remove(at))
                    && let Err(e) = worker.store.release(claim)
                {
                    self.excuse(&e)?;
                    return Ok(false);
                }
            }
            Verb::Renew => {
                let _ = worker.store.renew(&worker.owner, LEASE);
            }
            Verb::Recover => {
                if let Err(e) = worker.store.recover(&worker.owner) {
                    self.excuse(&e)?;
                }
            }
            Verb::Kill => return Ok(false),
            Verb::Stop => return Ok(!worker.hands.is_empty()),
            Verb::Freeze => worker.frozen = true,
            Verb::Thaw => {
                worker.frozen = false;
            }
            Verb::Tidy => {
                (worker.forsaken, worker.frozen) = (true, true);
                let name = format!("sim.db-owner-{}", worker.owner.nonce());
                let _ = std::fs::remove_file(self.dir.path().join(name));
                self.clock.advance(LEASE + Duration::from_secs(1));
                self.take_over(rng)?;
                if rng.bool() {
                    worker.frozen = false;
                    self.check()?;
                    self.record(worker, rng)?;
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Another worker takes over what it can, and claims once that is due.
    fn take_over(&mut self, rng: &mut Rng) -> Result<(), String> {
        let other = self.workers.iter().position(|w| w.as_ref().is_some_and(|w| !w.frozen));
        let Some(mut other) = other.and_then(|n| self.workers[n].take().map(|w| (n, w))) else {
            return Ok(());
        };
        other.1.store.recover(&other.1.owner).or_else(|e| self.excuse(&e).map(|()| 0))?;
        self.check()?;
        if rng.bool() {
            self.clock.advance(LEASE + Duration::from_secs(1));
            self.claim(&mut other.1, 3)?;
        }
        self.workers[other.0] = Some(other.1);
        Ok(())
    }

    /// Claims, and says when there will be more.
    fn claim(&mut self, worker: &mut Running, most: usize) -> Result<Option<Ms>, String> {
        // A worker that lost its lock file knows nothing of it, but what it claims then is beyond the contract.
        if !worker.unheard.is_empty() || worker.forsaken || worker.hands.len() >= 3 {
            return Ok(None);
        }
        let claimed = match worker.store.claim(&worker.owner, most, LEASE) {
            Ok(claimed) => claimed,
            Err(e) => return self.excuse(&e).map(|()| None),
        };
        for claim in claimed.claims {
            self.in_turn(&claim)?;
            worker.hands.push(Hand::Claimed(claim));
        }
        Ok(claimed.next)
    }

    /// Every lower place of its group is done, and nothing of it is paused.
    fn in_turn(&self, claim: &Claim) -> Result<(), String> {
        let job = claim.job();
        for (scope, name) in [("kind", job.kind.clone()), ("provider", format!("bank-{}", job.kind))]
            .into_iter()
            .chain(job.group.clone().map(|g| ("group", g)))
        {
            let paused = self.paused.contains(&(scope.to_string(), name.clone()));
            ensure!(!paused, "{} was claimed though {scope} {name} is paused", job.key);
        }
        let (Some(group), Some(sequence)) = (&job.group, job.sequence) else { return Ok(()) };
        if claim.intent().generation.unknown {
            return Ok(());
        }
        for place in 1..sequence {
            // As they are now: a job that is recorded lets its successor go in the same commit.
            let known = self.oracle.rows.values();
            let here: Vec<_> = known
                .filter(|r| r.group.as_ref() == Some(group) && r.sequence == Some(place))
                .filter_map(|r| self.oracle.now(r.id))
                .collect();
            let done = match here.iter().find(|r| r.state != "cancelled") {
                Some(row) => row.state == "settled" || row.passed_over,
                None => !here.is_empty() || self.skipped.contains(&(group.clone(), place)),
            };
            ensure!(done, "{} was claimed before place {place} of {group} was done", job.key);
        }
        Ok(())
    }

    /// One call; `dies`: before its request leaves, after it has reached the provider, or with the answer in hand.
    fn call(&mut self, worker: &mut Running, rng: &mut Rng, dies: Option<u8>) -> Result<(), String> {
        let claimed: Vec<usize> =
            (0..worker.hands.len()).filter(|n| matches!(worker.hands[*n], Hand::Claimed(_))).collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let Hand::Claimed(claim) = worker.hands.swap_remove(claimed[rng.usize(..claimed.len())]) else {
            return Ok(());
        };
        let kind = self.setup.kind(&claim.job().kind).cloned().ok_or("an unknown kind")?;
        let hook = || worker.store.before_first_byte(&claim);
        let call = Call {
            step: claim.step(),
            job: claim.job(),
            intent: claim.intent(),
            frozen: claim.frozen(),
            scope: Some(claim.scope()),
            before_first_byte: &hook,
        };
        let (rng, seen, wrong) = (RefCell::new(rng), Cell::new(None), RefCell::new(None));
        let now = self.clock.boot_ms();
        let dead = || Broken {
            class: Class::Interrupted,
            phase: Phase::Sent,
            head: None,
            cut: None,
            error: "died".into(),
        };
        let outcome = worker.providers.call_over(&call, &|wire, before_first_byte| {
            let rng: &mut Rng = &mut rng.borrow_mut();
            let mut bank = self.bank.borrow_mut();
            if dies == Some(0) && rng.bool() {
                return Err(dead());
            }
            if let Some(down) = bank.unreachable(&self.setup, rng) {
                return Err(down);
            }
            let not_sent =
                |error| Broken { class: Class::NotSent, phase: Phase::Connect, head: None, cut: None, error };
            before_first_byte().map_err(not_sent)?;
            if dies == Some(0) {
                return Err(dead());
            }
            if claim.step() != Step::Send {
                return bank.ask(&self.setup, wire, now, rng);
            }
            *wrong.borrow_mut() = self.may_leave(&bank, &claim, &kind.family, wire, now).err();
            seen.set(Some(bank.seen.len()));
            bank.send(&self.setup, &kind, wire, now, rng)
        });
        if let Some(wrong) = wrong.into_inner() {
            return Err(wrong);
        }
        self.oracle.hash_text(&format!("{} {} {:?}", claim.job().key, outcome.class, outcome.http_status));
        self.count(format!("class {}", outcome.class));
        if dies.is_none() {
            worker.hands.push(Hand::Answered(claim, outcome, seen.get()));
        }
        Ok(())
    }

    /// At the moment of the first byte: is it on file that it may leave, and could it be a second effect?
    fn may_leave(
        &self,
        bank: &Bank,
        claim: &Claim,
        family: &Family,
        wire: &onceward::provider::Wire<'_>,
        now: i64,
    ) -> Result<(), String> {
        let job = claim.job();
        let row = self.oracle.now(job.id.0).ok_or_else(|| format!("{} is sent and not on file", job.key))?;
        // Somebody may have confirmed it since it was claimed: then it is as safe as any repeat, and judged below.
        let confirmed = row.istate == "settled" && *family != Family::E;
        let claimed = row.state == "running" && row.istate == "requested";
        ensure!(claimed || confirmed, "{} is sent while {row:?}", job.key);
        ensure!(
            *family != Family::E || row.lease_phase.as_deref() == Some("sending"),
            "{} is sent and not marked",
            job.key
        );
        ensure!(
            row.frozen.as_deref().map(str::as_bytes) == wire.body,
            "{} is sent otherwise than it is on file",
            job.key
        );
        ensure!(row.wire == claim.intent().wire_key, "{} is sent under another key than is on file", job.key);
        let window = self.setup.kind(&job.kind).map_or(0, |k| k.window.as_millis() as i64);
        for prior in bank.seen.iter().filter(|s| s.key == job.key.as_str() && s.doubtful) {
            let same = prior.wire == row.wire && prior.host == host(wire);
            let remembered = *family != Family::E && now - prior.at < window;
            ensure!(
                same && remembered,
                "unsafe: {} is sent again, and the first may have acted: {prior:?}",
                job.key
            );
            ensure!(Some(prior.body.as_bytes()) == wire.body, "{} is sent again with other bytes", job.key);
        }
        Ok(())
    }

    fn record(&mut self, worker: &mut Running, rng: &mut Rng) -> Result<(), String> {
        let answered: Vec<usize> =
            (0..worker.hands.len()).filter(|n| matches!(worker.hands[*n], Hand::Answered(..))).collect();
        if answered.is_empty() {
            return Ok(());
        }
        let at = answered[rng.usize(..answered.len())];
        let Hand::Answered(claim, outcome, seen) = worker.hands.swap_remove(at) else { return Ok(()) };
        let harmless = matches!(outcome.class, Class::Throttled | Class::Auth | Class::Rejected);
        let (id, key, class) = (claim.job().id.0, claim.job().key.to_string(), outcome.class);
        let token = claim.job().lease.as_ref().map(|l| l.token);
        let good = class == Class::Ok && outcome.differs.is_none();
        let before = self.oracle.now(id).ok_or("the job is gone")?;
        // As a thread does that wants its next job at once.
        let wants = rng.bool() && worker.unheard.is_empty() && !worker.forsaken && worker.hands.len() < 3;
        let want = wants.then(|| Want { lease: LEASE, still: Box::new(|| true) });
        match worker.store.record_and_claim(claim, outcome, want) {
            Ok((recorded, next)) => {
                if let Some(claim) = next {
                    self.in_turn(&claim)?;
                    self.count("claimed with a record");
                    worker.hands.push(Hand::Claimed(claim));
                }
                let after = self.oracle.now(id).ok_or("the job is gone")?;
                worker.unheard.remove(&JobId(id));
                if let (true, Some(seen), Recorded::As { .. }) = (harmless, seen, &recorded) {
                    self.bank.borrow_mut().seen[seen].doubtful = false;
                }
                let fenced =
                    before == after || (before.state == "running" && Some(before.lease_token) == token);
                ensure!(
                    fenced || recorded == Recorded::Late,
                    "{class} of {key} was recorded under another's lease"
                );
                // A late result changes nothing, unless it is good news.
                if recorded == Recorded::Late && !good {
                    ensure!(before == after, "the late {class} of {key} changed {before:?} to {after:?}");
                }
                let kept = recorded != Recorded::Late || !good || after.istate == "settled";
                ensure!(kept, "the late good news of {key} is lost: {after:?}");
            }
            Err(unrecorded) => {
                self.excuse(&unrecorded.error)?;
                worker.unheard.insert(JobId(id));
                // It may have been written all the same, and whoever reads the file knows.
                if let (true, Some(seen)) =
                    (harmless && self.oracle.now(id).is_some_and(|r| r != before), seen)
                {
                    self.bank.borrow_mut().seen[seen].doubtful = false;
                }
                worker.hands.push(Hand::Answered(unrecorded.claim, unrecorded.outcome, seen));
            }
        }
        Ok(())
    }
}

/// Opens the file as a process would; the writer's own draws come from the run.
fn open(
    path: &std::path::Path,
    clock: &Arc<ManualClock>,
    trade: &Arc<Trade>,
    n: u64,
) -> Result<Store, StoreError> {
    let options = Options { create: true, namespace: String::new(), watch: None };
    let desk: Arc<dyn Desk> = trade.clone();
    let store = Store::open(path, options, clock.clone(), desk)?;
    store.write(move |_| {
        fastrand::seed(n);
        Ok(())
    })?;
    Ok(store)
}
