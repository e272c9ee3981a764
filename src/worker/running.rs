//! A worker in a thread of an embedding app: started, fed and stopped by the app.

use super::{Ended, Options, Stop, Trade, run};
use crate::config::Request;
use crate::store::{Enqueued, Store, StoreError};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A worker that runs in this process. Dropping it stops it and waits for the calls in flight, at most for the grace.
pub struct Running {
    store: Arc<Store>,
    trade: Arc<Trade>,
    stop: Stop,
    thread: Option<JoinHandle<Result<Ended, StoreError>>>,
}

/// Starts a worker in a thread of its own.
///
/// `store` must have been opened with the same `trade` as its desk, so that both know the same kinds.
pub fn spawn(store: Arc<Store>, trade: Arc<Trade>, options: Options) -> Result<Running, StoreError> {
    if let Some(doubt) = store.perhaps_put_back()? {
        log::warn!("{doubt}");
    }
    let stop = Stop::new();
    let (to_run, with, until) = (Arc::clone(&store), Arc::clone(&trade), stop.clone());
    let thread = std::thread::Builder::new()
        .name("onceward-worker".into())
        .spawn(move || {
            // Nobody may look at the result before the app ends, so trouble is told at once.
            run(to_run, with, options, until).inspect_err(|e| log::error!("the worker ended: {e}"))
        })
        .map_err(|e| StoreError::Sqlite(format!("the worker's thread could not be started: {e}")))?;
    Ok(Running { store, trade, stop, thread: Some(thread) })
}

impl Running {
    /// Asks for an effect: checked by the config, stored, and noticed by this worker at once. `Ok` means that it is on
    /// disk; a refusal says what to change, and changed nothing.
    pub fn enqueue(&self, request: Request) -> Result<Enqueued, StoreError> {
        let job = self.trade.config().prepare(request)?;
        let enqueued = self.store.enqueue(job, "app")?;
        self.stop.wake();
        Ok(enqueued)
    }

    /// Something may be due: the app has enqueued on the store itself.
    pub fn wake(&self) {
        self.stop.wake();
    }

    /// Whether the worker still runs. It ends by itself when `options.until` says so, or when the file fails it.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Claim no more, finish what is in flight. Returns at once. A second call ends the worker without waiting for them.
    pub fn stop(&self) {
        self.stop.request();
    }

    /// Waits until the worker has ended, and says how. Does not stop it.
    pub fn join(mut self) -> Result<Ended, StoreError> {
        self.wait()
    }

    fn wait(&mut self) -> Result<Ended, StoreError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(StoreError::Sqlite("the worker's thread panicked; please report it".into())),
            None => Ok(Ended::Finished),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop.request_once();
            let _ = self.wait();
        }
    }
}
