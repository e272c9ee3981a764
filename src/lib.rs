//! Onceward gets every business effect done once, from one SQLite file.
//!
//! An app that carries it inside needs what stands on this page: a [`Builder`] reads the config and takes the app's
//! [`Handler`]s, and gives an [`Onceward`], which takes [`Request`]s and works on them in threads of its own. `examples/`
//! has whole apps; `docs/embedding.md` says what to choose, other languages included.
//!
//! The modules are public for the program `onceward` and its tests only. They are hidden here, and no part of what a
//! version promises.
//!
//! In reading order: the model (what a job, an intent and an outcome are), the decisions (pure), the store (all the
//! SQL), the provider (all outgoing calls), the worker that joins the two, and the surfaces. Arrows go one way:
//! `clock, json, outcome, job, intent <- decide, retry, schedule <- store <- worker <- app, http, cli, demo`; `provider`
//! knows the model and the config, and no SQL; `worker` is the only one that knows both `store` and `provider`.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod json;
#[doc(hidden)]
pub mod outcome;
#[doc(hidden)]
pub mod job;
#[doc(hidden)]
pub mod intent;
#[doc(hidden)]
pub mod retry;
#[doc(hidden)]
pub mod decide;
#[doc(hidden)]
pub mod schedule;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod provider;
#[doc(hidden)]
pub mod worker;
#[doc(hidden)]
pub mod demo;
#[doc(hidden)]
pub mod view;
#[doc(hidden)]
pub mod door;
#[doc(hidden)]
pub mod http;
#[doc(hidden)]
pub mod cli;
mod app;
mod bench;
mod cards;
mod crash;
mod descriptors;
mod escapes;
mod eyes;
mod log_buffer;
mod pace;
mod process;
mod run_file;

pub use app::{Builder, Onceward, Standing, StartError};
pub use clock::Ms;
pub use config::{ConfigError, Request};
pub use intent::IntentState;
pub use job::{Code, JobId, Reason, Refusal, State};
pub use json::Json;
pub use provider::{Handler, HandlerCall, HandlerOutcome};
pub use store::{Enqueued, Receipt, StoreError};
pub use worker::{Ended, TradeError};
