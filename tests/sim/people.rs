//! Apps that ask and people who steer. People tell the truth: they look at the provider first.

use crate::ops::Verb;
use crate::oracle::{Row, ensure};
use crate::world::{Asked, Window, World};
use fastrand::Rng;
use onceward::clock::Clock;
use onceward::config::Request;
use onceward::job::{Code, JobId};
use onceward::store::{About, Amendment, Enqueued, PauseScope, Resolution, StoreError, Word};
use std::time::Duration;

/// Two are numbered by the app, two by arrival.
pub const GROUPS: [&str; 4] = ["app-1", "app-2", "fifo-1", "fifo-2"];

/// What a person may want of a job.
pub fn verb_of_a_person(rng: &mut Rng) -> Verb {
    use Verb::{Amend, Cancel, Confirm, Note, Replay, Resolve};
    [Replay, Amend, Resolve, Cancel, Confirm, Note][rng.usize(..6)]
}

impl World {
    fn pick_key(&self, rng: &mut Rng) -> Option<String> {
        let n = self.asked.len();
        (n > 0).then(|| self.asked.keys().nth(rng.usize(..n)).cloned()).flatten()
    }

    fn pick_row(&self, rng: &mut Rng, wanted: impl Fn(&Row) -> bool) -> Option<Row> {
        let rows: Vec<_> = self.oracle.rows.values().filter(|r| wanted(r)).collect();
        (!rows.is_empty()).then(|| rows[rng.usize(..rows.len())].clone())
    }

    /// A door, and what it must answer.
    pub fn ask(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        let (key, mut asked) = match verb {
            Verb::Enqueue => {
                self.keys += 1;
                (format!("job:{}", self.keys), self.fresh(rng))
            }
            _ => match self.pick_key(rng) {
                Some(key) => (key.clone(), self.asked[&key].clone()),
                None => return Ok(()),
            },
        };
        if verb == Verb::Mismatch {
            asked.amount += 1;
        }
        let dedup = (verb == Verb::Enqueue && rng.u8(..5) == 0)
            .then(|| (format!("d{}", rng.u8(..2)), Duration::from_secs(rng.u64(10..1000))));
        self.ask_for(key, asked, dedup, verb == Verb::Mismatch, rng)
    }

