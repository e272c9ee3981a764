//! The figures cost no scan, and count what they say.

use super::*;
use crate::store::figures;
use std::collections::BTreeMap;

#[test]
fn no_statement_of_the_figures_goes_over_the_finished_jobs_the_intents_or_the_history() {
    let bench = Bench::new();
    let conn = bench.store.reader().unwrap();
    // Indexes over what is open, and the short list of heads made from two of them.
    let small = [
        "onceward_jobs_running",
        "onceward_jobs_parked",
        "onceward_jobs_open",
        "onceward_jobs_claim",
        "onceward_jobs_out",
        "onceward_groups_gap",
        "onceward_intents_in_doubt",
    ];
    let temporary = ["SCAN heads", "SCAN kinds", "SCAN priorities", "SCAN CONSTANT ROW", "SCAN (subquery-1)"];
    for sql in figures::STATEMENTS {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        for parameter in 1..=statement.parameter_count() {
            statement.raw_bind_parameter(parameter, 1).unwrap();
        }
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let step: String = row.get("detail").unwrap();
            let fine = !step.starts_with("SCAN")
                || small.iter().any(|index| step.contains(&format!("INDEX {index}")))
                || temporary.contains(&step.as_str());
            assert!(fine, "{step}\n{sql}");
            // A search by state alone is one over all states unless it is in an index over what is open.
            assert!(!step.contains("AUTOMATIC"), "{step}\n{sql}");
        }
    }
}

#[test]
fn the_oldest_due_job_of_each_kind_is_found_whatever_its_priority() {
    let bench = Bench::new();
    for n in 0..60u64 {
        let kind = ["a", "b"][n as usize % 2];
        let priority = (n as i64 * 7) % 5 - 2;
        let job = NewJob { priority, ..Bench::job(kind, &n.to_string(), "{}") };
        bench.store.enqueue(job, "test").unwrap();
        bench.clock.advance(Duration::from_millis(1 + n * 13 % 40));
        let late = NewJob {
            run_after: Some(bench.clock.now().plus(Duration::from_secs(n))),
            ..Bench::job(kind, &format!("late{n}"), "{}")
        };
        bench.store.enqueue(late, "test").unwrap();
        if n % 7 == 0 {
            bench.claims(1);
        }
        let conn = bench.store.reader().unwrap();
        let now = bench.clock.now();
        let mut naive: BTreeMap<String, Ms> = BTreeMap::new();
        let mut statement = conn
            .prepare(
                "SELECT kind, min(run_after_ms) FROM onceward_jobs
                 WHERE state IN ('ready','scheduled') AND run_after_ms <= ?1 GROUP BY kind",
            )
            .unwrap();
        let mut rows = statement.query([now.0]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            naive.insert(row.get(0).unwrap(), Ms(row.get(1).unwrap()));
        }
        assert_eq!(figures::oldest_due(&conn, now).unwrap(), naive, "after {n}");
    }
}

#[test]
fn a_kind_that_no_running_worker_knows_is_named_and_a_dead_worker_is_not_asked() {
    let mut less = desk();
    less.kinds.retain(|kind| kind.kind != "skips");
    let bench = Bench::with(less);
    // As a command sees the file whose config knows all kinds, while the worker's does not.
    let asks = open(&bench.path, &bench.clock);
    for kind in ["b", "skips"] {
        asks.enqueue(Bench::job(kind, kind, "{}"), "test").unwrap();
    }
    assert_eq!(asks.stats().unwrap().unclaimed_kinds, ["skips"]);
    let Bench { _lock: lock, .. } = bench;
    // Killed: the system takes the lock away, and the row stays.
    drop(lock);
    assert_eq!(asks.stats().unwrap().unclaimed_kinds, [] as [&str; 0]);
}
