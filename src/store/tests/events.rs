//! Events: written with what they tell of, chained, and never changed.

use super::*;
use crate::store::events::{self, Event, EventAction, EventScope};

/// Action, scope, name, actor, origin, detail.
type Told = (String, String, String, String, Option<String>, Option<String>);

fn told(bench: &Bench) -> Vec<Told> {
    let conn = bench.store.reader().unwrap();
    let mut statement = conn
        .prepare("SELECT action, scope, name, actor, origin, detail FROM onceward_events ORDER BY seq")
        .unwrap();
    let rows = statement
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?)))
        .unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_worker_s_start_and_clean_end_are_events_and_a_crash_has_no_end() {
    let bench = Bench::new();
    let (owner, lock) = bench.store.register("till:2").unwrap();
    bench.store.unregister(&owner, lock).unwrap();
    let (_, lock) = bench.store.register("till:3").unwrap();
    drop(lock);
    let told: Vec<_> =
        told(&bench).into_iter().map(|(action, _, name, actor, ..)| (action, name, actor)).collect();
    let row = |action: &str, name: &str| (action.to_string(), name.to_string(), format!("worker:{name}"));
    assert_eq!(
        told,
        [row("start", "test:1"), row("start", "till:2"), row("stop", "till:2"), row("start", "till:3")]
    );
}

#[test]
fn a_set_back_clock_is_an_event_that_says_by_how_much() {
    let bench = Bench::new();
    bench.clock.step(-3_600_000);
    bench.store.write(|_| Ok(())).unwrap();
    let (action, scope, _, actor, origin, detail) = told(&bench).pop().unwrap();
    assert_eq!((action.as_str(), scope.as_str()), ("clock", "store"));
    assert!(actor.starts_with("store:"), "{actor}");
    assert!(origin.unwrap().ends_with(&format!(":{}", std::process::id())));
    assert!(detail.unwrap().starts_with("set back by 3600000 ms"));
}

#[test]
fn an_event_changed_or_taken_out_by_hand_is_found_by_verify() {
    for (sql, fault) in [
        ("UPDATE onceward_events SET why = 'holiday' WHERE seq = 2", "event 2 was changed"),
        ("UPDATE onceward_events SET origin = NULL WHERE seq = 1", "event 1 was changed"),
        ("UPDATE onceward_events SET at_ms = at_ms + 1 WHERE seq = 3", "event 3 was changed"),
        ("DELETE FROM onceward_events WHERE seq = 2", "event 2 is missing"),
        (
            "UPDATE onceward_events SET content_hash = (SELECT content_hash FROM onceward_events WHERE seq = 1),
               actor = 'worker:test:1', name = 'test:1', action = 'start', scope = 'worker', why = NULL,
               detail = (SELECT detail FROM onceward_events WHERE seq = 1) WHERE seq = 2",
            "the chain breaks at event 2",
        ),
    ] {
        let bench = Bench::new();
        bench.store.pause(PauseScope::Kind, "b", Some("audit".into()), "ann").unwrap();
        bench.store.resume(PauseScope::Kind, "b", None, "ann").unwrap();
        assert_eq!(bench.verify(), Ok(0));
        bench.execute("DROP TRIGGER onceward_events_append_only").unwrap();
        bench.execute("DROP TRIGGER onceward_events_stay").unwrap();
        bench.execute(sql).unwrap();
        assert_eq!(bench.store.verify_history().unwrap(), Err(fault.into()), "{sql}");
        assert!(bench.verify().is_err(), "{sql}");
    }
}

#[test]
fn every_action_and_scope_can_be_written_and_a_place_belongs_to_skip_and_refuse_alone() {
    let bench = Bench::new();
    let write = |action, scope, sequence| {
        bench.store.write(move |tx| {
            let event = Event::new(action, scope, "it", "ann");
            events::record(tx, Event { sequence, origin: Some("10.0.0.7"), detail: Some("d"), ..event })
        })
    };
    for action in EventAction::ALL {
        for scope in EventScope::ALL {
            let place = (*action == EventAction::Skip).then_some(7);
            write(*action, *scope, place).unwrap();
        }
    }
    write(EventAction::Refuse, EventScope::Group, Some(7)).unwrap();
    write(EventAction::Skip, EventScope::Group, None).unwrap_err();
    write(EventAction::Start, EventScope::Worker, Some(7)).unwrap_err();
    assert_eq!(bench.verify(), Ok(0));
}

#[test]
fn who_is_turned_away_is_on_record_and_cannot_fill_the_file() {
    let bench = Bench::new();
    for n in 0..100 {
        bench
            .store
            .denied("api", &format!("192.0.2.{n}:4711\u{7}"), &"no such token ".repeat(99), 0)
            .unwrap();
    }
    let rows = || told(&bench).into_iter().filter(|(action, ..)| action == "denied").collect::<Vec<_>>();
    let first = rows();
    assert_eq!(first.len(), 60);
    let (_, scope, name, actor, origin, _) = first[0].clone();
    assert_eq!((scope, name, actor), ("door".into(), "api".into(), "unknown".into()));
    assert_eq!(origin.as_deref(), Some("192.0.2.0:4711"));
    assert_eq!(bench.store.stats().unwrap().counters["denied"], 100, "each is counted");
    bench.clock.advance(Duration::from_secs(61));
    bench.store.denied("api", "192.0.2.1:4711", "no token", 0).unwrap();
    assert_eq!(rows().len(), 61, "a minute later they are written again");
    let longest: i64 = bench
        .store
        .reader()
        .unwrap()
        .query_row("SELECT max(length(why)) FROM onceward_events", [], |row| row.get(0))
        .unwrap();
    assert_eq!(longest, 200);
    assert_eq!(bench.verify(), Ok(0));
}
