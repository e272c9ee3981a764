//! The laws that the store holds by itself, each test named after its law.

use super::*;

#[test]
fn law_1_one_key_is_one_intent_however_many_ask_at_once() {
    let bench = Bench::new();
    let created: usize = std::thread::scope(|s| {
        let ask = || bench.enqueue("b", "k").word() == "created";
        let threads: Vec<_> = (0..16).map(|_| s.spawn(ask)).collect();
        threads.into_iter().map(|t| usize::from(t.join().unwrap())).sum()
    });
    assert_eq!(created, 1);
    assert_eq!(bench.store.stats().unwrap().counters["duplicate_keys"], 15);
    let again = bench.execute("INSERT INTO onceward_intents SELECT * FROM onceward_intents");
    assert!(again.is_err(), "the unique index holds by itself");
    assert!(bench.execute("DELETE FROM onceward_intents").unwrap_err().to_string().contains("never deleted"));
}

#[test]
fn law_2_the_same_key_with_other_content_is_an_error_and_is_on_record() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let spaced = Bench::job("b", "k", r#"{ "n" : 1 }"#);
    assert_eq!(bench.store.enqueue(spaced, "test").unwrap().word(), "duplicate");
    let error = bench.store.enqueue(Bench::job("b", "k", r#"{"n":1.0}"#), "test").unwrap_err();
    assert_eq!(error.code(), Code::KeyMismatch);
    assert_eq!(error.to_string().matches("sha256").count(), 1, "{error}");
    assert_eq!(bench.store.stats().unwrap().counters["key_mismatches"], 1);
    assert_eq!(bench.actions("k"), [Action::Enqueue, Action::Note]);
    assert_eq!(bench.story("k").job.payload.as_deref(), Some(r#"{"n":1}"#));
}

#[test]
fn law_3_a_settled_intent_never_changes_not_even_by_sql() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    assert_eq!(bench.story("k").job.state, State::Settled);
    for sql in [
        "UPDATE onceward_intents SET state = 'requested', confirmed_ms = NULL, reference = NULL",
        "UPDATE onceward_intents SET reference = 'po_other'",
        "UPDATE onceward_intents SET amount_minor = 6",
        "UPDATE onceward_jobs SET state = 'ready'",
    ] {
        assert!(bench.execute(sql).unwrap_err().to_string().contains("never changes"), "{sql}");
    }
    let id = bench.story("k").job.id;
    assert_eq!(
        bench.store.confirm(id, "po_1", "test").unwrap(),
        State::Settled,
        "the same word again is done"
    );
    assert_eq!(bench.store.confirm(id, "po_2", "test").unwrap_err().code(), Code::NotAllowed);
    assert_eq!(bench.store.stats().unwrap().counters["double_effects"], 1);
    assert_eq!(bench.store.cancel(id, "test").unwrap_err().code(), Code::NotAllowed);
}

#[test]
fn law_4_the_claim_is_on_file_before_anything_can_be_sent() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    let story = bench.story("k");
    assert_eq!((story.job.state, story.intent.state), (State::Running, IntentState::Requested));
    assert_eq!((story.job.attempts, story.job.tries), (1, 1));
    assert_eq!(story.intent.frozen.as_ref().map(|f| f.body.as_slice()), Some(br#"{"n":1}"#.as_slice()));
    assert_eq!(story.job.lease.map(|l| (l.owner, l.token)), Some(("test:1".into(), 1)));
    assert!(bench.claims(5).is_empty(), "a running job is claimed by nobody");
    bench.store.release(claim).unwrap();
    let story = bench.story("k");
    assert_eq!((story.job.state, story.intent.state), (State::Ready, IntentState::Pending));
    assert_eq!((story.job.attempts, story.intent.requested), (0, None));
}

#[test]
fn law_10_a_late_success_settles_and_any_other_late_result_changes_nothing() {
    let bench = Bench::new();
    for key in ["good", "bad"] {
        bench.enqueue("forgets", key);
    }
    let stale = bench.claims(2);
    // The worker is taken for dead (its lock file is gone and its lease is over), and another takes over.
    std::fs::remove_file(format!("{}-owner-{}", bench.path.display(), bench.owner.nonce())).unwrap();
    bench.clock.advance(Duration::from_secs(61));
    for claim in &stale {
        bench.store.mark_sending(claim).unwrap();
    }
    let (other, _lock) = bench.store.register("other:2").unwrap();
    assert_eq!(bench.store.recover(&other).unwrap(), 2);
    assert_eq!(bench.story("good").job.park_reason, Some(Reason::UnknownOutcome));
    for claim in stale {
        let class = if claim.job().key.as_str() == "good" { Class::Ok } else { Class::Rejected };
        assert_eq!(bench.end(claim, class), Recorded::Late);
    }
    assert_eq!(bench.story("good").intent.reference.as_deref(), Some("po_1"));
    assert_eq!(bench.story("good").job.state, State::Settled);
    assert_eq!(bench.story("bad").job.state, State::Parked);
    assert_eq!(bench.actions("bad"), [Action::Enqueue, Action::Crash, Action::LateResult]);
}

#[test]
fn law_11_time_alone_takes_no_lease_over() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.clock.advance(Duration::from_secs(365 * 86_400));
    let (other, _lock) = bench.store.register("other:2").unwrap();
    assert_eq!(bench.store.recover(&other).unwrap(), 0, "the lock says that it lives");
    assert_eq!(bench.end(claim, Class::Ok), Recorded::As { state: State::Settled, due: None });
}

#[test]
fn law_13_retries_are_data_a_restart_resets_nothing() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    let before = bench.story("k");
    assert_eq!((before.job.state, before.job.error_class), (State::Unknown, Some(Class::Timeout)));
    assert!(before.job.run_after > NOON);
    for _ in 0..5 {
        let store = open(&bench.path, &bench.clock);
        let after = store.story("k").unwrap().unwrap();
        assert_eq!((after.job.run_after, after.job.attempts), (before.job.run_after, 1));
        assert!(store.claim(&bench.owner, 5, Duration::from_secs(60)).unwrap().claims.is_empty());
    }
    bench.clock.advance(Duration::from_secs(2));
    let claim = bench.claim();
    assert_eq!((claim.step(), claim.job().attempts), (Step::Send, 2));
    assert_eq!(claim.frozen().headers, vec![("Idempotency-Key".into(), claim.intent().wire_key.clone())]);
}

#[test]
fn law_15_a_history_row_changed_by_hand_is_found() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    assert_eq!(bench.verify(), Ok(2));
    assert!(
        bench
            .execute("UPDATE onceward_history SET class = 'ok'")
            .unwrap_err()
            .to_string()
            .contains("append-only")
    );
    assert!(bench.execute("DELETE FROM onceward_history").unwrap_err().to_string().contains("append-only"));
    bench.execute("DROP TRIGGER onceward_history_append_only").unwrap();
    bench.execute("UPDATE onceward_history SET class = 'ok' WHERE seq = 2").unwrap();
    let broken = bench.store.audit(&mut |_, _| {}).unwrap().breaks;
    let found = broken.iter().map(|b| format!("{:?} {}", b.seq, b.what)).collect::<Vec<_>>().concat();
    assert!(found.contains("Some(2)") && found.contains("it was changed"), "{found}");
}

#[test]
fn law_10_a_confirmation_of_a_job_that_its_group_passed_over_is_taken() {
    let bench = Bench::new();
    bench.store.enqueue(member("skips", "g", "1", None), "test").unwrap();
    bench.store.enqueue(member("skips", "g", "2", None), "test").unwrap();
    let claim = bench.claim();
    bench.end(claim, Class::Rejected);
    assert_eq!(bench.claim().job().key.as_str(), "2");
    let id = bench.story("1").job.id;
    assert_eq!(bench.store.confirm(id, "po_1", "test").unwrap(), State::Settled);
}

#[test]
fn law_12_a_replayed_job_waits_for_a_predecessor_that_is_not_done() {
    let bench = Bench::new();
    for n in 1..=3 {
        bench.store.enqueue(member("b", "g", &n.to_string(), Some(n)), "test").unwrap();
    }
    let three = bench.story("3").job.id;
    bench.store.cancel(three, "test").unwrap();
    let claim = bench.claim();
    bench.end(claim, Class::Rejected);
    assert_eq!(bench.store.replay(three, None, "test").unwrap(), State::Waiting);
    assert!(bench.claims(5).is_empty(), "the parked head holds its group");

    let parked = |key: &str, class| {
        let claim = bench.claim();
        assert_eq!(claim.job().key.as_str(), key);
        bench.end(claim, class);
        bench.story(key).job.id
    };
    for key in ["s1", "s2", "s3"] {
        bench.store.enqueue(member("skips", "s", key, None), "test").unwrap();
    }
    let first = parked("s1", Class::Rejected);
    let second = parked("s2", Class::Rejected);
    bench.store.cancel(bench.story("s3").job.id, "test").unwrap();
    bench.store.replay(first, None, "test").unwrap();
    for _ in 0..3 {
        parked("s1", Class::Timeout);
        bench.clock.advance(Duration::from_secs(10));
    }
    assert_eq!(bench.story("s1").job.state, State::Parked);
    assert_eq!(bench.store.replay(second, None, "test").unwrap(), State::Waiting);
    assert!(bench.claims(5).is_empty(), "the first is in doubt, so the second may not go");
    assert_eq!(bench.store.replay(first, None, "test").unwrap(), State::Unknown);
    bench.clock.advance(Duration::from_secs(31));
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    assert_eq!(bench.claim().job().key.as_str(), "s2");
}

#[test]
fn law_5_a_crash_is_judged_by_what_was_promised_at_the_claim_not_by_a_later_config() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let (dead, lock) = bench.store.register("dead:9").unwrap();
    let sent = bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims;
    drop((sent, lock));
    let mut later = desk();
    later.kinds[0].terms.family = Family::E;
    let store = open_with(&bench.path, &bench.clock, later);
    assert_eq!(store.recover(&bench.owner).unwrap(), 1);
    assert_eq!(bench.story("k").job.park_reason, Some(Reason::UnknownOutcome));
}

