//! From what an app asks for to a job that can be stored: every check that needs no file.

use crate::clock::Ms;
use std::time::Duration;

/// What an app asks for, as it came through a door.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Request {
    /// What sort of work.
    pub kind: String,
    /// JSON text.
    pub payload: String,
    /// The key, if the app names it itself.
    pub key: Option<String>,
    /// The group.
    pub group: Option<String>,
    /// The place in the group.
    pub sequence: Option<i64>,
    /// Not before this.
    pub at: Option<Ms>,
    /// Not before so long from now.
    pub delay: Option<Duration>,
    /// Higher first.
    pub priority: i64,
    /// Whose account.
    pub account: Option<String>,
    /// The amount in minor units, as it was written.
    pub amount_minor: Option<String>,
    /// The currency.
    pub currency: Option<String>,
    /// Suppress jobs of this kind with the same id for so long.
    pub dedup: Option<(String, Duration)>,
}
