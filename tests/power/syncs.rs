//! What an answer costs: a commit's log is synced once before anybody hears that it is stored, and no more often.

use crate::script::{NOON, Shop};
use crate::vfs::{Disk, Image, Op, mount};
use onceward::outcome::{Class, Outcome};
use onceward::store::Want;
use std::sync::Arc;
use std::time::Duration;

/// What became of the log since `from`: how often it was synced, and whether all that was written to it is.
fn log_since(disk: &Disk, from: usize) -> (usize, bool) {
    let of_the_log =
        |op: &&Op| matches!(op, Op::Write { file, .. } | Op::Sync { file } if file.ends_with("-wal"));
    let log = disk.log();
    let ops: Vec<&Op> = log[from..].iter().filter(of_the_log).collect();
    let syncs = ops.iter().filter(|op| matches!(op, Op::Sync { .. })).count();
    assert!(ops.iter().any(|op| matches!(op, Op::Write { .. })), "nothing was written to the log");
    (syncs, matches!(ops.last(), Some(Op::Sync { .. })))
}

fn open() -> (tempfile::TempDir, Arc<Disk>, Shop) {
    let folder = tempfile::tempdir().unwrap();
    let disk = mount(folder.path(), Image::new());
    let mut shop = Shop::new(folder.path(), NOON);
    shop.open().unwrap();
    // The first write folds the log, which costs syncs of its own.
    shop.enqueue("b", "first", 1, None).unwrap();
    (folder, disk, shop)
}

#[test]
fn each_answer_comes_after_one_sync_of_all_that_was_written() {
    let (_folder, disk, mut shop) = open();
    for n in 0..20 {
        let before = disk.log().len();
        shop.enqueue("b", &format!("job:{n}"), n, None).unwrap();
        assert_eq!(log_since(&disk, before), (1, true), "enqueue {n}");
    }
    shop.start().unwrap();
    let before = disk.log().len();
    let claims = shop.claim().unwrap();
    assert!(claims.len() > 1, "several are claimed at once");
    assert_eq!(log_since(&disk, before), (1, true), "{} claims, one commit", claims.len());
}

#[test]
fn a_record_and_the_claim_of_the_next_job_are_one_sync() {
    let (_folder, disk, mut shop) = open();
    for n in 0..30 {
        shop.enqueue("b", &format!("job:{n}"), n, None).unwrap();
    }
    shop.start().unwrap();
    let claim = shop.claim().unwrap().remove(0);
    let outcome = Outcome::new(Class::Ok, claim.started());
    let want = Want { lease: Duration::from_secs(60), still: Box::new(|| true) };
    let before = disk.log().len();
    let (_, next) = shop.store().unwrap().record_and_claim(claim, outcome, Some(want)).unwrap();
    assert!(next.is_some(), "there is more to do");
    assert_eq!(log_since(&disk, before), (1, true));
}

#[test]
fn callers_who_wait_together_share_a_sync_and_none_is_answered_without_one() {
    let (_folder, disk, shop) = open();
    let before = disk.log().len();
    std::thread::scope(|scope| {
        for caller in 0..16 {
            let (shop, disk) = (&shop, &disk);
            scope.spawn(move || {
                for n in 0..20 {
                    let key = format!("job:{caller}:{n}");
                    let from = disk.log().len();
                    shop.enqueue("b", &key, n, None).unwrap();
                    let (syncs, _) = log_since(disk, from);
                    assert!(syncs > 0, "{key} was answered without a sync since it was asked for");
                }
            });
        }
    });
    let (syncs, all) = log_since(&disk, before);
    assert!(all, "something that was answered is not synced");
    assert!(syncs <= 320, "{syncs} syncs for 320 answers");
}
