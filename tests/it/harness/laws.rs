//! What must hold after every test, however it went. Read from the file itself, so that a surface that hides something
//! hides it from nobody here.

use super::Harness;
use serde_json::Value;

/// Tries of a job whose numbers are not 1, 2, 3 and so on.
const GAPS: &str =
    "SELECT count(*) FROM (SELECT job_id, count(*) AS n, min(attempt) AS low, max(attempt) AS high
    FROM onceward_history WHERE attempt IS NOT NULL GROUP BY job_id) WHERE low <> 1 OR high <> n";
/// History numbers that are missing.
const MISSING: &str = "SELECT coalesce(max(seq), 0) - count(*) FROM onceward_history";
/// Requests and look-ups that reached the provider, as the history has them.
const REQUESTS: &str =
    "SELECT count(*) FROM onceward_history WHERE action IN ('request', 'lookup') AND class <> 'not_sent'";
/// Crashes: each may or may not stand for one more request.
const CRASHES: &str = "SELECT count(*) FROM onceward_history WHERE action = 'crash'";

impl Harness {
    /// The file is sound, no key took effect twice, every request is accounted for, nothing is left running.
    #[track_caller]
    pub fn assert_laws(&self) {
        let sound: String =
            self.sqlite().query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("integrity_check");
        assert_eq!(sound, "ok");
        assert_eq!(self.provider.state().doubled(), Vec::<String>::new(), "took effect more than once");
        for job in &self.list(&[]) {
            assert_ne!(job["state"], "running", "left running: {job:#}");
            assert_eq!(job["state"] == "settled", job["intent"]["state"] == "settled", "{job:#}");
            assert_eq!(job["state"] == "parked", job["park_reason"] != Value::Null, "{job:#}");
        }
        let audit = self.run(&["audit", "verify"]).ok().json();
        assert_eq!(audit["broken"], 0, "{audit:#}");
        assert_eq!(audit["uncovered"], 0, "{audit:#}");
        assert_eq!(self.count(GAPS), 0, "tries are numbered without a gap");
        assert_eq!(self.count(MISSING), 0, "history rows are missing");
        let (rows, crashes) = (self.count(REQUESTS), self.count(CRASHES));
        let seen = self.provider.state().requests.len() as i64;
        assert!(
            rows <= seen && seen <= rows + crashes,
            "{seen} requests at the provider, {rows} in the history, and {crashes} crashes"
        );
    }
}
