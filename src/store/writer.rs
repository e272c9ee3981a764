//! The one writer: a thread that owns the write connection and commits for everybody who waits.
//!
//! It takes all that is queued, runs each piece in a savepoint inside one `BEGIN IMMEDIATE`, commits once and then
//! answers, so that many callers share one fsync and one bad write spoils no other. A failed COMMIT is not a no: after
//! an fsync error the rows may be there when the file is next opened. Its callers are told so, and the connection is
//! opened anew with a truncating checkpoint before anything else is written, and so before anything else is sent.

use super::{StoreError, hours, schema};
use crate::clock::{Clock, Ms};
use crate::pace::Pace;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rusqlite::Connection;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A batch takes no more work after this long.
const BATCH: Duration = Duration::from_millis(50);

/// The write transaction as a piece of work sees it.
pub struct Tx<'c> {
    conn: &'c Connection,
    now: Ms,
    counts: RefCell<BTreeMap<String, i64>>,
}

impl<'c> Tx<'c> {
    /// The transaction that is open on this connection.
    pub(super) fn new(conn: &'c Connection, now: Ms) -> Tx<'c> {
        Tx { conn, now, counts: RefCell::default() }
    }

    /// The connection, inside its transaction.
    pub fn conn(&self) -> &Connection {
        self.conn
    }

    /// The wall clock when the work began.
    pub fn now(&self) -> Ms {
        self.now
    }

    /// Adds to a figure of onceward_counters, if the work succeeds.
    pub fn count(&self, name: impl Into<String>, by: i64) {
        *self.counts.borrow_mut().entry(name.into()).or_default() += by;
    }

    /// Runs a part of the work in a savepoint of its own: its error undoes the part with its figures, and no more.
    pub(super) fn part<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let step = |sql: &str| self.conn.prepare_cached(sql)?.execute([]);
        let before = self.counts.borrow().clone();
        step("SAVEPOINT onceward_part")?;
        let result = work();
        // After some errors SQLite has rolled everything back, and there is no savepoint to return to.
        if self.conn.is_autocommit() {
            return result.and(Err(StoreError::Sqlite("SQLite rolled the whole transaction back".into())));
        }
        if result.is_err() {
            *self.counts.borrow_mut() = before;
            step("ROLLBACK TO onceward_part")?;
        }
        step("RELEASE onceward_part")?;
        result
    }

    /// Writes the figures that were counted, inside the transaction.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        flush(self.conn, &self.counts.take(), self.now)
    }
}

type Listener = Box<dyn Fn() + Send>;

pub struct Writer {
    queue: Option<Sender<Box<dyn Piece>>>,
    listener: Arc<Mutex<Option<Listener>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn start(path: &Path, clock: Arc<dyn Clock>, watch: Option<Duration>) -> Result<Writer, StoreError> {
        let conn = schema::connect(path)?;
        let (queue, pieces) = unbounded();
        let listener = Arc::new(Mutex::new(None));
        let mut desk = Desk {
            path: path.to_path_buf(),
            conn: Some(conn),
            clock,
            watch,
            listener: Arc::clone(&listener),
            seen: None,
            doubts: Pace::default(),
            written: None,
            changes: None,
            held: false,
            fold: Some(Instant::now()),
            doubted: false,
        };
        let thread = std::thread::Builder::new()
            .name("onceward-writer".into())
            .spawn(move || desk.serve(&pieces))
            .map_err(|e| StoreError::Sqlite(format!("the writer thread could not be started: {e}")))?;
        Ok(Writer { queue: Some(queue), listener, thread: Some(thread) })
    }

    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = bounded(1);
        let piece = Box::new(Job { work, result: None, reply });
        self.queue.as_ref().ok_or(StoreError::Closed)?.send(piece).map_err(|_| StoreError::Closed)?;
        answer.recv().unwrap_or(Err(StoreError::Closed))
    }

    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    pub fn on_foreign_commit(&self, call: Listener) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A piece of work with its result's type forgotten.
