//! Steps that aim at what matters: the edge of a window, a job in a chosen state, a clock that is ahead for a moment.

use crate::faults;
use crate::ops::Verb;
use crate::oracle::{Row, ensure};
use crate::world::World;
use fastrand::Rng;
use onceward::clock::Clock;
use onceward::retry::margin;
use std::time::Duration;

const HOUR_MS: i64 = 3_600_000;
/// The longest that anything is planned ahead for: a kind's `max_age`, and a day.
const FARTHEST_MS: i64 = 96 * HOUR_MS;

impl World {
    pub fn aim(&mut self, verb: Verb, rng: &mut Rng) -> Result<(), String> {
        match verb {
            Verb::Edge => self.go_to_an_edge(rng),
            Verb::Blink => return self.blink(rng),
            Verb::Revive => return self.revive(rng),
            Verb::ClearUp => return self.clear_up(rng),
            Verb::FailAtDesk => {
                self.disk_trouble = true;
                let kind = rng.u8(..5);
                match kind {
                    0 => faults::undone(self.desk()),
                    kind => faults::commit_fails(self.desk(), 0, kind > 2),
                }
                if rng.bool() {
                    let verb = [Verb::Enqueue, Verb::Repeat, Verb::Mismatch][rng.usize(..3)];
                    return self.ask(verb, rng);
                }
                return self.operate(crate::people::verb_of_a_person(rng), rng);
            }
            _ => {}
        }
        Ok(())
    }

    /// To a moment at which something ends for a request that was sent: the provider's window, before and after the margin,
    /// the lag of its look-ups, its kind's longest age; or to when a job is due.
    fn go_to_an_edge(&mut self, rng: &mut Rng) {
        let now = self.clock.boot_ms();
        let mut edges = Vec::new();
        for seen in &self.bank.borrow().seen {
            let row = self.oracle.by_key(&seen.key).filter(|row| !row.is_over());
            let Some(kind) = row.and_then(|row| self.setup.kind(&row.kind)) else { continue };
            let lag = kind.lookup.map_or(Duration::ZERO, |l| l.lag);
            let memory = kind.window * kind.forgets_after;
            for edge in [kind.window - margin(kind.window), kind.window, memory, lag, kind.max_age] {
                edges.push(seen.at + edge.as_millis() as i64);
            }
        }
        let wall = self.clock.now().0;
        edges.extend(self.oracle.rows.values().filter(|r| !r.is_over()).map(|r| now + r.run_after - wall));
        edges.retain(|edge| (now..now + FARTHEST_MS).contains(edge));
        let by = match edges.is_empty() {
            true => rng.i64(1..200_000),
            false => edges[rng.usize(..edges.len())] - now + rng.i64(-1500..1500),
        };
        self.clock.advance(Duration::from_millis(by.max(1).unsigned_abs()));
    }

    /// The wall clock is set ahead, something is done by it, and it is set right again before anybody has looked. Nothing
    /// that was planned meanwhile may stay where that clock put it.
    fn blink(&mut self, rng: &mut Rng) -> Result<(), String> {
        let by = [1_500, HOUR_MS, 24 * HOUR_MS, 8760 * HOUR_MS][rng.usize(..4)];
        self.set_by(by);
        for _ in 0..rng.usize(1..4) {
            match [Verb::Enqueue, Verb::Work, Verb::Work, Verb::Record, Verb::Renew][rng.usize(..5)] {
                Verb::Enqueue => self.ask(Verb::Enqueue, rng)?,
                verb => self.labour(verb, rng)?,
            }
            self.check()?;
        }
        self.set_by(-by);
        if rng.bool() {
            self.labour(Verb::Work, rng)?;
        }
        // Whoever writes sees it; a worker may have had nothing to write.
        let _ = self.desk().write(|_| Ok(()));
        self.check()?;
        let now = self.clock.now().0;
        for row in self.oracle.rows.values().filter(|row| !row.is_over() && !self.disk_trouble) {
            let ahead = row.run_after - now;
            ensure!(
                ahead <= FARTHEST_MS,
                "{} is due in {} h, by a clock that was ahead",
                row.key,
                ahead / HOUR_MS
            );
        }
        Ok(())
    }

    fn one_row(&self, rng: &mut Rng, wanted: impl Fn(&Row) -> bool) -> Option<Row> {
        let rows: Vec<&Row> = self.oracle.rows.values().filter(|row| wanted(row)).collect();
        (!rows.is_empty()).then(|| rows[rng.usize(..rows.len())].clone())
    }

    /// A person brings a parked job back to work, and a worker takes it up.
    fn revive(&mut self, rng: &mut Rng) -> Result<(), String> {
        let Some(row) = self.one_row(rng, |r| r.state == "parked") else {
            return self.labour(Verb::Work, rng);
        };
        let verb = [Verb::Replay, Verb::Replay, Verb::Amend, Verb::Resolve][rng.usize(..4)];
        self.operate_on(verb, &row, rng)?;
        self.check()?;
        self.labour([Verb::Work, Verb::CallAndDie, Verb::Doze][rng.usize(..3)], rng)
    }

    /// What is in doubt comes due, and is asked about or sent again.
    fn clear_up(&mut self, rng: &mut Rng) -> Result<(), String> {
        let Some(row) = self.one_row(rng, |r| r.state == "unknown") else {
            return self.labour(Verb::Call, rng);
        };
        let wait = (row.run_after - self.clock.now().0).clamp(0, FARTHEST_MS);
        self.clock.advance(Duration::from_millis(wait.unsigned_abs()));
        self.labour(
            [Verb::Work, Verb::Work, Verb::CallAndDie, Verb::Meddle, Verb::FailAt][rng.usize(..5)],
            rng,
        )
    }
}
