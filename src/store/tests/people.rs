//! What people do, and jobs that an app does itself.

use super::*;

#[test]
fn replay_refuses_what_cannot_be_asked_about_and_begins_anew_where_it_can() {
    let bench = Bench::new();
    bench.enqueue("forgets", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    let id = bench.story("k").job.id;
    let error = bench.store.replay(id, None, "test").unwrap_err();
    assert_eq!(error.code(), Code::NotAllowed);
    assert!(error.to_string().contains("onceward resolve"), "{error}");
    let first_wire = bench.story("k").intent.wire_key;
    bench.store.resolve(id, Resolution::NotApplied, None, "test").unwrap();
    bench.store.resolve(id, Resolution::NotApplied, None, "test").unwrap();
    let story = bench.story("k");
    assert_eq!((story.intent.generation.number, story.job.state), (2, State::Ready));
    assert_ne!(story.intent.wire_key, first_wire);
    assert_eq!(story.intent.frozen, None, "a new generation renders anew");
    assert_eq!(bench.actions("k"), [Action::Enqueue, Action::Request, Action::Resolve]);

    let claim = bench.claim();
    assert_eq!(claim.job().tries, 2, "history numbers go on");
    bench.end(claim, Class::Rejected);
    assert_eq!(bench.story("k").intent.state, IntentState::Rejected);
    bench.store.replay(id, None, "test").unwrap();
    assert_eq!(bench.story("k").intent.generation.number, 3);
    assert_eq!(
        bench.store.replay(id, None, "test").unwrap_err().code(),
        Code::NotAllowed,
        "not parked any more"
    );
}

#[test]
fn an_amendment_needs_certainty_and_a_word_more_for_money() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Rejected);
    let id = bench.story("k").job.id;
    let mut content = Bench::job("b", "k", r#"{"n":2}"#);
    let amend = |content: NewJob, money| bench.store.replay(id, Some(Amendment { content, money }), "test");
    content.amount_minor = Some(6);
    assert_eq!(amend(content.clone(), false).unwrap_err().code(), Code::NotAllowed);
    amend(content, true).unwrap();
    let story = bench.story("k");
    assert_eq!((story.job.payload.as_deref(), story.intent.amount_minor), (Some(r#"{"n":2}"#), Some(6)));
    assert!(
        story.history.last().unwrap().detail.as_deref().unwrap().contains(r#"the old payload was {"n":1}"#)
    );
    assert_eq!(bench.enqueue("b", "k").word(), "duplicate", "content that the key once had is its own");
    let claim = bench.claim();
    assert_eq!(claim.frozen().body, br#"{"n":2}"#);
    bench.end(claim, Class::Timeout);
    let story = bench.story("k");
    assert_eq!(story.job.state, State::Unknown);
    bench.clock.advance(Duration::from_secs(80 * 3600));
    assert!(bench.claims(1).is_empty());
    assert_eq!(bench.story("k").job.state, State::Parked);
    let content = Bench::job("b", "k", r#"{"n":3}"#);
    assert_eq!(amend(content, true).unwrap_err().code(), Code::NotAllowed, "in doubt");
}

#[test]
fn a_replayed_unknown_that_can_only_be_asked_about_grows_old_again() {
    let bench = Bench::new();
    bench.enqueue("forgets-asked", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    let ask_until_parked = || {
        for _ in 0..2 {
            bench.clock.advance(Duration::from_secs(36 * 3600 + 60));
            for claim in bench.claims(1) {
                assert_eq!(claim.step(), Step::LookUp);
                bench.end(claim, Class::LookupFailed);
                bench.clock.advance(Duration::from_secs(60));
            }
        }
        bench.clock.advance(Duration::from_secs(60));
        assert!(bench.claims(1).is_empty());
        assert_eq!(bench.story("k").job.park_reason, Some(Reason::UnknownOutcome));
    };
    ask_until_parked();
    bench.store.replay(bench.story("k").job.id, None, "test").unwrap();
    bench.clock.advance(Duration::from_secs(31));
    ask_until_parked();
}

#[test]
fn an_external_job_is_asked_about_after_its_time_however_long_that_was() {
    let bench = Bench::new();
    let mut kinds = desk();
    kinds.kinds[1].terms.external = true;
    let store = open_with(&bench.path, &bench.clock, kinds);
    let long = Duration::from_secs(30 * 86_400);
    store.enqueue(NewJob { external: Some(long), ..Bench::job("asked", "k", "{}") }, "test").unwrap();
    bench.clock.advance(long);
    let claims = store.claim(&bench.owner, 1, Duration::from_secs(60)).unwrap().claims;
    assert_eq!(claims.iter().map(Claim::step).collect::<Vec<_>>(), [Step::LookUp]);
}

#[test]
fn an_external_job_keeps_no_worker_from_being_idle() {
    let bench = Bench::new();
    let mut kinds = desk();
    kinds.kinds[1].terms.external = true;
    let store = open_with(&bench.path, &bench.clock, kinds);
    let day = Duration::from_secs(86_400);
    store.enqueue(NewJob { external: Some(day), ..Bench::job("asked", "k", "{}") }, "test").unwrap();
    assert!(!store.something_to_do().unwrap());
}

#[test]
fn a_replayed_refusal_of_an_external_job_is_the_apps_to_report_again() {
    let bench = Bench::new();
    let mut kinds = desk();
    kinds.kinds[1].terms.external = true;
    let store = open_with(&bench.path, &bench.clock, kinds);
    let day = Duration::from_secs(86_400);
    store.enqueue(NewJob { external: Some(day), ..Bench::job("asked", "k", "{}") }, "test").unwrap();
    bench.clock.advance(day);
    let claim = store.claim(&bench.owner, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
    let id = claim.job().id;
    let outcome = Outcome::new(Class::Rejected, claim.started());
    store.record(claim, outcome).unwrap();
    assert_eq!(store.replay(id, None, "test").unwrap(), State::Unknown);
    let story = bench.story("k");
    assert_eq!((story.intent.state, story.intent.generation.number), (IntentState::Requested, 2));
    let ask =
        || store.enqueue(NewJob { external: Some(day), ..Bench::job("asked", "k", "{}") }, "test").unwrap();
    assert_eq!(ask().word(), "again");
    assert_eq!(ask().word(), "duplicate");
    assert_eq!(store.cancel(id, "test").unwrap_err().code(), Code::NotAllowed);
}
