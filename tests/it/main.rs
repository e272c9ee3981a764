//! Black-box tests: the real binary, a real file, real sockets. A file a behaviour; `harness` sets the scene.
// A test that cannot go on says so by panicking; its helpers are no exception.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod harness;

mod after_restore;
mod alerts;
mod api;
mod api_doors;
mod api_edges;
mod api_kept;
#[cfg(unix)]
mod api_strangers;
mod audit;
mod backup;
#[cfg(unix)]
mod bench;
mod child;
mod cli;
mod clock;
mod console;
mod console_pages;
mod crash;
mod import;
mod generations;
mod inbox;
mod demo;
mod disk;
mod durable;
mod docs;
mod docs_reference;
#[cfg(unix)]
mod docs_run;
mod doctor;
mod email;
mod embed;
mod embed_ends;
mod embed_file;
mod events;
mod languages;
mod load;
mod localstripe;
#[cfg(unix)]
mod exec;
#[cfg(unix)]
mod exec_ends;
#[cfg(unix)]
mod exec_outlives;
mod external;
mod eyes;
mod families;
mod file_faults;
#[cfg(unix)]
mod file_moves;
mod foreign_log;
mod locked;
#[cfg(unix)]
mod lock_files;
mod marks;
mod migration;
mod mutations;
mod neighbours;
mod numbers;
mod oauth;
mod offline;
mod online;
mod operate;
mod order;
#[cfg(unix)]
mod packaging;
mod pause;
mod prune;
mod reconcile;
mod read_only;
mod refused;
mod power_cut;
mod profiles;
mod proofs;
mod replies;
mod restore;
mod restore_histories;
mod schedules;
mod secret_forms;
mod secrets;
mod shapes;
#[cfg(feature = "crash-points")]
mod sweep;
mod tills;
mod turns;
mod twice;
mod unknown;
mod unread_log;
mod wire;
mod wire_proxy;
mod wire_sweep;
mod wire_tls;
mod words;
mod webhooks;
mod window;