    /// `mismatch`: the content is not the key's.
    pub fn ask_for(
        &mut self,
        key: String,
        asked: Asked,
        dedup: Option<(String, Duration)>,
        mismatch: bool,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let now = self.clock.boot_ms();
        let request = Request {
            kind: asked.kind.clone(),
            payload: format!(r#"{{"amount_minor":{}}}"#, asked.amount),
            key: Some(key.clone()),
            group: asked.group.clone(),
            sequence: asked.sequence,
            delay: asked.delayed.then(|| Duration::from_secs(rng.u64(1..4000))),
            priority: rng.i64(0..2),
            dedup: dedup.clone(),
            ..Request::default()
        };
        let job = self.trade.config().prepare(request).map_err(|e| format!("{key}: {e}"))?;
        let known = self.oracle.by_key(&key).cloned();
        let window = dedup.map(|(id, length)| Window { kind: asked.kind.clone(), id, opened: now, length });
        let others = |w: &&Window| window.as_ref().is_some_and(|n| (&n.kind, &n.id) == (&w.kind, &w.id));
        let open = self.windows.iter().filter(others).map(|w| w.open(now, self.steps()));
        let (must, may) = open.fold((false, false), |all, one| (all.0 || one.0, all.1 || one.1));
        let answer = self.desk().enqueue(job, "app");
        match (&answer, &known) {
            (Ok(Enqueued::Duplicate(_)), Some(_)) => {
                ensure!(!mismatch, "{key}: other content is a duplicate")
            }
            (Err(StoreError::Refused(r)), Some(row)) if r.code == Code::KeyMismatch => {
                let amended = self.amended.contains(&row.id);
                ensure!(mismatch || amended, "{key}: the same content is refused: {r}");
            }
            (Ok(Enqueued::Created(_)), None) => {
                ensure!(!must || self.disk_trouble, "{key} was made inside another's window");
                self.first_asked.entry(key.clone()).or_insert_with(|| asked.clone());
                self.asked.insert(key.clone(), asked);
                self.windows.extend(window);
            }
            (Ok(Enqueued::Suppressed(_)), None) => {
                ensure!(may || self.disk_trouble, "{key} was suppressed by nobody")
            }
            (Err(StoreError::Refused(r)), None) => {
                let order = matches!(r.code, Code::StaleSequence | Code::SequenceTaken);
                ensure!(order, "{key} is refused: {r}");
            }
            (Err(e), _) => {
                self.excuse(e)?;
                // It may be there; whoever asked will ask again with the same key. Where nothing was there before, what may be
                // there now is this.
                if known.is_none() {
                    self.asked.insert(key.clone(), asked);
                }
                self.windows.extend(window);
            }
            (Ok(other), known) => return Err(format!("{key}: {other:?} and before it {known:?}")),
        }
        if let Ok(Enqueued::Created(_) | Enqueued::Duplicate(_)) = answer {
            self.oracle.acked.insert(key);
        }
        Ok(())
    }

    fn fresh(&self, rng: &mut Rng) -> Asked {
        let kind = self.setup.kinds[rng.usize(..self.setup.kinds.len())].name.clone();
        let group = (rng.u8(..2) > 0).then(|| GROUPS[rng.usize(..4)].to_string());
        let sequence = group.as_ref().is_some_and(|g| g.starts_with("app")).then(|| {
            let last =
                self.oracle.rows.values().filter(|r| r.group == group).filter_map(|r| r.sequence).max();
            (last.unwrap_or(0) + rng.i64(-1..3)).max(1)
        });
        Asked { kind, amount: rng.i64(1..100_000), group, sequence, delayed: rng.u8(..6) == 0 }
    }

    /// A person acts on a job that is likely to let them, or on any.
    pub fn operate(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        let likely: &[&str] = match verb {
            Verb::Resolve | Verb::Confirm => &["parked", "unknown", "running"],
            Verb::Replay | Verb::Amend => &["parked", "cancelled"],
            _ => &["parked", "scheduled", "ready", "waiting", "settled"],
        };
        let picked = self.pick_row(rng, |r| likely.contains(&r.state.as_str()));
        let picked = picked.filter(|_| rng.u8(..6) > 0).or_else(|| self.pick_row(rng, |_| true));
        match picked {
            Some(row) => self.operate_on(verb, &row, rng),
            None => Ok(()),
        }
    }

    pub fn operate_on(&mut self, verb: Verb, row: &Row, rng: &mut Rng) -> Result<(), String> {
        let id = JobId(row.id);
        let boot = self.clock.boot_ms();
        let (effect, pending) = {
            let bank = self.bank.borrow();
            let effect = bank.effects(&row.key).next().map(|o| o.id.clone());
            (effect, bank.pending(&row.key, boot))
        };
        // Whoever looks while it is still being decided waits.
        if pending && matches!(verb, Verb::Resolve | Verb::Confirm) {
            return Ok(());
        }
        let answer = match (verb, effect) {
            (Verb::Replay, _) => self.desk().replay(id, None, "human"),
            (Verb::Amend, _) => {
                let Some(mut asked) = self.asked.get(&row.key).cloned() else { return Ok(()) };
                asked.amount += 7;
                let request = Request {
                    kind: asked.kind.clone(),
                    payload: format!(r#"{{"amount_minor":{}}}"#, asked.amount),
                    key: Some(row.key.clone()),
                    ..Request::default()
                };
                let content = self.trade.config().prepare(request).map_err(|e| e.to_string())?;
                self.amended.insert(row.id);
                let answer = self.desk().replay(id, Some(Amendment { content, money: true }), "human");
                if answer.is_ok() || matches!(answer, Err(StoreError::CommitUnknown(_))) {
                    self.asked.insert(row.key.clone(), asked);
                }
                answer
            }
            (Verb::Resolve, Some(reference)) => {
                self.desk().resolve(id, Resolution::Settled(reference), None, "human")
            }
            (Verb::Resolve, None) => {
                let says = match rng.bool() {
                    true => Resolution::NotApplied,
                    false => Resolution::Rejected("no".into()),
                };
                // As the page showed it a while ago, or as it is.
                let generation = u32::try_from(row.generation).map_err(|e| e.to_string())?;
                let about = match row.doubt && says == Resolution::NotApplied && rng.u8(..4) > 0 {
                    true => About::All,
                    false => About::Generation(generation),
                };
                let again = says == Resolution::NotApplied && about != About::All;
                let answer = self.desk().resolve(id, Word { says, about }, Some("looked".into()), "human");
                // What was not taken nobody says again without another look.
                if again && answer.is_ok() {
                    self.said.push((row.key.clone(), generation));
                }
                answer
            }
            (Verb::Confirm, Some(reference)) => self.desk().confirm(id, &reference, "human"),
            (Verb::Confirm, None) => return Ok(()),
            (Verb::Cancel, _) => self.desk().cancel(id, "human"),
            (_, effect) => self.desk().note(id, "seen", effect.filter(|_| rng.bool()), "human"),
        };
        let gives_up = matches!(verb, Verb::Amend | Verb::Cancel)
            || (verb == Verb::Resolve && self.oracle.now(row.id).is_some_and(|now| now.istate != "settled"));
        self.words += u64::from(gives_up);
        match answer {
            Ok(_) => Ok(()),
            Err(e) => self.excuse(&e),
        }
    }

    /// A word that was true when it was said comes once more, about the generation that it was about.
    pub fn late_word(&mut self, rng: &mut Rng) -> Result<(), String> {
        let n = self.said.len();
        let Some((key, generation)) = (n > 0).then(|| self.said[rng.usize(..n)].clone()) else {
            return Ok(());
        };
        let Some(row) = self.oracle.by_key(&key).cloned() else { return Ok(()) };
        let word = Word { says: Resolution::NotApplied, about: About::Generation(generation) };
        let was = row.generation;
        match self.desk().resolve(JobId(row.id), word, None, "human") {
            Ok(_) | Err(StoreError::Refused(_)) => {}
            Err(e) => self.excuse(&e)?,
        }
        let over = was > i64::from(generation) || row.doubt;
        let now = self.oracle.now(row.id).ok_or("the job is gone")?;
        ensure!(
            !over || now.generation == was,
            "an old word about {key} began generation {}",
            now.generation
        );
        Ok(())
    }

    pub fn steer(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        if verb == Verb::Skip {
            let group = GROUPS[rng.usize(..4)];
            let place = rng.i64(1..8);
            let answer = self.desk().skip_place(group, place, "human");
            if answer.is_ok() || matches!(answer, Err(StoreError::CommitUnknown(_))) {
                self.skipped.insert((group.into(), place));
            }
            return answer.map(|_| ()).or_else(|e| self.excuse(&e));
        }
        let kind = self.setup.kinds[rng.usize(..self.setup.kinds.len())].name.clone();
        let (scope, name) = match rng.u8(..3) {
            0 => (PauseScope::Provider, format!("bank-{kind}")),
            1 => (PauseScope::Kind, kind),
            _ => (PauseScope::Group, GROUPS[rng.usize(..4)].to_string()),
        };
        let (scope, name) = match self.paused.iter().next() {
            Some((scope, name)) if verb == Verb::Resume => {
                (PauseScope::parse(scope).ok_or("no scope")?, name.clone())
            }
            _ => (scope, name),
        };
        let place = (scope.as_str().to_string(), name.clone());
        if verb == Verb::Pause {
            match self.desk().pause(scope, &name, None, "human") {
                Ok(_) => drop(self.paused.insert(place)),
                Err(e) => self.excuse(&e)?,
            }
        } else {
            match self.desk().resume(scope, &name, None, "human") {
                Ok(_) => drop(self.paused.remove(&place)),
                Err(e) => {
                    self.excuse(&e)?;
                    // It may have been resumed.
                    self.paused.remove(&place);
                }
            }
        }
        Ok(())
    }
}
