//! A record that takes the thread's next job along.

use super::*;

fn ok(claim: &Claim) -> Outcome {
    let mut outcome = Outcome::new(Class::Ok, claim.started());
    outcome.reference = Some(format!("po_{}", claim.job().id.0));
    outcome
}

impl Bench {
    /// Records a success, and wants the next job if the worker still claims.
    fn record_and_want(&self, claim: Claim, still: bool) -> (Recorded, Option<Claim>) {
        let outcome = ok(&claim);
        let want = Want { lease: Duration::from_secs(60), still: Box::new(move || still) };
        self.store.record_and_claim(claim, outcome, Some(want)).unwrap()
    }
}

#[test]
fn a_record_brings_the_next_job_unless_the_worker_claims_no_more() {
    let bench = Bench::new();
    for key in ["a", "b", "c"] {
        bench.enqueue("b", key);
    }
    let (recorded, next) = bench.record_and_want(bench.claim(), true);
    assert!(matches!(recorded, Recorded::As { state: State::Settled, .. }));
    let next = next.expect("there is a next job");
    assert_eq!(next.job().key.as_str(), "b");
    let story = bench.story("b");
    assert_eq!((story.job.state, story.intent.state), (State::Running, IntentState::Requested));
    assert_eq!(next.job(), &story.job, "the claim is as the file has it");
    assert_eq!(next.intent(), &story.intent);
    let (_, none) = bench.record_and_want(next, false);
    assert!(none.is_none());
    assert_eq!((bench.story("b").job.state, bench.story("c").job.state), (State::Settled, State::Ready));
}

#[test]
fn the_head_of_a_group_hands_its_successor_to_the_thread_that_settled_it() {
    let bench = Bench::new();
    for place in 1..=2 {
        bench.store.enqueue(member("b", "g", &format!("g{place}"), Some(place)), "test").unwrap();
    }
    let (_, next) = bench.record_and_want(bench.claim(), true);
    assert_eq!(next.expect("its turn has come").job().key.as_str(), "g2");
}

#[test]
fn what_is_paused_or_over_its_rate_is_no_next_job_either() {
    let bench = Bench::new();
    for key in ["a", "b"] {
        bench.enqueue("b", key);
        bench.enqueue("spaced", &format!("spaced-{key}"));
    }
    let mut claims = bench.claims(1);
    bench.store.pause(PauseScope::Kind, "b", None, "test").unwrap();
    let (_, spaced) = bench.record_and_want(claims.remove(0), true);
    let spaced = spaced.expect("one call a second is free");
    assert_eq!(spaced.job().key.as_str(), "spaced-a");
    let (_, none) = bench.record_and_want(spaced, true);
    assert!(none.is_none(), "the second is not over and b is paused");
}

#[test]
fn a_next_job_that_cannot_be_read_keeps_no_record_from_being_written() {
    let bench = Bench::new();
    bench.enqueue("b", "good");
    let claim = bench.claim();
    bench.enqueue("b", "spoilt");
    bench.execute("UPDATE onceward_jobs SET error_class = 'nobody knows it' WHERE state = 'ready'").unwrap();
    let (recorded, next) = bench.record_and_want(claim, true);
    assert!(matches!(recorded, Recorded::As { state: State::Settled, .. }) && next.is_none());
    assert_eq!(bench.story("good").intent.reference.as_deref(), Some("po_1"));
    assert!(bench.claims(1).is_empty());
    assert_eq!(bench.story("spoilt").job.park_reason, Some(Reason::Invalid), "set aside by the next claim");
}
