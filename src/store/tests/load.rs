//! Load: what a claim and the end of a job cost however full the file is, and how an outage of many jobs comes back.

use super::*;
use crate::store::order;
use rusqlite::StatementStatus;
use std::collections::BTreeMap;

/// The statements of a claim and of a group's advance whose cost could grow with the file. The others find one row by
/// its number or name.
const HOT: [&str; 10] = [
    claim::DUE,
    claim::PROMOTE,
    claim::HEADS,
    claim::NEXT,
    claim::RUNNING,
    claim::LEASE,
    order::OUT,
    order::LOWEST,
    order::AT,
    order::FREE,
];

/// SQLite's own count of steps that these took since the last look.
fn steps(bench: &Bench) -> i64 {
    let count = |tx: &Tx<'_>| {
        let of = |sql: &&str| {
            let statement = tx.conn().prepare_cached(sql)?;
            Ok(i64::from(statement.reset_status(StatementStatus::VmStep)))
        };
        HOT.iter().map(of).sum::<Result<i64, StoreError>>()
    };
    bench.store.write(count).unwrap()
}

/// Twenty groups of two, claimed and settled to their end: the steps.
fn a_round(bench: &Bench, round: u32) -> i64 {
    let jobs = (0..40).map(|n| member("b", &format!("r{round}-g{}", n % 20), &format!("r{round}-{n}"), None));
    assert!(bench.store.enqueue_many(jobs.collect(), "test").unwrap().iter().all(Result::is_ok));
    steps(bench);
    let mut settled = 0;
    while settled < 40 {
        let claims = bench.claims(5);
        assert!(!claims.is_empty(), "{settled} are settled, and no more can be claimed");
        for claim in claims {
            bench.end(claim, Class::Ok);
            settled += 1;
        }
    }
    let taken = steps(bench);
    assert!(taken > 40 * HOT.len() as i64, "the statements that run are the ones that are counted: {taken}");
    taken
}

/// 100,000 jobs, a third each finished, parked and due in a year, a hundred of a group.
const FILL: &str = "
  WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
  INSERT INTO onceward_intents (id, key, kind, content_hash, payload_hash, state, wire_key, created_ms, confirmed_ms)
    SELECT 1000000 + n, 'fill-' || n, 'b', zeroblob(32), zeroblob(32),
      CASE n % 3 WHEN 0 THEN 'settled' ELSE 'pending' END, 'w' || n, 1, CASE n % 3 WHEN 0 THEN 1 END FROM n;
  INSERT INTO onceward_jobs (id, kind, payload, state, run_after_ms, max_attempts, park_reason, group_name, sequence,
      created_ms, updated_ms)
    SELECT id, 'b', '{}', CASE id % 3 WHEN (1000000 % 3) THEN 'settled' WHEN (1000001 % 3) THEN 'parked' ELSE 'scheduled' END,
      CASE id % 3 WHEN (1000002 % 3) THEN 1900000000000 ELSE 1 END, 3,
      CASE id % 3 WHEN (1000001 % 3) THEN 'rejected' END, 'fill-' || (id / 100), id % 100 + 1, 1, 1
    FROM onceward_intents WHERE id > 1000000;
  INSERT INTO onceward_groups (name, numbering) SELECT DISTINCT group_name, 'arrival' FROM onceward_jobs WHERE id > 1000000;";

