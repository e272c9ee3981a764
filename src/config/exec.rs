//! A kind that a program on this machine does, as the config says it. Types only; `read/exec.rs` reads them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `exec = ["/usr/bin/print-receipt"]`, or the same as a table with more to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exec {
    /// The program (joined with the config's folder), never looked for in `PATH`.
    pub program: PathBuf,
    /// Its arguments, as they are: no shell reads them.
    pub args: Vec<String>,
    /// Where it runs: the config's folder unless set.
    pub dir: PathBuf,
    /// How long it may run before its process group is ended.
    pub timeout: Duration,
    /// Runs at once; as many as the worker has threads unless set.
    pub concurrency: Option<u32>,
    /// It may be run again with one key and then has no second effect.
    pub repeat_safe: bool,
    /// What exit codes mean, where that is not what they mean by themselves.
    pub codes: BTreeMap<u8, Said>,
    /// The program that says what became of a run, and its arguments.
    pub lookup: Option<(PathBuf, Vec<String>)>,
}

/// What an exit code says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// Done.
    Settled,
    /// Certainly nothing happened: again later.
    TryAgain,
    /// Refused for good, certainly without an effect.
    Rejected,
    /// It may have happened.
    Unknown,
}

impl Exec {
    /// What the exit code of a run says. By themselves (sysexits.h): 0 is done, 75 (`EX_TEMPFAIL`) try again,
    /// 65 (`EX_DATAERR`) and 78 (`EX_CONFIG`) refused; no other says anything for certain.
    pub fn said(&self, code: u8) -> Said {
        self.codes.get(&code).copied().unwrap_or(match code {
            0 => Said::Settled,
            65 | 78 => Said::Rejected,
            75 => Said::TryAgain,
            _ => Said::Unknown,
        })
    }
}
