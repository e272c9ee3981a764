//! Power cuts and failing disks under the real store: SQLite stands on a disk in memory that forgets what was not synced,
//! and the script is cut, or meets an error, at each of its operations.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod cuts;
mod errors;
mod look;
mod platter;
mod script;
mod syncs;
mod vfs;
