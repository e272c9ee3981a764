//! Pauses, skipped places and remarks, at the store.

use super::*;

fn grouped(bench: &Bench, group: &str, key: &str, sequence: Option<i64>) -> Result<Enqueued, StoreError> {
    let job = NewJob { group: Some(group.into()), sequence, ..Bench::job("b", key, "{}") };
    bench.store.enqueue(job, "test")
}

fn keys(claims: &[Claim]) -> Vec<&str> {
    claims.iter().map(|c| c.job().key.as_str()).collect()
}

fn events(bench: &Bench) -> Vec<(String, String, String, Option<String>)> {
    let conn = bench.store.reader().unwrap();
    let mut statement = conn
        .prepare(
            "SELECT action, scope || ' ' || name, actor, why FROM onceward_events
             WHERE scope <> 'worker' ORDER BY seq",
        )
        .unwrap();
    let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_pause_stops_claims_survives_a_restart_and_says_who_and_why() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    bench.enqueue("asked", "other");
    let why = Some("maintenance".to_string());
    assert!(bench.store.pause(PauseScope::Provider, "b-bank", why.clone(), "ann").unwrap());
    assert!(!bench.store.pause(PauseScope::Provider, "b-bank", None, "bob").unwrap(), "already paused");
    let store = open(&bench.path, &bench.clock);
    let claims = store.claim(&bench.owner, 10, Duration::from_secs(60)).unwrap();
    assert_eq!(keys(&claims.claims), ["other"], "another provider is not held up");
    assert!(!claims.more);
    let stats = store.stats().unwrap();
    let provider = &stats.providers["b-bank"];
    assert_eq!((provider.state, provider.why.as_deref()), ("paused", Some("maintenance")));
    for claim in claims.claims {
        bench.end(claim, Class::Ok);
    }
    bench.clock.advance(Duration::from_secs(100));
    assert_eq!(bench.store.stats().unwrap().oldest_ready_age_s, 0.0);
    assert!(!bench.store.something_to_do().unwrap());
    assert!(bench.store.resume(PauseScope::Provider, "b-bank", None, "bob").unwrap());
    assert!(!bench.store.resume(PauseScope::Provider, "b-bank", None, "bob").unwrap(), "not paused");
    assert_eq!(bench.store.stats().unwrap().oldest_ready_age_s, 100.0);
    assert_eq!(bench.claim().job().key.as_str(), "k");
    let told = |action: &str, who: &str, why: Option<String>| {
        (action.to_string(), "provider b-bank".to_string(), who.to_string(), why)
    };
    assert_eq!(events(&bench), [told("pause", "ann", why), told("resume", "bob", None)]);
    let change = bench.execute("UPDATE onceward_events SET actor = 'eve'").unwrap_err().to_string();
    assert!(change.contains("append-only"), "{change}");
    assert!(bench.execute("DELETE FROM onceward_events").unwrap_err().to_string().contains("append-only"));
}

#[test]
fn a_paused_kind_leaves_the_other_kinds_alone_and_an_unknown_name_is_refused() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    bench.store.pause(PauseScope::Kind, "b", None, "ann").unwrap();
    bench.clock.advance(Duration::from_secs(5));
    assert!(bench.claims(10).is_empty());
    assert!(!bench.store.something_to_do().unwrap());
    let stats = bench.store.stats().unwrap();
    assert_eq!(stats.oldest_ready_age_s, 0.0);
    assert_eq!(stats.paused.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["b"]);
    bench.enqueue("asked", "other");
    assert_eq!(bench.claim().job().key.as_str(), "other");
    for (scope, name) in [(PauseScope::Kind, "nope"), (PauseScope::Provider, "nope")] {
        assert_eq!(bench.store.pause(scope, name, None, "ann").unwrap_err().code(), Code::NotFound);
        assert_eq!(bench.store.resume(scope, name, None, "ann").unwrap_err().code(), Code::NotFound);
    }
    bench.store.resume(PauseScope::Kind, "b", None, "ann").unwrap();
    assert_eq!(bench.claim().job().key.as_str(), "k");
}

#[test]
fn a_paused_group_holds_up_no_other_and_gives_the_claim_nothing_to_come_back_for() {
    let bench = Bench::new();
    // An unknown, a retry that is due later, one that is due now, and one that has not begun.
    for group in ["in-doubt", "later", "now"] {
        grouped(&bench, group, group, None).unwrap();
    }
    for claim in bench.claims(2) {
        let class = if claim.job().key.as_str() == "later" { Class::NotSent } else { Class::Timeout };
        bench.end(claim, class);
    }
    for group in ["in-doubt", "later", "now", "empty"] {
        assert!(bench.store.pause(PauseScope::Group, group, None, "ann").unwrap());
    }
    grouped(&bench, "empty", "new", None).unwrap();
    bench.clock.advance(Duration::from_secs(50));
    let claimed = bench.store.claim(&bench.owner, 10, Duration::from_secs(60)).unwrap();
    assert_eq!(keys(&claimed.claims), Vec::<&str>::new());
    assert_eq!((claimed.next, claimed.more), (None, false), "nothing to come back for");
    assert!(!bench.store.something_to_do().unwrap());
    assert_eq!(bench.store.stats().unwrap().oldest_ready_age_s, 0.0);
    grouped(&bench, "free", "free", None).unwrap();
    let free = bench.claim();
    assert_eq!(free.job().key.as_str(), "free");
    for group in ["in-doubt", "later", "now", "empty"] {
        assert!(bench.store.resume(PauseScope::Group, group, None, "ann").unwrap());
    }
    let claims = bench.claims(10);
    let mut gone = keys(&claims);
    gone.sort_unstable();
    assert_eq!(gone, ["in-doubt", "later", "new", "now"]);
}

