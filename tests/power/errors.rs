//! A disk that answers with errors: at each operation one that fails once or from then on. What was acknowledged is
//! there after the next start, nothing is half done, and nothing left on the strength of a commit that failed.

use crate::look::{Facts, LATER, Wanted, facts, forget_owners, on_platter, reopened};
use crate::platter::{Damage, Honesty, Platter};
use crate::script::{NOON, Shop, Told, Watch, play};
use crate::vfs::{Disk, Fault, How, Image, mount, mount_again};
use onceward::store::{Claim, StoreError};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;

struct Witness {
    disk: Arc<Disk>,
    fault: Option<Fault>,
    facts: Facts,
    errors: u32,
    doubts: u32,
    /// Requests that left after the fault, and what the platter held at least.
    left: Vec<(String, Image)>,
}

impl Witness {
    fn new(disk: &Arc<Disk>, fault: Option<Fault>) -> Witness {
        let disk = Arc::clone(disk);
        disk.fail(fault);
        Witness { disk, fault, facts: Facts::default(), errors: 0, doubts: 0, left: Vec::new() }
    }

    fn platter(&self, damage: Damage) -> Image {
        let (log, forgotten) = (self.disk.log(), self.disk.forgotten());
        let mut platter = Platter::new(Image::new(), Honesty::Honest);
        log.iter().enumerate().for_each(|(n, op)| platter.follow(op, forgotten.contains(&n)));
        platter.after(damage)
    }
}

impl Watch for Witness {
    fn done(&mut self, shop: &Shop, _: &str, told: &Told) {
        match told {
            Ok(()) => {
                self.disk.fail(None);
                if let Ok(Ok(now)) = shop.store().map(|store| facts(store)) {
                    self.facts = now;
                }
                self.disk.fail(self.fault);
            }
            Err(StoreError::Refused(_) | StoreError::Closed) => {}
            Err(e) => {
                self.errors += 1;
                self.doubts += u32::from(matches!(e, StoreError::CommitUnknown(_)));
            }
        }
    }

    fn leaves(&mut self, claim: &Claim) {
        if self.disk.hit() > 0 && self.left.len() < 4 {
            self.left.push((claim.job().key.to_string(), self.platter(Damage::Dropped)));
        }
    }
}

/// How many writes and how many reads the script makes.
fn size(folder: &Path) -> (usize, usize) {
    let disk = mount(folder, Image::new());
    let mut witness = Witness::new(&disk, None);
    play(&mut Shop::new(folder, NOON), &mut witness);
    forget_owners(folder);
    assert_eq!(witness.errors, 0);
    (disk.ops(), disk.reads())
}

#[derive(Default)]
struct Tally {
    runs: u32,
    met: u32,
    errors: u32,
    doubts: u32,
    left: usize,
}

fn one(folder: &Path, fault: Fault, tally: &mut Tally) {
    let words = |e: String| -> ! { panic!("{fault:?}: {e}") };
    let disk = mount(folder, Image::new());
    let mut witness = Witness::new(&disk, Some(fault));
    let mut shop = Shop::new(folder, NOON);
    play(&mut shop, &mut witness);
    tally.runs += 1;
    tally.met += u32::from(disk.hit() > 0);
    (tally.errors, tally.doubts) = (tally.errors + witness.errors, tally.doubts + witness.doubts);
    // The power fails while everything is still open.
    let images = [witness.platter(Damage::Dropped), witness.platter(Damage::Kept)];
    drop(shop);
    for image in images {
        crate::look::look(folder, image, LATER, &Wanted::All(&witness.facts), &[])
            .unwrap_or_else(|e| words(e));
    }
    tally.left += witness.left.len();
    for (key, image) in witness.left {
        let (state, phase, intent) = on_platter(folder, image, &key).unwrap_or_else(|e| words(e));
        if state != "running" || intent != "requested" || (key.starts_with('e') && phase != "sending") {
            words(format!("{key} left, and the platter has {state} {phase} {intent}"));
        }
    }
}

fn sweep(how: How, lasting: bool, every: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (ops, reads) = size(folder.path());
    let most = if how == How::Read { reads } else { ops };
    let mut tally = Tally::default();
    for at in (0..most).step_by(every) {
        one(folder.path(), Fault { at, lasting, how }, &mut tally);
    }
    let Tally { runs, met, errors, doubts, left } = tally;
    println!(
        "{how:?} lasting={lasting}: {runs} runs, {met} met it; {errors} steps told so, {doubts} in doubt; {left} requests left after it, all on the platter"
    );
    assert!(met > 0 && errors > 0, "{how:?}");
}

