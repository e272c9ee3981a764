//! What a power cut leaves behind: for each moment of a recorded run, what the platter may hold.

use crate::vfs::{Image, Op, run};
use fastrand::Rng;

/// What becomes of the writes that were not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// None was written.
    Dropped,
    /// All were.
    Kept,
    /// Each whole write by chance, so later ones may be there without earlier ones.
    Some(u64),
    /// Each sector of 512 bytes by chance.
    Torn(u64),
    /// All, but the last page of each file is garbage where it was under way.
    Garbage(u64),
}

pub const DAMAGES: [Damage; 7] = [
    Damage::Dropped,
    Damage::Kept,
    Damage::Some(1),
    Damage::Torn(2),
    Damage::Torn(3),
    Damage::Torn(4),
    Damage::Garbage(5),
];

/// Which syncs are lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Honesty {
    Honest,
    /// No sync does anything.
    Lies,
    /// The log is not synced at a commit, as with `synchronous=NORMAL`.
    Normal,
}

/// A platter that follows a run.
pub struct Platter {
    durable: Image,
    pending: Vec<Op>,
    honesty: Honesty,
}

fn file(op: &Op) -> &str {
    match op {
        Op::Write { file, .. } | Op::Cut { file, .. } | Op::Sync { file } | Op::Delete { file } => file,
    }
}

impl Platter {
    pub fn new(before: Image, honesty: Honesty) -> Platter {
        Platter { durable: before, pending: Vec::new(), honesty }
    }

    /// The next operation of the run; `forgotten`: the system has dropped it since.
    pub fn follow(&mut self, op: &Op, forgotten: bool) {
        match op {
            Op::Sync { .. } if self.honesty == Honesty::Lies => {}
            Op::Sync { file } if self.honesty == Honesty::Normal && file.ends_with("-wal") => {}
            Op::Sync { file: synced } => {
                for op in self.pending.extract_if(.., |op| file(op) == synced) {
                    run(&mut self.durable, &op);
                }
            }
            Op::Delete { file: gone } => {
                self.pending.retain(|op| file(op) != gone);
                run(&mut self.durable, op);
            }
            // Its bytes never come, but the file's length is the directory's matter.
            Op::Write { file, at, bytes } if forgotten => {
                let data = self.durable.entry(file.clone()).or_default();
                if data.len() < at + bytes.len() {
                    data.resize(at + bytes.len(), 0);
                }
            }
            Op::Cut { .. } if forgotten => {}
            Op::Write { .. } | Op::Cut { .. } => self.pending.push(op.clone()),
        }
    }

    pub fn is_clean(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn after(&self, damage: Damage) -> Image {
        let mut image = self.durable.clone();
        let mut rng = Rng::with_seed(match damage {
            Damage::Dropped | Damage::Kept => 0,
            Damage::Some(seed) | Damage::Torn(seed) | Damage::Garbage(seed) => {
                seed + self.pending.len() as u64
            }
        });
        for (n, op) in self.pending.iter().enumerate() {
            let last = !self.pending[n + 1..].iter().any(|later| file(later) == file(op));
            match (damage, op) {
                (Damage::Dropped, _) => {}
                (Damage::Kept, op) => run(&mut image, op),
                (Damage::Garbage(_), Op::Write { file, at, bytes }) if last => {
                    let bytes = bytes.iter().map(|_| rng.u8(..)).collect();
                    run(&mut image, &Op::Write { file: file.clone(), at: *at, bytes });
                }
                (Damage::Garbage(_), op) => run(&mut image, op),
                (Damage::Torn(_), Op::Write { file, at, bytes }) => {
                    let mut from = 0;
                    while from < bytes.len() {
                        let to = ((at + from) / 512 * 512 + 512 - at).min(bytes.len());
                        if rng.bool() {
                            let bytes = bytes[from..to].to_vec();
                            run(&mut image, &Op::Write { file: file.clone(), at: at + from, bytes });
                        }
                        from = to;
                    }
                }
                (Damage::Torn(_) | Damage::Some(_), op) => {
                    if rng.bool() {
                        run(&mut image, op);
                    }
                }
            }
        }
        image
    }
}
