//! How many descriptors (files, sockets, pipes) this process may have.
//!
//! Some systems begin with 256. A worker that runs out of them cannot call its providers, so the soft limit is raised to
//! what is needed, as far as the hard one lets it be, and what the API may take is what the worker's own calls leave.

/// The store's files and readers, the log, the listener, files that are read for a moment.
const BESIDE: usize = 48;
/// What a call may take: a socket, or a program's pipes and lock.
const A_CALL: usize = 4;

/// What a worker with so many threads needs for itself.
pub fn of_worker(threads: usize) -> usize {
    BESIDE + A_CALL * threads
}

/// Raises the soft limit, if it is lower, towards so many. Gives what it is then.
#[cfg(unix)]
pub fn raise(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None: there is no limit.
    let Some(soft) = current else { return usize::MAX };
    let aim = (wanted as u64).min(maximum.unwrap_or(u64::MAX));
    let raised = aim > soft && setrlimit(Resource::Nofile, Rlimit { current: Some(aim), maximum }).is_ok();
    usize::try_from(if raised { aim } else { soft }).unwrap_or(usize::MAX)
}

/// Sockets are no descriptors here, and are limited by memory alone.
#[cfg(not(unix))]
pub fn raise(_: usize) -> usize {
    usize::MAX
}
