//! What workers do, bit by bit, and where they die. Each step begins what it needs, so that hardly one does nothing.

use crate::faults;
use crate::ops::Verb;
use crate::oracle::{Line, Row, ensure};
use crate::people::verb_of_a_person;
use crate::provider::{Bank, host};
use crate::setup::Family;
use crate::world::{Hand, LEASE, Running, World};
use fastrand::Rng;
use onceward::clock::{Clock, Ms};
use onceward::job::{JobId, Step};
use onceward::outcome::{Class, Phase};
use onceward::provider::{Broken, Call};
use onceward::store::{Claim, Recorded, Want};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// The longest wait for something to be due.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// With so many jobs those that are there are brought back to work, rather than that new ones are asked for.
const MANY: usize = 8;

impl World {
    /// A step of one worker.
    pub fn labour(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        let ended =
            |w: &Running| !w.hands.is_empty() && w.hands.iter().all(|h| matches!(h, Hand::Answered(..)));
        let wanted = |w: &Option<Running>| {
            w.as_ref().is_some_and(|w| match verb {
                // What is sent after a take-over is beyond the contract; what ended before it is a late result.
                Verb::Tidy => ended(w),
                Verb::Stop => !w.frozen && w.hands.is_empty(),
                verb => w.frozen == (verb == Verb::Thaw),
            })
        };
        let able: Vec<usize> = (0..self.workers.len()).filter(|n| wanted(&self.workers[*n])).collect();
        if able.is_empty() {
            return match verb {
                Verb::Thaw | Verb::Tidy | Verb::Stop => self.labour(Verb::Work, rng),
                _ => self.start(),
            };
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
            Verb::Call => {
                self.needs_claim(worker, rng)?;
                self.call(worker, rng, None)?;
            }
            Verb::Record => {
                self.needs_answer(worker, rng)?;
                self.record(worker, rng)?;
            }
            Verb::Work => self.work(worker, rng)?,
            Verb::Doze => self.doze(worker, rng)?,
            Verb::CallAndDie => {
                self.needs_claim(worker, rng)?;
                let dies = rng.u8(..3);
                self.call(worker, rng, Some(dies))?;
                return Ok(false);
            }
            // After the claim's commit, and before anything of it.
            Verb::Kill => {
                self.needs_claim(worker, rng)?;
                return Ok(false);
            }
            Verb::Stop => return Ok(false),
            Verb::Release => {
                self.needs_claim(worker, rng)?;
                return self.release(worker);
            }
            Verb::Meddle => {
                self.needs_answer(worker, rng)?;
                let out = worker.hands.last().map(Hand::job);
                if let Some(row) = out.and_then(|id| self.oracle.now(id.0)) {
                    self.operate_on(verb_of_a_person(rng), &row, rng)?;
                    self.check()?;
                    self.record(worker, rng)?;
                }
            }
            Verb::FailAt => return self.fail_at(worker, rng),
            Verb::Renew => {
                let _ = worker.store.renew(&worker.owner, LEASE);
            }
            Verb::Recover => {
                worker.store.recover(&worker.owner).or_else(|e| self.excuse(&e).map(|()| 0))?;
            }
            Verb::Freeze => {
                self.needs_claim(worker, rng)?;
                worker.frozen = true;
            }
            Verb::Thaw => worker.frozen = false,
            Verb::Overtake | Verb::Tidy => {
                if verb == Verb::Tidy {
                    worker.forsaken = true;
                    let name = format!("sim.db-owner-{}", worker.owner.nonce());
                    let _ = std::fs::remove_file(self.folder().join(name));
                } else {
                    self.needs_answer(worker, rng)?;
                }
                worker.frozen = true;
                self.clock.advance(LEASE + Duration::from_secs(1));
                self.take_over(worker, rng)?;
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

    /// A claim in its hands: of what is due, or will be soon, or is asked for now.
    fn needs_claim(&mut self, worker: &mut Running, rng: &mut Rng) -> Result<(), String> {
        let has = |w: &Running| w.hands.iter().any(|h| matches!(h, Hand::Claimed(_)));
        for _ in 0..4 {
            if has(worker) {
                return Ok(());
            }
            let next = self.claim(worker, 1)?;
            if has(worker) || worker.hands.len() >= 3 {
                return Ok(());
            }
            match next.map(|next| next.since(self.clock.now())) {
                Some(wait) if wait < PATIENCE => self.clock.advance(wait),
                _ => {
                    self.check()?;
                    match self.oracle.rows.len() < MANY {
                        true => self.ask(Verb::Enqueue, rng)?,
                        false => self.operate(Verb::Replay, rng)?,
                    }
                    self.check()?;
                }
            }
        }
        Ok(())
    }

    fn needs_answer(&mut self, worker: &mut Running, rng: &mut Rng) -> Result<(), String> {
        if !worker.hands.iter().any(|h| matches!(h, Hand::Answered(..))) {
            self.needs_claim(worker, rng)?;
            self.call(worker, rng, None)?;
        }
        Ok(())
    }

    fn work(&mut self, worker: &mut Running, rng: &mut Rng) -> Result<(), String> {
        self.needs_claim(worker, rng)?;
        self.call(worker, rng, None)?;
        self.record(worker, rng)
    }

    /// The same, and the machine sleeps: between the claim and the call, or with the call out. Somebody may set the wall
    /// clock back by as much meanwhile.
    fn doze(&mut self, worker: &mut Running, rng: &mut Rng) -> Result<(), String> {
        self.needs_claim(worker, rng)?;
        let kind = worker.hands.last().and_then(|h| self.oracle.now(h.job().0)).map(|row| row.kind);
        let window = kind.and_then(|kind| self.setup.kind(&kind)).map_or(3600, |kind| kind.window.as_secs());
        let slept = Duration::from_secs([700, window, window.saturating_sub(2), 90_000][rng.usize(..4)]);
        let before = rng.bool();
        if !before {
            self.call(worker, rng, None)?;
        }
        self.clock.advance(slept);
        if self.setup.clocks && rng.bool() {
            self.set_by(-(slept.as_millis() as i64));
        }
        if before {
            self.call(worker, rng, None)?;
        }
        self.record(worker, rng)
    }

    fn release(&mut self, worker: &mut Running) -> Result<bool, String> {
        let at = worker.hands.iter().position(|h| matches!(h, Hand::Claimed(_)));
        if let Some(Hand::Claimed(claim)) = at.map(|at| worker.hands.swap_remove(at))
            && let Err(e) = worker.store.release(claim)
        {
            // What it could not give back it gives back with its next claim.
            self.excuse(&e)?;
        }
        Ok(true)
    }

    /// Its next commit, or the one after that, fails: at the claim, the mark, the record or the release.
    fn fail_at(&mut self, worker: &mut Running, rng: &mut Rng) -> Result<bool, String> {
        let what = rng.u8(..4);
        match what {
            0 | 1 => self.needs_claim(worker, rng)?,
            2 => self.needs_answer(worker, rng)?,
            _ => {}
        }
        self.disk_trouble = true;
        match rng.u8(..5) {
            0 => faults::undone(&worker.store),
            kind => faults::commit_fails(&worker.store, rng.u32(..2), kind > 2),
        }
        match what {
            0 => return self.release(worker),
            1 => self.call(worker, rng, None)?,
            2 => {}
            _ => drop(self.claim(worker, rng.usize(1..4))?),
        }
        self.check()?;
        self.record(worker, rng)?;
        if rng.bool() {
            self.check()?;
            self.record(worker, rng)?;
        }
        Ok(true)
    }

    /// Another worker takes over what it can, and claims once that is due.
    fn take_over(&mut self, still: &Running, rng: &mut Rng) -> Result<(), String> {
        let other = self.workers.iter().position(|w| w.as_ref().is_some_and(|w| !w.frozen));
        let Some(mut other) = other.and_then(|n| self.workers[n].take().map(|w| (n, w))) else {
            return Ok(());
        };
        other.1.store.recover(&other.1.owner).or_else(|e| self.excuse(&e).map(|()| 0))?;
        self.check()?;
        if rng.bool() {
            self.clock.advance(LEASE + Duration::from_secs(1));
            self.claim(&mut other.1, 3)?;
            for job in still.under_way() {
                ensure!(other.1.under_way().all(|j| j != job), "two attempts of job {job} are under way");
            }
        }
        self.workers[other.0] = Some(other.1);
        Ok(())
    }

    /// Claims, and says when there will be more.
    pub fn claim(&mut self, worker: &mut Running, most: usize) -> Result<Option<Ms>, String> {
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
        if claim.intent().in_doubt() {
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
    pub fn call(&mut self, worker: &mut Running, rng: &mut Rng, dies: Option<u8>) -> Result<(), String> {
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
            before_first_byte: &hook,
            program: None,
            scope: Some(claim.scope()),
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
        let amount = wire
            .body
            .and_then(|b| serde_json::from_slice::<serde_json::Value>(b).ok())
            .map(|b| b["amount"].clone());
        ensure!(
            amount.as_ref().and_then(|a| a.as_i64()) == Some(row.amount),
            "{} is sent with {amount:?}",
            job.key
        );
        ensure!(!row.accepted || confirmed, "{} was accepted and is sent again", job.key);
        ensure!(
            !self.forbidden.contains(&row.wire),
            "{} is sent again though its provider forbids it",
            job.key
        );
        let crashes = |l: &&Line| l.action == "crash";
        let lines = self.oracle.lines.get(&job.id.0).map_or(&[][..], Vec::as_slice);
        let spent = self.oracle.spent(job.id.0, true) - lines.iter().filter(crashes).count() as i64;
        ensure!(spent < row.max_attempts, "{} is sent after {spent} attempts", job.key);
        let window = self.setup.kind(&job.kind).map_or(0, |k| k.window.as_millis() as i64);
        for prior in bank.seen.iter().filter(|s| s.key == job.key.as_str() && s.doubtful) {
            let same = prior.wire == row.wire && prior.host == host(wire);
            // A key that its provider still knows has no new effect, whatever a lost file began after it.
            if !same && bank.repeats(&row.wire, wire, now, window) {
                continue;
            }
            let remembered = *family != Family::E && now - prior.at < window;
            ensure!(
                same && remembered,
                "unsafe: {} is sent again at {now} to {} as {row:?}, and the first may have acted: {prior:?}",
                job.key,
                host(wire)
            );
            ensure!(Some(prior.body.as_bytes()) == wire.body, "{} is sent again with other bytes", job.key);
        }
        Ok(())
    }

    pub fn record(&mut self, worker: &mut Running, rng: &mut Rng) -> Result<(), String> {
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
        let tries = i64::from(claim.job().tries);
        let lines = self.oracle.lines.get(&id).cloned().unwrap_or_default();
        // As a thread does that wants its next job at once.
        let wants = rng.bool() && worker.unheard.is_empty() && !worker.forsaken && worker.hands.len() < 3;
        let want = wants.then(|| Want { lease: LEASE, still: Box::new(|| true) });
        match worker.store.record_and_claim(claim, outcome, want) {
            Ok((recorded, next)) => {
                let mut claimed = false;
                if let Some(claim) = next {
                    claimed = claim.job().id.0 == id;
                    self.in_turn(&claim)?;
                    self.count("claimed with a record");
                    worker.hands.push(Hand::Claimed(claim));
                }
                let after = self.oracle.now(id).ok_or("the job is gone")?;
                if class == Class::KeyMismatch && recorded != Recorded::Late {
                    self.forbidden.insert(before.wire.clone());
                }
                // Once it is on file that this try ended, trying to say so again is no news.
                let told = lines
                    .iter()
                    .any(|l| l.attempt == Some(tries) && matches!(l.action.as_str(), "request" | "lookup"));
                ensure!(!told || recorded != Recorded::Late, "{class} of {key} was recorded twice");
                worker.unheard.remove(&JobId(id));
                if let (true, Some(seen), Recorded::As { .. }) = (harmless, seen, &recorded) {
                    self.bank.borrow_mut().seen[seen].doubtful = false;
                }
                // The same commit may have claimed it anew, or moved what was due with a clock that was set.
                let stays = |r: &Row| {
                    let (decided, lease) =
                        ((r.istate.clone(), r.generation, r.unknown), (r.tries, r.lease_token));
                    (decided, lease, r.reason.clone(), r.reference.clone())
                };
                let same = claimed || stays(&before) == stays(&after);
                let fenced = same || (before.state == "running" && Some(before.lease_token) == token);
                ensure!(
                    fenced || recorded == Recorded::Late,
                    "{class} of {key} was recorded under another's lease"
                );
                // A late result changes nothing, unless it is good news.
                if recorded == Recorded::Late && !good {
                    ensure!(same, "the late {class} of {key} changed {before:?} to {after:?}");
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
