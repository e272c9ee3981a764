//! Attempts, their ends, and what they mean for the provider.

use super::*;

#[test]
fn a_confirmation_while_the_call_runs_settles_and_another_reference_is_the_alarm() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    let id = claim.job().id;
    assert_eq!(bench.store.confirm(id, "po_9", "test").unwrap(), State::Settled);
    assert_eq!(bench.end(claim, Class::Ok), Recorded::Late);
    let story = bench.story("k");
    assert_eq!(story.intent.reference.as_deref(), Some("po_9"));
    assert_eq!(bench.store.stats().unwrap().counters["double_effects"], 1);
}

#[test]
fn a_job_that_cannot_be_rendered_is_parked_and_holds_up_no_other() {
    let bench = Bench::new();
    bench.store.enqueue(Bench::job("b", "bad", r#"{"x":"unrenderable"}"#), "test").unwrap();
    bench.enqueue("b", "good");
    let claims = bench.claims(5);
    assert_eq!(claims.iter().map(|c| c.job().key.as_str()).collect::<Vec<_>>(), ["good"]);
    let story = bench.story("bad");
    assert_eq!(story.job.park_reason, Some(Reason::Invalid));
    assert_eq!((story.intent.state, story.job.attempts), (IntentState::Pending, 0));
    assert_eq!(story.job.last_error.as_deref(), Some("field x is missing"));
}

#[test]
fn priorities_hold_across_the_kinds_of_all_providers_and_then_time_decides() {
    let bench = Bench::new();
    for (kind, key, priority) in [("b", "1", 0), ("asked", "2", 5), ("forgets", "3", 5), ("b", "4", 9)] {
        let job = NewJob { priority, ..Bench::job(kind, key, "{}") };
        bench.store.enqueue(job, "test").unwrap();
        bench.clock.advance(Duration::from_millis(1));
    }
    let order: Vec<String> = bench.claims(10).iter().map(|c| c.job().key.as_str().to_string()).collect();
    assert_eq!(order, ["4", "2", "3", "1"]);
}

#[test]
fn a_refused_credential_holds_the_provider_and_one_probe_ends_the_hold() {
    let bench = Bench::new();
    for key in ["1", "2", "3"] {
        bench.enqueue("b", key);
    }
    bench.enqueue("asked", "other");
    let claim = bench.claim();
    bench.end(claim, Class::Auth);
    let story = bench.story("1");
    assert_eq!(
        (story.job.state, story.job.attempts, story.intent.state),
        (State::Ready, 0, IntentState::Pending)
    );
    let held = bench.store.stats().unwrap().providers["b-bank"].clone();
    assert_eq!(held.state, "held");
    let keys: Vec<String> = bench.claims(10).iter().map(|c| c.job().key.as_str().to_string()).collect();
    assert_eq!(keys, ["other"], "the others of the provider are not burnt, another provider is not touched");
    bench.clock.advance(Duration::from_secs(31));
    let mut probe = bench.claims(10);
    assert_eq!(probe.len(), 1);
    assert!(bench.claims(10).is_empty(), "one probe at a time");
    bench.end(probe.remove(0), Class::Ok);
    assert_eq!(bench.claims(10).len(), 2);
    assert_eq!(bench.store.stats().unwrap().providers["b-bank"].state, "ok");
}

#[test]
fn failures_in_a_row_open_the_breaker_and_a_failed_probe_keeps_it_open() {
    let bench = Bench::new();
    for n in 0..6 {
        bench.enqueue("b", &n.to_string());
    }
    for claim in bench.claims(3) {
        bench.end(claim, Class::NotSent);
    }
    bench.clock.advance(Duration::from_secs(20));
    assert!(bench.claims(10).is_empty());
    bench.clock.advance(Duration::from_secs(11));
    let probe = bench.claim();
    bench.end(probe, Class::NotSent);
    assert!(bench.claims(10).is_empty());
    bench.clock.advance(Duration::from_secs(31));
    let probe = bench.claim();
    bench.end(probe, Class::Ok);
    assert_eq!(bench.claims(10).len(), 5);
}

#[test]
fn a_crash_before_the_mark_of_a_provider_that_forgets_is_sent_again_and_after_it_is_parked() {
    let bench = Bench::new();
    bench.enqueue("forgets", "before");
    bench.enqueue("forgets", "after");
    let (dead, lock) = bench.store.register("dead:9").unwrap();
    let claims = bench.store.claim(&dead, 2, Duration::from_secs(60)).unwrap().claims;
    bench.store.mark_sending(&claims[1]).unwrap();
    drop((claims, lock));
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 2, "at once: the kernel gave the lock back");
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 0);
    let before = bench.story("before");
    assert_eq!((before.job.state, before.intent.state), (State::Ready, IntentState::Pending));
    assert_eq!(before.history.last().unwrap().phase, Some(Phase::Claimed));
    assert_eq!(bench.story("after").job.park_reason, Some(Reason::UnknownOutcome));
}

