//! Order under random arrivals, outcomes, crashes and people's words: what must hold after every step, and that every
//! group can be brought to its end. Then one test for each fault that this found or could have.

use super::*;
use crate::job::JobId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Two groups are numbered by the app, two by arrival.
const GROUPS: [&str; 4] = ["app-1", "app-2", "fifo-1", "fifo-2"];
const KINDS: [&str; 5] = ["b", "asked", "skips", "skips-asked", "forgets"];

#[derive(Clone, Debug)]
enum Op {
    /// To this group; for an app's group so many places ahead; due in so many seconds.
    Arrive {
        group: usize,
        ahead: i64,
        kind: usize,
        due_in: u64,
    },
    Claim(usize),
    End {
        which: usize,
        how: usize,
    },
    Release(usize),
    Pass(u64),
    Cancel(usize),
    Replay(usize),
    Resolve {
        which: usize,
        how: usize,
    },
    Confirm(usize),
    Skip {
        group: usize,
        ahead: i64,
    },
    Pause {
        group: usize,
        on: bool,
    },
    /// The worker dies, and the next one takes over.
    Crash,
    /// A call of a dead worker comes back after all.
    Late(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let job = 0usize..1000;
    prop_oneof![
        8 => (0..GROUPS.len(), 0i64..4, 0..KINDS.len(), prop_oneof![4 => Just(0u64), 1 => 1u64..100])
            .prop_map(|(group, ahead, kind, due_in)| Op::Arrive { group, ahead, kind, due_in }),
        6 => (1usize..4).prop_map(Op::Claim),
        8 => (job.clone(), 0usize..12).prop_map(|(which, how)| Op::End { which, how }),
        1 => job.clone().prop_map(Op::Release),
        4 => prop_oneof![1u64..10, 100u64..400].prop_map(Op::Pass),
        3 => job.clone().prop_map(Op::Cancel),
        4 => job.clone().prop_map(Op::Replay),
        4 => (job.clone(), 0usize..3).prop_map(|(which, how)| Op::Resolve { which, how }),
        1 => job.clone().prop_map(Op::Confirm),
        2 => (0..GROUPS.len(), 0i64..4).prop_map(|(group, ahead)| Op::Skip { group, ahead }),
        2 => (0..GROUPS.len(), any::<bool>()).prop_map(|(group, on)| Op::Pause { group, on }),
        1 => Just(Op::Crash),
        1 => job.prop_map(Op::Late),
    ]
}

/// A job as its row says.
#[derive(Clone, Debug)]
struct Row {
    id: JobId,
    group: String,
    sequence: i64,
    state: State,
    passed_over: bool,
    due: bool,
    paused: bool,
    in_doubt: bool,
}

impl Row {
    fn is_out(&self) -> bool {
        matches!(self.state, State::Scheduled | State::Ready | State::Running | State::Unknown)
    }
    fn is_done(&self) -> bool {
        self.state == State::Settled || self.passed_over
    }
}

struct World {
    bench: Bench,
    /// The owner of the present worker, and the lock that says that it lives.
    owner: Owner,
    _lock: Option<leases::OwnerLock>,
    claims: Vec<Claim>,
    stale: Vec<Claim>,
    jobs: usize,
    skipped: BTreeSet<(String, i64)>,
    paused: BTreeSet<String>,
}

fn order_desk() -> TestDesk {
    let mut kinds = vec![
        kind("b", Family::B, None),
        kind("asked", Family::B, Some(true)),
        kind("skips", Family::B, None),
        kind("skips-asked", Family::E, Some(true)),
        kind("forgets", Family::E, None),
    ];
    for kind in &mut kinds {
        kind.terms.breaker.failures = u32::MAX;
        if kind.kind.starts_with("skips") {
            kind.terms.on_parked = OnParked::Skip;
        }
    }
    let provider = |k: &KindDesk| ProviderDesk { name: k.provider.clone(), concurrency: 1000, rate: None };
    let providers = kinds.iter().map(provider).collect();
    TestDesk { kinds, providers, scope: "here" }
}

impl World {
    fn new() -> World {
        let bench = Bench::with(order_desk());
        let owner = bench.owner.clone();
        World {
            bench,
            owner,
            _lock: None,
            claims: Vec::new(),
            stale: Vec::new(),
            jobs: 0,
            skipped: BTreeSet::new(),
            paused: BTreeSet::new(),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let conn = self.bench.store.reader().unwrap();
        let now = self.bench.clock.now();
        let mut statement = conn
            .prepare(
                "SELECT j.id, j.group_name, j.sequence, j.state, j.passed_over, j.run_after_ms <= ?1, i.state = 'requested'
                 FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id ORDER BY j.group_name, j.sequence",
            )
            .unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            let (group, state): (String, String) = (row.get(1)?, row.get(3)?);
            Ok(Row {
                id: JobId(row.get(0)?),
                paused: self.paused.contains(&group),
                group,
                sequence: row.get(2)?,
                state: State::parse(&state).unwrap(),
                passed_over: row.get(4)?,
                due: row.get(5)?,
                in_doubt: row.get(6)?,
            })
        };
        statement.query_map([now.0], row).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn passed(&self, group: &str) -> i64 {
        self.bench.store.group(group).unwrap().map_or(0, |story| story.passed)
    }

    fn pick(&self, which: usize) -> Option<JobId> {
        (self.jobs > 0).then(|| JobId((which % self.jobs) as i64 + 1))
    }

    /// Claims until nothing more is to be had at once, and checks that every claim was in turn.
    fn claim(&mut self, most: usize) {
        let lease = Duration::from_secs(60);
        let before = self.rows();
        let mut left = most;
        loop {
            let claimed = self.bench.store.claim(&self.owner, left, lease).unwrap();
            left -= claimed.claims.len();
            for claim in claimed.claims {
                self.in_turn(&claim, &before);
                self.claims.push(claim);
            }
            if left == 0 || !claimed.more {
                break;
            }
        }
    }

    /// Every lower place is done, unless a request of this one had left before the lower place came back.
    fn in_turn(&self, claim: &Claim, before: &[Row]) {
        let job = claim.job();
        let (group, sequence) = (job.group.clone().unwrap(), job.sequence.unwrap());
        assert!(!self.paused.contains(&group), "{} was claimed though {group} is paused", job.key);
        if claim.intent().generation.unknown {
            return;
        }
        for place in 1..sequence {
            assert!(
                self.place_is_done(before, &group, place),
                "{} was claimed before place {place}",
                job.key
            );
        }
    }

    fn place_is_done(&self, rows: &[Row], group: &str, place: i64) -> bool {
        let here: Vec<_> = rows.iter().filter(|r| r.group == group && r.sequence == place).collect();
        match here.iter().find(|r| r.state != State::Cancelled) {
            Some(row) => row.is_done(),
            None => !here.is_empty() || self.skipped.contains(&(group.to_string(), place)),
        }
    }

    fn end(&mut self, which: usize, how: usize) {
        if self.claims.is_empty() {
            return;
        }
        let claim = self.claims.swap_remove(which % self.claims.len());
        let class = match claim.step() {
            Step::Send => [
                Class::Ok,
                Class::Ok,
                Class::Rejected,
                Class::Timeout,
                Class::NotSent,
                Class::Accepted,
                Class::ServerError,
                Class::Throttled,
                Class::BadResponse,
            ][how % 9],
            Step::LookUp | Step::Fetch => {
                [Class::Ok, Class::NotFound, Class::LookupFailed, Class::Rejected][how % 4]
            }
        };
        self.bench.end(claim, class);
    }

    /// The lock is gone and the lease is over: whatever was in flight is `crashed`.
    fn crash(&mut self) {
        let nonce = self.owner.nonce().to_string();
        for (n, claim) in self.claims.drain(..).enumerate() {
            if n % 2 == 0 {
                // Refused if a confirmation has ended the lease meanwhile.
                let _ = self.bench.store.mark_sending(&claim);
            }
            self.stale.push(claim);
        }
        let _ = std::fs::remove_file(format!("{}-owner-{nonce}", self.bench.path.display()));
        self.bench.clock.advance(Duration::from_secs(61));
        let (owner, lock) = self.bench.store.register("next:1").unwrap();
        self.bench.store.recover(&owner).unwrap();
        (self.owner, self._lock) = (owner, Some(lock));
    }

    fn arrive(&mut self, group: usize, ahead: i64, kind: usize, due_in: u64) {
        let group = GROUPS[group];
        let sequence = group.starts_with("app").then(|| self.passed(group) + 1 + ahead);
        let run_after = (due_in > 0).then(|| self.bench.clock.now().plus(Duration::from_secs(due_in)));
        let key = format!("j{}", self.jobs + 1);
        let job = Bench::job(KINDS[kind], &key, "{}");
        let job = NewJob { group: Some(group.into()), sequence, run_after, ..job };
        match self.bench.store.enqueue(job, "test") {
            Ok(_) => self.jobs += 1,
            Err(e) => assert_eq!(e.code(), Code::SequenceTaken, "{e}"),
        }
    }

    fn skip(&mut self, group: usize, ahead: i64) {
        let group = GROUPS[group];
        let place = self.passed(group) + 1 + ahead;
        if self.bench.store.skip_place(group, place, "test").is_ok() {
            self.skipped.insert((group.to_string(), place));
        }
    }

    fn pause(&mut self, group: usize, on: bool) {
        let (store, group) = (&self.bench.store, GROUPS[group]);
        if on {
            store.pause(PauseScope::Group, group, None, "test").unwrap();
            self.paused.insert(group.to_string());
        } else {
            store.resume(PauseScope::Group, group, None, "test").unwrap();
            self.paused.remove(group);
        }
    }

    /// People may be refused; what they may not do is break the order.
    fn apply(&mut self, op: &Op) {
        let store = Arc::clone(&self.bench.store);
        match *op {
            Op::Arrive { group, ahead, kind, due_in } => self.arrive(group, ahead, kind, due_in),
            Op::Claim(most) => self.claim(most),
            Op::End { which, how } => self.end(which, how),
            Op::Release(which) if !self.claims.is_empty() => {
                let claim = self.claims.swap_remove(which % self.claims.len());
                store.release(claim).unwrap();
            }
            Op::Release(_) => {}
            Op::Pass(seconds) => self.bench.clock.advance(Duration::from_secs(seconds)),
            Op::Skip { group, ahead } => self.skip(group, ahead),
            Op::Pause { group, on } => self.pause(group, on),
            Op::Crash => self.crash(),
            Op::Late(which) if !self.stale.is_empty() => {
                let claim = self.stale.swap_remove(which % self.stale.len());
                let class = if which % 2 == 0 { Class::Ok } else { Class::Rejected };
                assert_eq!(self.bench.end(claim, class), Recorded::Late);
            }
            Op::Late(_) => {}
            Op::Cancel(n) | Op::Replay(n) | Op::Confirm(n) | Op::Resolve { which: n, .. } => {
                let Some(id) = self.pick(n) else { return };
                let answer = match op {
                    Op::Cancel(_) => store.cancel(id, "test"),
                    Op::Replay(_) => store.replay(id, None, "test"),
                    Op::Confirm(_) => store.confirm(id, &format!("po_{}", id.0), "test"),
                    Op::Resolve { how: 0, .. } => store.resolve(id, Resolution::NotApplied, None, "test"),
                    Op::Resolve { how: 1, .. } => {
                        store.resolve(id, Resolution::Rejected("no".into()), None, "test")
                    }
                    _ => store.resolve(id, Resolution::Settled(format!("po_{}", id.0)), None, "test"),
                };
                if let Err(e) = answer {
                    assert!(matches!(e, StoreError::Refused(_)), "{op:?}: {e}");
                }
            }
        }
    }

    fn check(&self) {
        let rows = self.rows();
        for group in GROUPS {
            let mine: Vec<_> = rows.iter().filter(|r| r.group == group).collect();
            let out: Vec<_> = mine.iter().filter(|r| r.is_out()).collect();
            assert!(out.len() <= 1, "two of {group} are out: {out:?}");
            let open = |r: &&&Row| matches!(r.state, State::Waiting | State::Parked) && !r.passed_over;
            let lowest = mine.iter().find(open);
            match (out.first(), lowest) {
                // Nobody is on the way, so the lowest waits only for a place that is missing.
                (None, Some(row)) if row.state == State::Waiting => {
                    let missing = (1..row.sequence).any(|p| !self.place_is_done(&rows, group, p));
                    assert!(missing, "forgotten: {row:?} of {mine:?}");
                }
                (Some(out), Some(row)) if row.sequence < out.sequence => {
                    assert!(out.in_doubt, "{out:?} is free to go before {row:?}");
                }
                _ => {}
            }
        }
        self.figures(&rows);
    }

    /// The figures are those of the rows.
    fn figures(&self, rows: &[Row]) {
        let mut counted: BTreeMap<State, i64> = BTreeMap::new();
        for row in rows {
            *counted.entry(row.state).or_default() += 1;
        }
        let stats = self.bench.store.stats().unwrap();
        for state in State::ALL {
            let figure = stats.counters.get(&format!("jobs:{state}")).copied().unwrap_or(0);
            assert_eq!(figure, counted.get(state).copied().unwrap_or(0), "figure of {state}");
        }
    }

    /// Whatever is due, on its way and not paused can be claimed now, however other groups stand.
    fn all_that_is_due_goes(&mut self) {
        self.claim(1000);
        let left: Vec<_> = self
            .rows()
            .into_iter()
            .filter(|r| r.is_out() && r.state != State::Running && r.due && !r.paused)
            .collect();
        assert!(left.is_empty(), "due, and not claimed: {left:?}");
    }

    /// With a person's help every job comes to its end: none is forgotten.
    fn finish(&mut self) {
        for group in 0..GROUPS.len() {
            self.pause(group, false);
        }
        for _ in 0..100 {
            self.bench.clock.advance(Duration::from_secs(3600));
            self.all_that_is_due_goes();
            while !self.claims.is_empty() {
                self.end(0, 0);
                self.check();
            }
            let rows = self.rows();
            if rows.iter().all(|r| matches!(r.state, State::Settled | State::Cancelled)) {
                return;
            }
            for row in rows.iter().filter(|r| r.state == State::Parked) {
                let done = self.bench.store.cancel(row.id, "test").or_else(|_| {
                    let (story, says) =
                        (self.bench.store.story_of(row.id)?, Resolution::Rejected("no".into()));
                    let about = About::Generation(story.intent.generation.number);
                    self.bench.store.resolve(row.id, Word { says, about }, None, "test")
                });
                done.unwrap();
            }
            for group in 0..GROUPS.len() {
                self.skip(group, 0);
            }
        }
        panic!("never done: {:#?}", self.rows());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn law_12_holds_whatever_arrives_ends_crashes_or_is_said(ops in prop::collection::vec(op(), 10..80)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.all_that_is_due_goes();
        world.check();
        world.finish();
    }
}

fn numbered(bench: &Bench, kind: &str, key: &str, sequence: i64) -> JobId {
    let job = NewJob { group: Some("g".into()), sequence: Some(sequence), ..Bench::job(kind, key, "{}") };
    bench.store.enqueue(job, "test").unwrap().receipt().id
}

fn state(bench: &Bench, key: &str) -> State {
    bench.story(key).job.state
}

#[test]
fn a_cancelled_job_that_is_replayed_waits_for_the_places_before_it() {
    let bench = Bench::new();
    let two = numbered(&bench, "b", "two", 2);
    bench.store.cancel(two, "test").unwrap();
    assert_eq!(bench.store.replay(two, None, "test").unwrap(), State::Waiting, "1 has not arrived");
    let one = numbered(&bench, "b", "one", 1);
    let claim = bench.claim();
    assert_eq!(claim.job().id, one);
    bench.end(claim, Class::Rejected);
    bench.store.cancel(two, "test").unwrap();
    assert_eq!(bench.store.replay(two, None, "test").unwrap(), State::Waiting, "1 is parked");
    assert_eq!(bench.story("two").blocked_by.as_deref(), Some("one"));
    bench.store.cancel(one, "test").unwrap();
    assert_eq!(bench.claim().job().id, two);
}

#[test]
fn a_replayed_place_goes_before_a_higher_one_that_has_not_begun_and_behind_one_that_is_out() {
    let bench = Bench::with(order_desk());
    let one = numbered(&bench, "skips", "one", 1);
    numbered(&bench, "skips", "two", 2);
    let claim = bench.claim();
    bench.end(claim, Class::Rejected);
    assert_eq!(state(&bench, "two"), State::Ready, "the parked one is passed over");
    assert_eq!(bench.store.replay(one, None, "test").unwrap(), State::Ready);
    assert_eq!(state(&bench, "two"), State::Waiting);
    let claim = bench.claim();
    assert_eq!(claim.job().id, one);
    bench.end(claim, Class::Rejected);
    let two = bench.claim();
    assert_eq!(bench.store.replay(one, None, "test").unwrap(), State::Waiting, "never beside another");
    assert_eq!(bench.story("one").blocked_by.as_deref(), Some("two"));
    bench.end(two, Class::Ok);
    assert_eq!(bench.claim().job().id, one);
}

#[test]
fn a_parked_unknown_blocks_under_skip_too_and_comes_out_of_waiting_as_unknown() {
    let bench = Bench::with(order_desk());
    let one = numbered(&bench, "skips", "one", 1);
    let two = numbered(&bench, "skips-asked", "two", 2);
    numbered(&bench, "b", "three", 3);
    let claim = bench.claim();
    bench.end(claim, Class::Rejected);
    let claim = bench.claim();
    assert_eq!(claim.job().id, two);
    bench.end(claim, Class::Accepted);
    bench.clock.advance(Duration::from_secs(100 * 3600));
    let last = bench.claim();
    bench.end(last, Class::LookupFailed);
    assert!(bench.claims(10).is_empty(), "its age is over, and it was asked about once more: it is parked");
    let story = bench.story("two");
    assert_eq!((story.job.state, story.job.park_reason), (State::Parked, Some(Reason::UnknownOutcome)));
    assert_eq!(state(&bench, "three"), State::Waiting, "an unknown is never skipped");
    bench.store.replay(one, None, "test").unwrap();
    let one = bench.claim();
    assert_eq!(bench.store.replay(two, None, "test").unwrap(), State::Waiting);
    bench.end(one, Class::Ok);
    assert_eq!(state(&bench, "two"), State::Unknown);
    assert_eq!(bench.claim().step(), Step::LookUp);
}

#[test]
fn a_head_that_is_due_later_holds_its_group() {
    let bench = Bench::new();
    let later = Some(NOON.plus(Duration::from_secs(60)));
    let first = NewJob { group: Some("g".into()), run_after: later, ..Bench::job("b", "first", "{}") };
    bench.store.enqueue(first, "test").unwrap();
    let second = NewJob { group: Some("g".into()), ..Bench::job("b", "second", "{}") };
    bench.store.enqueue(second, "test").unwrap();
    let claimed = bench.store.claim(&bench.owner, 10, Duration::from_secs(60)).unwrap();
    assert_eq!((claimed.claims.len(), claimed.next), (0, later));
    assert_eq!(bench.story("second").blocked_by.as_deref(), Some("first"));
    bench.clock.advance(Duration::from_secs(60));
    assert_eq!(bench.claim().job().key.as_str(), "first");
}

#[test]
fn a_confirmation_of_the_running_head_lets_its_successor_go() {
    let bench = Bench::new();
    let one = numbered(&bench, "b", "one", 1);
    numbered(&bench, "b", "two", 2);
    let claim = bench.claim();
    bench.store.confirm(one, &format!("po_{}", one.0), "test").unwrap();
    assert_eq!(bench.claim().job().key.as_str(), "two");
    assert_eq!(bench.end(claim, Class::Ok), Recorded::Late);
}

#[test]
fn a_job_to_be_tried_again_steps_back_behind_a_lower_place_that_came_back_meanwhile() {
    let bench = Bench::new();
    let one = numbered(&bench, "b", "one", 1);
    numbered(&bench, "b", "two", 2);
    bench.store.cancel(one, "test").unwrap();
    let two = bench.claim();
    assert_eq!(bench.store.replay(one, None, "test").unwrap(), State::Waiting);
    assert_eq!(bench.end(two, Class::NotSent), Recorded::As { state: State::Waiting, due: None });
    bench.clock.advance(Duration::from_secs(60));
    assert_eq!(bench.claim().job().id, one);
    assert!(bench.claims(10).is_empty());
}

#[test]
fn a_job_that_its_group_went_past_can_still_be_confirmed() {
    let bench = Bench::with(order_desk());
    let one = numbered(&bench, "skips", "one", 1);
    let claim = bench.claim();
    bench.end(claim, Class::Rejected);
    assert_eq!(bench.store.group("g").unwrap().unwrap().passed, 1);
    assert_eq!(bench.store.confirm(one, "po_9", "test").unwrap(), State::Settled);
}

#[test]
fn a_group_runs_one_after_another_and_a_blocked_one_blocks_no_other() {
    let bench = Bench::new();
    for (group, key) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("z", "z1")] {
        let job = NewJob { group: Some(group.into()), ..Bench::job("b", key, "{}") };
        bench.store.enqueue(job, "test").unwrap();
    }
    let keys = |claims: &[Claim]| claims.iter().map(|c| c.job().key.as_str().to_string()).collect::<Vec<_>>();
    let mut claims = bench.claims(10);
    assert_eq!(keys(&claims), ["a1", "z1"]);
    assert_eq!(bench.story("a3").blocked_by.as_deref(), Some("a1"));
    bench.end(claims.remove(0), Class::Rejected);
    assert!(bench.claims(10).is_empty(), "the parked head holds its own group");
    bench.store.cancel(bench.story("a1").job.id, "test").unwrap();
    let mut claims = bench.claims(10);
    assert_eq!(keys(&claims), ["a2"]);
    bench.end(claims.remove(0), Class::Ok);
    assert_eq!(keys(&bench.claims(10)), ["a3"]);
}

#[test]
fn the_apps_own_sequence_is_kept_and_a_passed_or_held_place_is_refused() {
    let bench = Bench::new();
    let place = |key: &str, sequence: i64| {
        let job = NewJob { group: Some("g".into()), sequence: Some(sequence), ..Bench::job("b", key, "{}") };
        bench.store.enqueue(job, "test")
    };
    place("three", 3).unwrap();
    place("one", 1).unwrap();
    assert_eq!(bench.story("three").blocked_by.as_deref(), Some("one"));
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    assert!(bench.claims(10).is_empty());
    assert_eq!(bench.story("three").blocked_by.as_deref(), Some("sequence 2 has not arrived"));
    assert_eq!(place("late", 1).unwrap_err().code(), Code::StaleSequence);
    assert_eq!(place("twice", 3).unwrap_err().code(), Code::SequenceTaken);
    let count =
        "SELECT count(*) FROM onceward_events WHERE action = 'refuse' AND name = 'g' AND sequence IN (1, 3)";
    let kept: i64 = bench.store.reader().unwrap().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 2, "both refusals are on record");
    let counters = bench.store.stats().unwrap().counters;
    assert_eq!((counters["stale_sequence"], counters["sequence_taken"]), (1, 1), "and counted");
    let unnumbered = NewJob { group: Some("g".into()), ..Bench::job("b", "mixed", "{}") };
    assert_eq!(bench.store.enqueue(unnumbered, "test").unwrap_err().code(), Code::Invalid);
    place("two", 2).unwrap();
    let claim = bench.claim();
    assert_eq!(claim.job().key.as_str(), "two");
    bench.end(claim, Class::Ok);
    assert_eq!(bench.claim().job().key.as_str(), "three");
}
