//! A desktop app that carries the library: what it does when its window is closed, and what a power cut leaves behind.
//!
//! ```text
//! cargo run --example window -- FOLDER
//! sell A12
//! ^D                                    (the window is closed; Ctrl-C is the same)
//! ```
//!
//! The app sells tickets. Its window is played by stdin: each line is a click, its end is the closed window. A ticket is
//! printed by a handler, beside the app's own work, and takes as long as the printer does: as long as there is a file
//! `out-of-paper` in the folder. Closing the window waits for the ticket that is being printed (`[worker]
//! shutdown_grace`, at most) and begins no other: those stay in the file and are printed when the app is opened again. If
//! the app is killed instead, the next start finds the ticket in doubt, and runs the handler again, under the same wire
//! key: the app's own table knows it, and so there is one ticket.
#![allow(clippy::print_stdout)] // an example shows what it does

use onceward::{Builder, Ended, Handler, HandlerCall, HandlerOutcome, Onceward, Request};
use rusqlite::Connection;
use std::error::Error;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const CONFIG: &str = r#"
[store]
path = "tickets.db"

[worker]
threads = 2
shutdown_grace = "60s"

[kinds.ticket]
key = "ticket:{seat}"
retry = { base = "10ms", cap = "1s" }
"#;

/// What the user does.
enum Event {
    Sell(String),
    Close,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: window FOLDER")?);
    open(&folder)?
        .execute_batch("CREATE TABLE IF NOT EXISTS tickets (number TEXT PRIMARY KEY, seat TEXT)")?;
    let printer = folder.clone();
    let onceward = Builder::from_text(CONFIG, &folder.join("onceward.toml"))?
        .handler("ticket", Handler::new(move |call: &HandlerCall| print(&printer, call)).repeat_safe())
        .start()?;

    let (events, user) = channel();
    watch(events)?;
    for event in user {
        match event {
            Event::Sell(seat) => sell(&onceward, &seat),
            Event::Close => break,
        }
    }
    onceward.stop();
    match onceward.join()? {
        Ended::Finished => println!("closed, nothing is being printed"),
        Ended::Abandoned(n) => println!("closed, though {n} tickets were being printed"),
    }
    Ok(())
}

/// A click: stored when this returns, printed whenever that is possible. The window never waits for the printer.
fn sell(onceward: &Onceward, seat: &str) {
    let payload = serde_json::json!({ "seat": seat }).to_string();
    match onceward.enqueue(Request { kind: "ticket".into(), payload, ..Request::default() }) {
        Ok(asked) => println!("{seat}: {}", asked.word()),
        Err(e) => println!("{seat}: {e}"),
    }
}

/// Prints a ticket. The app's row under the wire key is the effect here, and writing it twice is harmless.
fn print(folder: &Path, call: &HandlerCall) -> Result<HandlerOutcome, rusqlite::Error> {
    let seat = call.payload.get("seat").and_then(|seat| seat.scalar()).unwrap_or_default();
    println!("{seat}: printing");
    while folder.join("out-of-paper").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let row = (&call.wire_key, &*seat);
    open(folder)?.execute("INSERT INTO tickets VALUES (?1, ?2) ON CONFLICT DO NOTHING", row)?;
    Ok(HandlerOutcome::Settled { reference: Some(call.wire_key.clone()), result: None })
}

/// The app's own connection to the same file. It must wait for a lock: another writer may be at work.
fn open(folder: &Path) -> Result<Connection, rusqlite::Error> {
    let db = Connection::open(folder.join("tickets.db"))?;
    db.busy_timeout(Duration::from_secs(30))?;
    Ok(db)
}

/// Makes events of what the user does, and of Ctrl-C.
fn watch(events: Sender<Event>) -> Result<(), Box<dyn Error>> {
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let events = events.clone();
        std::thread::spawn(move || signals.forever().try_for_each(|_| events.send(Event::Close)));
    }
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if let Some(seat) = line.strip_prefix("sell ") {
                let _ = events.send(Event::Sell(seat.into()));
            }
        }
        let _ = events.send(Event::Close);
    });
    Ok(())
}
