//! Handlers that take long, and workers that end while one runs: a closure is never run beside itself.

use super::embed::{App, Calls, done};
use onceward::job::{Reason, State};
use onceward::outcome::Class;
use onceward::provider::{Handler, HandlerCall};
use onceward::worker::{self, Ended};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A handler that waits, once called, until it is let go.
struct Gate {
    calls: Calls,
    go: Sender<()>,
}

fn gated() -> (Gate, Handler) {
    let calls = Calls::default();
    let (go, wait): (Sender<()>, Receiver<()>) = channel();
    let (seen, wait) = (calls.clone(), Mutex::new(wait));
    let handler = Handler::new(move |call: &HandlerCall| {
        seen.note(call);
        wait.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        done("booking-1")
    });
    (Gate { calls, go }, handler)
}

impl Gate {
    #[track_caller]
    fn wait_for_call(&self) -> HandlerCall {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if let Some(call) = self.calls.all().first() {
                return call.clone();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the handler was not called");
    }
}

#[test]
fn a_call_past_its_deadline_stays_running_and_is_not_run_again() {
    let (gate, handler) = gated();
    // Repeatable, so that only the running call keeps the job from being run again.
    let handler = handler.repeat_safe().deadline(Duration::from_millis(10));
    let app = App::with(|b| b.handler("seat", handler), |o| o.lease = Duration::from_millis(300));
    let key = app.ask("A1");
    let call = gate.wait_for_call();
    // Past the deadline, several leases, and a round of the keeper.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(call.deadline < Instant::now());
    assert_eq!(app.story(&key).job.state, State::Running);
    assert_eq!(gate.calls.all().len(), 1);
    gate.go.send(()).unwrap();
    let story = app.rest(&key);
    assert_eq!((story.job.state, story.job.tries), (State::Settled, 1));
    assert_eq!(gate.calls.all().len(), 1);
}

#[test]
fn the_send_is_on_record_before_the_closure_is_called() {
    let (gate, handler) = gated();
    let app = App::new(handler);
    let key = app.ask("A1");
    gate.wait_for_call();
    let file = rusqlite::Connection::open(app.store.path()).unwrap();
    let phase: String =
        file.query_row("SELECT lease_phase FROM onceward_jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(phase, "sending", "a crash now is in doubt");
    gate.go.send(()).unwrap();
    assert_eq!(app.rest(&key).job.state, State::Settled);
}

#[test]
fn a_worker_that_follows_one_that_could_not_wait_leaves_the_running_call_alone() {
    let (gate, handler) = gated();
    let handler = handler.repeat_safe();
    let app = App::with(|b| b.handler("seat", handler), |o| o.grace = Duration::from_millis(10));
    let key = app.ask("A1");
    gate.wait_for_call();
    let App { store, trade, worker, _folder } = app;
    worker.stop();
    assert_eq!(worker.join().unwrap(), Ended::Abandoned(1));

    let options = worker::Options::new(trade.config());
    let worker = worker::spawn(Arc::clone(&store), Arc::clone(&trade), options).unwrap();
    let app = App { store, trade, worker, _folder };
    // A round of the second worker's keeper, which looks for what dead workers left.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(app.story(&key).job.state, State::Running);
    gate.go.send(()).unwrap();
    let story = app.rest(&key);
    assert_eq!((story.job.state, story.job.tries), (State::Settled, 1));
    assert_eq!(gate.calls.all().len(), 1);
}

#[test]
fn a_stop_waits_for_the_call_in_flight() {
    let (gate, handler) = gated();
    let app = App::new(handler);
    let key = app.ask("A1");
    gate.wait_for_call();
    let App { store, worker, .. } = app;
    worker.stop();
    assert!(worker.is_running());
    gate.go.send(()).unwrap();
    assert_eq!(worker.join().unwrap(), Ended::Finished);
    assert_eq!(store.story(&key).unwrap().unwrap().job.state, State::Settled);
}

#[test]
fn an_enqueue_in_the_process_is_noticed_at_once() {
    let app = App::new(Handler::new(|call: &HandlerCall| done(&call.key)));
    let begun = Instant::now();
    for seat in 0..8 {
        assert_eq!(app.rest(&app.ask(&seat.to_string())).job.state, State::Settled);
    }
    // Unwoken, the worker would look once a second.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Its drop panics, with another of its kind.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Bomb);
    }
}

#[test]
fn a_panic_that_panics_again_where_it_is_dropped_ends_no_thread() {
    let calls = Calls::default();
    let seen = calls.clone();
    let app = App::with(
        |b| {
            b.handler(
                "seat",
                Handler::new(move |call: &HandlerCall| {
                    if seen.note(call) <= 3 {
                        std::panic::panic_any(Bomb);
                    }
                    done("booking-1")
                }),
            )
        },
        |o| o.threads = 2,
    );
    for seat in ["A1", "A2", "A3"] {
        let story = app.rest(&app.ask(seat));
        assert_eq!(story.job.error_class, Some(Class::HandlerPanic), "{story:#?}");
        assert_eq!(story.job.park_reason, Some(Reason::UnknownOutcome), "{story:#?}");
    }
    assert_eq!(app.rest(&app.ask("A4")).job.state, State::Settled, "both threads are there still");
    app.worker.stop();
    assert_eq!(app.worker.join().unwrap(), Ended::Finished);
}
