//! The scripted run: one of everything that changes the file, through the real store, with the provider played by hand.

use crate::vfs::{Disk, Image, mount};
use onceward::clock::{Clock, ManualClock, Ms};
use onceward::config::{Config, Request};
use onceward::job::{JobId, Step};
use onceward::outcome::{Class, Outcome};
use onceward::store::{
    Claim, Desk, Options, Owner, OwnerLock, PauseScope, Resolution, Store, StoreError, Unrecorded,
};
use onceward::worker::Trade;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const NOON: Ms = Ms(1_800_000_000_000);
pub const LEASE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
[providers.good]
profile = "generic"
base_url = "https://good.example"
[providers.forgets]
profile = "none"
base_url = "https://forgets.example"
[kinds.b]
provider = "good"
amount_minor = "{n}"
currency = "EUR"
request = { method = "POST", path = "/p", encoding = "json", body = { amount = "{n}" } }
[kinds.e]
provider = "forgets"
request = { method = "POST", path = "/p", encoding = "json", body = { amount = "{n}" } }
[kinds.l]
provider = "forgets"
request = { method = "POST", path = "/p", encoding = "json", body = { amount = "{n}" } }
lookup = { path = "/p?wire={$wire_key}", reference = "/data/0/id", lag = "0s", authoritative = true }
"#;

/// What the script may be told when the disk has failed.
pub type Told = Result<(), StoreError>;

/// A machine with a folder, a clock and one worker.
pub struct Shop {
    pub path: PathBuf,
    pub clock: Arc<ManualClock>,
    trade: Arc<Trade>,
    pub store: Option<Arc<Store>>,
    pub worker: Option<(Owner, OwnerLock)>,
}

pub fn trade(clock: &Arc<ManualClock>, folder: &Path) -> Arc<Trade> {
    let config = Config::parse(CONFIG, &folder.join("onceward.toml")).unwrap_or_else(|e| panic!("{e}"));
    Arc::new(Trade::new(Arc::new(config), clock.clone()))
}

impl Shop {
    pub fn new(folder: &Path, now: Ms) -> Shop {
        let clock = Arc::new(ManualClock::at(now));
        let trade = trade(&clock, folder);
        Shop { path: folder.join("power.db"), clock, trade, store: None, worker: None }
    }

    pub fn open(&mut self) -> Told {
        let options = Options { create: true, namespace: String::new(), watch: None };
        let desk: Arc<dyn Desk> = self.trade.clone();
        self.store = Some(Arc::new(Store::open(&self.path, options, self.clock.clone(), desk)?));
        Ok(())
    }

    pub fn store(&self) -> Result<&Arc<Store>, StoreError> {
        self.store.as_ref().ok_or(StoreError::Closed)
    }

    /// What a worker does before its first claim.
    pub fn start(&mut self) -> Told {
        let store = Arc::clone(self.store()?);
        store.check_after_crash()?;
        self.worker = Some(store.register("power:1")?);
        Ok(())
    }

    fn owner(&self) -> Result<&Owner, StoreError> {
        Ok(&self.worker.as_ref().ok_or(StoreError::Closed)?.0)
    }

    pub fn recover(&self) -> Result<usize, StoreError> {
        self.store()?.recover(self.owner()?)
    }

    pub fn claim(&self) -> Result<Vec<Claim>, StoreError> {
        Ok(self.store()?.claim(self.owner()?, 10, LEASE)?.claims)
    }

