//! What an app that carries Onceward inside uses: one [`Builder`], one [`Onceward`], and a few plain types.
//!
//! All of it is a thin layer over the store and the worker, so that what they look like inside may change and an app's
//! code need not. Whatever is public here is a promise (`tests/surface.txt` lists it).

use crate::clock::{Clock, Ms, SystemClock};
use crate::config::{Config, ConfigError, Request};
use crate::intent::IntentState;
use crate::job::{Reason, State};
use crate::provider::Handler;
use crate::store::{Enqueued, Options, Store, StoreError};
use crate::worker::{self, Ended, Running, Trade, TradeBuilder, TradeError};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why an app's Onceward did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A handler and the config do not fit each other.
    #[error(transparent)]
    Handler(#[from] TradeError),
    /// The file cannot be used, or a thread could not be started.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Puts a config and an app's handlers together.
pub struct Builder {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    trade: TradeBuilder,
}

impl Builder {
    /// Reads the config from a file, an `onceward.toml`.
    pub fn from_file(path: &Path) -> Result<Builder, ConfigError> {
        Ok(Builder::new(Config::load(path)?))
    }

    /// Reads the config from a text that the app has in itself. `file` is what errors call it, and its folder is what
    /// paths in the text are relative to; it need not be there.
    pub fn from_text(text: &str, file: &Path) -> Result<Builder, ConfigError> {
        Ok(Builder::new(Config::parse(text, file)?))
    }

    fn new(config: Config) -> Builder {
        let (config, clock) = (Arc::new(config), Arc::new(SystemClock::new()));
        let trade = Trade::builder(Arc::clone(&config), clock.clone());
        Builder { config, clock, trade }
    }

    /// The kind is done by this handler. Its `[kinds.…]` in the config has no `provider`; key, account, amount,
    /// currency, group and retries are read from there.
    pub fn handler(mut self, kind: &str, handler: Handler) -> Builder {
        self.trade = self.trade.handler(kind, handler);
        self
    }

    /// Opens the file, making it if it is not there, and starts a worker in threads of this process.
    pub fn start(self) -> Result<Onceward, StartError> {
        let mut app = self.open()?;
        let options = worker::Options::new(app.trade.config());
        app.worker = Some(worker::spawn(Arc::clone(&app.store), Arc::clone(&app.trade), options)?);
        Ok(app)
    }

    /// Opens the file, making it if it is not there, and starts no worker: for a process that asks for effects which
    /// another one brings about.
    pub fn open(self) -> Result<Onceward, StartError> {
        let trade = Arc::new(self.trade.build()?);
        let options = Options {
            create: true,
            namespace: self.config.store.namespace.clone(),
            watch: Some(self.config.worker.poll),
        };
        let store = Store::open(&self.config.store.path, options, Arc::clone(&self.clock), trade.clone())?;
        Ok(Onceward { store: Arc::new(store), trade, worker: None })
    }
}

/// Onceward inside an app. Dropping it stops the worker and waits for what is in flight, at most for
/// `[worker] shutdown_grace`.
///
/// ```
/// use onceward::{Builder, Handler, HandlerCall, HandlerOutcome, Request, State};
/// use std::time::Duration;
///
/// let folder = tempfile::tempdir()?;
/// let seat = Handler::new(|call: &HandlerCall| {
///     // The app's own work: `call.wire_key` is what must be recognised if it comes again.
///     HandlerOutcome::Settled { reference: Some(call.wire_key.clone()), result: None }
/// });
/// let onceward = Builder::from_text("[kinds.seat]\nkey = \"seat:{seat}\"\n", &folder.path().join("app.toml"))?
///     .handler("seat", seat.repeat_safe())
///     .start()?;
///
/// let asked = onceward.enqueue(Request {
///     kind: "seat".into(),
///     payload: r#"{"seat":"A12"}"#.into(),
///     ..Request::default()
/// })?;
/// let standing = onceward.wait(&asked.receipt().key, Duration::from_secs(30))?;
/// assert_eq!(standing.map(|standing| standing.state), Some(State::Settled));
///
/// onceward.stop();
/// onceward.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Onceward {
    store: Arc<Store>,
    trade: Arc<Trade>,
    worker: Option<Running>,
}

