//! A provider to try Onceward against: a small HTTP server on loopback that pays out, remembers keys as its family
//! does, loses replies, stalls and fails as it is told, and counts every effect.
//!
//! The demonstration draws its faults at random; tests script them. Nothing here sleeps for its own sake: a held reply
//! waits on a condition that ends when it is released, when its time is over or when the provider stops.

mod fault;
mod model;
mod wire;

pub use crate::decide::Family;
pub use fault::{Answer, Fault, Faults};
pub use model::{Effect, Seen, State};
pub use wire::Request;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::Cut;

/// A running provider. It stops when it is dropped.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopped: AtomicBool,
}

impl Provider {
    /// Starts on a free port of the loopback address.
    pub fn start(family: Family, faults: Faults) -> io::Result<Provider> {
        Provider::start_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), family, faults)
    }

    /// Starts on this address: where an earlier one stood, say.
    pub fn start_on(address: SocketAddr, family: Family, faults: Faults) -> io::Result<Provider> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(family, faults)),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        });
        let accepting = std::thread::Builder::new().name("provider".into()).spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        })?;
        Ok(Provider { address, shared, accepting: Some(accepting) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it knows now. Requests wait while this is held.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// The next requests for an effect meet these faults.
    pub fn script(&self, faults: Vec<Fault>) {
        self.state().faults.add(faults);
    }

    /// The next look-ups meet these faults.
    pub fn script_lookups(&self, faults: Vec<Fault>) {
        self.state().faults.add_lookups(faults);
    }

    /// Lets every held request go on.
    pub fn release(&self) {
        self.state().releases += 1;
        self.shared.changed.notify_all();
    }

    /// Waits until the condition holds; `false` when it does not within `limit`.
    pub fn wait_for(&self, condition: impl Fn(&State) -> bool, limit: Duration) -> bool {
        let (_state, result) = self
            .shared
            .changed
            .wait_timeout_while(self.state(), limit, |state| !condition(state))
            .unwrap_or_else(PoisonError::into_inner);
        !result.timed_out()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        {
            let _state = self.shared.lock();
            self.shared.changed.notify_all();
        }
        // A connection of our own wakes the accepting thread, which then sees that it is to stop.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let (true, Some(thread)) = (woken, self.accepting.take()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let result = f(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until released or stopped, `limit` at most. `before`: the releases when the request was seen to be held,
    /// so that one that comes right after is not missed.
    fn hold(&self, limit: Duration, before: u64) {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        while state.releases == before && !self.stopped.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        // A thread that cannot be started drops the connection: one more fault for the caller to live with.
        let _ = std::thread::Builder::new().name("provider-call".into()).spawn(move || {
            serve(stream, &shared);
        });
    }
}

/// One connection: one request, at most one reply.
fn serve(mut stream: TcpStream, shared: &Shared) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let Ok(request) = wire::read(&mut stream) else { return };
    let (n, fault, releases) = shared.change(|state| {
        let n = state.arrive(request);
        (n, state.requests[n].fault.clone(), state.releases)
    });
    if let Fault::HoldBefore(limit) = fault {
        shared.hold(limit, releases);
    }
    let (answer, fault, releases) = shared.change(|state| {
        let answer = state.carry_out(n);
        (answer, state.requests[n].fault.clone(), state.releases)
    });
    if let Fault::HoldAfter(limit) = fault {
        shared.hold(limit, releases);
    }
    let cut = match fault {
        Fault::DropBefore | Fault::DropAfter => {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        Fault::Truncated { length: true } => Cut::Short,
        Fault::Truncated { length: false } => Cut::Open,
        _ => Cut::Whole,
    };
    if wire::write(&mut stream, &answer, cut).is_ok() {
        shared.change(|state| state.requests[n].answered = Some(answer.status));
    }
}

#[cfg(test)]
mod tests;
