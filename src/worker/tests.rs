//! The dispatcher by itself: how it ends.

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::store::Desk;

/// A store of its own in `dir`, and a worker's options.
fn bench(dir: &std::path::Path) -> (Arc<Store>, Arc<Trade>, Options) {
    bench_of(dir, "")
}

fn bench_of(dir: &std::path::Path, config: &str) -> (Arc<Store>, Arc<Trade>, Options) {
    let config = Config::parse(config, &dir.join("onceward.toml")).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let trade = Arc::new(Trade::new(Arc::new(config), Arc::clone(&clock)));
    let file = crate::store::Options { create: true, namespace: String::new(), watch: None };
    let desk: Arc<dyn Desk> = trade.clone();
    let store = Arc::new(Store::open(&dir.join("t.db"), file, clock, desk).unwrap());
    let options = Options {
        threads: 1,
        lease: Duration::from_secs(60),
        grace: Duration::from_secs(5),
        free_disk: 0,
        until: Until::Once,
        name: "test:1".into(),
    };
    (store, trade, options)
}

#[test]
fn a_worker_that_is_to_end_by_itself_ends_when_nothing_can_be_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, trade, options) = bench(dir.path());
    store
        .write(|tx| {
            Ok(tx.conn().execute_batch("ALTER TABLE onceward_jobs RENAME COLUMN claimable TO gone")?)
        })
        .unwrap();
    let stop = Stop::new();
    let late = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(20));
        late.request();
    });
    assert!(run(store, trade, options, stop).is_err());
}

#[test]
fn what_was_claimed_when_a_stop_came_is_given_back_and_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[providers.bank]\nprofile = 'generic'\nbase_url = 'http://127.0.0.1:9'\n\
                  [kinds.raw]\nprovider = 'bank'\nrequest = { method = 'POST', path = '/x' }\n";
    let (store, trade, options) = bench_of(dir.path(), config);
    let (owner, _lock) = store.register("test:1").unwrap();
    let row = "INSERT INTO onceward_inbox (kind, payload, key) VALUES ('raw', '{}', 'k')";
    store.write(move |tx| Ok(tx.conn().execute_batch(row)?)).unwrap();
    let stop = Stop::new();
    let shared = Shared::new(Arc::clone(&store), trade, options.lease, &stop);
    let mut dispatcher = Dispatcher::start(shared, owner.clone(), options, stop.clone()).unwrap();
    dispatcher.take_inbox();
    let claims = store.claim(&owner, 1, Duration::from_secs(60)).unwrap().claims;
    assert_eq!(claims.len(), 1);
    stop.asked.store(true, Ordering::SeqCst);
    dispatcher.hand_out(claims);
    assert_eq!(dispatcher.finish(), Ended::Finished);
    let story = store.story("k").unwrap().unwrap();
    assert_eq!((story.job.state, story.job.attempts), (crate::job::State::Ready, 0));
    assert_eq!(story.intent.state, crate::intent::IntentState::Pending);
}

#[test]
fn a_second_stop_ends_at_once_though_it_came_together_with_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (store, trade, options) = bench(dir.path());
    let (owner, _lock) = store.register("test:1").unwrap();
    let stop = Stop::new();
    let shared = Shared::new(store, trade, options.lease, &stop);
    let mut dispatcher = Dispatcher::start(shared, owner, options, stop.clone()).unwrap();
    dispatcher.busy = 1;
    stop.request();
    stop.request();
    let begun = Instant::now();
    assert!(matches!(dispatcher.wait(ROUND), Some(Event::Stop)));
    assert_eq!(dispatcher.finish(), Ended::Abandoned(1));
    assert!(begun.elapsed() < Duration::from_secs(4), "it waited for the grace");
}
