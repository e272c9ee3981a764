//! What waits is to be seen: which groups stand still, since when and for what, and how old the oldest job is that could
//! run.

use super::*;

/// Blocked groups as `stats` names them: group, head, since (in seconds after noon), waiting.
fn blocked(bench: &Bench) -> Vec<(String, String, i64, u64)> {
    let groups = bench.store.stats().unwrap().blocked_groups;
    let row = |g: BlockedGroup| (g.group, g.head, (g.since.0 - NOON.0) / 1000, g.waiting);
    groups.into_iter().map(row).collect()
}

fn put(bench: &Bench, group: &str, key: &str, sequence: Option<i64>) {
    bench.store.enqueue(member("b", group, key, sequence), "test").unwrap();
}

fn one(group: &str, head: &str, since: i64, waiting: u64) -> Vec<(String, String, i64, u64)> {
    vec![(group.into(), head.into(), since, waiting)]
}

fn pass(bench: &Bench, seconds: u64) {
    bench.clock.advance(Duration::from_secs(seconds));
}

/// R29: a place that never comes is never passed by a machine, and is named until it comes.
#[test]
fn a_place_that_never_arrives_is_named_with_since_when_and_a_late_one_frees_those_behind_it_in_order() {
    let bench = Bench::new();
    for sequence in [1, 5, 6] {
        put(&bench, "g", &format!("s{sequence}"), Some(sequence));
    }
    assert_eq!(blocked(&bench), [], "the first one can go");
    pass(&bench, 10);
    bench.end(bench.claim(), Class::Ok);
    let missing = |n: i64| format!("sequence {n} has not arrived");
    assert_eq!(blocked(&bench), one("g", &missing(2), 10, 2));
    assert_eq!(bench.store.gaps().unwrap().len(), 1);
    pass(&bench, 30 * 86_400);
    put(&bench, "g", "s8", Some(8));
    assert!(bench.claims(10).is_empty(), "not after a month either");
    assert_eq!(blocked(&bench), one("g", &missing(2), 10, 3), "one more that waits changes no time");
    assert_eq!(bench.story("s5").blocked_by, Some(missing(2)));
    assert!(["s5", "s6", "s8"].iter().all(|key| bench.story(key).job.state == State::Waiting));

    let now = 10 + 30 * 86_400;
    put(&bench, "g", "s2", Some(2));
    assert_eq!(blocked(&bench), [], "it can go");
    bench.end(bench.claim(), Class::Ok);
    assert_eq!(blocked(&bench), one("g", &missing(3), now, 3), "the next one is missed from now on");
    pass(&bench, 5);
    bench.store.skip_place("g", 3, "test").unwrap();
    assert_eq!(blocked(&bench), one("g", &missing(4), now + 5, 3));
    put(&bench, "g", "s4", Some(4));
    for key in ["s4", "s5", "s6"] {
        let claim = bench.claim();
        assert_eq!(claim.job().key.as_str(), key);
        bench.end(claim, Class::Ok);
    }
    assert_eq!(blocked(&bench), one("g", &missing(7), now + 5, 1));
    bench.store.cancel(bench.story("s8").job.id, "test").unwrap();
    assert_eq!(blocked(&bench), [], "nobody waits for it any more");
    assert_eq!(bench.store.gaps().unwrap(), []);
}

#[test]
fn a_missing_place_is_still_named_after_a_restart() {
    let bench = Bench::new();
    put(&bench, "g", "two", Some(2));
    pass(&bench, 60);
    let restarted = open(&bench.path, &bench.clock);
    let gap = Gap { group: "g".into(), sequence: 1, since: NOON, waiting: 1 };
    assert_eq!(restarted.gaps().unwrap(), [gap]);
}

