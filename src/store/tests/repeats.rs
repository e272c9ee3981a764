//! What is asked for again: by its key, for ever; by its dedup id, inside the window only. And limits after a restart.

use super::*;

fn ask(bench: &Bench, kind: &str, key: &str, window_s: u64) -> Enqueued {
    let job =
        NewJob { dedup: Some(("same".into(), Duration::from_secs(window_s))), ..Bench::job(kind, key, "{}") };
    bench.store.enqueue(job, "test").unwrap()
}

#[test]
fn a_dedup_id_suppresses_inside_its_window_only_and_a_repeat_does_not_extend_it() {
    let bench = Bench::new();
    assert_eq!(ask(&bench, "b", "first", 60).word(), "created");
    bench.clock.advance(Duration::from_secs(50));
    let repeat = ask(&bench, "b", "second", 3600);
    assert_eq!((repeat.word(), repeat.receipt().key.as_str()), ("suppressed", "first"));
    assert!(bench.store.story("second").unwrap().is_none(), "nothing is stored under the suppressed key");
    assert_eq!(ask(&bench, "asked", "elsewhere", 60).word(), "created", "the window is its kind's own");
    assert_eq!(ask(&bench, "b", "first", 60).word(), "duplicate", "the key is looked at first");
    bench.clock.advance(Duration::from_millis(9_999));
    assert_eq!(ask(&bench, "b", "third", 60).word(), "suppressed");
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(ask(&bench, "b", "third", 60).word(), "created", "the repeats moved no end");
    assert_eq!(ask(&bench, "b", "fourth", 60).receipt().key, "third");
    let counters = bench.store.stats().unwrap().counters;
    assert_eq!((counters["suppressed"], counters["duplicate_keys"]), (3, 1));
}

#[test]
fn a_window_holds_whatever_became_of_the_job_that_opened_it_and_after_a_restart() {
    let bench = Bench::new();
    for (key, end) in [("done", Some(Class::Ok)), ("refused", Some(Class::Rejected)), ("gone", None)] {
        let with = |key: String| {
            let dedup = Some((format!("id-{}", key.split('-').next().unwrap()), Duration::from_secs(60)));
            NewJob { dedup, ..Bench::job("b", &key, "{}") }
        };
        bench.store.enqueue(with(key.into()), "test").unwrap();
        match end {
            Some(class) => drop(bench.end(bench.claim(), class)),
            None => drop(bench.store.cancel(bench.story(key).job.id, "test").unwrap()),
        }
        let again = open(&bench.path, &bench.clock).enqueue(with(format!("{key}-again")), "test").unwrap();
        assert_eq!((again.word(), again.receipt().key.as_str()), ("suppressed", key));
    }
}