    pub fn enqueue(&self, kind: &str, key: &str, n: u32, group: Option<&str>) -> Told {
        let request = Request {
            kind: kind.into(),
            payload: format!(r#"{{"n":{n}}}"#),
            key: Some(key.into()),
            group: group.map(String::from),
            ..Request::default()
        };
        let job = self.trade.config().prepare(request)?;
        self.store()?.enqueue(job, "app").map(drop)
    }

    fn id(&self, key: &str) -> Result<JobId, StoreError> {
        Ok(self.store()?.story(key)?.ok_or_else(|| StoreError::Sqlite(format!("{key} is gone")))?.job.id)
    }
}

/// Who looks on: at each step that was acknowledged, and at each request that leaves.
pub trait Watch {
    fn done(&mut self, shop: &Shop, step: &str, told: &Told);
    fn leaves(&mut self, claim: &Claim);
}

/// How the provider answers each key, try for try.
fn answers(key: &str, step: Step, attempt: u32) -> Class {
    match (key, step, attempt) {
        ("b:1", _, 1) => Class::Timeout,
        ("b:2", _, _) => Class::Rejected,
        ("b:3", _, 1) => Class::Throttled,
        ("b:4", _, 1) => Class::NotSent,
        ("b:5", _, 1) => Class::ServerError,
        ("e:3", _, 1) | ("l:2", _, 1) => Class::Interrupted,
        ("l:1" | "l:2", Step::Send, _) => Class::Timeout,
        ("l:1", Step::LookUp, _) => Class::LookupFailed,
        ("l:2", Step::LookUp, _) => Class::NotFound,
        ("g:1", _, 1) => Class::BadResponse,
        _ => Class::Ok,
    }
}

struct Run<'a> {
    shop: &'a mut Shop,
    watch: &'a mut dyn Watch,
}

impl Run<'_> {
    fn step(&mut self, name: &str, told: Told) {
        self.watch.done(self.shop, name, &told);
    }

    fn tick(&self, seconds: u64) {
        self.shop.clock.advance(Duration::from_secs(seconds));
    }

    fn enqueue(&mut self, kind: &str, key: &str, n: u32, group: Option<&str>) {
        let told = self.shop.enqueue(kind, key, n, group);
        self.step(&format!("enqueue {key}"), told);
    }

    /// A claim of all that is due, each sent and answered.
    fn round(&mut self) {
        let claims = match self.shop.claim() {
            Ok(claims) => {
                self.step("claim", Ok(()));
                claims
            }
            Err(e) => return self.step("claim", Err(e)),
        };
        for claim in claims {
            let Ok(store) = self.shop.store().cloned() else { return };
            let key = claim.job().key.as_str().to_string();
            if let Err(why) = store.before_first_byte(&claim) {
                self.step(&format!("mark {key}"), Err(StoreError::Sqlite(why)));
                let told = store.release(claim);
                self.step(&format!("release {key}"), told);
                continue;
            }
            self.step(&format!("mark {key}"), Ok(()));
            self.watch.leaves(&claim);
            let tries = store.story(&key).ok().flatten().map_or(1, |story| {
                1 + story.history.iter().filter(|row| row.attempt.is_some()).count() as u32
            });
            let mut outcome = Outcome::new(answers(&key, claim.step(), tries), claim.started());
            if outcome.class == Class::Ok {
                outcome.reference = Some(format!("po_{key}"));
            }
            self.record(&store, &key, claim, outcome);
        }
    }

    /// As a worker does: tried again with what it has in its hands.
    fn record(&mut self, store: &Store, key: &str, claim: Claim, outcome: Outcome) {
        let (mut claim, mut outcome) = (claim, outcome);
        for _ in 0..3 {
            match store.record(claim, outcome) {
                Ok(_) => return self.step(&format!("record {key}"), Ok(())),
                Err(unrecorded) => {
                    let Unrecorded { error, claim: again, outcome: what } = *unrecorded;
                    self.step(&format!("record {key}"), Err(error));
                    (claim, outcome) = (again, what);
                }
            }
        }
    }

    fn person(&mut self, name: &str, act: impl FnOnce(&Store, JobId) -> Told, key: &str) {
        let told = self.shop.id(key).and_then(|id| act(self.shop.store()?, id));
        self.step(name, told);
    }

    /// The log is folded into the file by another program.
    fn fold(&mut self) {
        let folded = Connection::open(&self.shop.path)
            .and_then(|conn| conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        self.step("fold", folded.map_err(StoreError::from));
    }
}

