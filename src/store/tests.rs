//! The store by itself: a real file, a manual clock, a desk whose kinds stand for each family.

use super::*;
use crate::clock::{ManualClock, Ms};
use crate::decide::{BreakerTerms, Family, LookupTerms, OnParked, OnUnknown};
use crate::intent::{Content, IntentState, WireStyle, payload_hash};
use crate::job::{Key, NewJob, Reason, State, Step};
use crate::json::Json;
use crate::outcome::{Class, Outcome, Phase};
use crate::store::history::Action;

mod audit;
mod bad_rows;
mod browse;
mod clocks;
mod doors;
mod events;
mod figures;
mod file;
mod flight;
mod laws;
mod lives;
mod migration;
mod moved;
mod next;
mod load;
mod order;
mod other_provider;
mod pauses;
mod people;
mod providers;
mod repeats;
mod said;
mod waits;

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
        lookup: lookup.map(|authoritative| LookupTerms {
            lag: Duration::from_secs(120),
            authoritative,
            ..LookupTerms::default()
        }),
        external: false,
        wire_style: WireStyle::Uuid,
        max_attempts: 3,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(60),
        max_age: Duration::from_secs(72 * 3600),
        on_parked: OnParked::Block,
        on_unknown: OnUnknown::Park,
        never_doubtful: false,
        breaker: BreakerTerms { failures: 3, cool_down: Duration::from_secs(30) },
    };
    KindDesk {
        kind: name.into(),
        provider: format!("{name}-bank"),
        called: Some(format!("{name}-bank")),
        terms,
        alerts: false,
        unique: true,
    }
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
        Bench::job_of(None, kind, key, payload)
    }

    /// The same for an account.
    fn job_of(account: Option<&str>, kind: &str, key: &str, payload: &str) -> NewJob {
        let json = Json::parse(payload).unwrap();
        let content = Content { kind, payload: &json, account, amount_minor: Some(5), currency: Some("EUR") };
        NewJob {
            key: Key::new(key).unwrap(),
            kind: kind.into(),
            payload: payload.into(),
            payload_hash: payload_hash(&json),
            content_hash: content.hash(),
            account: account.map(String::from),
            amount_minor: Some(5),
            currency: Some("EUR".into()),
            group: None,
            sequence: None,
            run_after: None,
            delay: None,
            priority: 0,
            dedup: None,
            provider: Some(format!("{kind}-bank")),
            wire_style: WireStyle::Uuid,
            max_attempts: 3,
            external: None,
            never_doubtful: false,
            tick: None,
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
        let verdict = self.store.audit(&mut |_, _| {}).unwrap();
        match verdict.breaks.into_iter().next() {
            None => Ok(verdict.rows),
            Some(Break { seq, job, what }) => Err(format!("row {seq:?} job {job:?}: {what}")),
        }
    }
}

fn member(kind: &str, group: &str, key: &str, sequence: Option<i64>) -> NewJob {
    NewJob { group: Some(group.into()), sequence, ..Bench::job(kind, key, "{}") }
}
