//! `work --child`: a worker that an app starts as a process of its own, and that ends with it.
//!
//! The pipe to its stdin is the tie between the two. The first line is the token of the API, which so stands in no file,
//! no argument and no environment; the pipe's end is the app's end, however it came about, for the system closes the
//! pipes of a process that was killed. What is in flight then is finished within `[worker] shutdown_grace`.

use super::{CliError, output::Output};
use crate::config::{Config, Secret};
use crate::json::unmarked;
use crate::worker::Stop;
use serde::Serialize;
use std::io::{BufRead, Read};
use std::net::SocketAddr;

/// The longest first line.
const LINE: u64 = 4096;

/// Puts the token from stdin into the config.
pub fn take_token(config: &mut Config) -> Result<(), CliError> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .take(LINE)
        .read_line(&mut line)
        .map_err(|error| CliError::Io { what: "the token cannot be read from stdin".into(), error })?;
    let Some(token) = line.strip_suffix('\n') else {
        let why = format!(
            "--child reads the API's token from stdin, and no whole line of at most {LINE} bytes came: write the token \
             and a line end into the pipe, and keep it open for as long as the worker is to work"
        );
        return Err(CliError::Usage(why));
    };
    let unfit = |why: String| CliError::Usage(format!("the token on stdin {why}"));
    let token =
        Secret::handed_over(unmarked(token).trim_end_matches('\r')).map_err(|why| unfit(why.into()))?;
    token.fits_a_token().map_err(unfit)?;
    config.take_api_token(token);
    Ok(())
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    port: u16,
    url: String,
}

/// Tells the app where it is listened: one line of JSON, whether or not `--json` was asked for.
pub fn tell(address: SocketAddr) -> Result<(), CliError> {
    let ready = Ready { ready: true, port: address.port(), url: format!("http://{address}") };
    Output::new(true).result(&ready, String::new)
}

/// Stops the worker when the pipe ends. Whatever else comes through it is read and left alone.
pub fn end_with_the_app(stop: Stop) -> Result<(), CliError> {
    let watch = move || {
        // An error is an end too: nothing comes through the pipe any more.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        log::info!("stdin was closed: the app that started this worker has ended, or lets go of it");
        stop.request_once();
    };
    let thread = std::thread::Builder::new().name("onceward-app".into());
    thread.spawn(watch).map_err(|error| CliError::Io { what: "stdin cannot be watched".into(), error })?;
    Ok(())
}