/// R28: parked, in doubt, or put off: the delay at each group's head is to be seen.
#[test]
fn each_blocked_group_has_its_own_head_time_and_depth_and_one_that_can_go_is_not_named() {
    let bench = Bench::new();
    for group in ["free", "parked", "doubt", "later"] {
        put(&bench, group, &format!("{group}-1"), None);
    }
    for n in 2..=4 {
        put(&bench, "parked", &format!("parked-{n}"), None);
    }
    put(&bench, "later", "later-2", None);
    put(&bench, "doubt", "doubt-2", None);
    put(&bench, "free", "free-2", None);
    for claim in bench.claims(10) {
        let (after, class) = match claim.job().key.as_str() {
            "parked-1" => (3, Class::Rejected),
            "doubt-1" => (4, Class::Timeout),
            "later-1" => (5, Class::NotSent),
            _ => continue,
        };
        pass(&bench, after);
        bench.end(claim, class);
    }
    let named: Vec<_> = blocked(&bench).into_iter().map(|(g, head, _, waiting)| (g, head, waiting)).collect();
    let wanted = [("parked", 3), ("doubt", 1), ("later", 1)];
    assert_eq!(named, wanted.map(|(g, n)| (g.to_string(), format!("{g}-1"), n)));
    let since: Vec<_> = blocked(&bench).into_iter().map(|b| b.2).collect();
    assert_eq!(since, [3, 7, 12], "those first that have waited longest");
}

#[test]
fn a_parked_job_that_its_group_went_past_or_that_nobody_waits_behind_blocks_nothing() {
    let bench = Bench::new();
    bench.store.enqueue(member("skips", "passed", "p1", None), "test").unwrap();
    bench.end(bench.claim(), Class::Rejected);
    bench.store.enqueue(member("skips", "passed", "p2", None), "test").unwrap();
    let claim = bench.claim();
    bench.store.enqueue(member("skips", "passed", "p3", None), "test").unwrap();
    put(&bench, "alone", "a1", None);
    bench.end(bench.claim(), Class::Rejected);
    assert_eq!(blocked(&bench), []);
    bench.end(claim, Class::Ok);
}

#[test]
fn the_age_of_the_oldest_ready_job_leaves_out_what_could_not_run() {
    let bench = Bench::new();
    let age = || bench.store.stats().unwrap().oldest_ready_age_s;
    // Behind a head that is parked, not yet due, of a held provider, of a paused one, kind and group.
    put(&bench, "g", "g1", None);
    put(&bench, "g", "g2", None);
    bench.end(bench.claim(), Class::Rejected);
    let later =
        NewJob { run_after: Some(NOON.plus(Duration::from_secs(500))), ..Bench::job("b", "later", "{}") };
    bench.store.enqueue(later, "test").unwrap();
    bench.enqueue("asked", "probe");
    bench.end(bench.claim(), Class::Auth);
    bench.enqueue("asked", "held");
    bench.enqueue("forgets", "paused provider");
    bench.store.pause(PauseScope::Provider, "forgets-bank", None, "test").unwrap();
    bench.enqueue("skips", "paused kind");
    bench.store.pause(PauseScope::Kind, "skips", None, "test").unwrap();
    put(&bench, "stopped", "paused group", None);
    bench.store.pause(PauseScope::Group, "stopped", None, "test").unwrap();
    pass(&bench, 10);
    assert_eq!(age(), 0.0);
    bench.enqueue("b", "could");
    pass(&bench, 7);
    assert_eq!(age(), 7.0);
    bench.end(bench.claim(), Class::Ok);
    assert_eq!(age(), 0.0);
    for (scope, name) in
        [(PauseScope::Provider, "forgets-bank"), (PauseScope::Kind, "skips"), (PauseScope::Group, "stopped")]
    {
        bench.store.resume(scope, name, None, "test").unwrap();
        assert_eq!(age(), 17.0, "{name} could run, and has been due since noon");
        bench.store.pause(scope, name, None, "test").unwrap();
    }
    assert_eq!(age(), 0.0);
}
