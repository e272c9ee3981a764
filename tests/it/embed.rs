//! Handlers in an embedding app: the library with a real file and real threads, and the examples.

use onceward::clock::SystemClock;
use onceward::config::{Config, Request};
use onceward::intent::IntentState;
use onceward::job::{Reason, State};
use onceward::outcome::Class;
use onceward::provider::{Handler, HandlerCall, HandlerOutcome};
use onceward::store::{self, Store, Story};
use onceward::worker::{self, Running, Trade, TradeBuilder, TradeError};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[allow(dead_code)] // its `main` is for people
#[path = "../../examples/embed.rs"]
mod embed_example;
#[allow(dead_code)] // its `main` is for people
#[path = "../../examples/handler.rs"]
mod handler_example;

const CONFIG: &str = r#"
[store]
path = "app.db"

[worker]
threads = 4
lease = "5s"

[limits]
free_disk = "1B"

[kinds.seat]
key = "seat:{seat}"
account = "{guest}"
amount_minor = "{amount}"
currency = "EUR"
retry = { max_attempts = 4, base = "1ms", cap = "20ms" }
"#;

/// An app with one handler and a worker.
pub struct App {
    pub store: Arc<Store>,
    pub trade: Arc<Trade>,
    pub worker: Running,
    pub _folder: tempfile::TempDir,
}

fn config(folder: &Path) -> Arc<Config> {
    Arc::new(Config::parse(CONFIG, &folder.join("onceward.toml")).unwrap())
}

impl App {
    pub fn new(handler: Handler) -> App {
        App::with(|builder| builder.handler("seat", handler), |_| {})
    }

    pub fn with(
        add: impl FnOnce(TradeBuilder) -> TradeBuilder,
        change: impl FnOnce(&mut worker::Options),
    ) -> App {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let clock = Arc::new(SystemClock::new());
        let trade = Arc::new(add(Trade::builder(config.clone(), clock.clone())).build().unwrap());
        let options = store::Options { create: true, namespace: String::new(), watch: None };
        let store = Arc::new(Store::open(&config.store.path, options, clock, trade.clone()).unwrap());
        let mut options = worker::Options::new(&config);
        change(&mut options);
        let worker = worker::spawn(store.clone(), trade.clone(), options).unwrap();
        App { store, trade, worker, _folder: folder }
    }

