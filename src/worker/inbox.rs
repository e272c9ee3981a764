//! The SQL inbox, a batch a round. A fault here is logged and tried again later: it must not keep jobs from being done.

use crate::store::{INBOX_BATCH, Store, StoreError};
use std::time::{Duration, Instant};

/// When to look into the inbox again.
#[derive(Default)]
pub struct Inbox {
    failures: u32,
    again: Option<Instant>,
    error: Option<StoreError>,
}

impl Inbox {
    /// Takes a batch. `true`: there may be more at once.
    pub fn take(&mut self, store: &Store) -> bool {
        if self.again.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        match store.take_inbox() {
            Ok(rows) => {
                *self = Inbox::default();
                rows == INBOX_BATCH
            }
            Err(e) => {
                self.failures = self.failures.saturating_add(1);
                let (base, cap) = (Duration::from_millis(100), Duration::from_secs(60));
                let pause = crate::retry::backoff(self.failures, base, cap, 1.0);
                self.again = Some(Instant::now() + pause);
                let file = store.path().display();
                log::error!("the inbox in {file} could not be taken: {e}; next try in {pause:?}");
                self.error = Some(e);
                false
            }
        }
    }

    /// The last error, once so many tries in a row have failed.
    pub fn given_up(&mut self, tries: u32) -> Option<StoreError> {
        if self.failures >= tries { self.error.take() } else { None }
    }
}
