//! Power cuts: the script runs once, and the platter is looked at as it may have been at each moment of it.

use crate::look::{Dump, Facts, LATER, Wanted, dump, facts, forget_owners, look, on_platter};
use crate::platter::{DAMAGES, Damage, Honesty, Platter};
use crate::script::{NOON, Shop, Told, Watch, old_file, play};
use crate::vfs::{Disk, Image, Op, mount};
use onceward::store::{Claim, StoreError};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The file as it was when a step was acknowledged.
struct Moment {
    ops: usize,
    step: String,
    dump: Dump,
    facts: Facts,
}

/// A request that left.
struct Sent {
    ops: usize,
    key: String,
    /// When its end was on record.
    over: usize,
}

struct Recording {
    disk: Arc<Disk>,
    moments: Vec<Moment>,
    sent: Vec<Sent>,
}

impl Watch for Recording {
    fn done(&mut self, shop: &Shop, step: &str, told: &Told) {
        match told {
            Ok(()) | Err(StoreError::Refused(_)) => {}
            Err(e) => panic!("{step}: {e}"),
        }
        let store = shop.store().unwrap();
        let ops = self.disk.ops();
        let (dump, facts) = (dump(store).unwrap(), facts(store).unwrap());
        if let Some(key) = step.strip_prefix("record ") {
            self.sent.iter_mut().filter(|s| s.key == key && s.over == usize::MAX).for_each(|s| s.over = ops);
        }
        self.moments.push(Moment { ops, step: step.into(), dump, facts });
    }

    fn leaves(&mut self, claim: &Claim) {
        let key = claim.job().key.to_string();
        self.sent.push(Sent { ops: self.disk.ops(), key, over: usize::MAX });
    }
}

/// The script, undisturbed.
fn recorded(folder: &Path) -> (Vec<Op>, Vec<Moment>, Vec<Sent>) {
    let disk = mount(folder, Image::new());
    let mut recording = Recording { disk, moments: Vec::new(), sent: Vec::new() };
    let mut shop = Shop::new(folder, NOON);
    play(&mut shop, &mut recording);
    drop(shop);
    forget_owners(folder);
    (recording.disk.log(), recording.moments, recording.sent)
}

struct Sweep<'a> {
    folder: &'a Path,
    log: &'a [Op],
    moments: &'a [Moment],
    sent: &'a [Sent],
}

impl Sweep<'_> {
    /// One state after a cut when `k` operations were done.
    fn state(&self, k: usize, image: Image) -> Result<(), String> {
        let after = self.moments.partition_point(|m| m.ops <= k);
        let sent: Vec<String> =
            self.sent.iter().filter(|s| s.ops <= k && k < s.over).map(|s| s.key.clone()).collect();
        let nothing = Facts::default();
        let wanted = match after.checked_sub(1) {
            // The file was being made.
            None => Wanted::All(&nothing),
            Some(before) => {
                // One step may be more than one transaction, so long as none of it is half.
                let next = self.moments.get(after);
                Wanted::One(
                    [Some(&self.moments[before].dump), next.map(|m| &m.dump)].into_iter().flatten().collect(),
                )
            }
        };
        // The worker is dead: its lock can be had.
        let words =
            |e| format!("{e}\n  cut at {k}, after {:?}", after.checked_sub(1).map(|n| &self.moments[n].step));
        self.leave_lock();
        look(self.folder, image, LATER, &wanted, &sent).map_err(words)
    }

    fn leave_lock(&self) {
        for nonce in &nonces(self.moments) {
            let _ = std::fs::File::create(self.folder.join(format!("power.db-owner-{nonce}")));
        }
    }

    fn run(&self, honesty: Honesty, part: usize, parts: usize) -> (usize, Vec<String>) {
        let mut platter = Platter::new(Image::new(), honesty);
        let (mut states, mut wrong, mut seen) = (0, Vec::new(), BTreeSet::new());
        for k in 0..=self.log.len() {
            if k / 2 % parts == part {
                for damage in damages(&platter, k) {
                    let image = platter.after(damage);
                    let after = self.moments.partition_point(|m| m.ops <= k);
                    if seen.insert(Sha256::digest(format!("{after} {image:?}"))) {
                        states += 1;
                        if let Err(e) = self.state(k, image) {
                            wrong.push(format!("{damage:?}: {e}"));
                        }
                    }
                }
            }
            if let Some(op) = self.log.get(k) {
                platter.follow(op, false);
            }
        }
        (states, wrong)
    }
}

/// Each moment has its share; `ONCEWARD_POWER_ALL=1` looks at all damages of each.
fn damages(platter: &Platter, k: usize) -> Vec<Damage> {
    if platter.is_clean() {
        return vec![Damage::Dropped];
    }
    if std::env::var_os("ONCEWARD_POWER_ALL").is_some() {
        return DAMAGES.to_vec();
    }
    match k % 2 {
        0 => vec![Damage::Dropped, Damage::Kept],
        _ => vec![Damage::Dropped, DAMAGES[2 + k / 2 % 5]],
    }
}

/// The owners that the script had.
fn nonces(moments: &[Moment]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for moment in moments {
        let owners = moment.dump.split("FROM onceward_owners\n").nth(1).unwrap_or_default();
        for nonce in owners.lines().filter_map(|line| line.split('|').next()).filter(|n| n.len() == 36) {
            if !all.iter().any(|known| known == nonce) {
                all.push(nonce.into());
            }
        }
    }
    all
}

