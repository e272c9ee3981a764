//! Lines of the log that tell of a change: said once, and only when it is committed.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_line_about_a_change_is_said_once_and_only_after_its_commit() {
    let bench = Bench::new();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let (store, seen) = (Arc::clone(&bench.store), Arc::clone(&said));
    let say = move |tx: &Tx<'_>, words: &'static str| {
        let (store, seen) = (Arc::clone(&store), Arc::clone(&seen));
        tx.say(move || {
            let there = store.find("k").unwrap().is_some();
            seen.lock().unwrap().push(format!("{words}, {there}"));
        });
    };
    let runs = AtomicUsize::new(0);
    let insert = "INSERT INTO onceward_meta (name, value) VALUES ('k', '1')";
    // Its transaction is rolled back: not a word, however often it was tried.
    let tried = say.clone();
    let failed = bench.store.write(move |tx| {
        runs.fetch_add(1, Ordering::SeqCst);
        tried(tx, "never");
        tx.conn().execute(insert, [])?;
        Err::<(), _>(StoreError::Closed)
    });
    assert!(matches!(failed, Err(StoreError::Closed)));
    // A part is undone, the rest stands.
    let (part, whole) = (say.clone(), say);
    bench
        .store
        .write(move |tx| {
            let undone = tx.part(|| {
                part(tx, "undone");
                Err::<(), _>(StoreError::Row("no".into()))
            });
            assert!(undone.is_err());
            whole(tx, "settled");
            super::enqueue::enqueue(tx, &Bench::job("b", "k", "{}"), "", None, "test").map(drop)
        })
        .unwrap();
    assert_eq!(*said.lock().unwrap(), ["settled, true"], "the change was on file when it was told");
}

/// Whoever changes rows has a transaction, and no way to know whether it will be committed.
#[test]
fn every_line_of_whoever_changes_rows_waits_for_the_commit() {
    let mut looked = 0;
    for (file, text) in [
        ("record.rs", include_str!("../record.rs")),
        ("claim.rs", include_str!("../claim.rs")),
        ("operate.rs", include_str!("../operate.rs")),
        ("order.rs", include_str!("../order.rs")),
        ("enqueue.rs", include_str!("../enqueue.rs")),
        ("inbox.rs", include_str!("../inbox.rs")),
        ("groups.rs", include_str!("../groups.rs")),
        ("holds.rs", include_str!("../holds.rs")),
        ("pauses.rs", include_str!("../pauses.rs")),
        ("prune.rs", include_str!("../prune.rs")),
        ("set_aside.rs", include_str!("../set_aside.rs")),
        ("backup.rs", include_str!("../backup.rs")),
        ("clocks.rs", include_str!("../clocks.rs")),
        ("restore.rs", include_str!("../restore.rs")),
        ("resolve.rs", include_str!("../resolve.rs")),
        ("doubt.rs", include_str!("../doubt.rs")),
        ("schedules.rs", include_str!("../schedules.rs")),
    ] {
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            if ["info", "warn", "error", "debug"].iter().any(|level| line.contains(&format!("log::{level}!")))
            {
                looked += 1;
                let before = lines[n.saturating_sub(12)..=n].join("\n");
                assert!(before.contains("tx.say("), "{file}:{}: {line}", n + 1);
            }
        }
    }
    assert!(looked > 10, "{looked}");
}
