//! Copies of the file, and what follows when one is put back: the file is lost with all that it knew, what it did stands
//! at the providers, and apps and people go on as if nothing had happened.

use crate::oracle::Oracle;
use crate::world::{Asked, Window, World};
use fastrand::Rng;
use onceward::clock::{Clock, Ms};
use onceward::store::{Desk, Options, PauseScope, Restoring, Said, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// A copy, and what the world knew when it was made.
pub struct Copy {
    path: PathBuf,
    at: Ms,
    said: Since,
    place: Place,
    asked: BTreeMap<String, Asked>,
    amended: BTreeSet<i64>,
    windows: Vec<Window>,
    skipped: BTreeSet<(String, i64)>,
    acked: BTreeSet<String>,
    /// The restores that were open then, each as it was at its copy.
    open: Vec<Since>,
}

/// What a person's word about the time since a copy is true by: how many words that give something up had been said, and by
/// how much the clock was wrong.
pub type Since = (u64, i64);

/// Where requests go, and how often that has changed: whether the providers have moved, and which credential is in use.
type Place = (bool, bool, u64);

impl World {
    pub fn backup(&mut self) -> Result<(), String> {
        // Whoever restores knows one config of the time of the copy.
        let one_config = self.workers.iter().flatten().all(|worker| worker.tells_its_scopes(self.version));
        if self.copies.len() >= 2 || !one_config {
            return Ok(());
        }
        let path = self.dir.path().join(format!("copy-{}.db", self.opened));
        self.opened += 1;
        let at = match self.desk().backup(&path, &mut |_, _| {}) {
            Ok(copied) => copied.at,
            Err(e) => return self.excuse(&e),
        };
        self.copies.push(Copy {
            path,
            at,
            said: self.since_then(),
            place: self.place(),
            asked: self.asked.clone(),
            amended: self.amended.clone(),
            windows: self.windows.clone(),
            skipped: self.skipped.clone(),
            acked: self.oracle.acked.clone(),
            open: self.open.clone(),
        });
        Ok(())
    }

    /// The file and every worker are gone, and a copy takes its place.
    pub fn restore(&mut self, rng: &mut Rng) -> Result<(), String> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let copy = self.copies.swap_remove(rng.usize(..self.copies.len()));
        // A change of address or account that was taken back nobody can see afterwards: assumed not to be.
        let (then, now) = (copy.place, self.place());
        if then.2 != now.2 && (then.0, then.1) == (now.0, now.1) {
            return Ok(());
        }
        self.every_store(crate::faults::mended);
        self.workers.iter_mut().for_each(|worker| *worker = None);
        self.desk = None;
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", self.path.display()));
        }
        // A copy that bears a time to come is refused: somebody sets the clock.
        let ahead = copy.at.since(self.clock.now());
        if !ahead.is_zero() {
            self.set_by(ahead.as_millis() as i64 + 1000);
        }
        let true_word = copy.said == self.since_then();
        let said = Said { no_words: true_word && rng.bool(), close: false };
        let options = Options { create: false, namespace: String::new(), watch: None };
        let desk: Arc<dyn Desk> = self.trade.clone();
        let how = Restoring { copied_at: None, said, actor: "human".into() };
        let restored = Store::restore(&copy.path, &self.path, options, self.clock.clone(), desk, &how);
        restored.map_err(|e| format!("the copy could not be put back: {e}"))?;
        self.oracle = Oracle::anew(&self.path, &self.oracle, copy.acked);
        self.reopen();
        let before = std::mem::replace(&mut self.asked, copy.asked);
        for (key, asked) in before {
            if !self.asked.contains_key(&key) {
                // Whatever was amended in the lost file, the app asks again for what it had asked for.
                let asked = self.first_asked.get(&key).cloned().unwrap_or(asked);
                self.lost.insert(key, asked);
            }
        }
        (self.amended, self.windows, self.skipped) = (copy.amended, copy.windows, copy.skipped);
        self.open = copy.open;
        self.open.push(copy.said);
        self.paused.clear();
        for kind in &self.setup.kinds {
            let name = format!("bank-{}", kind.name);
            self.paused.insert((PauseScope::Provider.as_str().into(), name));
        }
        if rng.u8(..3) == 0 {
            return Ok(());
        }
        self.resume_all()
    }

    fn place(&self) -> Place {
        (self.version >= 2, self.swapped, self.places)
    }

    fn since_then(&self) -> Since {
        (self.words, self.steps().iter().map(|(_, by)| by).sum())
    }

    pub fn resume_all(&mut self) -> Result<(), String> {
        match self.desk().resume_restored("human") {
            Ok((resumed, _)) => {
                for pause in resumed {
                    self.paused.remove(&(pause.scope.as_str().to_string(), pause.name));
                }
                Ok(())
            }
            Err(e) => {
                // Some of them may go on by now.
                self.paused.clear();
                self.excuse(&e)
            }
        }
    }

    /// An app asks again for what it had asked for, and the file does not know.
    pub fn ask_again(&mut self, rng: &mut Rng) -> Result<(), String> {
        let n = self.lost.len();
        let Some(key) = (n > 0).then(|| self.lost.keys().nth(rng.usize(..n)).cloned()).flatten() else {
            return Ok(());
        };
        let asked = self.lost[&key].clone();
        self.ask_for(key.clone(), asked, None, false, rng)?;
        if self.asked.contains_key(&key) {
            self.lost.remove(&key);
        }
        Ok(())
    }

    /// A person says of the restores what is true.
    pub fn speak(&mut self, rng: &mut Rng) -> Result<(), String> {
        if self.open.is_empty() {
            return Ok(());
        }
        for _ in 0..self.lost.len() {
            self.ask_again(rng)?;
            self.check()?;
        }
        let said = Said {
            no_words: self.open.iter().all(|then| *then == self.since_then()),
            close: self.lost.is_empty() && rng.bool(),
        };
        if said == Said::default() {
            return Ok(());
        }
        match self.desk().say_of_restores(said, "human") {
            Ok(_) if said.close => self.open.clear(),
            Ok(_) => {}
            Err(e) => self.excuse(&e)?,
        }
        Ok(())
    }

    /// The account's credential is another one from now on: whatever a claim was made for, the call reads it anew.
    pub fn swap_credential(&mut self) {
        self.words += 1;
        self.swapped = !self.swapped;
        self.places += 1;
        let secret = if self.swapped { crate::world::OTHER_SECRET } else { crate::world::SECRET };
        std::fs::write(self.dir.path().join("secret"), secret).unwrap();
    }
}
