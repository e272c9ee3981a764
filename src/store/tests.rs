//! The store by itself: a real file, a manual clock, a desk whose kinds stand for each family.

use super::*;
use crate::clock::{ManualClock, Ms};
use crate::decide::{BreakerTerms, Family, LookupTerms, OnParked};
use crate::intent::{Content, IntentState, WireStyle, payload_hash};
use crate::job::{Key, NewJob, Reason, State, Step};
use crate::json::Json;
use crate::outcome::{Class, Outcome, Phase};
use crate::store::history::Action;

mod doors;
mod order;
mod pauses;

struct TestDesk {
    kinds: Vec<KindDesk>,
    providers: Vec<ProviderDesk>,
    scope: &'static str,
}

impl Desk for TestDesk {
    fn kinds(&self) -> &[KindDesk] {
        &self.kinds
    }
    fn providers(&self) -> &[ProviderDesk] {
        &self.providers
    }
    fn scope(&self, _: &str) -> Scope {
        Scope { send: self.scope.into(), lookup: "look".into() }
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
    fn prepare(&self, row: InboxRow, _: Ms) -> Result<NewJob, Refusal> {
        let key = row.key.ok_or_else(|| Refusal::new(Code::Invalid, "no key"))?;
        Ok(NewJob { run_after: row.run_after, ..Bench::job(&row.kind, &key, &row.payload) })
    }
    fn row_limit(&self) -> usize {
        1000
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

fn desk() -> TestDesk {
    let mut kinds = vec![
        kind("b", Family::B, None),
        kind("asked", Family::B, Some(true)),
        kind("forgets", Family::E, None),
        kind("forgets-asked", Family::E, Some(true)),
        kind("skips", Family::B, None),
        kind("spaced", Family::B, None),
    ];
    kinds[4].terms.on_parked = OnParked::Skip;
    let rate = |name: &str| (name == "spaced-bank").then_some(1.0);
    let providers = kinds
        .iter()
        .map(|k| ProviderDesk { name: k.provider.clone(), concurrency: 100, rate: rate(&k.provider) })
        .collect();
    TestDesk { kinds, providers, scope: "here" }
}

fn open(path: &Path, clock: &Arc<ManualClock>) -> Store {
    open_with(path, clock, desk())
}

/// As a process with another config sees the file.
fn open_with(path: &Path, clock: &Arc<ManualClock>, desk: TestDesk) -> Store {
    let options = Options { create: true, namespace: String::new(), watch: None };
    Store::open(path, options, clock.clone(), Arc::new(desk)).unwrap()
}

impl Bench {
    fn new() -> Bench {
        Bench::with(desk())
    }

    fn with(desk: TestDesk) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let clock = Arc::new(ManualClock::at(NOON));
        let store = Arc::new(open_with(&path, &clock, desk));
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
        Store::open(path, options, bench.clock.clone(), Arc::new(desk())).map(|_| ()).unwrap_err()
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
    let error =
        Store::open(&bench.path.with_file_name("none.db"), missing, bench.clock.clone(), Arc::new(desk()));
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

fn member(kind: &str, group: &str, key: &str, sequence: Option<i64>) -> NewJob {
    NewJob { group: Some(group.into()), sequence, ..Bench::job(kind, key, "{}") }
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
fn what_never_left_leaves_no_trace_of_a_request_though_the_call_began_after_the_claim() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.clock.advance(Duration::from_millis(3));
    let outcome = Outcome::new(Class::NotSent, bench.clock.now());
    bench.store.record(claim, outcome).unwrap();
    let story = bench.story("k");
    assert_eq!((story.intent.state, story.intent.requested), (IntentState::Pending, None));
    assert_eq!(bench.store.confirm(story.job.id, "po_1", "test").unwrap_err().code(), Code::NotAllowed);
}

#[test]
fn a_probe_that_is_confirmed_meanwhile_lets_the_next_probe_go() {
    let bench = Bench::new();
    bench.enqueue("b", "1");
    bench.enqueue("b", "2");
    let claim = bench.claim();
    bench.end(claim, Class::Auth);
    bench.clock.advance(Duration::from_secs(31));
    let probe = bench.claim();
    bench.store.confirm(probe.job().id, "po_1", "test").unwrap();
    bench.end(probe, Class::Timeout);
    bench.clock.advance(Duration::from_secs(31));
    assert_eq!(bench.claim().job().key.as_str(), "2");
}

#[test]
fn a_probe_of_a_dead_worker_is_given_up_by_a_worker_that_does_not_know_its_kind() {
    let bench = Bench::new();
    bench.enqueue("b", "1");
    let claim = bench.claim();
    bench.end(claim, Class::Auth);
    bench.clock.advance(Duration::from_secs(31));
    let (dead, lock) = bench.store.register("dead:9").unwrap();
    let probe = bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims;
    assert_eq!(probe.len(), 1);
    drop((probe, lock));
    let other = open_with(&bench.path, &bench.clock, TestDesk { kinds: Vec::new(), ..desk() });
    assert_eq!(other.recover(&bench.owner).unwrap(), 1);
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!(bench.claim().job().key.as_str(), "1");
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
fn a_set_back_clock_freezes_no_group_no_rate_and_no_look_up() {
    let bench = Bench::new();
    bench.store.enqueue(member("b", "g", "1", None), "test").unwrap();
    bench.store.enqueue(member("b", "g", "2", None), "test").unwrap();
    bench.enqueue("spaced", "s1");
    bench.enqueue("spaced", "s2");
    let mut claims = bench.claims(5);
    assert_eq!(claims.len(), 2);
    let day = Duration::from_secs(86_400);
    bench.clock.step(-86_400_000);
    bench.store.set_back(day).unwrap();
    bench.clock.advance(Duration::from_secs(2));
    bench.end(claims.remove(0), Class::Ok);
    let mut keys: Vec<_> = bench.claims(5).iter().map(|c| c.job().key.as_str().to_string()).collect();
    keys.sort();
    assert_eq!(keys, ["2", "s2"]);
}

#[test]
fn a_set_back_that_two_workers_see_moves_the_due_times_once() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    let due = bench.story("k").job.run_after;
    let hour = Duration::from_secs(3600);
    bench.clock.step(-3_600_000);
    bench.store.set_back(hour).unwrap();
    bench.clock.advance(Duration::from_millis(700));
    open(&bench.path, &bench.clock).set_back(hour).unwrap();
    assert_eq!(bench.story("k").job.run_after, due.minus(hour));
    bench.clock.advance(Duration::from_secs(60));
    bench.clock.step(-3_600_000);
    bench.store.set_back(hour).unwrap();
    assert_eq!(bench.story("k").job.run_after, due.minus(hour * 2), "another one counts");
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
fn the_scope_is_where_the_request_went_not_where_an_earlier_one_could_not_go() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.end(claim, Class::Auth);
    // The credential is exchanged, and the provider rests for a while.
    bench.clock.advance(Duration::from_secs(31));
    let there = open_with(&bench.path, &bench.clock, TestDesk { scope: "there", ..desk() });
    let claim = there.claim(&bench.owner, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
    let outcome = Outcome::new(Class::Timeout, claim.started());
    there.record(claim, outcome).unwrap();
    let story = bench.story("k");
    assert_eq!(story.job.state, State::Unknown);
    assert_eq!(story.intent.scope.unwrap().send, "there");
    bench.clock.advance(Duration::from_secs(62));
    assert!(bench.claims(1).is_empty(), "the old config may not send it again: it went elsewhere");
    assert_eq!(bench.story("k").job.park_reason, Some(Reason::ScopeChanged));
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
fn an_owner_taken_for_gone_is_still_found_when_it_dies_with_jobs() {
    let bench = Bench::new();
    let (idle, lock) = bench.store.register("idle:9").unwrap();
    std::fs::remove_file(format!("{}-owner-{}", bench.path.display(), idle.nonce())).unwrap();
    bench.clock.advance(Duration::from_secs(1));
    bench.store.recover(&bench.owner).unwrap();
    bench.enqueue("b", "k");
    let claims = bench.store.claim(&idle, 1, Duration::from_secs(60)).unwrap().claims;
    assert_eq!(claims.len(), 1);
    drop((claims, lock));
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 1);
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

#[test]
fn a_claim_whose_commit_is_not_known_is_given_back_if_it_was_stored_after_all() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    // A reference that is only checked at COMMIT makes just that fail.
    bench
        .execute(
            "CREATE TABLE wrong (id INTEGER REFERENCES onceward_jobs (id) DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    bench
        .execute("CREATE TRIGGER spoil AFTER UPDATE OF lease_owner ON onceward_jobs BEGIN INSERT INTO wrong VALUES (99); END")
        .unwrap();
    let failed = bench.store.claim(&bench.owner, 1, Duration::from_secs(60));
    assert!(matches!(failed, Err(StoreError::CommitUnknown(_))), "{failed:?}");
    bench.execute("DROP TRIGGER spoil").unwrap();
    // This time it was not stored. Now as if it had been: the row is leased, and nobody has the claim.
    assert_eq!(bench.store.doubtful.lock().unwrap().len(), 1);
    bench
        .execute(
            "UPDATE onceward_jobs SET state = 'running', claimable = 0, attempts = 1, tries = 1, lease_token = 1,
               lease_owner = (SELECT nonce FROM onceward_owners), lease_expires_ms = 1, lease_started_ms = 1,
               lease_step = 'send', lease_phase = 'sending'",
        )
        .unwrap();
    let claim = bench.claim();
    assert_eq!((claim.job().attempts, claim.job().tries), (1, 2));
    assert!(bench.store.doubtful.lock().unwrap().is_empty());
    assert_eq!(bench.actions("k"), [Action::Enqueue, Action::Release]);
}

#[test]
fn a_late_success_is_kept_as_the_effect_of_the_generation_that_brought_it() {
    let bench = Bench::new();
    bench.enqueue("forgets", "k");
    let (dead, lock) = bench.store.register("slow:9").unwrap();
    let stale = bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
    bench.store.mark_sending(&stale).unwrap();
    drop(lock);
    bench.store.recover(&bench.owner).unwrap();
    bench.store.resolve(stale.job().id, Resolution::NotApplied, None, "test").unwrap();
    assert_eq!(bench.end(stale, Class::Ok), Recorded::Late);
    let conn = bench.store.reader().unwrap();
    let generation: u32 =
        conn.query_row("SELECT reference_generation FROM onceward_intents", [], |row| row.get(0)).unwrap();
    assert_eq!((generation, bench.story("k").intent.generation.number), (1, 2));
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
    assert_eq!(store.cancel(id, "test").unwrap_err().code(), Code::NotAllowed);
}

#[test]
fn a_worker_that_says_goodbye_leaves_no_row_behind() {
    let bench = Bench::new();
    for n in 0..3 {
        let (owner, lock) = bench.store.register(&format!("cron:{n}")).unwrap();
        bench.store.unregister(&owner, lock).unwrap();
    }
    let count = "SELECT count(*) FROM onceward_owners";
    let owners: i64 = bench.store.reader().unwrap().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(owners, 1, "only the one that is still there");
}