#[test]
fn law_10_a_late_success_raises_the_alarm_while_a_newer_generation_is_out() {
    let bench = Bench::new();
    bench.enqueue("forgets", "k");
    let (dead, lock) = bench.store.register("slow:9").unwrap();
    let stale = bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
    bench.store.mark_sending(&stale).unwrap();
    drop(lock);
    bench.store.recover(&bench.owner).unwrap();
    let id = stale.job().id;
    bench.store.resolve(id, Resolution::NotApplied, None, "test").unwrap();
    let newer = bench.claim();
    assert_eq!(newer.intent().generation.number, 2);
    assert_eq!(bench.end(stale, Class::Ok), Recorded::Late);
    assert_eq!(bench.store.stats().unwrap().counters.get("double_effects"), Some(&1));
}

#[test]
fn law_7_amended_content_never_goes_out_under_a_key_that_was_sent_with_other_bytes() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    let mut outcome = Outcome::new(Class::Rejected, claim.started());
    outcome.retry_on = true;
    bench.store.record(claim, outcome).unwrap();
    bench.clock.advance(Duration::from_secs(80 * 3600));
    assert!(bench.claims(1).is_empty());
    let story = bench.story("k");
    assert_eq!((story.job.park_reason, story.intent.generation.sends), (Some(Reason::TooOld), 1));
    let content = Bench::job("b", "k", r#"{"n":2}"#);
    bench.store.replay(story.job.id, Some(Amendment { content, money: false }), "test").unwrap();
    assert_eq!(bench.story("k").intent.generation.number, 2);
}

