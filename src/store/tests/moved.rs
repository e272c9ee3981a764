//! The file under an open store, by itself.
#![cfg(unix)]

use super::*;
use std::fs;

fn beside(bench: &Bench, end: &str) -> PathBuf {
    bench.path.with_file_name(format!("t.db{end}"))
}

/// The look before the transaction saw nothing wrong.
#[test]
fn what_went_into_a_log_that_lost_its_name_in_the_midst_is_not_acknowledged() {
    let bench = Bench::new();
    bench.enqueue("b", "before");
    let (log, index) = (beside(&bench, "-wal"), beside(&bench, "-shm"));
    let written = bench.store.write(move |tx| {
        tx.conn().execute("INSERT INTO onceward_counters (name, value) VALUES ('lost', 1)", [])?;
        drop((fs::remove_file(&log), fs::remove_file(&index)));
        Ok(())
    });
    assert!(
        matches!(&written, Err(StoreError::CommitUnknown(why)) if why.contains("-wal was deleted")),
        "{written:?}"
    );
    assert!(bench.store.trouble().is_some());
    let refused = bench.store.enqueue(Bench::job("b", "after", "{}"), "test").unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unusable { why, .. } if why.contains("-wal was deleted")),
        "{refused}"
    );
    assert!(bench.store.story("before").is_err(), "a new reader would look into another log");
    // What was acknowledged went into the file at once, for whoever opens it now.
    let others = Connection::open(&bench.path).unwrap();
    let jobs: i64 = others.query_row("SELECT count(*) FROM onceward_jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(jobs, 1);
}

/// A claim whose commit went so is given back when all is right again, and its token is not given twice.
#[test]
fn a_claim_that_was_written_beside_a_second_name_is_given_back() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let (file, second) = (bench.path.clone(), beside(&bench, ".second"));
    let made = second.clone();
    // The second name comes while the claim stands in the same batch.
    let store = Arc::clone(&bench.store);
    let linked = std::thread::spawn(move || {
        store.write(move |_| {
            fs::hard_link(&file, &made).ok();
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        })
    });
    std::thread::sleep(Duration::from_millis(5));
    let claimed = bench.store.claim(&bench.owner, 1, Duration::from_secs(60));
    assert!(claimed.is_err(), "{claimed:?}");
    assert!(linked.join().unwrap().is_err());
    fs::remove_file(&second).unwrap();
    let claim = bench.claim();
    assert_eq!(claim.job().tries, if bench.actions("k").len() == 2 { 2 } else { 1 });
    bench.end(claim, Class::Ok);
    assert!(bench.store.trouble().is_none());
    assert!(bench.verify().is_ok());
}

/// Where the kernel does not tell mounts, the list of them does.
#[test]
fn a_path_with_blanks_is_found_in_the_list_of_mounts() {
    assert_eq!(identity::unescaped(r"/a\040b\134c/d\011"), b"/a b\\c/d\t");
    assert_eq!(identity::unescaped(r"/plain\"), br"/plain\");
    #[cfg(target_os = "linux")]
    assert!(
        identity::is_mount_point(Path::new("/proc")) && !identity::is_mount_point(Path::new("/proc/self"))
    );
}

#[test]
fn a_file_with_two_names_is_not_made_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    fs::write(&path, b"").unwrap();
    fs::hard_link(&path, dir.path().join("second.db")).unwrap();
    let options = Options { create: true, namespace: String::new(), watch: None };
    let clock = Arc::new(ManualClock::at(NOON));
    let refused = Store::open(&path, options, clock, Arc::new(desk())).map(drop).unwrap_err();
    assert!(refused.to_string().contains("2 names"), "{refused}");
}