trait Piece: Send {
    /// Runs it and keeps the result. `true`: its changes are to stay.
    fn run(&mut self, tx: &Tx<'_>) -> bool;
    /// The transaction around it failed: whatever it had done is gone, or in doubt.
    fn fail(&mut self, error: StoreError);
    /// Sends the result to whoever waits.
    fn answer(self: Box<Self>);
}

struct Job<T, F> {
    work: F,
    result: Option<Result<T, StoreError>>,
    reply: Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&Tx<'_>) -> Result<T, StoreError> + Send> Piece for Job<T, F> {
    fn run(&mut self, tx: &Tx<'_>) -> bool {
        // A panic in one piece must not take the writer, and with it every other record, down.
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(tx)))
            .unwrap_or_else(|_| Err(StoreError::Sqlite("the write panicked; nothing of it was kept".into())));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn fail(&mut self, error: StoreError) {
        // A piece that failed by itself knows better why.
        if !matches!(self.result, Some(Err(_))) {
            self.result = Some(Err(error));
        }
    }

    fn answer(self: Box<Self>) {
        let Job { result, reply, .. } = *self;
        // Nobody waits any more if the caller's thread is gone; the write stands all the same.
        let _ = reply.send(result.unwrap_or(Err(StoreError::Closed)));
    }
}

struct Desk {
    path: PathBuf,
    /// `None` after a failed COMMIT, until it could be opened anew.
    conn: Option<Connection>,
    clock: Arc<dyn Clock>,
    watch: Option<Duration>,
    listener: Arc<Mutex<Option<Listener>>>,
    seen: Option<i64>,
    /// How often it is said that COMMITs fail.
    doubts: Pace,
    /// When something was last written, until the log is folded into the file.
    written: Option<Instant>,
    /// Rows that the connection had changed by then; `None`: not known.
    changes: Option<i64>,
    /// The log could not be emptied for so long; told once.
    held: bool,
    /// The log is to be emptied before the next write, from then on: it is not known what of it is on disk.
    fold: Option<Instant>,
    /// Because a COMMIT of ours failed.
    doubted: bool,
}

/// The log is folded into the file when nothing was written for this long.
const QUIET: Duration = Duration::from_secs(1);
/// How long, after a failed COMMIT, the fold waits for a reader.
const SHORT: Duration = Duration::from_millis(250);
/// A log of so many pages that cannot be emptied has a reader that stays: at 4 KiB a page, 64 MiB.
const LONG_LOG: i64 = 16_384;