#[test]
fn a_reference_belongs_to_one_key() {
    let bench = Bench::new();
    bench.enqueue("b", "1");
    bench.enqueue("b", "2");
    for claim in bench.claims(2) {
        let mut outcome = Outcome::new(Class::Ok, claim.started());
        outcome.reference = Some("po_same".into());
        bench.store.record(claim, outcome).unwrap();
    }
    assert_eq!(bench.story("1").job.state, State::Settled);
    assert_eq!(bench.story("2").job.park_reason, Some(Reason::ReferenceTaken));
    assert_eq!(bench.story("2").intent.state, IntentState::Requested);
}

#[test]
fn what_never_left_leaves_no_trace_of_a_request_though_the_call_began_after_the_claim() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.clock.advance(Duration::from_millis(3));
    let outcome = Outcome::new(Class::NotSent, bench.clock.now());
    bench.store.record(claim, outcome).unwrap();
    let story = bench.story("k");
    assert_eq!((story.intent.state, story.intent.requested), (IntentState::Pending, None));
    assert_eq!(bench.store.confirm(story.job.id, "po_1", "test").unwrap_err().code(), Code::NotAllowed);
}

#[test]
fn a_probe_that_is_confirmed_meanwhile_lets_the_next_probe_go() {
    let bench = Bench::new();
    bench.enqueue("b", "1");
    bench.enqueue("b", "2");
    let claim = bench.claim();
    bench.end(claim, Class::Auth);
    bench.clock.advance(Duration::from_secs(31));
    let probe = bench.claim();
    bench.store.confirm(probe.job().id, "po_1", "test").unwrap();
    bench.end(probe, Class::Timeout);
    bench.clock.advance(Duration::from_secs(31));
    assert_eq!(bench.claim().job().key.as_str(), "2");
}

/// A worker died with the probe of a held provider out; one with this desk takes over, and the next probe goes.
fn a_dead_workers_probe_is_given_up_by_a_worker_with(desk: TestDesk) {
    let bench = Bench::new();
    bench.enqueue("b", "1");
    let claim = bench.claim();
    bench.end(claim, Class::Auth);
    bench.clock.advance(Duration::from_secs(31));
    let (dead, lock) = bench.store.register("dead:9").unwrap();
    let probe = bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims;
    assert_eq!(probe.len(), 1);
    drop((probe, lock));
    assert_eq!(open_with(&bench.path, &bench.clock, desk).recover(&bench.owner).unwrap(), 1);
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!(bench.claim().job().key.as_str(), "1");
}

#[test]
fn a_probe_of_a_dead_worker_is_given_up_by_a_worker_that_does_not_know_its_kind() {
    a_dead_workers_probe_is_given_up_by_a_worker_with(TestDesk { kinds: Vec::new(), ..desk() });
}

#[test]
fn a_probe_of_a_dead_worker_is_given_up_by_a_worker_whose_kind_goes_to_another_provider() {
    let mut moved = desk();
    moved.kinds[0].provider = "asked-bank".into();
    a_dead_workers_probe_is_given_up_by_a_worker_with(moved);
}

#[test]
fn what_a_rate_holds_back_is_looked_at_when_the_next_call_may_go() {
    let bench = Bench::new();
    bench.enqueue("spaced", "1");
    let first = bench.store.claim(&bench.owner, 5, Duration::from_secs(60)).unwrap();
    assert_eq!((first.claims.len(), first.next), (1, None), "nothing else waits");
    bench.enqueue("spaced", "2");
    bench.enqueue("spaced", "3");
    bench.clock.advance(Duration::from_millis(1500));
    let second = bench.store.claim(&bench.owner, 5, Duration::from_secs(60)).unwrap();
    assert_eq!((second.claims.len(), second.next), (1, Some(NOON.plus(Duration::from_millis(2500)))));
}

