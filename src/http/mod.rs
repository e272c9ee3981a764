//! The API over HTTP, on a thin layer of our own over `httparse` and the standard library's sockets.
//!
//! Of the crates looked at, oxhttp's time-outs hold for one read only and it has no shutdown, tiny_http has no time-outs,
//! and hyper wants an async runtime. What is needed is small: one request after the other,
//! a deadline for each part of it, bounds on everything, and a stop.
//!
//! `wire` knows bytes, `server` connections and threads, `places` who may have one, `message` what a route sees, `guard` who may ask, `api` and
//! `console` the routes. Nothing here holds SQL or decides anything: a route reads a request, calls the store, and writes a view. An answer to
//! a change leaves only after the store has said that it is on disk.

mod api;
mod batch;
mod console;
mod guard;
mod message;
mod metrics;
mod places;
mod server;
mod strikes;
mod wire;

use crate::clock::Clock;
use crate::config::{Config, Http};
use crate::store::Store;
use crate::worker::Stop;
use guard::Guard;
use message::{Problem, Request, Response};
use server::Handler;
pub use server::Server;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};
use wire::Body;

/// What every route has at hand.
struct App {
    config: Arc<Config>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    /// The worker of this process: woken by new jobs, asked whether it is alive.
    worker: Stop,
    guard: Guard,
    reads: Gate,
    sessions: console::Sessions,
}

/// Starts the API of `[http]`. `None`: the config has none.
pub fn start(config: Arc<Config>, store: Arc<Store>, worker: Stop) -> io::Result<Option<Server>> {
    let Some(http) = &config.http else { return Ok(None) };
    let listener = TcpListener::bind(http.listen)?;
    lengthen_queue(&listener);
    let clock = Arc::clone(store.clock());
    let shares = places::Shares::beside(config.worker.threads);
    let (guard, reads, sessions) = (Guard::new(), Gate::new(READS), console::Sessions::new());
    let app = App { config, store, clock, worker, guard, reads, sessions };
    let server = Server::start(listener, shares, Box::new(Site { app: Arc::new(app) }))?;
    log::info!("listening on http://{}", server.address());
    Ok(Some(server))
}

/// Connections that come all at once wait in the system's queue. Where that is full they are not told so, and try again
/// after a second: the standard library's 128 are fewer than there are places.
#[cfg(unix)]
fn lengthen_queue(listener: &TcpListener) {
    if let Err(e) = rustix::net::listen(listener, 1024) {
        log::debug!("the queue of connections stays as it is: {e}");
    }
}

#[cfg(not(unix))]
fn lengthen_queue(_: &TcpListener) {}

/// 9999-12-31T23:59:59Z.
const LAST_HTTP_DATE_MS: u64 = 253_402_300_799_000;

/// All that is served: the API, and the console beside it.
struct Site {
    app: Arc<App>,
}

impl Handler for Site {
    fn answer(&self, request: &Request, body: &mut Body) -> Response {
        route(&self.app, request, body).unwrap_or_else(Problem::response)
    }

    fn date(&self) -> String {
        // The form of this date ends with the year 9999.
        let now = u64::try_from(self.app.clock.now().0).unwrap_or(0).min(LAST_HTTP_DATE_MS);
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(now))
    }
}

/// The name of the server is checked for everything, the token by each part that needs it.
fn route(app: &Arc<App>, request: &Request, body: &mut Body) -> Result<Response, Problem> {
    app.guard.check_place(app.http()?, request)?;
    match console::route(app, request, body) {
        Some(response) => Ok(response),
        None => api::route(app, request, body),
    }
}

impl App {
    /// Puts on record that a request was turned away at a door. It is turned away whether or not that can be written.
    fn turned_away(&self, door: &str, request: &Request, why: &str) -> Result<(), Problem> {
        let origin = guard::origin(self.http()?, request);
        self.guard.write_down(|unwritten| {
            if let Err(e) = self.store.denied(door, &origin, why, unwritten) {
                log::error!("not on record in the file's events: {origin} was turned away at {door} ({e})");
            }
        });
        Ok(())
    }

    /// Refuses a person's own words that hold a card number. A provider's reference is none of them: what it says
    /// happened is taken, whatever its number looks like.
    fn refuse_cards(&self, words: &[(&str, Option<&str>)]) -> Result<(), Problem> {
        for (what, words) in words {
            self.config.refuse_card_in(what, *words)?;
        }
        Ok(())
    }

    /// The config's part for this server.
    fn http(&self) -> Result<&Http, Problem> {
        // There is no server without it.
        self.config.http.as_ref().ok_or_else(|| Problem::new(500, "internal", "there is no [http]"))
    }
}

/// Lists and figures read much. A few at once leave the store's other readers free.
const READS: usize = 4;
/// How long a list or a figure waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// Lets so many in at once.
struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place behind the gate, given back when it is dropped.
struct Turn<'a>(&'a Gate);

impl Gate {
    fn new(places: usize) -> Gate {
        Gate { free: Mutex::new(places), freed: Condvar::new() }
    }

    fn enter(&self) -> Result<Turn<'_>, Problem> {
        let deadline = Instant::now() + TURN;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = "too many lists and figures are being read at once: ask again in a moment";
                return Err(Problem::new(503, "busy", why).with("Retry-After", "2"));
            }
            free = self.freed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
