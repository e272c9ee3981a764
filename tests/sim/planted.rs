//! The simulation finds what is broken on purpose: each planted bug within 2,000 seeds.

use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What each number of `ONCEWARD_PLANTED_BUG` breaks.
const BUGS: &[(u32, &str)] = &[
    (1, "a new wire key on a retry"),
    (2, "a timeout taken for a refusal"),
    (3, "a failed COMMIT taken for stored"),
    (4, "a failed COMMIT taken for not stored"),
    (5, "a record without its fence of owner and token"),
    (6, "a lease taken over because it is over"),
    (7, "one look-up that finds nothing taken for proof"),
    (8, "sent again after the window"),
    (9, "the successor of an unknown head let go"),
    (10, "a crash taken for nothing sent"),
    (11, "a running job replayed"),
    (12, "an attempt that was not sent left out of the history"),
    (13, "a late result that decides"),
    (14, "a content hash that holds no content"),
    (15, "a figure not kept"),
    (16, "a row of history left out"),
    (17, "a 429 after an unknown clears it"),
    (18, "no mark before the first byte"),
    (19, "what is sent again rendered anew"),
    (20, "a dedup window that never ends"),
    (22, "a reply's amount not compared"),
    (23, "a window not looked at again before the first byte"),
    (24, "a clock that was set back not noticed"),
    (25, "sent again to another address"),
    (26, "late good news dropped"),
];

/// Runs the first quarter of 8,000 seeds with a bug, until one fails.
fn first_failing(bug: u32) -> Option<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["nothing_is_lost_or_doubled_in_the_first_quarter_of_the_seeds", "--exact", "--nocapture"])
        .env("ONCEWARD_PLANTED_BUG", bug.to_string())
        .env("ONCEWARD_SIM_SEEDS", "8000")
        .env("ONCEWARD_SIM_NO_SHRINK", "1")
        .env_remove("ONCEWARD_SIM_SEED")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|l| l.starts_with("seed ") && !output.status.success());
    line.map(|line| line.chars().take(160).collect())
}

#[test]
fn every_planted_bug_is_found() {
    if !cfg!(feature = "planted-bugs") {
        println!("SKIPPED every_planted_bug_is_found: it needs the feature planted-bugs");
        return;
    }
    let (left, missed) = (Mutex::new(BUGS.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((bug, what)) = left.lock().unwrap().next() else { return };
                    match first_failing(*bug) {
                        Some(found) => println!("bug {bug} ({what}): {found}"),
                        None => missed.lock().unwrap().push(format!("bug {bug} ({what})")),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found in 2,000 seeds: {missed:?}");
}