impl Desk {
    fn serve(&mut self, pieces: &Receiver<Box<dyn Piece>>) {
        loop {
            let first = match self.watch {
                Some(poll) => pieces.recv_timeout(poll),
                None => pieces.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match first {
                Ok(first) => {
                    self.batch(first, pieces);
                    self.note_written();
                }
                Err(RecvTimeoutError::Timeout) => self.fold_when_quiet(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.watch.is_some() {
                self.look_around();
            }
        }
    }

    /// A claim that finds nothing, as an idle worker makes one each second, writes nothing and puts no fold off.
    fn note_written(&mut self) {
        let changes = self.conn.as_ref().and_then(|conn| {
            let mut statement = conn.prepare_cached("SELECT total_changes()").ok()?;
            statement.query_row([], |row| row.get::<_, i64>(0)).ok()
        });
        if changes.is_none() || changes != self.changes {
            (self.changes, self.written) = (changes, Some(Instant::now()));
        }
    }

    /// Empties the write-ahead log while nobody writes, so that it does not grow for ever and a copy of the one file holds
    /// nearly all. Waits for nobody: who reads or writes goes first, and it is tried again.
    fn fold_when_quiet(&mut self) {
        let (Some(conn), Some(written)) = (&self.conn, self.written) else { return };
        if written.elapsed() < QUIET {
            return;
        }
        let folded = conn.busy_timeout(Duration::ZERO).and_then(|()| {
            conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
        });
        let restored = conn.busy_timeout(schema::PATIENCE);
        let (busy, pages) = folded.unwrap_or((1, 0));
        let long = busy != 0 && pages > LONG_LOG;
        if long && !self.held {
            log::warn!(
                "the log beside the file has {pages} pages and cannot be emptied: another program has kept a read \
                 transaction open for long (lsof or fuser on the file name it)"
            );
        }
        self.held = long;
        // Tried again after another pause, or after the next write.
        self.written = if busy == 0 { None } else { Some(Instant::now()) };
        if let Err(e) = restored {
            log::error!("the patience of the write connection could not be set: {e}");
        }
    }

    /// Tells the listener when another process has committed. `data_version` on this connection does not change by its
    /// own commits.
    fn look_around(&mut self) {
        let Some(conn) = &self.conn else { return };
        let version = conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)));
        let Ok(version) = version else { return };
        let before = self.seen.replace(version);
        let foreign = before.is_some_and(|before| before != version);
        if foreign {
            // What others wrote stands in the log too, and they may be gone.
            self.written = Some(Instant::now());
        }
        if foreign && let Some(call) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            call();
        }
    }

    fn batch(&mut self, first: Box<dyn Piece>, pieces: &Receiver<Box<dyn Piece>>) {
        let mut batch = vec![first];
        batch.extend(pieces.try_iter().take(255));
        let trouble = match self.connected().and_then(begin) {
            Ok(()) => self.fill(&mut batch, pieces),
            Err(e) => Some(e),
        };
        match trouble {
            None => drop(self.doubts.over()),
            Some(Trouble::Undone(_)) if batch.len() > 1 => return self.singly(batch),
            Some(Trouble::Undone(e)) => batch.iter_mut().for_each(|piece| piece.fail(e.copy())),
            Some(Trouble::Doubtful(why)) => {
                batch.iter_mut().for_each(|piece| piece.fail(StoreError::CommitUnknown(why.clone())));
                self.doubt(&why);
            }
        }
        batch.into_iter().for_each(Piece::answer);
    }

    /// Runs the batch inside the open transaction, takes what comes meanwhile, and commits.
    fn fill(
        &mut self,
        batch: &mut Vec<Box<dyn Piece>>,
        pieces: &Receiver<Box<dyn Piece>>,
    ) -> Option<Trouble> {
        let Some(conn) = &self.conn else { return Some(Trouble::Undone(StoreError::Closed)) };
        let begun = Instant::now();
        let mut counts = BTreeMap::new();
        let mut done = 0;
        while done < batch.len() {
            let piece = &mut batch[done];
            if let Err(e) = run_one(conn, self.clock.as_ref(), piece.as_mut(), &mut counts) {
                roll_back(conn);
                return Some(Trouble::Undone(e));
            }
            done += 1;
            if done == batch.len() && begun.elapsed() < BATCH {
                batch.extend(pieces.try_iter().take(64));
            }
        }
        let flushed = flush(conn, &counts, self.clock.now());
        match flushed {
            Ok(()) => commit(conn),
            Err(e) => {
                roll_back(conn);
                Some(Trouble::Undone(e))
            }
        }
    }

    /// After FULL or an I/O error SQLite may have rolled the whole batch back: each piece gets a transaction of its own,
    /// so that one that can't be written does not take the others along.
    fn singly(&mut self, batch: Vec<Box<dyn Piece>>) {
        for mut piece in batch {
            let trouble = match self.connected().and_then(begin) {
                Ok(()) => self.alone(piece.as_mut()),
                Err(e) => Some(e),
            };
            match trouble {
                None => drop(self.doubts.over()),
                Some(Trouble::Undone(e)) => piece.fail(e),
                Some(Trouble::Doubtful(why)) => {
                    self.doubt(&why);
                    piece.fail(StoreError::CommitUnknown(why));
                }
            }
            piece.answer();
        }
    }

    fn alone(&self, piece: &mut dyn Piece) -> Option<Trouble> {
        let Some(conn) = &self.conn else { return Some(Trouble::Undone(StoreError::Closed)) };
        let mut counts = BTreeMap::new();
        let ran = run_one(conn, self.clock.as_ref(), piece, &mut counts)
            .and_then(|()| flush(conn, &counts, self.clock.now()));
        match ran {
            Ok(()) => commit(conn),
            Err(e) => {
                roll_back(conn);
                Some(Trouble::Undone(e))
            }
        }
    }

    /// A COMMIT failed. On a full disk that may be each one for hours, so it is told once a step.
    fn doubt(&mut self, why: &str) {
        self.conn = None;
        if self.doubts.due() {
            log::error!(
                "COMMIT to {} failed: {why}; whether it is stored is not known until the file is opened anew, which is \
                 done before the next write",
                self.path.display()
            );
        }
    }

    /// Empties the log before the first write and after a failed COMMIT. A reader that stays must not hold up every write
    /// for that: it has kept the log's index alive, so what a failed COMMIT wrote is in nobody's sight and is overwritten.
    /// Then it is tried again, each second at most.
    fn fold_first(&mut self) -> Result<(), Trouble> {
        let (Some(conn), Some(due)) = (&self.conn, self.fold) else { return Ok(()) };
        if due > Instant::now() {
            return Ok(());
        }
        let wait = if self.doubted { SHORT } else { Duration::ZERO };
        match schema::fold(conn, wait) {
            Ok(true) => (self.fold, self.doubted) = (None, false),
            Ok(false) => (self.fold, self.doubted) = (Some(Instant::now() + QUIET), false),
            Err(e) if self.doubted => {
                self.conn = None;
                return Err(Trouble::Undone(e.into()));
            }
            // The write itself will tell.
            Err(_) => self.fold = Some(Instant::now() + QUIET),
        }
        Ok(())
    }

    /// The connection; after a failed COMMIT a new one, with the log folded into the file and read afresh.
    fn connected(&mut self) -> Result<&Connection, Trouble> {
        if self.conn.is_none() {
            // A new file in its place would take the log away from the old one.
            if !self.path.exists() {
                return Err(Trouble::Undone(StoreError::NoFile(self.path.clone())));
            }
            let conn = schema::connect(&self.path).map_err(Trouble::Undone)?;
            self.conn = Some(conn);
            self.seen = None;
            (self.fold, self.doubted) = (Some(Instant::now()), true);
        }
        self.fold_first()?;
        self.conn.as_ref().ok_or(Trouble::Undone(StoreError::Closed))
    }
}