/// Ends of an attempt that say for certain what became of the effect; every other one is an unknown. Written out here,
/// and not asked of the code.
fn certain(class: Class) -> bool {
    match class {
        Class::Ok | Class::NotSent | Class::Throttled | Class::Rejected | Class::Auth => true,
        Class::Accepted
        | Class::Timeout
        | Class::Interrupted
        | Class::Crashed
        | Class::InProgress
        | Class::ServerError
        | Class::BadResponse
        | Class::Redirected
        | Class::KeyMismatch
        | Class::NotFound
        | Class::LookupFailed
        | Class::HandlerError
        | Class::HandlerPanic => false,
    }
}

#[test]
fn law_5_no_class_that_is_not_certain_ever_becomes_an_outcome() {
    let kinds = ["b", "asked", "forgets", "forgets-asked", "skips"];
    let uncertain: Vec<Class> = Class::ALL.iter().copied().filter(|class| !certain(*class)).collect();
    assert_eq!(uncertain.len(), 13);
    for kind in kinds {
        for class in &uncertain {
            let bench = Bench::new();
            let case = format!("{kind}, {class}");
            bench.enqueue(kind, "k");
            let first = bench.claim();
            assert_eq!(first.step(), Step::Send, "{case}");
            bench.store.mark_sending(&first).unwrap();
            bench.end(first, *class);
            // Whatever follows ends the same way: re-sends and look-ups, until nobody can be asked any more. Two are
            // proof where the look-up is authoritative, so what is not found is asked about only once there.
            let proof = *class == Class::NotFound && matches!(kind, "asked" | "forgets-asked");
            let mut rounds = if proof { 1 } else { 200 };
            loop {
                let story = bench.story("k");
                assert_eq!(story.intent.state, IntentState::Requested, "{case}");
                assert_eq!(story.intent.generation.number, 1, "{case}: the same generation, never another");
                assert_eq!((story.intent.reference.as_ref(), story.intent.confirmed), (None, None), "{case}");
                let in_doubt = match story.job.state {
                    State::Unknown => true,
                    State::Parked => story.job.park_reason.is_some(),
                    _ => false,
                };
                assert!(in_doubt, "{case}: {:?} {:?}", story.job.state, story.job.park_reason);
                if story.job.state == State::Parked || rounds == 0 {
                    break;
                }
                rounds -= 1;
                bench.clock.advance(Duration::from_secs(3600));
                for claim in bench.claims(1) {
                    bench.end(claim, *class);
                }
            }
            if !proof {
                assert_eq!(bench.story("k").job.state, State::Parked, "{case}: in the end a person is asked");
            }
            // A person's word is what ends it.
            let id = bench.story("k").job.id;
            if bench.story("k").job.state == State::Parked {
                bench.store.resolve(id, Resolution::Settled("po_seen".into()), None, "ann").unwrap();
                assert_eq!(bench.story("k").intent.state, IntentState::Settled, "{case}");
            }
        }
    }
}