    /// Asks for a seat and gives its key.
    pub fn ask(&self, seat: &str) -> String {
        let request = Request {
            kind: "seat".into(),
            payload: format!(r#"{{"seat":"{seat}", "guest":"g-1","amount":1250}}"#),
            ..Request::default()
        };
        self.worker.enqueue(request).unwrap().receipt().key.clone()
    }

    pub fn story(&self, key: &str) -> Story {
        self.store.story(key).unwrap().unwrap()
    }

    /// Waits until the job has come to rest.
    #[track_caller]
    pub fn rest(&self, key: &str) -> Story {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            let story = self.story(key);
            if matches!(story.job.state, State::Settled | State::Parked) {
                return story;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("{key} does not come to rest: {:#?}", self.story(key));
    }
}

/// What a handler was given, call by call.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<HandlerCall>>>);

impl Calls {
    /// Notes a call and says which it is, from 1.
    pub fn note(&self, call: &HandlerCall) -> usize {
        let mut calls = self.0.lock().unwrap();
        calls.push(call.clone());
        calls.len()
    }

    pub fn all(&self) -> Vec<HandlerCall> {
        self.0.lock().unwrap().clone()
    }
}

pub fn done(reference: &str) -> HandlerOutcome {
    HandlerOutcome::Settled { reference: Some(reference.into()), result: Some(r#"{"row":7}"#.into()) }
}

#[test]
fn a_handler_is_given_the_job_and_settles_it() {
    let calls = Calls::default();
    let seen = calls.clone();
    let app = App::new(Handler::new(move |call: &HandlerCall| {
        seen.note(call);
        done("booking-1")
    }));
    let story = app.rest(&app.ask("A1"));
    assert_eq!(story.job.state, State::Settled);
    assert_eq!(story.intent.reference.as_deref(), Some("booking-1"));
    assert_eq!(story.intent.result.as_deref(), Some(r#"{"row":7}"#));
    let [call] = &calls.all()[..] else { panic!("one call") };
    assert_eq!((call.key.as_str(), call.generation), ("seat:A1", 1));
    assert_eq!(call.wire_key, story.intent.wire_key);
    assert_eq!(call.payload_text, r#"{"seat":"A1", "guest":"g-1","amount":1250}"#, "byte for byte");
    assert_eq!(call.payload.get("seat").and_then(|v| v.scalar()).as_deref(), Some("A1"));
    assert_eq!(call.account.as_deref(), Some("g-1"));
    assert_eq!((call.amount_minor, call.currency.as_deref()), (Some(1250), Some("EUR")));
}

#[test]
fn a_refusal_parks_the_job_and_is_certain() {
    let app = App::new(Handler::new(|_: &HandlerCall| HandlerOutcome::Rejected("sold out".into())));
    let story = app.rest(&app.ask("A1"));
    assert_eq!((story.job.state, story.job.park_reason), (State::Parked, Some(Reason::Rejected)));
    assert_eq!(story.intent.state, IntentState::Rejected);
    assert_eq!(story.job.last_error.as_deref(), Some("sold out"));
}

#[test]
fn what_certainly_did_not_happen_is_tried_again_and_spends_an_attempt() {
    let calls = Calls::default();
    let seen = calls.clone();
    let app = App::new(Handler::new(move |call: &HandlerCall| match seen.note(call) {
        1 | 2 => HandlerOutcome::NotApplied("the office is closed".into()),
        _ => done("booking-1"),
    }));
    let story = app.rest(&app.ask("A1"));
    assert_eq!((story.job.state, story.job.attempts), (State::Settled, 3));
    let calls = calls.all();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|c| c.wire_key == calls[0].wire_key && c.payload_text == calls[0].payload_text));
}

#[test]
fn what_never_happens_is_parked_with_nothing_in_doubt() {
    let app =
        App::new(Handler::new(|_: &HandlerCall| HandlerOutcome::NotApplied("closed".into())).max_attempts(2));
    let story = app.rest(&app.ask("A1"));
    assert_eq!(story.job.park_reason, Some(Reason::AttemptsExhausted));
    assert_eq!((story.job.attempts, story.intent.state), (2, IntentState::Pending));
    assert!(!story.intent.generation.unknown);
}

#[test]
fn a_panic_of_a_handler_that_may_not_be_repeated_parks_the_job_after_one_call() {
    let calls = Calls::default();
    let seen = calls.clone();
    let app = App::new(Handler::new(move |call: &HandlerCall| {
        seen.note(call);
        assert_ne!(call.key, "seat:A1", "the first one fails");
        done("booking-2")
    }));
    let story = app.rest(&app.ask("A1"));
    assert_eq!((story.job.state, story.job.park_reason), (State::Parked, Some(Reason::UnknownOutcome)));
    assert_eq!(story.intent.state, IntentState::Requested);
    assert_eq!(story.job.error_class, Some(Class::HandlerPanic));
    assert!(story.job.last_error.unwrap().contains("the first one fails"));
    // The panic poisoned nothing: the worker goes on, with the same closure.
    assert_eq!(app.rest(&app.ask("A2")).job.state, State::Settled);
    assert_eq!(calls.all().len(), 2, "one call a key");
}

#[test]
fn a_panic_of_a_repeatable_handler_is_called_again_with_the_same_wire_key() {
    let calls = Calls::default();
    let seen = calls.clone();
    let handler = Handler::new(move |call: &HandlerCall| {
        assert!(seen.note(call) > 1, "the first call fails");
        done("booking-1")
    });
    let app = App::new(handler.repeat_safe());
    let story = app.rest(&app.ask("A1"));
    assert_eq!((story.job.state, story.job.attempts), (State::Settled, 2));
    let calls = calls.all();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].wire_key, calls[1].wire_key);
    assert_eq!(calls[0].payload_text, calls[1].payload_text);
}

#[test]
fn an_error_of_the_apps_own_is_in_doubt() {
    let app = App::new(Handler::new(|_: &HandlerCall| -> Result<HandlerOutcome, std::io::Error> {
        Err(std::io::Error::other("the line went dead"))
    }));
    let story = app.rest(&app.ask("A1"));
    assert_eq!(story.job.park_reason, Some(Reason::UnknownOutcome));
    assert_eq!(story.job.error_class, Some(Class::HandlerError));
    assert_eq!(story.job.last_error.as_deref(), Some("the line went dead"));
}

#[test]
fn a_look_up_settles_what_is_in_doubt() {
    let calls = Calls::default();
    let seen = calls.clone();
    let handler = Handler::new(move |call: &HandlerCall| {
        seen.note(call);
        HandlerOutcome::Unknown("no answer".into())
    })
    .look_up(|call: &HandlerCall| done(&call.wire_key));
    let app = App::new(handler);
    let story = app.rest(&app.ask("A1"));
    assert_eq!(story.job.state, State::Settled);
    assert_eq!(story.intent.reference.as_ref(), Some(&story.intent.wire_key));
    assert_eq!(calls.all().len(), 1, "asked about, not run again");
}

#[test]
fn what_was_taken_is_looked_up_until_it_is_final_and_never_run_again() {
    let (calls, asked) = (Calls::default(), Calls::default());
    let (seen, questions) = (calls.clone(), asked.clone());
    let handler = Handler::new(move |call: &HandlerCall| {
        seen.note(call);
        HandlerOutcome::Accepted { reference: Some("order-1".into()) }
    })
    .repeat_safe()
    .look_up(move |call: &HandlerCall| match questions.note(call) {
        1 => HandlerOutcome::Accepted { reference: None },
        2 => panic!("a look-up may fail too"),
        _ => done("order-1"),
    });
    let app = App::new(handler);
    assert_eq!(app.rest(&app.ask("A1")).job.state, State::Settled);
    assert_eq!((calls.all().len(), asked.all().len()), (1, 3));
}

#[test]
fn a_look_up_that_may_say_so_starts_the_next_generation() {
    let calls = Calls::default();
    let seen = calls.clone();
    let handler = Handler::new(move |call: &HandlerCall| match seen.note(call) {
        1 => HandlerOutcome::Unknown("no answer".into()),
        _ => done("booking-1"),
    })
    .look_up(|_: &HandlerCall| HandlerOutcome::NotFound)
    .lag(Duration::ZERO)
    .authoritative();
    let app = App::new(handler);
    let story = app.rest(&app.ask("A1"));
    assert_eq!((story.job.state, story.intent.generation.number), (State::Settled, 2));
    let calls = calls.all();
    assert_eq!((calls[0].generation, calls[1].generation), (1, 2));
    assert_ne!(calls[0].wire_key, calls[1].wire_key);
}

#[test]
fn a_kind_without_a_handler_stays_unclaimed_and_is_named() {
    let app = App::with(|builder| builder, |_| {});
    let key = app.ask("A1");
    assert_eq!(app.store.stats().unwrap().unclaimed_kinds, ["seat"]);
    assert_eq!(app.story(&key).job.state, State::Ready);
}

#[test]
fn a_person_resolves_a_handlers_job_from_a_process_without_the_handler() {
    let calls = Calls::default();
    let seen = calls.clone();
    let app = App::new(Handler::new(move |call: &HandlerCall| match seen.note(call) {
        1 => HandlerOutcome::Unknown("no answer".into()),
        _ => done("booking-1"),
    }));
    let key = app.ask("A1");
    let id = app.rest(&key).job.id;

    let config = app.trade.config().clone();
    let clock = Arc::new(SystemClock::new());
    let trade = Arc::new(Trade::new(config.clone(), clock.clone()));
    let options = store::Options { create: false, namespace: String::new(), watch: None };
    let other = Store::open(&config.store.path, options, clock, trade).unwrap();
    let replay = other.replay(id, None, "cli:test").unwrap_err();
    assert!(replay.to_string().contains("cannot be asked about"), "{replay}");
    other.resolve(id, store::Resolution::NotApplied, Some("looked".into()), "cli:test").unwrap();
    drop(other);

    app.worker.wake();
    let story = app.rest(&key);
    assert_eq!((story.job.state, story.intent.generation.number), (State::Settled, 2));
    assert_ne!(calls.all()[0].wire_key, calls.all()[1].wire_key);
}

#[test]
fn a_handler_is_refused_where_it_cannot_stand() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{CONFIG}[kinds.paid]\nprovider = \"bank\"\nrequest = {{ path = \"/pay\" }}\n[kinds.bank]\n\
         [providers.bank]\nprofile = \"generic\"\nbase_url = \"http://127.0.0.1:1\"\n"
    );
    let config = Arc::new(Config::parse(&text, &folder.path().join("onceward.toml")).unwrap());
    let handler = || Handler::new(|_: &HandlerCall| done("x"));
    let refused = |kinds: &[&str]| {
        let builder = Trade::builder(config.clone(), Arc::new(SystemClock::new()));
        kinds.iter().fold(builder, |builder, kind| builder.handler(kind, handler())).build().err()
    };
    assert_eq!(refused(&["seat"]), None);
    assert_eq!(refused(&["seats"]), Some(TradeError::NoKind("seats".into())));
    let taken = TradeError::HasProvider { kind: "paid".into(), provider: "bank".into() };
    assert_eq!(refused(&["paid"]), Some(taken));
    assert_eq!(refused(&["bank"]), Some(TradeError::SharedName("bank".into())));
    assert_eq!(refused(&["seat", "seat"]), Some(TradeError::Twice("seat".into())));
}

#[test]
fn the_example_of_an_embedding_app_books_one_seat() {
    let folder = tempfile::tempdir().unwrap();
    let seat = embed_example::run(folder.path()).unwrap();
    assert_eq!((seat.state, seat.key.as_str()), (State::Settled, "seat:2026-12-24:A12"));
    let bookings: Vec<String> = column(&folder.path().join("app.db"), "SELECT booking FROM seats");
    assert_eq!(bookings, [seat.reference.unwrap()]);
}

#[test]
fn the_example_of_a_handler_that_panics_prints_one_letter() {
    let folder = tempfile::tempdir().unwrap();
    let printer = Arc::new(handler_example::Printer::default());
    let letter = handler_example::run(folder.path(), &printer).unwrap();
    assert_eq!(letter.state, State::Settled);
    assert_eq!(printer.letters(), [letter.reference.unwrap()]);
    let classes = "SELECT class FROM onceward_history WHERE class IS NOT NULL ORDER BY seq";
    assert_eq!(column(&folder.path().join("letters.db"), classes), ["handler_panic", "ok"]);
}

#[test]
fn a_job_of_an_apps_own_transaction_is_there_only_if_that_commits_and_a_worker_elsewhere_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let named = folder.path().join("onceward.toml");
    let seat = |seat: &str| Request {
        kind: "seat".into(),
        payload: format!(r#"{{"seat":"{seat}","guest":"g-1","amount":1250}}"#),
        ..Request::default()
    };
    let here = onceward::Builder::from_text(CONFIG, &named).unwrap().open().unwrap();
    assert!(!here.is_running());
    let mut db = rusqlite::Connection::open(here.file()).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    for (name, commits) in [("A1", false), ("A2", true)] {
        let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
        here.enqueue_in(&tx, seat(name)).unwrap();
        if commits { tx.commit().unwrap() } else { tx.rollback().unwrap() }
    }
    assert_eq!(here.standing("seat:A1").unwrap(), None);
    assert_eq!(here.standing("seat:A2").unwrap().unwrap().state, State::Ready);

    let handler = Handler::new(|_: &HandlerCall| done("booking-2"));
    let there =
        onceward::Builder::from_text(CONFIG, &named).unwrap().handler("seat", handler).start().unwrap();
    let standing = here.wait("seat:A2", Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!((standing.state, standing.reference.as_deref()), (State::Settled, Some("booking-2")));
    assert_eq!(here.enqueue(seat("A2")).unwrap().word(), "duplicate");
    there.stop();
    assert_eq!(there.join().unwrap(), worker::Ended::Finished);
}

/// One column of text.
fn column(file: &Path, sql: &str) -> Vec<String> {
    let db = rusqlite::Connection::open(file).unwrap();
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}