#[test]
fn a_pause_lets_the_call_in_flight_end_and_stops_its_successor() {
    let bench = Bench::new();
    grouped(&bench, "g", "one", None).unwrap();
    grouped(&bench, "g", "two", None).unwrap();
    let claim = bench.claim();
    bench.store.pause(PauseScope::Group, "g", None, "ann").unwrap();
    assert!(bench.store.something_to_do().unwrap(), "a call is in flight");
    assert_eq!(bench.end(claim, Class::Ok), Recorded::As { state: State::Settled, due: None });
    assert!(bench.claims(10).is_empty());
    bench.store.resume(PauseScope::Group, "g", None, "ann").unwrap();
    assert_eq!(bench.claim().job().key.as_str(), "two");
}

#[test]
fn a_skipped_place_is_passed_when_the_group_gets_there() {
    let bench = Bench::new();
    let skip = |place: i64| bench.store.skip_place("g", place, "ann");
    assert_eq!(skip(1).unwrap_err().code(), Code::NotFound);
    for place in [1, 4] {
        grouped(&bench, "g", &format!("j{place}"), Some(place)).unwrap();
    }
    assert_eq!(skip(0).unwrap_err().code(), Code::Invalid);
    assert_eq!(skip(1).unwrap_err().code(), Code::SequenceTaken);
    assert!(skip(3).unwrap(), "a later place is noted");
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    assert!(bench.claims(10).is_empty(), "2 is still missing");
    let story = bench.store.group("g").unwrap().unwrap();
    assert_eq!((story.passed, story.waiting, story.head.as_deref()), (1, 1, Some("j4")));
    assert_eq!(story.blocked_by.as_deref(), Some("sequence 2 has not arrived"));
    assert_eq!(skip(1).unwrap_err().code(), Code::StaleSequence);
    assert!(skip(2).unwrap());
    assert!(!skip(2).unwrap() && !skip(3).unwrap(), "said before");
    assert_eq!(grouped(&bench, "g", "late", Some(3)).unwrap_err().code(), Code::StaleSequence);
    assert_eq!(bench.claim().job().key.as_str(), "j4");
    assert_eq!(events(&bench).len(), 3, "two places given up, and one refused");
}

#[test]
fn a_group_numbered_by_arrival_has_no_missing_places() {
    let bench = Bench::new();
    grouped(&bench, "g", "one", None).unwrap();
    assert_eq!(bench.store.skip_place("g", 2, "ann").unwrap_err().code(), Code::Invalid);
    grouped(&bench, "g", "two", None).unwrap();
    bench.store.cancel(bench.story("two").job.id, "ann").unwrap();
    assert!(bench.store.skip_place("g", 2, "ann").unwrap(), "a cancelled place may be given up");
}

#[test]
fn a_remark_changes_nothing_and_only_what_settled_can_be_reversed() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let id = bench.story("k").job.id;
    let reversed = Some("cb_1".to_string());
    let early = bench.store.note(id, "chargeback", reversed.clone(), "ann").unwrap_err();
    assert_eq!(early.code(), Code::NotAllowed);
    assert_eq!(bench.store.note(id, " ", None, "ann").unwrap_err().code(), Code::Invalid);
    assert_eq!(bench.store.note(id, "asked the shop", None, "ann").unwrap(), State::Ready);
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    for _ in 0..2 {
        assert_eq!(bench.store.note(id, "chargeback", reversed.clone(), "ann").unwrap(), State::Settled);
    }
    let story = bench.story("k");
    let notes: Vec<_> = story.history.iter().filter(|e| e.action == Action::Note).collect();
    let said: Vec<_> = notes.iter().map(|e| e.detail.as_deref().unwrap()).collect();
    assert_eq!(said, ["asked the shop", "reversed cb_1: chargeback"]);
    assert_eq!((story.intent.state, story.intent.reference.as_deref()), (IntentState::Settled, Some("po_1")));
    assert!(bench.verify().is_ok());
}

#[test]
fn a_pause_with_an_empty_reason_has_none_and_a_group_needs_a_name() {
    let bench = Bench::new();
    bench.store.pause(PauseScope::Group, "g", Some(" ".into()), "ann").unwrap();
    assert_eq!(bench.store.stats().unwrap().paused[0].why, None);
    let refused = bench.store.pause(PauseScope::Group, "", None, "ann").unwrap_err();
    assert_eq!((refused.code(), refused.to_string().as_str()), (Code::Invalid, "the group's name is empty"));
}