enum Trouble {
    /// Certainly not stored.
    Undone(StoreError),
    /// COMMIT failed.
    Doubtful(String),
}

impl StoreError {
    /// The same error for another caller of the same batch.
    fn copy(&self) -> StoreError {
        match self {
            StoreError::Busy => StoreError::Busy,
            StoreError::Full(why) => StoreError::Full(why.clone()),
            StoreError::CommitUnknown(why) => StoreError::CommitUnknown(why.clone()),
            StoreError::Closed => StoreError::Closed,
            StoreError::Unusable { path, why } => {
                StoreError::Unusable { path: path.clone(), why: why.clone() }
            }
            other => StoreError::Sqlite(other.to_string()),
        }
    }
}

fn begin(conn: &Connection) -> Result<(), Trouble> {
    conn.prepare_cached("BEGIN IMMEDIATE")
        .and_then(|mut statement| statement.execute([]))
        .map_err(|e| Trouble::Undone(e.into()))?;
    // Another process may have brought the file to a schema that this one does not know.
    schema::still_known(conn).map_err(|e| {
        roll_back(conn);
        Trouble::Undone(e)
    })
}

fn commit(conn: &Connection) -> Option<Trouble> {
    crate::crash::point("before commit");
    let committed = conn.prepare_cached("COMMIT").and_then(|mut statement| statement.execute([]));
    crate::crash::point("after commit");
    match committed {
        Ok(_) => None,
        Err(e) => {
            if crate::planted::bug(3) {
                // A failed COMMIT taken for stored.
                roll_back(conn);
                return None;
            }
            if crate::planted::bug(4) {
                // A failed COMMIT taken for not stored.
                roll_back(conn);
                return Some(Trouble::Undone(e.into()));
            }
            Some(Trouble::Doubtful(e.to_string()))
        }
    }
}

fn roll_back(conn: &Connection) {
    if !conn.is_autocommit()
        && let Err(e) = conn.execute_batch("ROLLBACK")
    {
        log::error!("ROLLBACK failed: {e}");
    }
}

/// Runs one piece in a savepoint. An error means that the whole transaction is spoilt.
fn run_one(
    conn: &Connection,
    clock: &dyn Clock,
    piece: &mut dyn Piece,
    counts: &mut BTreeMap<String, i64>,
) -> Result<(), StoreError> {
    let step = |sql: &str| -> Result<(), StoreError> {
        conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    };
    step("SAVEPOINT piece")?;
    let tx = Tx::new(conn, clock.now());
    let keep = piece.run(&tx);
    if conn.is_autocommit() {
        return Err(StoreError::Sqlite("SQLite rolled the whole transaction back".into()));
    }
    if !keep {
        step("ROLLBACK TO piece")?;
    }
    step("RELEASE piece")?;
    if keep {
        for (name, by) in tx.counts.into_inner() {
            *counts.entry(name).or_default() += by;
        }
    }
    Ok(())
}

/// Adds the batch's figures, one row a name however many pieces changed it.
const ADD: &str = "INSERT INTO onceward_counters (name, value) VALUES (?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = value + excluded.value";

fn flush(conn: &Connection, counts: &BTreeMap<String, i64>, now: Ms) -> Result<(), StoreError> {
    for (name, by) in counts.iter().filter(|(_, by)| **by != 0) {
        conn.prepare_cached(ADD)?.execute((name, by))?;
    }
    hours::add(conn, counts, now)
}
