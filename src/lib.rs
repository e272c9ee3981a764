//! Onceward gets every business effect done once, from one SQLite file.
//!
//! In reading order: the model (what a job, an intent and an outcome are), the decisions (pure), the store (all the
//! SQL), the provider (all outgoing calls), the worker that joins the two, and the surfaces. Arrows go one way:
//! `clock, json, outcome, job, intent <- decide, retry, schedule <- store <- worker <- http, cli, demo`; `provider` knows the
//! model and the config, and no SQL; `worker` is the only one that knows both `store` and `provider`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod json;
pub mod outcome;
pub mod job;
pub mod intent;
pub mod retry;
pub mod decide;
pub mod schedule;
pub mod config;
pub mod store;
pub mod provider;
pub mod worker;
pub mod bench;
pub mod demo;
pub mod view;
pub mod door;
pub mod http;
pub mod cli;
mod crash;
mod pace;
mod planted;