/// R28, R39: no claim and no end of a job reads rows that are finished, parked or due later.
#[test]
fn a_claim_costs_the_same_with_a_hundred_thousand_finished_parked_and_future_rows() {
    let bench = Bench::new();
    a_round(&bench, 0);
    let empty = a_round(&bench, 1);
    bench.store.write(|tx| Ok(tx.conn().execute_batch(FILL)?)).unwrap();
    let full = a_round(&bench, 2);
    let counted: i64 = bench
        .store
        .reader()
        .unwrap()
        .query_row("SELECT count(*) FROM onceward_jobs WHERE group_name LIKE 'fill-%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(counted, 100_000);
    assert!(full * 100 <= empty * 115, "{full} steps with the rows, {empty} without");
    // Statistics of a file that was nearly empty must not turn the planner away from the indexes either.
    bench.store.write(|tx| Ok(tx.conn().execute_batch("ANALYZE")?)).unwrap();
    let analyzed = a_round(&bench, 3);
    assert!(analyzed * 100 <= empty * 115, "{analyzed} steps after ANALYZE, {empty} in the empty file");
}

/// R28: nor rows that wait behind a head that cannot go.
#[test]
fn a_claim_costs_the_same_with_five_thousand_behind_a_parked_head_and_behind_one_that_is_due_later() {
    let bench = Bench::new();
    a_round(&bench, 0);
    let empty = a_round(&bench, 1);
    for (group, class) in [("parked", Class::Rejected), ("later", Class::NotSent)] {
        let many = (0..5_000).map(|n| member("b", group, &format!("{group}-{n}"), None)).collect();
        assert!(bench.store.enqueue_many(many, "test").unwrap().iter().all(Result::is_ok));
        bench.end(bench.claim(), class);
    }
    let full = a_round(&bench, 2);
    assert!(full * 100 <= empty * 115, "{full} steps with the rows, {empty} without");
}

/// The due times in the file, in bins of a second, and the largest share of them in one bin.
fn largest_share(bench: &Bench) -> (BTreeMap<i64, usize>, f64) {
    let conn = bench.store.reader().unwrap();
    let mut statement = conn.prepare("SELECT run_after_ms FROM onceward_jobs WHERE kind = 'herd'").unwrap();
    let due = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    let mut bins = BTreeMap::new();
    for at in due {
        *bins.entry((at.unwrap() - bench.clock.now().0).div_euclid(1000)).or_default() += 1;
    }
    let all: usize = bins.values().sum();
    let most = bins.values().copied().max().unwrap_or(0);
    (bins, most as f64 / all as f64)
}

/// All of the herd fails in one moment, whatever its state.
fn all_fail(bench: &Bench, retry_after: Option<Duration>) {
    let mut failed = 0;
    while failed < HERD {
        let claims = bench.claims(1000);
        assert!(!claims.is_empty(), "{failed} failed, and no more can be claimed");
        failed += claims.len();
        // Many at once, so that they share a commit.
        std::thread::scope(|scope| {
            let mut claims = claims.into_iter();
            let mut next = || claims.by_ref().take(32).collect::<Vec<_>>();
            for part in std::iter::from_fn(|| Some(next()).filter(|part| !part.is_empty())) {
                scope.spawn(move || {
                    for claim in part {
                        let mut outcome = Outcome::new(Class::ServerError, claim.started());
                        outcome.retry_after = retry_after;
                        bench.store.record(claim, outcome).unwrap();
                    }
                });
            }
        });
    }
}

const HERD: usize = 10_000;

fn herd() -> Bench {
    let mut desk = desk();
    let mut herd = kind("herd", Family::B, None);
    herd.terms.base = Duration::from_secs(30);
    herd.terms.cap = Duration::from_secs(3600);
    herd.terms.breaker.failures = u32::MAX;
    desk.providers.push(ProviderDesk { name: herd.provider.clone(), concurrency: 1_000_000, rate: None });
    desk.kinds.push(herd);
    let bench = Bench::with(desk);
    let jobs = (0..HERD).map(|n| Bench::job("herd", &n.to_string(), "{}")).collect();
    assert!(bench.store.enqueue_many(jobs, "test").unwrap().iter().all(Result::is_ok));
    bench
}

/// R21. With the breaker out of the way, so that all ten thousand do fail together.
#[test]
fn ten_thousand_that_failed_together_come_back_spread_over_their_backoff() {
    let bench = herd();
    all_fail(&bench, None);
    let (bins, share) = largest_share(&bench);
    assert!(share < 0.05, "{share} of all in one second: {bins:?}");
    assert_eq!(
        (bins.keys().next(), bins.keys().last()),
        (Some(&0), Some(&29)),
        "over the whole window: {bins:?}"
    );
}

/// R21: the provider asked all of them for the same time.
#[test]
fn ten_thousand_with_one_retry_after_come_back_spread_and_none_before_it() {
    let bench = herd();
    all_fail(&bench, Some(Duration::from_secs(60)));
    let (bins, share) = largest_share(&bench);
    assert!(bins.keys().next() >= Some(&60), "before the time that the provider named: {bins:?}");
    assert!(bins.keys().last() <= Some(&90), "{bins:?}");
    assert!(share < 0.05, "{share} of all in one second: {bins:?}");
}