/// R27: a key is taken whatever state its job is in.
#[test]
fn a_repeated_key_is_a_duplicate_in_every_state_and_changes_none() {
    let bench = Bench::new();
    let mut seen = Vec::new();
    let mut again = |key: &str, kind: &str, want: State| {
        let before = bench.story(key);
        let job = |payload: &str| Bench::job(kind, key, payload);
        let repeat = bench.store.enqueue(job(r#"{"n":1}"#), "test").unwrap();
        assert_eq!(
            (repeat.word(), repeat.receipt().id, repeat.receipt().state),
            ("duplicate", before.job.id, want)
        );
        let error = bench.store.enqueue(job(r#"{"n":2}"#), "test").unwrap_err();
        assert_eq!(error.code(), Code::KeyMismatch, "{key}");
        let after = bench.story(key);
        assert_eq!((&after.job, &after.intent), (&before.job, &before.intent), "{key}");
        seen.push(want);
    };

    let later = NewJob {
        run_after: Some(NOON.plus(Duration::from_secs(7 * 86_400))),
        ..Bench::job("b", "later", r#"{"n":1}"#)
    };
    bench.store.enqueue(later, "test").unwrap();
    again("later", "b", State::Scheduled);
    for key in ["head", "behind"] {
        let job = NewJob { group: Some("g".into()), ..Bench::job("asked", key, r#"{"n":1}"#) };
        bench.store.enqueue(job, "test").unwrap();
    }
    again("head", "asked", State::Ready);
    again("behind", "asked", State::Waiting);
    let claim = bench.claim();
    again("head", "asked", State::Running);
    bench.end(claim, Class::Timeout);
    again("head", "asked", State::Unknown);
    bench.enqueue("b", "done");
    bench.end(bench.claim(), Class::Ok);
    again("done", "b", State::Settled);
    bench.enqueue("b", "refused");
    bench.end(bench.claim(), Class::Rejected);
    again("refused", "b", State::Parked);
    bench.enqueue("b", "gone");
    bench.store.cancel(bench.story("gone").job.id, "test").unwrap();
    again("gone", "b", State::Cancelled);
    seen.sort_by_key(|state| state.as_str());
    seen.dedup();
    assert_eq!(seen.len(), State::ALL.len(), "every state was tried: {seen:?}");
}

/// R28: what waits behind a parked head is not even looked at.
#[test]
fn thousands_behind_a_parked_head_neither_delay_another_group_nor_are_forgotten() {
    let bench = Bench::new();
    let member =
        |group: &str, key: String| NewJob { group: Some(group.into()), ..Bench::job("b", &key, "{}") };
    let many = (1..=5_000).map(|n| member("a", format!("a{n}"))).collect();
    assert!(bench.store.enqueue_many(many, "test").unwrap().iter().all(Result::is_ok));
    bench.end(bench.claim(), Class::Rejected);
    let others = ('b'..='z').map(|group| member(&group.to_string(), format!("{group}1"))).collect();
    bench.store.enqueue_many(others, "test").unwrap();
    let keys: Vec<String> = ('b'..='z')
        .map(|_| {
            let claim = bench.claim();
            let key = claim.job().key.as_str().to_string();
            bench.end(claim, Class::Ok);
            key
        })
        .collect();
    assert_eq!(keys, ('b'..='z').map(|group| format!("{group}1")).collect::<Vec<_>>());
    assert!(bench.claims(10).is_empty());
    let stats = bench.store.stats().unwrap();
    let blocked: Vec<_> =
        stats.blocked_groups.iter().map(|g| (g.group.as_str(), g.head.as_str(), g.waiting)).collect();
    assert_eq!(blocked, [("a", "a1", 4_999)]);
    bench.store.replay(bench.story("a1").job.id, None, "test").unwrap();
    for key in ["a1", "a2", "a3"] {
        let claim = bench.claim();
        assert_eq!(claim.job().key.as_str(), key);
        bench.end(claim, Class::Ok);
    }
}

/// R29: by the app's own numbers, whatever the order of arrival.
#[test]
fn numbered_events_go_out_by_number_and_a_late_repeat_is_a_duplicate() {
    let bench = Bench::new();
    let event = |key: &str, sequence: i64| {
        let job =
            NewJob { group: Some("pay_9".into()), sequence: Some(sequence), ..Bench::job("b", key, "{}") };
        bench.store.enqueue(job, "test").unwrap().word()
    };
    let mut sent = Vec::new();
    let mut send = || {
        while let Some(claim) = bench.claims(1).pop() {
            sent.push(claim.job().key.as_str().to_string());
            bench.end(claim, Class::Ok);
        }
    };
    for (key, sequence) in [("refund", 3), ("approve", 1), ("capture", 2)] {
        assert_eq!(event(key, sequence), "created");
        send();
    }
    bench.clock.advance(Duration::from_secs(7200));
    assert_eq!(event("capture", 2), "duplicate");
    assert_eq!(event("fifth", 5), "created");
    send();
    assert_eq!(bench.story("fifth").blocked_by.as_deref(), Some("sequence 4 has not arrived"));
    event("fourth", 4);
    send();
    assert_eq!(sent, ["approve", "capture", "refund", "fourth", "fifth"]);
}

#[test]
fn the_breaker_and_the_rate_survive_a_restart() {
    let bench = Bench::new();
    for key in ["1", "2", "3", "4"] {
        bench.enqueue("b", key);
    }
    for claim in bench.claims(3) {
        bench.end(claim, Class::NotSent);
    }
    bench.enqueue("spaced", "s1");
    bench.enqueue("spaced", "s2");
    assert_eq!(bench.claim().job().key.as_str(), "s1");
    let claims = |store: &Store| store.claim(&bench.owner, 10, Duration::from_secs(60)).unwrap().claims;
    let held = |store: &Store| store.stats().unwrap().providers["b-bank"].state;
    let restarted = open(&bench.path, &bench.clock);
    assert_eq!(held(&restarted), "held");
    assert!(claims(&restarted).is_empty(), "the breaker is open, the bucket is empty");
    bench.clock.advance(Duration::from_secs(31));
    let keys: Vec<_> =
        claims(&open(&bench.path, &bench.clock)).iter().map(|c| c.step() == Step::Send).collect();
    assert_eq!(keys, [true, true], "one probe, and one token");
    assert_eq!(held(&open(&bench.path, &bench.clock)), "probing");
    assert!(claims(&open(&bench.path, &bench.clock)).is_empty(), "a restart frees no second probe");
}
