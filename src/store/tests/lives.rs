//! Whether a worker lives: one rule for all who ask.

use super::*;
use crate::store::{Restoring, Said};

/// A worker that died with a job, and the lock file that it left.
fn died_with_a_job(bench: &Bench) -> PathBuf {
    bench.enqueue("b", "k");
    let (dead, lock) = bench.store.register("dead:9").unwrap();
    assert_eq!(bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims.len(), 1);
    drop(lock);
    life::lock_path(&identity::real(&bench.path), dead.nonce())
}

fn restore_over(path: &Path, clock: &Arc<ManualClock>) -> Result<(), StoreError> {
    let how = Restoring { copied_at: Some(NOON), said: Said::default(), actor: "test".into() };
    let options = Options { create: false, namespace: String::new(), watch: None };
    Store::restore(path, path, options, clock.clone(), Arc::new(desk()), &how).map(drop)
}

#[cfg(unix)]
#[test]
fn what_is_no_lock_file_of_a_workers_counts_as_alive_whoever_asks_and_is_named() {
    type Put = fn(&Path);
    let odd: [(&str, Put); 3] = [
        ("symbolic link", |path| std::os::unix::fs::symlink("/dev/null", path).unwrap()),
        ("plain file", |path| std::fs::create_dir(path).unwrap()),
        ("plain file", |path| {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
    ];
    for (what, put) in odd {
        let bench = Bench::new();
        let path = died_with_a_job(&bench);
        std::fs::remove_file(&path).unwrap();
        put(&path);
        bench.clock.advance(Duration::from_secs(3600));
        assert_eq!(bench.store.recover(&bench.owner).unwrap(), 0, "{what}");
        assert_eq!(bench.story("k").job.state, State::Running);
        let named = bench.store.doubtful_workers().unwrap();
        assert_eq!(named.len(), 1, "{named:?}");
        let name = path.display().to_string();
        for word in ["dead:9", what, name.as_str(), "delete the file"] {
            assert!(named[0].contains(word), "{word}: {named:?}");
        }
        let Bench { _dir, path, clock, store, owner, _lock: lock } = bench;
        store.unregister(&owner, lock).unwrap();
        let refused = restore_over(&path, &clock).unwrap_err().to_string();
        assert!(refused.contains("may be at work") && refused.contains(what), "{refused}");
    }
}

#[cfg(unix)]
#[test]
fn a_lock_file_that_is_gone_gives_up_only_what_has_run_out_and_a_lock_that_is_free_all_at_once() {
    let bench = Bench::new();
    let path = died_with_a_job(&bench);
    assert!(bench.store.doubtful_workers().unwrap().is_empty(), "its lock is free: it is taken over");
    let gone = path.with_extension("aside");
    std::fs::rename(&path, &gone).unwrap();
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 0, "its lease runs");
    std::fs::rename(&gone, &path).unwrap();
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 1, "and its lock is free");
    assert!(!path.exists());
}

#[test]
fn a_worker_that_holds_its_lock_and_stands_still_is_named_and_not_taken_over() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let (_still, _lock) = {
        let (still, lock) = bench.store.register("still:9").unwrap();
        assert_eq!(bench.store.claim(&still, 1, Duration::from_secs(60)).unwrap().claims.len(), 1);
        (still, lock)
    };
    bench.clock.advance(Duration::from_secs(100));
    assert!(bench.store.doubtful_workers().unwrap().is_empty(), "it may be about to renew its leases");
    bench.clock.advance(Duration::from_secs(60));
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 0);
    let named = bench.store.doubtful_workers().unwrap();
    assert!(named.len() == 1 && named[0].contains("still:9") && named[0].contains("held by"), "{named:?}");
}
