//! An app that keeps its own table and Onceward's jobs in one SQLite file, and does the work itself.
//!
//! ```text
//! cargo run --example embed
//! ```
//!
//! The app sells seats. A seat is booked in the app's own table by a handler: the booking carries the wire key, and a
//! unique index on it makes a repeat harmless, so the handler is registered as `repeat_safe`.
#![allow(clippy::print_stdout)] // an example shows what it does

use onceward::{Builder, Ended, Handler, HandlerCall, HandlerOutcome, Request, Standing};
use rusqlite::Connection;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// A kind without a provider is done by a handler in the app.
const CONFIG: &str = r#"
[store]
path = "app.db"

[worker]
threads = 2

[kinds.book-seat]
key = "seat:{show}:{seat}"
account = "{guest}"
"#;

/// The app's own table, beside Onceward's, which all begin with `onceward_`.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS seats (
  booking TEXT PRIMARY KEY, show TEXT NOT NULL, seat TEXT NOT NULL, guest TEXT NOT NULL, UNIQUE (show, seat))";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let seat = run(folder.path())?;
    println!("{} is {}, reference {}", seat.key, seat.state, seat.reference.as_deref().unwrap_or("none"));
    Ok(())
}

/// Starts a worker in this process, books a seat, asks for the same seat twice, and stops cleanly.
pub fn run(folder: &Path) -> Result<Standing, Box<dyn Error>> {
    let file = folder.join("app.db");
    open(&file)?.execute_batch(TABLE)?;
    let handler = Handler::new(move |call: &HandlerCall| book(&file, call)).repeat_safe();
    let onceward =
        Builder::from_text(CONFIG, &folder.join("onceward.toml"))?.handler("book-seat", handler).start()?;

    let seat = Request {
        kind: "book-seat".into(),
        payload: r#"{"show":"2026-12-24","seat":"A12","guest":"g-77"}"#.into(),
        ..Request::default()
    };
    let first = onceward.enqueue(seat.clone())?;
    let again = onceward.enqueue(seat)?;
    println!("asked for: {}, and again: {}", first.word(), again.word());

    // An app would rather go on and look later.
    let booked = onceward.wait(&first.receipt().key, Duration::from_secs(30))?.ok_or("the job is gone")?;
    onceward.stop();
    match onceward.join()? {
        Ended::Finished => println!("the worker has ended, nothing in flight"),
        Ended::Abandoned(calls) => println!("{calls} calls did not end in time"),
    }
    Ok(booked)
}

/// Books a seat. An error that leaves by `?` is in doubt, and then the handler is called again, being repeatable.
fn book(file: &Path, call: &HandlerCall) -> Result<HandlerOutcome, rusqlite::Error> {
    let field = |name: &str| call.payload.get(name).and_then(|v| v.scalar()).unwrap_or_default().into_owned();
    let app = open(file)?;
    app.execute(
        "INSERT INTO seats (booking, show, seat, guest) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        (&call.wire_key, field("show"), field("seat"), field("guest")),
    )?;
    let holder: String = app.query_row(
        "SELECT booking FROM seats WHERE show = ?1 AND seat = ?2",
        (field("show"), field("seat")),
        |row| row.get(0),
    )?;
    if holder != call.wire_key {
        return Ok(HandlerOutcome::Rejected("the seat is taken".into()));
    }
    Ok(HandlerOutcome::Settled { reference: Some(holder), result: None })
}

/// The app's own connection. It must wait for a lock: another writer may be at work in the same file.
fn open(file: &Path) -> Result<Connection, rusqlite::Error> {
    let app = Connection::open(file)?;
    app.busy_timeout(Duration::from_secs(10))?;
    Ok(app)
}