#[test]
fn law_5_a_certain_refusal_after_an_unknown_is_no_outcome_either() {
    for class in [Class::Rejected, Class::NotSent, Class::Throttled, Class::Auth] {
        let bench = Bench::new();
        bench.enqueue("b", "k");
        let claim = bench.claim();
        bench.end(claim, Class::Timeout);
        bench.clock.advance(Duration::from_secs(60));
        let claim = bench.claim();
        bench.end(claim, class);
        let story = bench.story("k");
        assert_eq!(story.intent.state, IntentState::Requested, "{class}");
        assert!(matches!(story.job.state, State::Unknown | State::Parked), "{class}: {:?}", story.job.state);
    }
}

#[test]
fn law_14_a_parked_job_keeps_everything_through_restarts_and_years() {
    let bench = Bench::new();
    let payload = r#"{ "n" : 9007199254740993, "note": "Kaffee ☕, 0.10" }"#;
    bench.store.enqueue(Bench::job("forgets", "unknown", payload), "shop").unwrap();
    let claim = bench.claim();
    bench.clock.advance(Duration::from_secs(3));
    bench.store.mark_sending(&claim).unwrap();
    let mut outcome = Outcome::new(Class::Timeout, claim.started());
    outcome.phase = Some(Phase::Sent);
    outcome.error = Some("no answer within 30 s".into());
    bench.store.record(claim, outcome).unwrap();
    // One that was tried three times before it was parked.
    bench.store.enqueue(member("b", "g", "spent", None), "shop").unwrap();
    for _ in 0..3 {
        let claim = bench.claim();
        bench.end(claim, Class::ServerError);
        bench.clock.advance(Duration::from_secs(120));
    }
    bench.enqueue("skips", "refused");
    let claim = bench.claim();
    bench.end(claim, Class::Rejected);

    let keys = ["unknown", "spent", "refused"];
    let before = keys.map(|key| bench.story(key));
    for story in &before {
        assert_eq!(story.job.state, State::Parked, "{:?}", story.job);
    }
    assert_eq!(before[0].job.payload.as_deref(), Some(payload), "byte for byte");
    assert_eq!(before[0].history[1].error.as_deref(), Some("no answer within 30 s"));
    assert_eq!(before[1].history.iter().filter(|row| row.attempt.is_some()).count(), 3);
    let told = |story: &Story| format!("{story:#?}");
    for year in 1..=12 {
        bench.clock.advance(Duration::from_secs(365 * 86_400));
        let store = open(&bench.path, &bench.clock);
        let (owner, lock) = store.register(&format!("year:{year}")).unwrap();
        store.recover(&owner).unwrap();
        assert!(store.claim(&owner, 50, Duration::from_secs(60)).unwrap().claims.is_empty(), "year {year}");
        // The others go on meanwhile.
        store.enqueue(Bench::job("asked", &format!("other{year}"), "{}"), "shop").unwrap();
        let claim = store.claim(&owner, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
        let mut outcome = Outcome::new(Class::Ok, claim.started());
        outcome.reference = Some(format!("po_other{year}"));
        store.record(claim, outcome).unwrap();
        store.renew(&owner, Duration::from_secs(60)).unwrap();
        store.unregister(&owner, lock).unwrap();
        for (key, before) in keys.iter().zip(&before) {
            let after = store.story(key).unwrap().unwrap();
            assert_eq!(told(&after), told(before), "year {year}");
        }
    }
    bench.verify().unwrap();
    // And a person can still end each as if it were the first day.
    let id = |n: usize| before[n].job.id;
    bench.store.resolve(id(0), Resolution::Settled("po_found".into()), None, "ann").unwrap();
    bench.store.replay(id(2), None, "ann").unwrap();
    assert_eq!(bench.story("unknown").job.state, State::Settled);
    assert_eq!(bench.story("refused").job.state, State::Ready);
}

/// The COMMIT of a result failed and was stored all the same, so the worker tries again with what it kept.
#[test]
fn a_result_whose_commit_was_not_heard_is_recorded_once() {
    for (class, state) in [(Class::Ok, State::Settled), (Class::Timeout, State::Unknown)] {
        let bench = Bench::new();
        bench.enqueue("b", "k");
        let claim = bench.claim();
        let kept = claim.copy();
        bench.end(claim, class);
        let before = bench.story("k");
        let again = bench.end(kept, class);
        assert_eq!(again, Recorded::As { state, due: None });
        let after = bench.story("k");
        assert_eq!((&after.job, &after.intent), (&before.job, &before.intent));
        assert_eq!(bench.actions("k"), [Action::Enqueue, Action::Request], "{class}");
    }
}

#[test]
fn a_claim_in_doubt_that_is_given_back_stays_in_doubt() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    bench.end(bench.claim(), Class::Timeout);
    bench.clock.advance(Duration::from_secs(60));
    let claim = bench.claim();
    assert_eq!(claim.step(), Step::Send);
    bench.store.release(claim).unwrap();
    let story = bench.story("k");
    assert_eq!((story.job.state, story.intent.state), (State::Unknown, IntentState::Requested));
    assert_eq!(story.history.last().map(|e| (e.action, e.to)), Some((Action::Release, Some(State::Unknown))));
    assert_eq!(bench.verify(), Ok(3));
}
