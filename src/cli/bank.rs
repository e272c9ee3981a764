//! `demo --serve`: only the demonstration's provider, to try a config against. It tells each request as it comes.

use super::{CliError, Context};
use crate::demo::provider::{Effect, Family, Faults, Provider, Seen, State};
use serde::Serialize;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The largest payout that is made, in minor units: a larger one is refused, so that there is a refusal to look at.
const LIMIT: u64 = 1_000_000;
/// How soon a signal is noticed, at most.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of one request.
#[derive(Serialize)]
struct Told {
    event: &'static str,
    reference: String,
    id: Option<String>,
}

#[derive(Serialize)]
struct Books {
    requests: usize,
    lookups: usize,
    paid: usize,
    doubled: Vec<String>,
}

pub fn serve(
    context: &Context,
    address: SocketAddr,
    faults: Faults,
    slow: Option<Duration>,
) -> Result<(), CliError> {
    let io = |what: String| move |error| CliError::Io { what, error };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(io("signals cannot be listened to".into()))?;
    }
    let provider = Provider::start_on(address, Family::B, faults)
        .map_err(io(format!("{address} cannot be listened on")))?;
    {
        let mut state = provider.state();
        (state.limit, state.slow, state.first_id) =
            (Some(LIMIT), slow, fastrand::usize(1_000..1_000_000) * 1_000);
    }
    context.out.text(&format!("a provider for trials, which remembers keys, at {}", provider.base_url()))?;
    let (mut told, mut known) = (0, HashSet::new());
    while !stop.load(Ordering::SeqCst) {
        provider.wait_for(|state| next(state, told).is_some(), PAUSE);
        while let Some(line) = {
            let state = provider.state();
            next(&state, told).map(|seen| tell(&state, seen, &mut known))
        } {
            context.out.result(&line, || text(&line))?;
            told += 1;
        }
    }
    let state = provider.state();
    let books = Books {
        requests: state.posts().count(),
        lookups: state.lookups().count(),
        paid: state.effects.len(),
        doubled: state.doubled(),
    };
    context.out.result(&books, || {
        format!(
            "{} requests, {} look-ups, {} paid, {} paid twice",
            books.requests,
            books.lookups,
            books.paid,
            books.doubled.len()
        )
    })
}

/// The next request to tell, once it is known what became of it.
fn next(state: &State, told: usize) -> Option<&Seen> {
    state.requests.get(told).filter(|seen| seen.carried_out)
}

fn tell(state: &State, seen: &Seen, known: &mut HashSet<String>) -> Told {
    if seen.request.method == "GET" {
        return Told { event: "asked", reference: seen.request.path.clone(), id: None };
    }
    let key = seen.key.as_deref().unwrap_or_default();
    // Without a key each request that is carried out is an effect of its own: the last one.
    let fits = |e: &&Effect| e.key == key && Some(&e.reference) == seen.reference.as_ref();
    let made = state.effects.iter().rfind(fits);
    let event = match made {
        Some(effect) if known.insert(effect.id.clone()) => "paid",
        Some(_) => "repeat",
        None => "not paid",
    };
    let reference = seen.reference.clone().unwrap_or_default();
    Told { event, reference, id: made.map(|effect| effect.id.clone()) }
}

fn text(told: &Told) -> String {
    let id = told.id.as_deref().unwrap_or_default();
    format!("{:<8}  {}  {id}", told.event, told.reference).trim_end().to_string()
}
