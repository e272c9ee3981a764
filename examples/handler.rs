//! A handler whose effect must not be repeated, and that can be asked what became of it.
//!
//! ```text
//! cargo run --example handler
//! ```
//!
//! The effect is a letter put on a printer's tray: printing twice is two letters, so the handler is not `repeat_safe`.
//! Here it panics once, right after the letter has come out. Onceward does not know whether it did, so it prints
//! nothing again: it asks the look-up, which finds the letter, and the job settles with one letter printed.
#![allow(clippy::print_stdout)] // an example shows what it does
#![allow(clippy::panic)] // the crash that it is about

use onceward::{Builder, Handler, HandlerCall, HandlerOutcome, Request, Standing};
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const CONFIG: &str = r#"
[store]
path = "letters.db"

[kinds.letter]
key = "letter:{invoice}"
retry = { base = "10ms", cap = "1s" }
"#;

/// The printer: every letter that ever came out, by the wire key printed in its corner.
#[derive(Default)]
pub struct Printer(Mutex<Vec<String>>);

impl Printer {
    fn print(&self, corner: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(corner.to_string());
    }

    fn has(&self, corner: &str) -> bool {
        self.letters().iter().any(|letter| letter == corner)
    }

    /// All letters.
    pub fn letters(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let printer = Arc::new(Printer::default());
    let letter = run(folder.path(), &printer)?;
    println!("{} is {}; letters printed: {}", letter.key, letter.state, printer.letters().len());
    Ok(())
}

/// Asks for one letter, and waits until nothing is left to do.
pub fn run(folder: &Path, printer: &Arc<Printer>) -> Result<Standing, Box<dyn Error>> {
    let onceward = Builder::from_text(CONFIG, &folder.join("onceward.toml"))?
        .handler("letter", letter(Arc::clone(printer)))
        .start()?;
    let asked = onceward.enqueue(Request {
        kind: "letter".into(),
        payload: r#"{"invoice":"INV-1001","text":"Thank you."}"#.into(),
        ..Request::default()
    })?;
    Ok(onceward.wait(&asked.receipt().key, Duration::from_secs(30))?.ok_or("the job is gone")?)
    // What goes out of scope here stops the worker and waits for it.
}

fn letter(printer: Arc<Printer>) -> Handler {
    let asked = Arc::clone(&printer);
    Handler::new(move |call: &HandlerCall| -> HandlerOutcome {
        printer.print(&call.wire_key);
        panic!("the paper jammed, after the letter had come out");
    })
    .look_up(move |call: &HandlerCall| {
        if asked.has(&call.wire_key) {
            HandlerOutcome::Settled { reference: Some(call.wire_key.clone()), result: None }
        } else {
            HandlerOutcome::NotFound
        }
    })
    .deadline(Duration::from_secs(5))
}
