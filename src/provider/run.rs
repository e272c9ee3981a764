//! One run of a program, from start to end: its pipes, its time, its process group.
//!
//! One thread does it all by polling, so that nothing is left behind: not a thread that waits for a pipe which some
//! grandchild keeps open, and not a process id that is signalled after it was given to somebody else (the program is
//! reaped last, and until then its id is its own).

use super::ProgramRecord;
use super::exec::{Output, Ran, Run};
use crate::run_file::RunFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, waitid,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What is kept of each stream; the rest is read and dropped, so that the program is not held up.
pub(super) const KEPT: usize = 64 * 1024;
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// The longest time without a look whether the program has ended.
const STEP: Duration = Duration::from_millis(20);
/// What is read at most after its end: what a pipe may hold, and not what a grandchild goes on writing.
const LAST_READS: usize = 64;

/// `record`: what is known of it if this worker dies. It stands there before the program gets its input.
pub(super) fn run(run: &Run, record: Option<ProgramRecord<'_>>) -> (Ran, Output) {
    let not_started = |why: String| (Ran::NotStarted(why), Output::default());
    let mut command = Command::new(&run.program);
    command.args(&run.args).current_dir(&run.dir).env_clear().envs(run.env.iter().map(|(n, v)| (n, v)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut file = match record.map(|record| RunFile::make(record.file, run.timeout)).transpose() {
        Ok(file) => file,
        Err(e) => return not_started(format!("the run's lock file could not be made: {e}")),
    };
    // An error here is a proof: the program's own code did not begin.
    let child = match &mut file {
        Some(file) => file.start(|| command.spawn()),
        None => command.spawn(),
    };
    let child = match child {
        Ok(child) => child,
        Err(e) => {
            let (program, dir) = (run.program.display(), run.dir.display());
            return not_started(format!("{program} cannot be started in {dir}: {e}"));
        }
    };
    if let (Some(file), Some(record)) = (&mut file, record) {
        let kept = (record.keep)(file.started(child.id()));
        if let Err(e) = kept {
            log::warn!("which process runs is on record in {} only: {e}", record.file.display());
        }
    }
    let mut running = Running::new(child, &run.stdin);
    let ran = running.serve_to_its_end(run.timeout);
    (ran, running.output)
}

struct Running<'r> {
    child: Child,
    stdin: Option<ChildStdin>,
    /// What it has not taken of its input.
    rest: &'r [u8],
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    output: Output,
}

impl Running<'_> {
    fn new(mut child: Child, input: &[u8]) -> Running<'_> {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Running { child, stdin, rest: input, stdout, stderr, output: Output::default() }
    }

    fn serve_to_its_end(&mut self, timeout: Duration) -> Ran {
        let begun = Instant::now();
        let calm = self.never_block();
        let seen = calm.and_then(|()| self.serve_until(begun, timeout));
        let ended = match seen {
            Ok(true) => None,
            Ok(false) => Some(Ran::TimedOut),
            Err(e) => Some(Ran::Lost(format!("the program could not be watched, and was ended: {e}"))),
        };
        if ended.is_some() {
            self.end_group();
        }
        for _ in 0..LAST_READS {
            if !self.pass_bytes() {
                break;
            }
        }
        match (ended, self.child.wait()) {
            (Some(ended), _) => ended,
            (None, Ok(status)) => exited(status),
            (None, Err(e)) => Ran::Lost(format!("how the program ended cannot be seen: {e}")),
        }
    }

    fn never_block(&self) -> std::io::Result<()> {
        let ends = [
            self.stdin.as_ref().map(AsFd::as_fd),
            self.stdout.as_ref().map(AsFd::as_fd),
            self.stderr.as_ref().map(AsFd::as_fd),
        ];
        ends.into_iter().flatten().try_for_each(|end| Ok(ioctl_fionbio(end, true)?))
    }

    /// Passes bytes on until the program has ended (true) or the time is over.
    fn serve_until(&mut self, begun: Instant, timeout: Duration) -> std::io::Result<bool> {
        let mut step = Duration::from_millis(1);
        loop {
            let moved = self.pass_bytes();
            if self.has_ended()? {
                return Ok(true);
            }
            let Some(left) = timeout.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(false);
            };
            step = if moved { Duration::from_millis(1) } else { (step * 2).min(STEP) };
            self.wait_for_bytes(step.min(left))?;
        }
    }

    /// Without reaping it, so that its id stays its own.
    fn has_ended(&self) -> std::io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_some())
    }

    fn wait_for_bytes(&self, span: Duration) -> std::io::Result<()> {
        let mut ends = Vec::with_capacity(3);
        ends.extend(self.stdin.as_ref().map(|end| PollFd::new(end, PollFlags::OUT)));
        ends.extend(self.stdout.as_ref().map(|end| PollFd::new(end, PollFlags::IN)));
        ends.extend(self.stderr.as_ref().map(|end| PollFd::new(end, PollFlags::IN)));
        let span = Timespec { tv_sec: 0, tv_nsec: span.subsec_nanos() as _ };
        match poll(&mut ends, Some(&span)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// One read and one write of each open pipe; says whether any byte moved.
    fn pass_bytes(&mut self) -> bool {
        let wrote = self.write();
        let heard = read(&mut self.stdout, |bytes| {
            let room = KEPT.saturating_sub(self.output.stdout.len());
            self.output.stdout.extend(bytes.iter().take(room));
        });
        let complained = read(&mut self.stderr, |bytes| {
            let kept = &mut self.output.stderr;
            kept.extend(bytes);
            let over = kept.len().saturating_sub(KEPT);
            kept.drain(..over);
        });
        wrote || heard || complained
    }

    fn write(&mut self) -> bool {
        let Some(pipe) = &mut self.stdin else { return false };
        match pipe.write(self.rest) {
            Ok(n) if n < self.rest.len() => {
                self.rest = &self.rest[n..];
                return n > 0;
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return false,
            // All of it is written, or it reads no more: whether it needed to is its own affair.
            Ok(_) | Err(_) => {}
        }
        self.stdin = None;
        true
    }

    /// SIGTERM to the whole group, SIGKILL when the program has ended or the grace is over.
    fn end_group(&mut self) {
        let program = Pid::from_child(&self.child);
        let signal = |signal| {
            let _ = kill_process_group(program, signal);
            // One that has moved to another group would be waited for without end.
            if getpgid(Some(program)) != Ok(program) {
                let _ = kill_process(program, signal);
            }
        };
        let begun = Instant::now();
        signal(Signal::TERM);
        // Its last words are read, so that it does not hang on a full pipe.
        let _ = self.serve_until(begun, GRACE);
        signal(Signal::KILL);
    }
}

/// One read. A pipe at its end is closed; says whether any byte came.
fn read<P: Read>(pipe: &mut Option<P>, mut keep: impl FnMut(&[u8])) -> bool {
    let mut bytes = [0; 16 * 1024];
    let Some(open) = pipe else { return false };
    match open.read(&mut bytes) {
        Ok(n @ 1..) => {
            keep(&bytes[..n]);
            true
        }
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
        Ok(_) | Err(_) => {
            *pipe = None;
            false
        }
    }
}

fn exited(status: ExitStatus) -> Ran {
    match (status.code().map(u8::try_from), status.signal()) {
        (Some(Ok(code)), _) => Ran::Exited(code),
        (_, Some(signal)) => Ran::Killed(signal),
        _ => Ran::Lost(format!("how the program ended is not known: {status}")),
    }
}
