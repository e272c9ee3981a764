//! One row that somebody changed by hand into what this program does not write: its job is set aside and told, and
//! everything else goes on.

use super::*;
use crate::job::JobId;

/// What a hand may do to a job's rows, whatever the checks say.
const DAMAGE: &[&str] = &[
    "UPDATE onceward_jobs SET error_class = 'bogus' WHERE id = ?1",
    "UPDATE onceward_jobs SET state = 'bogus' WHERE id = ?1",
    "UPDATE onceward_jobs SET park_reason = 'bogus' WHERE id = ?1",
    "UPDATE onceward_jobs SET attempts = -1 WHERE id = ?1",
    "UPDATE onceward_jobs SET tries = 5000000000 WHERE id = ?1",
    "UPDATE onceward_jobs SET max_attempts = -7 WHERE id = ?1",
    "UPDATE onceward_jobs SET attempts = tries + 1 WHERE id = ?1",
    "UPDATE onceward_jobs SET payload = CAST(x'ff' AS TEXT) WHERE id = ?1",
    "UPDATE onceward_jobs SET last_error = CAST(x'ff' AS TEXT) WHERE id = ?1",
    "UPDATE onceward_jobs SET group_name = 'g' WHERE id = ?1",
    "UPDATE onceward_jobs SET group_name = 'g', sequence = 1 WHERE id = ?1",
    "UPDATE onceward_jobs SET lease_owner = 'nobody' WHERE id = ?1",
    "UPDATE onceward_jobs SET claimable = 7 WHERE id = ?1",
    "UPDATE onceward_intents SET key = '' WHERE id = ?1",
    "UPDATE onceward_intents SET key = CAST(x'ff' AS TEXT) WHERE id = ?1",
    "UPDATE onceward_intents SET key = char(10) || 'x' WHERE id = ?1",
    "UPDATE onceward_intents SET kind = CAST(x'ff' AS TEXT) WHERE id = ?1",
    "UPDATE onceward_intents SET wire_key = CAST(x'ff' AS TEXT) WHERE id = ?1",
    "UPDATE onceward_intents SET state = 'bogus' WHERE id = ?1",
    "UPDATE onceward_intents SET generation = -1 WHERE id = ?1",
    "UPDATE onceward_intents SET generation = 5000000000 WHERE id = ?1",
    "UPDATE onceward_intents SET sends = -1 WHERE id = ?1",
    "UPDATE onceward_intents SET unknown = 2, server_errors = -1 WHERE id = ?1",
    "UPDATE onceward_intents SET confirmed_ms = 7 WHERE id = ?1",
    "UPDATE onceward_intents SET reference = 'po' WHERE id = ?1",
    "UPDATE onceward_intents SET frozen_method = 'POST', frozen_path = '/p', frozen_headers = '{', frozen_body = x'00',
       scope_send = 'here' WHERE id = ?1",
    "UPDATE onceward_intents SET frozen_method = 'POST', frozen_headers = NULL WHERE id = ?1",
    "UPDATE onceward_intents SET result = CAST(x'ff' AS TEXT) WHERE id = ?1",
];

/// Where the jobs stand when it happens.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Ready,
    DueAgain,
    InDoubt,
    Waiting,
    CallOut,
    Abandoned,
    Parked,
    Settled,
}

fn raw(path: &Path) -> Connection {
    let raw = Connection::open(path).unwrap();
    raw.execute_batch("PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0").unwrap();
    raw
}

fn damaged(path: &Path, sql: &str) -> usize {
    raw(path).execute(sql, []).unwrap_or(0)
}