fn honest(part: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (log, moments, sent) = recorded(folder.path());
    let sweep = Sweep { folder: folder.path(), log: &log, moments: &moments, sent: &sent };
    let begun = std::time::Instant::now();
    let (states, wrong) = sweep.run(Honesty::Honest, part, 2);
    let syncs = log.iter().filter(|op| matches!(op, Op::Sync { .. })).count();
    println!(
        "power cuts: {} operations, {syncs} of them syncs, {} steps, {} requests; {states} states in {:?}",
        log.len(),
        moments.len(),
        sent.len(),
        begun.elapsed()
    );
    assert!(
        wrong.is_empty(),
        "{} of {states} states:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_that_was_acknowledged_and_leaves_nothing_half_done_even() {
    honest(0);
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_that_was_acknowledged_and_leaves_nothing_half_done_odd() {
    honest(1);
}

/// What leaves is on the platter at that moment, whatever of the rest is lost.
#[test]
fn each_request_is_on_the_platter_before_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _, sent) = recorded(folder.path());
    assert!(sent.len() > 15, "{}", sent.len());
    let mut platter = Platter::new(Image::new(), Honesty::Honest);
    let mut done = 0;
    for sent in &sent {
        log[done..sent.ops].iter().for_each(|op| platter.follow(op, false));
        done = sent.ops;
        let image = platter.after(Damage::Dropped);
        let (state, phase, intent) = on_platter(folder.path(), image, &sent.key).unwrap();
        let forgets = sent.key.starts_with('e');
        assert_eq!((state.as_str(), intent.as_str()), ("running", "requested"), "{}", sent.key);
        assert!(!forgets || phase == "sending", "{}: {phase}", sent.key);
    }
    println!("write-ahead: {} requests", sent.len());
}

/// A cut while the next start is mending what the first cut left.
#[test]
fn a_second_power_cut_during_the_next_start_loses_nothing_either() {
    let folder = tempfile::tempdir().unwrap();
    let (log, moments, sent) = recorded(folder.path());
    let sweep = Sweep { folder: folder.path(), log: &log, moments: &moments, sent: &sent };
    let mut first = Platter::new(Image::new(), Honesty::Honest);
    let mut states = 0;
    for (k, op) in log.iter().enumerate() {
        let known = moments.partition_point(|m| m.ops <= k);
        if k % 41 == 5 && known > 0 {
            let facts = &moments[known - 1].facts;
            let image = first.after(Damage::Torn(k as u64));
            let disk = mount(folder.path(), image.clone());
            sweep.leave_lock();
            crate::look::reopened(folder.path(), LATER, &Wanted::All(facts), &[]).unwrap();
            let mut second = Platter::new(image, Honesty::Honest);
            for (j, op) in disk.log().iter().enumerate() {
                if j % 3 == 0 {
                    for damage in [Damage::Dropped, Damage::Torn(9)] {
                        sweep.leave_lock();
                        look(folder.path(), second.after(damage), LATER, &Wanted::All(facts), &[])
                            .unwrap_or_else(|e| panic!("cut at {k} and {j}: {e}"));
                        states += 1;
                    }
                }
                second.follow(op, false);
            }
        }
        first.follow(op, false);
    }
    println!("second power cuts: {states} states");
}

/// The controls: a disk that lies, and a log that is not synced at a commit, lose what was acknowledged, and this test
/// must see it.
#[test]
fn a_lying_disk_and_an_unsynced_log_are_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let (log, moments, sent) = recorded(folder.path());
    let sweep = Sweep { folder: folder.path(), log: &log, moments: &moments, sent: &sent };
    for honesty in [Honesty::Lies, Honesty::Normal] {
        let (states, wrong) = sweep.run(honesty, 0, 9);
        println!("{honesty:?}: {} of {states} states are wrong", wrong.len());
        assert!(wrong.len() > states / 20, "{honesty:?}: {} of {states}", wrong.len());
        assert!(wrong.iter().any(|w| w.contains("neither before nor after")), "{honesty:?}: {wrong:?}");
    }
}

/// A file of version 1 is the old one or the new one.
#[test]
fn a_power_cut_during_a_migration_leaves_the_old_file_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (old, _) = old_file(folder.path());
    let disk = mount(folder.path(), old.clone());
    let mut shop = Shop::new(folder.path(), LATER);
    shop.open().unwrap();
    let before = facts(shop.store().unwrap()).unwrap();
    drop(shop);
    assert!(before.history.len() > 10);
    let mut platter = Platter::new(old, Honesty::Honest);
    let mut states = 0;
    let log = disk.log();
    for k in 0..=log.len() {
        for damage in damages(&platter, k) {
            let mut image = platter.after(damage);
            // Beside it: the real copy's name is the real file system's matter.
            image.retain(|name, _| name.starts_with("power.db") && !name.contains("copy"));
            look(folder.path(), image, LATER, &Wanted::All(&before), &[])
                .unwrap_or_else(|e| panic!("{damage:?} at {k}: {e}"));
            states += 1;
        }
        if let Some(op) = log.get(k) {
            platter.follow(op, false);
        }
    }
    println!("migration: {} operations, {states} states", log.len());
}