#[test]
fn a_write_that_fails_loses_nothing() {
    sweep(How::Write, false, 29);
}

#[test]
fn a_disk_that_is_full_once_loses_nothing() {
    sweep(How::Full, false, 31);
}

#[test]
fn a_disk_that_stays_full_loses_nothing() {
    sweep(How::Full, true, 71);
}

/// Syncs are few, so each operation is tried that may be one.
#[test]
fn a_sync_that_fails_once_is_a_doubt_and_nothing_leaves_on_its_strength() {
    syncs(How::Sync);
}

#[test]
fn a_sync_that_fails_and_is_forgotten_is_a_doubt_and_nothing_leaves_on_its_strength() {
    syncs(How::SyncForgets);
}

#[test]
fn a_read_that_fails_loses_nothing() {
    sweep(How::Read, false, 97);
}

/// The places of all syncs of an undisturbed run.
fn places(folder: &Path) -> Vec<usize> {
    let disk = mount(folder, Image::new());
    play(&mut Shop::new(folder, NOON), &mut Witness::new(&disk, None));
    forget_owners(folder);
    let log = disk.log();
    (0..log.len()).filter(|n| matches!(log[*n], crate::vfs::Op::Sync { .. })).collect()
}

fn syncs(how: How) {
    let folder = tempfile::tempdir().unwrap();
    let mut tally = Tally::default();
    for at in places(folder.path()) {
        one(folder.path(), Fault { at, lasting: false, how }, &mut tally);
    }
    let Tally { runs, met, errors, doubts, left } = tally;
    println!(
        "{how:?}: {runs} runs, {met} met it; {errors} steps told so, {doubts} in doubt; {left} requests left after it, all on the platter"
    );
    assert!(doubts > 10 && met > 50, "{how:?}: {met} {doubts}");
}

/// A commit fails, the system has dropped its pages though it still shows them, every process dies, and another program
/// has the file open before the next start. What that start sends must be on the platter, not behind a hole in the log.
#[test]
fn after_a_forgotten_sync_and_a_crash_the_next_start_sends_nothing_that_a_power_cut_could_undo() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, mut sent) = (folder.path(), 0);
    for at in places(folder) {
        let disk = mount(folder, Image::new());
        let mut witness = Witness::new(&disk, None);
        let fault = Fault { at, lasting: true, how: How::SyncForgets };
        (witness.fault, witness.disk) = (Some(fault), Arc::clone(&disk));
        disk.fail(Some(fault));
        let mut shop = Shop::new(folder, NOON);
        play(&mut shop, &mut witness);
        let left = disk.left();
        drop(shop);
        witness.disk = mount_again(folder, left);
        witness.fault = None;
        // Somebody looks, so that nobody is the last to close the file.
        let neighbour = Connection::open(folder.join("power.db")).unwrap();
        let there = neighbour.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
        let mut shop = Shop::new(folder, LATER);
        if there.is_err() || shop.open().is_err() || shop.start().is_err() {
            drop((shop, neighbour));
            forget_owners(folder);
            continue;
        }
        shop.recover().unwrap();
        for claim in shop.claim().unwrap() {
            if shop.store().unwrap().before_first_byte(&claim).is_ok()
                && claim.step() == onceward::job::Step::Send
            {
                sent += 1;
                witness.left.push((claim.job().key.to_string(), witness.platter(Damage::Dropped)));
            }
        }
        let all = facts(shop.store().unwrap()).unwrap();
        let image = witness.platter(Damage::Dropped);
        drop((shop, neighbour));
        forget_owners(folder);
        for (key, image) in std::mem::take(&mut witness.left) {
            let (state, _, intent) =
                on_platter(folder, image, &key).unwrap_or_else(|e| panic!("sync {at}: {e}"));
            assert_eq!((state.as_str(), intent.as_str()), ("running", "requested"), "sync {at}: {key} left");
        }
        mount(folder, image);
        reopened(folder, LATER, &Wanted::All(&all), &[]).unwrap_or_else(|e| panic!("sync {at}: {e}"));
    }
    println!("forgotten syncs and a crash: {sent} requests left at the next start");
    assert!(sent > 20, "{sent}");
}
