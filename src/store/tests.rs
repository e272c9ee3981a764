//! The store by itself: a real file, a manual clock, a desk whose kinds stand for each family.

use super::*;
use crate::clock::{ManualClock, Ms};
use crate::decide::{BreakerTerms, Family, LookupTerms, OnParked};
use crate::intent::{Content, IntentState, WireStyle, payload_hash};
use crate::job::{Key, NewJob, Reason, State, Step};
use crate::json::Json;
use crate::outcome::{Class, Outcome, Phase};
use crate::store::history::Action;

struct TestDesk {
    kinds: Vec<KindDesk>,
    providers: Vec<ProviderDesk>,
}

impl Desk for TestDesk {
    fn kinds(&self) -> &[KindDesk] {
        &self.kinds
    }
    fn providers(&self) -> &[ProviderDesk] {
        &self.providers
    }
    fn scope(&self, _: &str) -> Scope {
        Scope { send: "here".into(), lookup: "look".into() }
    }
    fn freeze(&self, job: &Job, intent: &Intent) -> Result<Frozen, String> {
        let body = job.payload.clone().ok_or("pruned")?;
        if body.contains("unrenderable") {
            return Err("field x is missing".into());
        }
        let headers = vec![("Idempotency-Key".to_string(), intent.wire_key.clone())];
        Ok(Frozen {
            method: "POST".into(),
            path: "/p".into(),
            headers,
            body: body.into_bytes(),
            lookup_path: None,
        })
    }
    fn key_template(&self, _: &str) -> Option<String> {
        None
    }
}

fn kind(name: &str, family: Family, lookup: Option<bool>) -> KindDesk {
    let terms = Terms {
        family,
        window: Some(Duration::from_secs(86_400)),
        lookup: lookup.map(|authoritative| LookupTerms { lag: Duration::from_secs(120), authoritative }),
        external: false,
        wire_style: WireStyle::Uuid,
        max_attempts: 3,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(60),
        max_age: Duration::from_secs(72 * 3600),
        on_parked: OnParked::Block,
        breaker: BreakerTerms { failures: 3, cool_down: Duration::from_secs(30) },
    };
    KindDesk { kind: name.into(), provider: format!("{name}-bank"), terms, unique: true }
}

struct Bench {
    _dir: tempfile::TempDir,
    path: PathBuf,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    owner: Owner,
    _lock: leases::OwnerLock,
}

const NOON: Ms = Ms(1_800_000_000_000);

fn desk() -> Arc<TestDesk> {
    let kinds = vec![
        kind("b", Family::B, None),
        kind("asked", Family::B, Some(true)),
        kind("forgets", Family::E, None),
        kind("forgets-asked", Family::E, Some(true)),
    ];
    let providers = kinds
        .iter()
        .map(|k| ProviderDesk { name: k.provider.clone(), concurrency: 100, rate: None })
        .collect();
    Arc::new(TestDesk { kinds, providers })
}

fn open(path: &Path, clock: &Arc<ManualClock>) -> Store {
    let options = Options { create: true, namespace: String::new(), watch: None };
    Store::open(path, options, clock.clone(), desk()).unwrap()
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let clock = Arc::new(ManualClock::at(NOON));
        let store = Arc::new(open(&path, &clock));
        let (owner, lock) = store.register("test:1").unwrap();
        Bench { _dir: dir, path, clock, store, owner, _lock: lock }
    }

    fn job(kind: &str, key: &str, payload: &str) -> NewJob {
        let json = Json::parse(payload).unwrap();
        let content =
            Content { kind, payload: &json, account: None, amount_minor: Some(5), currency: Some("EUR") };
        NewJob {
            key: Key::new(key).unwrap(),
            kind: kind.into(),
            payload: payload.into(),
            payload_hash: payload_hash(&json),
            content_hash: content.hash(),
            account: None,
            amount_minor: Some(5),
            currency: Some("EUR".into()),
            group: None,
            sequence: None,
            run_after: None,
            priority: 0,
            dedup: None,
            provider: Some(format!("{kind}-bank")),
            wire_style: WireStyle::Uuid,
            max_attempts: 3,
            external: None,
        }
    }

    fn enqueue(&self, kind: &str, key: &str) -> Enqueued {
        self.store.enqueue(Bench::job(kind, key, r#"{"n":1}"#), "test").unwrap()
    }

    fn claims(&self, most: usize) -> Vec<Claim> {
        self.store.claim(&self.owner, most, Duration::from_secs(60)).unwrap().claims
    }

    #[track_caller]
    fn claim(&self) -> Claim {
        let mut claims = self.claims(1);
        assert_eq!(claims.len(), 1, "one job is claimed");
        claims.remove(0)
    }

    fn end(&self, claim: Claim, class: Class) -> Recorded {
        let mut outcome = Outcome::new(class, claim.started());
        if class == Class::Ok {
            outcome.reference = Some(format!("po_{}", claim.job().id.0));
        }
        self.store.record(claim, outcome).unwrap()
    }

    fn story(&self, key: &str) -> Story {
        self.store.story(key).unwrap().unwrap()
    }

    fn actions(&self, key: &str) -> Vec<Action> {
        self.story(key).history.iter().map(|e| e.action).collect()
    }

    fn execute(&self, sql: &'static str) -> Result<usize, StoreError> {
        self.store.write(move |tx| Ok(tx.conn().execute(sql, [])?))
    }

    fn verify(&self) -> Result<u64, String> {
        history::verify(&self.store.reader().unwrap()).unwrap()
    }
}

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
    assert_eq!(bench.verify(), Err("history row 2 was changed".into()));
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
fn a_set_back_clock_moves_retries_back_and_leaves_what_an_app_asked_for() {
    let bench = Bench::new();
    let asked = NewJob {
        run_after: Some(NOON.plus(Duration::from_secs(9000))),
        ..Bench::job("b", "asked for", "{}")
    };
    bench.store.enqueue(asked, "test").unwrap();
    bench.enqueue("b", "retry");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    bench.store.renew(&bench.owner, Duration::from_secs(60)).unwrap();
    let due = bench.story("retry").job.run_after;
    bench.clock.step(-7_200_000);
    assert_eq!(bench.store.notice_set_back().unwrap(), Duration::from_secs(7200));
    assert_eq!(bench.story("retry").job.run_after, due.minus(Duration::from_secs(7200)));
    assert_eq!(bench.story("asked for").job.run_after, NOON.plus(Duration::from_secs(9000)));
    assert_eq!(bench.store.notice_set_back().unwrap(), Duration::ZERO, "once");
}

#[test]
fn a_newer_or_foreign_file_and_another_namespace_are_refused_and_left_alone() {
    let bench = Bench::new();
    let reopen = |path: &Path, namespace: &str| {
        let options = Options { create: true, namespace: namespace.into(), watch: None };
        Store::open(path, options, bench.clock.clone(), desk()).map(|_| ()).unwrap_err()
    };
    assert!(matches!(reopen(&bench.path, "shop"), StoreError::Namespace { .. }));
    bench.execute("UPDATE onceward_meta SET value = '99' WHERE name = 'schema_version'").unwrap();
    let error = reopen(&bench.path, "").to_string();
    assert!(error.contains("schema is 99") && error.contains("upgrade"), "{error}");
    let text = bench.path.with_file_name("letter.txt");
    std::fs::write(&text, "Dear Sir or Madam, this is a letter and no database at all.".repeat(50)).unwrap();
    assert!(reopen(&text, "").to_string().contains("not an SQLite file"));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("Dear Sir"));
    let missing = Options { create: false, namespace: String::new(), watch: None };
    let error = Store::open(&bench.path.with_file_name("none.db"), missing, bench.clock.clone(), desk());
    assert!(matches!(error, Err(StoreError::NoFile(_))));
}

