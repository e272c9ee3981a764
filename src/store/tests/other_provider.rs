//! A kind that goes to another provider than when its jobs were asked for, and what came back with other content.

use super::*;

/// The kind `b` goes to `name` from now on.
fn moved_to(bench: &Bench, name: &str) -> Arc<Store> {
    let mut kinds = desk();
    kinds.kinds[0].provider = name.into();
    kinds.kinds[0].called = Some(name.into());
    kinds.providers.push(ProviderDesk { name: name.into(), concurrency: 10, rate: None });
    Arc::new(open_with(&bench.path, &bench.clock, kinds))
}

fn claim_of(store: &Store, bench: &Bench) -> Vec<Claim> {
    store.claim(&bench.owner, 5, Duration::from_secs(60)).unwrap().claims
}

#[test]
fn the_provider_that_is_called_stands_in_the_ledger_and_the_history_says_that_it_moved() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let store = moved_to(&bench, "second-bank");
    let claim = claim_of(&store, &bench).remove(0);
    assert_eq!(claim.intent().provider.as_deref(), Some("second-bank"));
    let mut outcome = Outcome::new(Class::Ok, claim.started());
    outcome.reference = Some("po_1".into());
    store.record(claim, outcome).unwrap();
    let story = bench.story("k");
    assert_eq!(story.intent.provider.as_deref(), Some("second-bank"));
    let moved = story.history.iter().find(|e| e.action == Action::Note).unwrap();
    assert!(moved.detail.as_deref().unwrap().contains("b-bank"), "{moved:?}");
    bench.verify().unwrap();
}

#[test]
fn a_reference_belongs_to_the_provider_that_gave_it() {
    let bench = Bench::new();
    bench.enqueue("b", "first");
    let claim = bench.claim();
    let mut outcome = Outcome::new(Class::Ok, claim.started());
    outcome.reference = Some("po_1".into());
    bench.store.record(claim, outcome.clone()).unwrap();
    bench.enqueue("b", "second");
    let store = moved_to(&bench, "second-bank");
    let claim = claim_of(&store, &bench).remove(0);
    store.record(claim, outcome).unwrap();
    assert_eq!(bench.story("second").job.state, State::Settled, "another bank's po_1 is another object");
}

#[test]
fn what_is_in_doubt_at_the_provider_that_a_kind_has_left_stays_there() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    bench.clock.advance(Duration::from_secs(60));
    let store = moved_to(&bench, "second-bank");
    assert!(claim_of(&store, &bench).is_empty());
    let story = bench.story("k");
    assert_eq!((story.job.state, story.job.park_reason), (State::Parked, Some(Reason::ScopeChanged)));
    assert_eq!(story.intent.provider.as_deref(), Some("b-bank"));
    bench.verify().unwrap();
}

#[test]
fn what_came_back_with_other_content_is_never_sent_again_by_a_machine() {
    let mut kinds = desk();
    kinds.kinds[2].terms.on_unknown = OnUnknown::Resend;
    let bench = Bench::with(kinds);
    for kind in ["b", "forgets"] {
        bench.enqueue(kind, kind);
        let claim = bench.claim();
        let mut outcome = Outcome::new(Class::Ok, claim.started());
        outcome.reference = Some(format!("po_{kind}"));
        outcome.differs = Some("the reply's amount is 999, the intent's 5".into());
        bench.store.record(claim, outcome).unwrap();
        let story = bench.story(kind);
        assert_eq!(story.job.park_reason, Some(Reason::ContentDiffers));
        assert_eq!(bench.store.replay(story.job.id, None, "test").unwrap_err().code(), Code::NotAllowed);
    }
    assert!(bench.claims(5).is_empty());
}
