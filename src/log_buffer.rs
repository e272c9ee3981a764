//! Log lines on their way to whoever reads them: a bounded buffer, and a thread of its own that writes.
//!
//! Whoever has something to say never waits for the reader, be it a pipe that nobody empties or a terminal that was stopped:
//! what does not fit is dropped and counted. A worker adds the count to the file's figures.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many bytes of lines wait at most.
const MOST: usize = 1 << 20;

/// Lines that were dropped, until somebody writes them down.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The lines that were dropped since the last call. Whoever cannot write them down gives them back.
pub(crate) fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::SeqCst)
}

/// Lines that were dropped, once more.
pub(crate) fn give_back(dropped: u64) {
    DROPPED.fetch_add(dropped, Ordering::SeqCst);
}

/// The buffer. Cloned freely; one thread writes for all.
#[derive(Clone)]
pub(crate) struct LogBuffer {
    shared: Arc<Shared>,
}

struct Shared {
    most: usize,
    waiting: Mutex<Waiting>,
    more: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The thread has a line in its hands.
    writing: bool,
    /// Dropped since that was last said in the log itself.
    dropped: u64,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line, when there is one.
    fn next(&self) -> Vec<u8> {
        let mut waiting = self.waiting();
        loop {
            waiting.writing = false;
            if let Some(line) = waiting.lines.pop_front() {
                waiting.bytes = waiting.bytes.saturating_sub(line.len());
                waiting.writing = true;
                return line;
            }
            self.written.notify_all();
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl LogBuffer {
    /// Starts the thread that writes to `sink`, until the process ends.
    pub fn start(sink: impl Write + Send + 'static) -> std::io::Result<LogBuffer> {
        LogBuffer::start_with(sink, MOST)
    }

    fn start_with(mut sink: impl Write + Send + 'static, most: usize) -> std::io::Result<LogBuffer> {
        let (more, written) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { most, waiting: Mutex::default(), more, written });
        let inside = Arc::clone(&shared);
        std::thread::Builder::new().name("onceward-log".into()).spawn(move || {
            loop {
                let line = inside.next();
                // If nobody hears it there is nobody to tell.
                let _ = sink.write_all(&line).and_then(|()| sink.flush());
                let dropped = match &mut *inside.waiting() {
                    waiting if waiting.lines.is_empty() => std::mem::take(&mut waiting.dropped),
                    _ => 0,
                };
                if dropped > 0 {
                    log::warn!(
                        "{dropped} log lines were dropped before this one: the log was not read fast enough"
                    );
                }
            }
        })?;
        Ok(LogBuffer { shared })
    }

    /// Takes a line, or drops it.
    pub fn push(&self, line: &[u8]) {
        let mut waiting = self.shared.waiting();
        if waiting.bytes.saturating_add(line.len()) > self.shared.most {
            waiting.dropped += 1;
            give_back(1);
            return;
        }
        self.take(&mut waiting, line);
    }

    /// Takes a line even if there is no room: the last word of a command.
    pub fn insist(&self, line: &[u8]) {
        self.take(&mut self.shared.waiting(), line);
    }

    fn take(&self, waiting: &mut Waiting, line: &[u8]) {
        waiting.bytes = waiting.bytes.saturating_add(line.len());
        waiting.lines.push_back(line.to_vec());
        self.shared.more.notify_one();
    }

    /// Waits until everything is written, for so long at most. `false`: it is not.
    pub fn flush(&self, limit: Duration) -> bool {
        let begun = Instant::now();
        let mut waiting = self.shared.waiting();
        while !waiting.lines.is_empty() || waiting.writing {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.written.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Write for LogBuffer {
    /// One call is one line.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

    /// Writes a line each time it is let, and tells of it.
    struct Slow {
        may: Receiver<()>,
        told: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.may.recv().map_err(std::io::Error::other)?;
            self.told.send(line.to_vec()).map_err(std::io::Error::other)?;
            Ok(line.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_logs_waits_for_no_reader_and_what_does_not_fit_is_dropped_and_counted() {
        let ((let_it, may), (told, lines)) = (bounded(100), unbounded());
        let buffer = LogBuffer::start_with(Slow { may, told }, 10).unwrap();
        let before = take_dropped();
        for n in 0..5 {
            buffer.push(format!("line{n}\n").as_bytes());
        }
        // One may be in the thread's hands, and one fits beside it.
        let dropped = take_dropped();
        assert!((3..=4).contains(&dropped), "{dropped}");
        give_back(before);
        assert!(!buffer.flush(Duration::from_millis(20)), "nobody reads");
        buffer.insist(b"the last word\n");
        (0..10).for_each(|_| let_it.send(()).unwrap());
        assert!(buffer.flush(Duration::from_secs(10)));
        let read: Vec<Vec<u8>> = lines.try_iter().collect();
        assert_eq!(read.len() as u64, 5 - dropped + 1, "{read:?}");
        assert_eq!((&read[0][..], &read[read.len() - 1][..]), (&b"line0\n"[..], &b"the last word\n"[..]));
    }
}