#[test]
fn a_write_that_fails_or_panics_spoils_no_other_of_its_batch() {
    let bench = Bench::new();
    std::thread::scope(|s| {
        for n in 0..20 {
            let store = Arc::clone(&bench.store);
            s.spawn(move || match n % 4 {
                0 => assert!(store.write(|_| -> Result<(), StoreError> { panic!("on purpose") }).is_err()),
                1 => assert!(
                    store.write(|tx| Ok(tx.conn().execute("INSERT INTO nowhere VALUES (1)", [])?)).is_err()
                ),
                _ => {
                    let job = Bench::job("b", &n.to_string(), "{}");
                    assert_eq!(store.enqueue(job, "test").unwrap().word(), "created");
                }
            });
        }
    });
    let all = bench.store.list(&Filter { limit: 100, ..Filter::default() }).unwrap();
    assert_eq!(all.len(), 10);
    assert_eq!(bench.store.stats().unwrap().jobs[&State::Ready], 10);
    assert_eq!(bench.verify(), Ok(10));
}

#[test]
fn the_claim_reads_indexes_only_whatever_else_is_in_the_file() {
    let bench = Bench::new();
    let conn = bench.store.reader().unwrap();
    for (sql, index) in [
        (claim::HEADS, "onceward_jobs_claim"),
        (claim::DUE, "onceward_jobs_due"),
        (claim::NEXT, "onceward_jobs_due"),
    ] {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        for parameter in 1..=statement.parameter_count() {
            statement.raw_bind_parameter(parameter, 1).unwrap();
        }
        let mut rows = statement.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan.push_str(&row.get::<_, String>(3).unwrap());
            plan.push('\n');
        }
        assert!(plan.contains(index), "{sql}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
        let scans = plan.lines().filter(|l| l.starts_with("SCAN") && !l.contains(index)).count();
        assert_eq!(scans, 0, "{sql}\n{plan}");
    }
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
fn a_job_that_came_back_to_its_group_waits_for_the_one_that_is_out() {
    let bench = Bench::new();
    for key in ["one", "two"] {
        let job = NewJob { group: Some("g".into()), ..Bench::job("b", key, "{}") };
        bench.store.enqueue(job, "test").unwrap();
    }
    let id = bench.story("one").job.id;
    bench.store.cancel(id, "test").unwrap();
    bench.store.replay(id, None, "test").unwrap();
    let one = bench.story("one");
    assert_eq!((one.job.state, one.blocked_by.as_deref()), (State::Waiting, Some("two")));
    let claim = bench.claim();
    assert_eq!(claim.job().key.as_str(), "two");
    bench.end(claim, Class::Ok);
    assert_eq!(bench.claim().job().key.as_str(), "one");
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
    let unnumbered = NewJob { group: Some("g".into()), ..Bench::job("b", "mixed", "{}") };
    assert_eq!(bench.store.enqueue(unnumbered, "test").unwrap_err().code(), Code::Invalid);
    place("two", 2).unwrap();
    let claim = bench.claim();
    assert_eq!(claim.job().key.as_str(), "two");
    bench.end(claim, Class::Ok);
    assert_eq!(bench.claim().job().key.as_str(), "three");
}
