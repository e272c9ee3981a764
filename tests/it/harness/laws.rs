//! What must hold after every test, however it went.

use super::{Harness, actions, tries};
use serde_json::Value;

/// Histories are read one process a job; beyond so many jobs only the first are.
const HISTORIES_MAX: usize = 60;

impl Harness {
    /// The file is sound, no key took effect twice, every request is accounted for, nothing is left running.
    #[track_caller]
    pub fn assert_laws(&self) {
        let sound: String =
            self.sqlite().query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("integrity_check");
        assert_eq!(sound, "ok");
        assert_eq!(self.provider.state().doubled(), Vec::<String>::new(), "took effect more than once");
        let jobs = self.list(&[]);
        for job in &jobs {
            assert_ne!(job["state"], "running", "left running: {job:#}");
            if job["state"] == "settled" {
                assert_eq!(job["intent"]["state"], "settled", "{job:#}");
                assert_eq!(job["park_reason"], Value::Null, "{job:#}");
            }
        }
        if jobs.len() <= HISTORIES_MAX {
            self.assert_histories(&jobs);
        }
    }

    /// One row a request: none missing, none invented. A crash row may or may not stand for a request that left.
    #[track_caller]
    fn assert_histories(&self, jobs: &[Value]) {
        let (mut rows, mut crashes, mut shown) = (0, 0, Vec::new());
        for job in jobs {
            let job = self.show(job["key"].as_str().expect("a key"));
            let sent = |row: &&Value| row["action"] != "crash" && row["class"] != "not_sent";
            rows += tries(&job).filter(sent).count();
            crashes += actions(&job).iter().filter(|a| *a == "crash").count();
            assert_numbers(&job);
            shown.push(job);
        }
        let seen = self.provider.state().requests.len();
        assert!(
            rows <= seen && seen <= rows + crashes,
            "{seen} requests, {rows} rows and {crashes} crash rows: {shown:#?}"
        );
    }
}

/// The tries are numbered from 1 without a gap, and the history's own numbers rise.
#[track_caller]
fn assert_numbers(job: &Value) {
    let mut numbers: Vec<u64> = tries(job).filter_map(|row| row["attempt"].as_u64()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "attempt numbers: {job:#}");
    let seqs: Vec<u64> =
        job["history"].as_array().expect("a history").iter().filter_map(|row| row["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "history numbers rise: {job:#}");
}