/// As many jobs as there are damages at a stage; their claims if their calls are out.
fn at(bench: &Bench, stage: Stage) -> Vec<Claim> {
    for n in 1..=DAMAGE.len() as i64 {
        let key = format!("bad {n}");
        let place = (stage == Stage::Waiting).then_some(("turns", n + 1));
        let job = match place {
            Some((group, place)) => member("b", group, &key, Some(place)),
            None => Bench::job("b", &key, r#"{"n":1}"#),
        };
        bench.store.enqueue(job, "test").unwrap();
    }
    let end = |class| {
        for claim in bench.claims(100) {
            bench.end(claim, class);
        }
        bench.clock.advance(Duration::from_secs(61));
        Vec::new()
    };
    match stage {
        Stage::Ready | Stage::Waiting => Vec::new(),
        Stage::DueAgain => end(Class::Throttled),
        Stage::InDoubt => end(Class::Timeout),
        Stage::Parked => end(Class::Rejected),
        Stage::Settled => end(Class::Ok),
        Stage::CallOut => bench.claims(100),
        Stage::Abandoned => {
            let (dead, lock) = bench.store.register("dead:9").unwrap();
            bench.store.claim(&dead, 100, Duration::from_secs(60)).unwrap();
            drop(lock);
            Vec::new()
        }
    }
}

/// Nothing that reads many jobs fails for one of them.
fn everything_is_read(bench: &Bench) {
    let store = &bench.store;
    let ids: Vec<i64> =
        store.list(&Filter { limit: 100, ..Filter::default() }).unwrap().iter().map(|s| s.job.id.0).collect();
    assert!(!ids.is_empty());
    for by in [By::All, By::Key(String::new()), By::Reason(Reason::Invalid)] {
        store.browse(&Browse { by, limit: 100, ..Browse::default() }).unwrap();
    }
    for state in State::ALL {
        store.browse(&Browse { state: Some(*state), limit: 100, ..Browse::default() }).unwrap();
        store.list(&Filter { state: Some(*state), limit: 100, ..Filter::default() }).unwrap();
    }
    store.stats().unwrap();
    store.gaps().unwrap();
    store.sight(0, 0, "alerts").unwrap();
    store.trail(&TrailFilter { limit: 100, ..TrailFilter::default() }).unwrap();
    store.export(&ExportFilter::default(), 0).unwrap();
    store.group("turns").unwrap();
    store.story_of(JobId(1)).unwrap();
    store.something_to_do().unwrap();
    store.audit(&mut |_, _| {}).unwrap();
    assert!(store.unreadable(20).is_ok());
}

/// One of each damage at once, at one stage; a change that the triggers refuse is none.
fn the_rest_goes_on(stage: Stage) {
    let bench = Bench::new();
    let claims = at(&bench, stage);
    let good = ["good", "good too", "good, elsewhere", "good too, elsewhere"];
    for (key, kind) in good.iter().zip(["b", "b", "asked", "asked"]) {
        bench.enqueue(kind, key);
    }
    let raw = raw(&bench.path);
    let hit: usize = (1..).zip(DAMAGE).map(|(id, sql)| raw.execute(sql, [id as i64]).unwrap_or(0)).sum();
    assert!(hit > DAMAGE.len() / 2, "{hit}");
    everything_is_read(&bench);
    for claim in claims {
        bench.end(claim, Class::Ok);
    }
    bench.store.recover(&bench.owner).unwrap();
    bench.clock.advance(Duration::from_secs(1));
    // A thread at a time, so that those at the head of the line would be in the way, then many.
    for most in [1; 40].into_iter().chain([100; 10]) {
        for claim in bench.claims(most) {
            bench.end(claim, Class::Ok);
        }
    }
    for key in good {
        assert_eq!(bench.story(key).job.state, State::Settled, "{stage:?}: {key}");
    }
    everything_is_read(&bench);
    bench.enqueue("b", "later");
    let later = bench.claims(100).into_iter().find(|claim| claim.job().key.as_str() == "later");
    bench.end(later.unwrap(), Class::Ok);
    bench.clock.advance(Duration::from_secs(1));
    let before = bench.clock.now();
    let ids = bench.store.prunable(&Retention { kind: "b".into(), before }, JobId(0), 100).unwrap();
    let up_to = bench.store.chain_head().unwrap().seq;
    assert!(bench.store.prune(&ids, before, up_to, "test").unwrap() >= 3);
    everything_is_read(&bench);
}

#[test]
fn a_row_that_cannot_be_used_keeps_nobody_from_the_rest() {
    for stage in
        [Stage::Ready, Stage::DueAgain, Stage::InDoubt, Stage::Waiting, Stage::Parked, Stage::Settled]
    {
        the_rest_goes_on(stage);
    }
}

#[test]
fn a_row_that_cannot_be_used_while_its_call_is_out_keeps_nobody_from_the_rest() {
    the_rest_goes_on(Stage::CallOut);
}

#[test]
fn a_row_that_cannot_be_used_is_taken_over_from_a_dead_worker_with_the_rest() {
    the_rest_goes_on(Stage::Abandoned);
}

#[test]
fn what_cannot_be_read_is_parked_and_told_and_goes_on_once_it_is_mended() {
    let bench = Bench::new();
    bench.enqueue("b", "bad");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    damaged(&bench.path, "UPDATE onceward_jobs SET error_class = 'bogus'");
    bench.clock.advance(Duration::from_secs(61));
    assert!(bench.claims(1).is_empty());
    let story = bench.story("bad");
    assert_eq!((story.job.state, story.job.park_reason), (State::Parked, Some(Reason::Invalid)));
    assert_eq!(story.intent.state, IntentState::Requested, "in doubt it stays");
    let told = story.job.last_error.unwrap();
    assert!(told.contains("j.error_class is `bogus`"), "{told}");
    let (count, first) = bench.store.unreadable(20).unwrap();
    assert_eq!((count, first[0].0), (1, story.job.id));
    let error = bench.store.replay(story.job.id, None, "test").unwrap_err();
    assert!(error.to_string().contains("`bogus`"), "{error}");
    damaged(&bench.path, "UPDATE onceward_jobs SET error_class = 'timeout'");
    bench.store.replay(story.job.id, None, "test").unwrap();
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    assert_eq!(bench.story("bad").job.state, State::Settled);
    bench.verify().unwrap();
}

#[test]
fn a_result_whose_row_cannot_be_read_is_kept_in_the_history_and_in_doubt() {
    let bench = Bench::new();
    bench.enqueue("forgets", "bad");
    let claim = bench.claim();
    bench.store.mark_sending(&claim).unwrap();
    damaged(&bench.path, "UPDATE onceward_jobs SET error_class = 'bogus'");
    assert_eq!(bench.end(claim, Class::Ok), Recorded::As { state: State::Parked, due: None });
    let story = bench.story("bad");
    let last = story.history.last().unwrap();
    assert_eq!((last.attempt, last.class), (Some(1), Some(Class::Ok)));
    assert!(last.error.as_deref().unwrap().contains("with the reference po_1"), "{last:?}");
    // Mended, it is not sent again.
    damaged(&bench.path, "UPDATE onceward_jobs SET error_class = NULL");
    assert_eq!(bench.store.replay(story.job.id, None, "test").unwrap_err().code(), Code::NotAllowed);
    bench.store.confirm(story.job.id, "po_1", "test").unwrap();
    bench.verify().unwrap();
}

#[test]
fn what_a_dead_worker_left_in_a_row_that_cannot_be_read_stays_in_doubt() {
    let bench = Bench::new();
    bench.enqueue("forgets", "bad");
    let (dead, lock) = bench.store.register("dead:9").unwrap();
    bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap();
    drop(lock);
    damaged(&bench.path, "UPDATE onceward_jobs SET error_class = 'bogus'");
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 1);
    damaged(&bench.path, "UPDATE onceward_jobs SET error_class = NULL");
    let story = bench.story("bad");
    assert_eq!((story.job.state, story.intent.state), (State::Parked, IntentState::Requested));
    assert_eq!(bench.store.replay(story.job.id, None, "test").unwrap_err().code(), Code::NotAllowed);
    bench.store.resolve(story.job.id, Resolution::Settled("po_seen".into()), None, "test").unwrap();
    bench.verify().unwrap();
}

