//! Onceward: every business effect once, from one SQLite file.
#![forbid(unsafe_code)]

pub mod clock;
pub mod json;
pub mod outcome;
pub mod job;
pub mod intent;
pub mod decide;
pub mod config;
pub mod provider;
