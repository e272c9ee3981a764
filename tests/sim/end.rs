//! The end of a run: faults stop, everything comes to its end or waits for a reason, and the file is looked at.

use super::*;

impl World {
    /// Faults end, and the machine runs until nothing moves any more. What is not at its end then waits for a reason.
    pub fn quiet_down(&mut self) -> Result<(), String> {
        self.setup.front = 0;
        self.setup.lost = 0;
        (self.setup.server_error, self.setup.rubbish) = (0, 0);
        self.every_store(faults::mended);
        for worker in self.workers.iter_mut().flatten() {
            worker.frozen = false;
        }
        self.paused.clear();
        let kinds = self.setup.kinds.iter().map(|k| k.name.clone());
        let all = kinds.flat_map(|k| [(PauseScope::Provider, format!("bank-{k}")), (PauseScope::Kind, k)]);
        for (scope, name) in all.chain(GROUPS.map(|g| (PauseScope::Group, g.to_string()))) {
            while let Err(e) = self.desk().resume(scope, &name, None, "sim") {
                self.excuse(&e)?;
            }
        }
        let mut rng = Rng::with_seed(1);
        let mut still = 0;
        for round in 0..600 {
            let mut next: Option<Ms> = None;
            while self.workers.iter().any(Option::is_none) {
                self.start()?;
            }
            for n in 0..self.workers.len() {
                let Some(mut worker) = self.workers[n].take() else { continue };
                if worker.forsaken && worker.hands.is_empty() {
                    continue;
                }
                worker.store.recover(&worker.owner).or_else(|e| self.excuse(&e).map(|()| 0))?;
                for _ in 0..4 {
                    let due = self.claim(&mut worker, 3)?;
                    if worker.hands.is_empty() {
                        next = next.into_iter().chain(due).min();
                        // It may have parked something instead.
                        self.check()?;
                        break;
                    }
                    while worker.hands.iter().any(|h| matches!(h, Hand::Claimed(_))) {
                        self.call(&mut worker, &mut rng, None)?;
                    }
                    for _ in 0..worker.hands.len() {
                        self.record(&mut worker, &mut rng)?;
                    }
                    self.check()?;
                }
                self.workers[n] = Some(worker);
            }
            let moving =
                |r: &Row| !matches!(r.state.as_str(), "settled" | "parked" | "cancelled" | "waiting");
            if !self.oracle.rows.values().any(moving) {
                still += 1;
            }
            if still > 1 {
                break;
            }
            // To the next moment at which anything is due, or on, for a lease or a lag may end unannounced. What is asked about
            // until its longest age has its days to go: the machine sleeps now and then.
            let least = if round > 60 { Duration::from_secs(1800) } else { Duration::from_millis(1) };
            let wait = next.map_or(Duration::from_secs(61), |next| next.since(self.clock.now()));
            self.clock.advance(wait.clamp(least, Duration::from_secs(100_000)));
        }
        let stuck: Vec<_> = self
            .oracle
            .rows
            .values()
            .filter(|r| !matches!(r.state.as_str(), "settled" | "parked" | "cancelled"))
            .cloned()
            .collect();
        for row in stuck {
            let story = self.desk().story(&row.key).map_err(|e| e.to_string())?.ok_or("no story")?;
            let waits = row.state == "waiting" && story.blocked_by.is_some();
            let last = story.history.iter().rev().take(5);
            let last: Vec<String> = last
                .map(|e| format!("{} {:?} {:?} to {:?} at {}", e.action, e.class, e.error, e.to, e.at))
                .collect();
            ensure!(waits, "never done: {row:?}; the last of it first: {last:#?}");
        }
        Ok(())
    }

    /// Everything is closed, and the file itself is looked at.
    pub fn close(mut self) -> Result<(Vec<u8>, BTreeMap<String, u64>), String> {
        let verified = self.desk().verify_history().map_err(|e| e.to_string())?;
        ensure!(verified.is_ok(), "the product's own check fails: {verified:?}");
        let audit = self.desk().audit(&mut |_, _| {}).map_err(|e| e.to_string())?;
        ensure!(audit.broken == 0, "the product's own audit fails: {:?}", audit.breaks);
        self.workers.clear();
        self.desk = None;
        for (name, n) in self.bank.borrow().faults.iter() {
            *self.counts.entry(format!("fault {name}")).or_default() += n;
        }
        for row in self.oracle.rows.values() {
            *self.counts.entry(format!("end {}", row.state)).or_default() += 1;
        }
        self.oracle.file(&self.path, SECRET)?;
        self.oracle.file(&self.path, OTHER_SECRET)?;
        Ok((self.oracle.digest(), self.counts))
    }
}
