//! `work`

#[cfg(unix)]
use super::notify::Systemd;
use super::{CliError, Context, Opened, child, output};
use crate::descriptors;
use crate::http::{self, Server};
use crate::store::Store;
use crate::worker::{self, Ended, Options, Stop, Until};
use clap::Args;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args, Debug)]
pub struct WorkArgs {
    /// Do what is due now, then exit
    #[arg(long, conflicts_with = "exit_when_idle")]
    once: bool,
    /// Exit when nothing is left that this worker could bring forward
    #[arg(long)]
    exit_when_idle: bool,
    /// For an app that starts the worker itself: the API's token is the first line of stdin, {"ready":true,"port":N,…}
    /// is said on stdout, and when stdin is closed the worker stops. Without [http], a free port is taken
    #[arg(long, conflicts_with_all = ["once", "exit_when_idle"])]
    child: bool,
}

pub fn run(context: &Context, args: &WorkArgs) -> Result<(), CliError> {
    let mut config = context.config()?;
    if args.child {
        child::take_token(&mut config)?;
    }
    let opened = Opened::new(config);
    if let Some(missing) = super::all_missing(opened.config.missing_secrets()) {
        return Err(missing.into());
    }
    let config = &opened.config;
    let store = Arc::new(opened.store(true, Some(config.worker.poll))?);
    if let Some(doubt) = super::place::doubt(store.path()) {
        log::warn!("{doubt}");
    }
    if let Some(doubt) = store.perhaps_put_back()? {
        log::warn!("{doubt}");
    }
    let needed = descriptors::of_worker(config.worker.threads);
    let granted = descriptors::raise(needed);
    if granted < needed {
        log::warn!(
            "this process may have {granted} descriptors, and {} threads may need {needed}: raise the limit (ulimit -n, \
             LimitNOFILE=), or lower [worker] threads, or calls will fail",
            config.worker.threads
        );
    }
    for (kind, then, now) in store.changed_key_templates()? {
        log::warn!(
            "the key template of kind {kind} was `{then}` and is now `{now}`: an event that is asked for again gets \
             another key, and so another effect"
        );
    }
    let options = Options {
        until: match (args.once, args.exit_when_idle) {
            (true, _) => Until::Once,
            (false, true) => Until::Idle,
            (false, false) => Until::Stopped,
        },
        ..Options::new(config)
    };
    let stop = Stop::new();
    listen(stop.clone())?;
    #[cfg(unix)]
    if let Some(systemd) = Systemd::from_env() {
        let io = |error| CliError::Io { what: "systemd cannot be told".into(), error };
        systemd.watch(&stop).map_err(io)?;
    }
    // A worker that is to end by itself works beside the one that stays, which has the address already.
    let mut server = match options.until {
        Until::Stopped => serve(&opened, &store, &stop)?,
        Until::Idle | Until::Once => None,
    };
    if let (true, Some(server)) = (args.child, &server) {
        child::end_with_the_app(stop.clone())?;
        child::tell(server.address())?;
    }
    let grace = options.grace;
    let ended = worker::run(store, Arc::clone(&opened.trade), options, stop.clone());
    // Whoever stops a worker has it gone within its grace, or a moment later, whatever others do.
    let left = || grace.saturating_sub(stop.asked_for().unwrap_or_default()).max(MOMENT);
    if let Some(server) = &mut server {
        server.stop(left().min(LAST_ANSWERS));
    }
    let ended = ended?;
    output::end_log(left().min(LAST_LINES));
    match ended {
        Ended::Finished => Ok(()),
        // The threads in flight end with the process; the exit code says that the stop itself went as it should.
        Ended::Abandoned(_) => std::process::exit(0),
    }
}

/// What is left for the last words where the grace is over.
const MOMENT: Duration = Duration::from_millis(200);
/// How long whoever reads the log may take for what waits to be read.
const LAST_LINES: Duration = Duration::from_secs(2);

/// How long requests that are being answered may take once the worker has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

fn serve(opened: &Opened, store: &Arc<Store>, stop: &Stop) -> Result<Option<Server>, CliError> {
    let listen = opened.config.http.as_ref().map(|http| http.listen.to_string()).unwrap_or_default();
    let io = |error| CliError::Io { what: format!("{listen} cannot be listened on ([http] listen)"), error };
    http::start(Arc::clone(&opened.config), Arc::clone(store), stop.clone()).map_err(io)
}

/// The first SIGTERM or SIGINT stops, the second ends the process at once.
#[cfg(unix)]
fn listen(stop: Stop) -> Result<(), CliError> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    let io = |error| CliError::Io { what: "signals cannot be listened to".into(), error };
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(io)?;
    std::thread::Builder::new()
        .name("onceward-signals".into())
        .spawn(move || {
            let mut asked = false;
            for _ in signals.forever() {
                if asked {
                    std::process::exit(1);
                }
                asked = true;
                if let Some(systemd) = Systemd::from_env() {
                    systemd.stopping();
                }
                stop.request_once();
            }
        })
        .map_err(io)?;
    Ok(())
}

/// The same where a signal can only set a flag: the first one sets it, the next one finds it set.
#[cfg(not(unix))]
fn listen(stop: Stop) -> Result<(), CliError> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag::{register, register_conditional_shutdown};
    use std::sync::atomic::{AtomicBool, Ordering};
    let io = |error| CliError::Io { what: "signals cannot be listened to".into(), error };
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        register_conditional_shutdown(signal, 1, Arc::clone(&asked)).map_err(io)?;
        register(signal, Arc::clone(&asked)).map_err(io)?;
    }
    let watch = move || {
        while !asked.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        stop.request();
    };
    std::thread::Builder::new().name("onceward-signals".into()).spawn(watch).map_err(io)?;
    Ok(())
}