#[test]
fn the_scope_is_where_the_request_went_not_where_an_earlier_one_could_not_go() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Auth);
    // The credential is exchanged, and the provider rests for a while.
    bench.clock.advance(Duration::from_secs(31));
    let there = open_with(&bench.path, &bench.clock, TestDesk { scope: "there", ..desk() });
    let claim = there.claim(&bench.owner, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
    let outcome = Outcome::new(Class::Timeout, claim.started());
    there.record(claim, outcome).unwrap();
    let story = bench.story("k");
    assert_eq!(story.job.state, State::Unknown);
    assert_eq!(story.intent.scope.unwrap().send, "there");
    bench.clock.advance(Duration::from_secs(62));
    assert!(bench.claims(1).is_empty(), "the old config may not send it again: it went elsewhere");
    assert_eq!(bench.story("k").job.park_reason, Some(Reason::ScopeChanged));
}

#[test]
fn a_late_success_is_kept_as_the_effect_of_the_generation_that_brought_it() {
    let bench = Bench::new();
    bench.enqueue("forgets", "k");
    let (dead, lock) = bench.store.register("slow:9").unwrap();
    let stale = bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
    bench.store.mark_sending(&stale).unwrap();
    drop(lock);
    bench.store.recover(&bench.owner).unwrap();
    bench.store.resolve(stale.job().id, Resolution::NotApplied, None, "test").unwrap();
    assert_eq!(bench.end(stale, Class::Ok), Recorded::Late);
    let conn = bench.store.reader().unwrap();
    let generation: u32 =
        conn.query_row("SELECT reference_generation FROM onceward_intents", [], |row| row.get(0)).unwrap();
    assert_eq!((generation, bench.story("k").intent.generation.number), (1, 2));
}

/// R19: a job that kills its worker each time is charged at the claim, so it ends.
#[test]
fn a_job_that_kills_every_worker_is_parked_after_its_attempts_and_the_others_are_done() {
    let bench = Bench::new();
    bench.enqueue("b", "poison");
    let mut kills = 0;
    while bench.story("poison").job.state != State::Parked {
        let (dead, lock) = bench.store.register(&format!("dead:{kills}")).unwrap();
        let claims = bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims;
        assert_eq!(claims.len(), 1);
        drop((claims, lock));
        assert_eq!(bench.store.recover(&bench.owner).unwrap(), 1);
        kills += 1;
        bench.clock.advance(Duration::from_secs(61));
    }
    let story = bench.story("poison");
    assert_eq!((kills, story.job.attempts), (3, 3));
    assert_eq!(story.job.park_reason, Some(Reason::UnknownOutcome));
    assert_eq!(story.job.error_class, Some(Class::Crashed));
    let crashes = story.history.iter().filter(|e| e.action == Action::Crash).count();
    assert_eq!(crashes, 3, "one row a kill");
    bench.enqueue("b", "healthy");
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    assert_eq!(bench.story("healthy").job.state, State::Settled);
}

#[test]
fn what_may_have_acted_is_not_sent_again_if_the_window_ended_since_the_claim() {
    let bench = Bench::new();
    bench.enqueue("b", "slept");
    let claim = bench.claim();
    assert_eq!(bench.store.before_first_byte(&claim), Ok(()));
    bench.end(claim, Class::Timeout);
    bench.clock.advance(Duration::from_secs(3600));
    let claim = bench.claim();
    assert_eq!(claim.step(), Step::Send);
    assert_eq!(bench.store.before_first_byte(&claim), Ok(()));
    // The machine sleeps.
    bench.clock.advance(Duration::from_secs(86_400));
    assert!(bench.store.before_first_byte(&claim).unwrap_err().contains("window"));
    bench.end(claim, Class::NotSent);
    bench.clock.advance(Duration::from_secs(3600));
    bench.claims(1);
    assert_eq!(bench.story("slept").job.park_reason, Some(Reason::WindowExpired));
}