#[test]
fn a_provider_or_a_figure_that_was_written_by_hand_keeps_nobody_from_work() {
    for damage in [
        "INSERT INTO onceward_holds (scope, name, failures) VALUES ('provider', 'b-bank', -1)",
        "INSERT INTO onceward_holds (scope, name, until_ms) VALUES ('provider', 'b-bank', 9e15)",
        "INSERT INTO onceward_holds (scope, name, held_ms) VALUES ('provider', 'b-bank', 1)",
        "INSERT INTO onceward_holds (scope, name, paused_ms, paused_by) VALUES ('kind', CAST(x'ff' AS TEXT), 1, 'x')",
        "UPDATE onceward_counters SET value = 9223372036854775807",
        "INSERT INTO onceward_owners (nonce, name, since_ms, seen_ms, kinds) VALUES (CAST(x'ff' AS TEXT), 'x', 1, 1, '{')",
    ] {
        let bench = Bench::new();
        bench.enqueue("b", "first");
        assert!(damaged(&bench.path, damage) > 0, "{damage}");
        bench.enqueue("b", "second");
        let _ = bench.store.recover(&bench.owner);
        for claim in bench.claims(10) {
            bench.end(claim, Class::Ok);
        }
        for key in ["first", "second"] {
            assert_eq!(bench.story(key).job.state, State::Settled, "{damage}: {key}");
        }
        bench.store.stats().unwrap();
        bench.store.audit(&mut |_, _| {}).unwrap();
    }
}
