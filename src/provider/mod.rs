//! The only place that makes outgoing calls: one call in, one [`Outcome`] out. No SQL, no decisions.

use crate::clock::Clock;
use crate::config::Config;
use crate::intent::{Frozen, Intent, Scope};
use crate::job::{Job, Step};
use crate::outcome::Outcome;
use std::sync::Arc;

/// One call to make.
pub struct Call<'a> {
    /// What it is for.
    pub step: Step,
    /// The job.
    pub job: &'a Job,
    /// Its intent.
    pub intent: &'a Intent,
    /// The request as it was frozen.
    pub frozen: &'a Frozen,
    /// Called once, after the connection stands and before the first byte of the request is handed to the network.
    /// An error ends the call as `not_sent`.
    pub before_first_byte: &'a dyn Fn() -> Result<(), String>,
}