/// The whole script. `watch` hears of each step; what fails is told and left, as by an app that goes on.
pub fn play(shop: &mut Shop, watch: &mut dyn Watch) {
    let mut run = Run { shop, watch };
    let told = run.shop.open();
    run.step("open", told);
    let told = run.shop.start();
    run.step("start", told);
    for n in 1..=5 {
        run.enqueue("b", &format!("b:{n}"), n, None);
    }
    run.enqueue("b", "b:1", 1, None);
    run.enqueue("b", "b:1", 7, None);
    for (kind, key) in [("e", "e:1"), ("e", "e:3"), ("l", "l:1"), ("l", "l:2")] {
        run.enqueue(kind, key, 1, None);
    }
    for key in ["g:1", "g:2", "g:3"] {
        run.enqueue("b", key, 1, Some("g"));
    }
    run.round();
    run.fold();
    run.tick(30);
    run.round();
    run.enqueue("e", "e:2", 1, None);
    run.person("cancel e:2", |store, id| store.cancel(id, "operator").map(drop), "e:2");
    run.person("replay b:2", |store, id| store.replay(id, None, "operator").map(drop), "b:2");
    run.person(
        "resolve e:3",
        |store, id| store.resolve(id, Resolution::NotApplied, Some("looked".into()), "operator").map(drop),
        "e:3",
    );
    run.person("confirm l:1", |store, id| store.confirm(id, "po_seen", "operator").map(drop), "l:1");
    run.person("note l:1", |store, id| store.note(id, "a word", None, "operator").map(drop), "l:1");
    let paused = run.shop.store().and_then(|s| s.pause(PauseScope::Kind, "b", None, "operator").map(drop));
    run.step("pause", paused);
    let resumed = run.shop.store().and_then(|s| s.resume(PauseScope::Kind, "b", None, "operator").map(drop));
    run.step("resume", resumed);
    let row = run.shop.store().and_then(|store| {
        store.write(|tx| {
            let row = r#"INSERT INTO onceward_inbox (kind, payload, key) VALUES ('b', '{"n":9}', 'b:9')"#;
            Ok(tx.conn().execute(row, []).map(drop)?)
        })
    });
    run.step("an inbox row", row);
    let taken = run.shop.store().and_then(|store| store.take_inbox().map(drop));
    run.step("take the inbox", taken);
    for _ in 0..4 {
        run.tick(120);
        run.round();
    }
    run.fold();
    let to = run.shop.path.with_extension("copy");
    let copied = run.shop.store().and_then(|store| store.backup(&to, &mut |_, _| {}).map(drop));
    run.step("backup", copied);
    let _ = std::fs::remove_file(to);
    run.tick(500 * 86_400);
    let now = run.shop.clock.now();
    let pruned = run.shop.store().and_then(|store| {
        let up_to = store.export(&Default::default(), 0)?.last().map_or(0, |row| row.seq);
        let ids = [store.story("e:1")?, store.story("e:2")?];
        let ids: Vec<JobId> = ids.iter().flatten().map(|story| story.job.id).collect();
        store.prune(&ids, now, up_to, "operator").map(drop)
    });
    run.step("prune", pruned);
    let given_back = run.shop.store().and_then(|store| store.give_back().map(drop));
    run.step("give room back", given_back);
    run.enqueue("b", "b:10", 1, None);
    run.round();
    if let (Some((owner, lock)), Ok(store)) = (run.shop.worker.take(), run.shop.store().cloned()) {
        let told = store.unregister(&owner, lock);
        run.step("stop", told);
    }
}

/// A file of schema version 1 with the rows of version 1's own program.
pub fn old_file(folder: &Path) -> (Image, Arc<Disk>) {
    let disk = mount(folder, Image::new());
    let conn = Connection::open(folder.join("power.db")).unwrap();
    conn.execute_batch("PRAGMA journal_mode=WAL; PRAGMA foreign_keys=OFF").unwrap();
    conn.execute_batch(include_str!("../../src/store/tests/schema_v1.sql")).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    conn.execute_batch(include_str!("../../src/store/tests/rows_v1.sql")).unwrap();
    conn.execute_batch("COMMIT").unwrap();
    drop(conn);
    (disk.live(), disk)
}