/// How one job stands: the columns of the view `onceward_outcomes`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// Its key.
    pub key: String,
    /// What sort of work it is.
    pub kind: String,
    /// The job's state.
    pub state: State,
    /// What is known of the effect.
    pub intent_state: IntentState,
    /// The provider's or the handler's own id of the effect.
    pub reference: Option<String>,
    /// Why it is parked.
    pub park_reason: Option<Reason>,
    /// When the effect was confirmed.
    pub confirmed: Option<Ms>,
}

impl Standing {
    /// Nothing more happens by itself: settled, parked or cancelled.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Settled | State::Parked | State::Cancelled)
    }
}

impl Onceward {
    /// Asks for an effect. `Ok` means that it is on disk; a refusal says what to change, and changed nothing.
    pub fn enqueue(&self, request: Request) -> Result<Enqueued, StoreError> {
        if let Some(worker) = &self.worker {
            return worker.enqueue(request);
        }
        let job = self.trade.config().prepare(request)?;
        self.store.enqueue(job, "app")
    }

    /// The same inside the transaction that the app has open on its own connection to the file: the job is there exactly
    /// if that transaction commits. Begin it with `BEGIN IMMEDIATE`, since SQLite lets no transaction that has begun
    /// with reading write once somebody else has written. A refusal leaves the transaction usable.
    ///
    /// The connection's main file must be [`Onceward::file`]: another Onceward's, one that is only attached, and a
    /// connection with TEMP tables, views or triggers that have or touch our names are refused.
    pub fn enqueue_in(&self, transaction: &Connection, request: Request) -> Result<Enqueued, StoreError> {
        let job = self.trade.config().prepare(request)?;
        self.store.enqueue_in(transaction, &job, "app")
    }

    /// How a job stands; `None` if there is none with this key.
    pub fn standing(&self, key: &str) -> Result<Option<Standing>, StoreError> {
        Ok(self.store.story(key)?.map(|story| Standing {
            key: story.job.key.to_string(),
            kind: story.job.kind,
            state: story.job.state,
            intent_state: story.intent.state,
            reference: story.intent.reference,
            park_reason: story.job.park_reason,
            confirmed: story.intent.confirmed,
        }))
    }

    /// Waits until a job is at rest, at most for this time, and says how it stands then. An app with other things to do
    /// looks again later instead.
    pub fn wait(&self, key: &str, limit: Duration) -> Result<Option<Standing>, StoreError> {
        let begun = Instant::now();
        loop {
            let standing = self.standing(key)?;
            if standing.as_ref().is_none_or(Standing::is_at_rest) || begun.elapsed() >= limit {
                return Ok(standing);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The SQLite file, in which the app may have tables of its own. Its connections need a busy time-out.
    ///
    /// In this process use it by SQLite connections only. On Unix the first plain file handle on it that is closed here (a
    /// copy by `std::fs::copy`, a checksum, an upload) drops SQLite's locks of the whole process; the next other program that
    /// closes the file then deletes the log under this one. That is noticed, and nothing more is stored or sent until the app
    /// starts anew. Copy it with `onceward backup`, with SQLite's backup interface, or from another process.
    pub fn file(&self) -> &Path {
        self.store.path()
    }

    /// Whether the worker runs. It ends when it is told to, or when the file fails it.
    pub fn is_running(&self) -> bool {
        self.worker.as_ref().is_some_and(Running::is_running)
    }

    /// Claim no more, finish what is in flight. Returns at once. A second call ends the worker without waiting for it.
    pub fn stop(&self) {
        if let Some(worker) = &self.worker {
            worker.stop();
        }
    }

    /// Waits until the worker has ended, and says how. Does not stop it.
    pub fn join(self) -> Result<Ended, StoreError> {
        self.worker.map_or(Ok(Ended::Finished), Running::join)
    }
}
