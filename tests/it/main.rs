//! Black-box tests: the real binary, a real file, real sockets. A file a behaviour; `harness` sets the scene.
// A test that cannot go on says so by panicking; its helpers are no exception.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod harness;

mod audit;
mod backup;
mod cli;
mod crash;
mod import;
mod inbox;
mod demo;
mod embed;
mod embed_ends;
mod load;
mod external;
mod locked;
mod numbers;
mod offline;
mod operate;
mod pause;
mod prune;
mod reconcile;
mod refused;
mod replies;
mod schedules;
mod secrets;
mod shapes;
#[cfg(feature = "crash-points")]
mod sweep;
mod tills;
mod twice;
mod unknown;
