//! The one writer: whoever comes first to the write connection commits for everybody who waits meanwhile.
//!
//! The first caller leads: it takes all that stands in line, runs each piece inside one `BEGIN IMMEDIATE`, commits once and
//! then answers, so that many callers share one fsync. If a piece fails, all is rolled back and each is run in a
//! transaction of its own, so one bad write spoils no other; failures are rare, and a savepoint a piece would make SQLite
//! copy each page that it touches (a tenth of a job's time). When the leader is done, the first of those who came
//! meanwhile leads. So a caller that is alone writes without a word to another thread.
//! At most one leads at any moment, and who leads has its own piece at the head of the line. A failed COMMIT is not a no: after
//! an fsync error the rows may be there when the file is next opened. Its callers are told so, and the connection is
//! opened anew with a truncating checkpoint before anything else is written, and so before anything else is sent.
//! Before a batch and again before its answers it is looked at whether the file is still the one that was opened
//! ([`OpenedFile`]): what went into a log without a name is not acknowledged.

use super::adrift::Adrift;
use super::clocks::Known;
use super::identity::OpenedFile;
use super::turns::Turns;
use super::tx::{Said, flush};
use super::{StoreError, Tx, schema};
use crate::clock::Clock;
use crate::pace::Pace;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use rusqlite::Connection;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A batch takes no more work after this long.
const BATCH: Duration = Duration::from_millis(50);

type Listener = Box<dyn Fn() + Send>;

pub struct Writer {
    inner: Arc<Inner>,
    watcher: Option<Watcher>,
}

struct Inner {
    line: Mutex<Line>,
    desk: Mutex<Desk>,
    listener: Mutex<Option<Listener>>,
}

/// Who waits to be written, and whether one of the callers is writing.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Box<dyn Piece>>,
    led: bool,
}

/// Looks for other processes' commits, and folds the log once it is quiet. Ends when its channel is dropped.
struct Watcher {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Writer {
    pub fn start(
        file: Arc<OpenedFile>,
        clock: Arc<dyn Clock>,
        watch: Option<Duration>,
    ) -> Result<Writer, StoreError> {
        let conn = schema::connect(file.path())?;
        file.opened();
        let desk = Desk {
            file,
            adrift: Adrift::default(),
            turns: Turns::default(),
            conn: Some(conn),
            clock,
            seen: None,
            doubts: Pace::default(),
            written: None,
            changes: None,
            held: false,
            fold: Some(Instant::now()),
            doubted: false,
            failed: 0,
            waits: 0,
            clocks: RefCell::default(),
            uncompared: Pace::default(),
            said: Vec::new(),
        };
        let inner =
            Arc::new(Inner { line: Mutex::default(), desk: Mutex::new(desk), listener: Mutex::default() });
        let watcher = watch.map(|poll| Watcher::start(&inner, poll)).transpose()?;
        Ok(Writer { inner, watcher })
    }

    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, turns) = bounded(2);
        let piece = Box::new(Job { work, result: None, reply });
        if self.inner.join(piece) {
            self.inner.lead();
        }
        loop {
            match turns.recv() {
                Ok(Turn::Answer(result)) => return result,
                Ok(Turn::Lead) => self.inner.lead(),
                // Its batch was cut short, perhaps after the COMMIT.
                Err(_) => {
                    return Err(StoreError::CommitUnknown(
                        "a fault of this program's own; please report it".into(),
                    ));
                }
            }
        }
    }

    /// Whether the thread that looks around still runs, where there is one.
    pub fn is_alive(&self) -> bool {
        self.watcher.as_ref().is_none_or(|watcher| !watcher.thread.is_finished())
    }

    pub fn on_foreign_commit(&self, call: Listener) {
        *lock(&self.inner.listener) = Some(call);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(Watcher { end, thread }) = self.watcher.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

impl Watcher {
    fn start(inner: &Arc<Inner>, poll: Duration) -> Result<Watcher, StoreError> {
        let (end, ended) = bounded::<()>(0);
        let inner = Arc::clone(inner);
        let thread = std::thread::Builder::new()
            .name("onceward-watch".into())
            .spawn(move || {
                while ended.recv_timeout(poll) == Err(RecvTimeoutError::Timeout) {
                    inner.look_around();
                }
            })
            .map_err(|e| {
                StoreError::Sqlite(format!("the thread that looks around could not be started: {e}"))
            })?;
        Ok(Watcher { end, thread })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Stands in line. `true`: nobody leads, so the caller does.
    fn join(&self, piece: Box<dyn Piece>) -> bool {
        let mut line = lock(&self.line);
        line.waiting.push_back(piece);
        !std::mem::replace(&mut line.led, true)
    }

    /// Writes for all who stand in line. Whatever happens, the lead goes on to the next.
    fn lead(&self) {
        let handed_on = HandOn(&self.line);
        // A fault of this program's own in here must not take the caller's thread along: it hears what all of its batch hear.
        let said = catch_unwind(AssertUnwindSafe(|| {
            let mut desk = self.desk();
            desk.batch(&self.line);
            desk.note_written();
            std::mem::take(&mut desk.said)
        }));
        // Whoever writes next does not wait for an app's own log either.
        drop(handed_on);
        for line in said.unwrap_or_default() {
            let _ = catch_unwind(AssertUnwindSafe(line));
        }
    }

    /// The connection's state. After a panic of this program's own the transaction is given up with its connection.
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(|poisoned| {
            self.desk.clear_poison();
            let mut desk = poisoned.into_inner();
            desk.close();
            desk.failed = desk.failed.saturating_add(1);
            desk
        })
    }

    fn look_around(&self) {
        let foreign = {
            let mut desk = self.desk();
            desk.stands().is_ok() && {
                desk.fold_when_quiet();
                desk.sees_foreign()
            }
        };
        if foreign && let Some(call) = &*lock(&self.listener) {
            call();
        }
    }
}

/// Hands the lead to the next in line when it is dropped.
struct HandOn<'a>(&'a Mutex<Line>);

impl Drop for HandOn<'_> {
    fn drop(&mut self) {
        let mut line = lock(self.0);
        match line.waiting.front() {
            Some(next) => next.lead(),
            None => line.led = false,
        }
    }
}

/// What one who waits in line hears.
enum Turn<T> {
    /// It is written, or not.
    Answer(Result<T, StoreError>),
    /// Nobody writes just now: it is this caller's turn to.
    Lead,
}

/// A piece of work with its result's type forgotten.
trait Piece: Send {
    /// Runs it and keeps the result. `true`: its changes are to stay.
    fn run(&mut self, tx: &Tx<'_>) -> bool;
    /// The transaction around it failed: whatever it had done is gone, or in doubt.
    fn fail(&mut self, error: StoreError);
    /// Sends the result to whoever waits.
    fn answer(self: Box<Self>);
    /// Tells whoever waits to write for all.
    fn lead(&self);
}

struct Job<T, F> {
    work: F,
    result: Option<Result<T, StoreError>>,
    reply: Sender<Turn<T>>,
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
        let Job { work, result, reply } = *self;
        // First, for the caller may want back what the work had borrowed.
        drop(work);
        // Nobody waits any more if the caller's thread is gone; the write stands all the same.
        let _ = reply.send(Turn::Answer(result.unwrap_or(Err(StoreError::Closed))));
    }

    fn lead(&self) {
        // The caller waits in `run` for nothing else, so it is there.
        let _ = self.reply.send(Turn::Lead);
    }
}

struct Desk {
    file: Arc<OpenedFile>,
    /// Whether the file is another than was opened, and what was done about it.
    adrift: Adrift,
    turns: Turns,
    /// `None` after a failed COMMIT, until it could be opened anew.
    conn: Option<Connection>,
    clock: Arc<dyn Clock>,
    seen: Option<i64>,
    /// How often it is said that COMMITs fail.
    doubts: Pace,
    /// When something was last written, until the log is folded into the file.
    written: Option<Instant>,
    /// Rows that the connection had changed by then; `None`: not known.
    changes: Option<u64>,
    /// The log could not be emptied for so long; told once.
    held: bool,
    /// The log is to be emptied before the next write, from then on: it is not known what of it is on disk.
    fold: Option<Instant>,
    /// Because a COMMIT of ours failed.
    doubted: bool,
    /// How many COMMITs failed.
    failed: i64,
    /// Transactions that another program's lock kept waiting, and that are not counted in the file yet.
    waits: i64,
    /// The clocks as the last transaction found them.
    clocks: RefCell<Known>,
    /// How often it is said that a clock that was set cannot be written down.
    uncompared: Pace,
    /// Lines about changes that are committed, to be said once nobody waits for this thread.
    said: Vec<Said>,
}

/// The log is folded into the file when nothing was written for this long.
const QUIET: Duration = Duration::from_secs(1);
/// How long, after a failed COMMIT, the fold waits for a reader.
const SHORT: Duration = Duration::from_millis(250);
/// A log of so many pages that cannot be emptied has a reader that stays: at 4 KiB a page, 64 MiB.
const LONG_LOG: i64 = 16_384;

impl Desk {
    /// An error if the file under the connection is not the one that was opened: then nothing is written.
    fn stands(&mut self) -> Result<(), StoreError> {
        self.adrift.look(&self.file, self.conn.as_ref()).map_err(|wrong| self.file.unusable(wrong))
    }

    fn close(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.adrift.close(&self.file, conn);
        }
    }

    /// A claim that finds nothing, as an idle worker makes one each second, writes nothing and puts no fold off.
    fn note_written(&mut self) {
        let changes = self.conn.as_ref().map(Connection::total_changes);
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

    /// Has another process committed since the last look? `data_version` on this connection does not change by its own
    /// commits.
    fn sees_foreign(&mut self) -> bool {
        let Some(conn) = &self.conn else { return false };
        let version = conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)));
        let Ok(version) = version else { return false };
        // What was committed before the first look of this connection is not known either.
        let foreign = self.seen.replace(version) != Some(version);
        if foreign {
            self.turns.others_write();
            // What others wrote stands in the log too, and they may be gone.
            self.written = Some(Instant::now());
        }
        foreign
    }

    /// Opens the transaction, and notes that another program's lock kept it waiting.
    fn begin(&mut self) -> Result<(), Trouble> {
        let (waited, begun) = begin(self.connected()?);
        self.waits = self.waits.saturating_add(i64::from(waited));
        if waited {
            self.turns.others_write();
        }
        begun?;
        match self.conn.as_ref().map_or(Err(StoreError::Closed), |conn| self.clocks.get_mut().read(conn)) {
            Ok(()) => Ok(()),
            Err(e) => {
                self.conn.iter().for_each(roll_back);
                Err(Trouble::Undone(e))
            }
        }
    }

    /// The figures of a transaction at its beginning.
    fn waited(&self) -> BTreeMap<String, i64> {
        let waits = (self.waits > 0).then(|| ("busy_waits".to_string(), self.waits));
        waits.into_iter().collect()
    }

    /// A transaction was committed, its figures with it; `said` tells of its changes.
    fn written_down(&mut self, said: Vec<Said>) {
        self.said.extend(said);
        self.waits = 0;
        self.doubts.over();
        self.clocks.get_mut().stands();
    }

    /// Writes for the first in line and for those behind.
    fn batch(&mut self, line: &Mutex<Line>) {
        self.turns.wait();
        let mut batch = next_in_line(line, 256);
        let mut said = Vec::new();
        // Where no transaction can be begun no piece is to blame, so none is tried alone.
        let (begun, trouble) = match self.begin() {
            Ok(()) => {
                let held = Instant::now();
                let trouble = self.fill(&mut batch, line, &mut said);
                self.turns.held_since(held);
                (true, trouble.or_else(|| self.nameless()))
            }
            Err(e) => (false, Some(e)),
        };
        match trouble {
            None => self.written_down(said),
            Some(Trouble::Undone(_)) if begun && batch.len() > 1 => return self.singly(batch),
            Some(Trouble::Undone(e)) => batch.iter_mut().for_each(|piece| piece.fail(e.copy())),
            Some(Trouble::Nameless(why)) => {
                batch.iter_mut().for_each(|piece| piece.fail(StoreError::CommitUnknown(why.clone())));
            }
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
        line: &Mutex<Line>,
        said: &mut Vec<Said>,
    ) -> Option<Trouble> {
        let Some(conn) = &self.conn else { return Some(Trouble::Undone(StoreError::Closed)) };
        let begun = Instant::now();
        let mut counts = self.waited();
        let mut done = 0;
        while done < batch.len() {
            let piece = &mut batch[done];
            if let Err(e) = self.run_one(conn, piece.as_mut(), &mut counts, said) {
                roll_back(conn);
                return Some(Trouble::Undone(e));
            }
            done += 1;
            if done == batch.len() && begun.elapsed() < BATCH {
                batch.extend(next_in_line(line, 64));
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

    /// One piece failed, or SQLite has rolled the whole batch back after FULL or an I/O error: each piece gets a transaction
    /// of its own, so that one that can't be written does not take the others along.
    fn singly(&mut self, batch: Vec<Box<dyn Piece>>) {
        let mut locked: Option<StoreError> = None;
        for mut piece in batch {
            if let Some(e) = &locked {
                // Each try may wait long for the lock, and no piece is to blame.
                piece.fail(e.copy());
                piece.answer();
                continue;
            }
            let mut said = Vec::new();
            let trouble = match self.begin() {
                Ok(()) => self.alone(piece.as_mut(), &mut said).or_else(|| self.nameless()),
                Err(e) => {
                    if let Trouble::Undone(e) = &e {
                        locked = Some(e.copy());
                    }
                    Some(e)
                }
            };
            match trouble {
                None => self.written_down(said),
                Some(Trouble::Undone(e)) => piece.fail(e),
                Some(Trouble::Nameless(why)) => piece.fail(StoreError::CommitUnknown(why)),
                Some(Trouble::Doubtful(why)) => {
                    self.doubt(&why);
                    piece.fail(StoreError::CommitUnknown(why));
                }
            }
            piece.answer();
        }
    }

    fn alone(&self, piece: &mut dyn Piece, said: &mut Vec<Said>) -> Option<Trouble> {
        let Some(conn) = &self.conn else { return Some(Trouble::Undone(StoreError::Closed)) };
        let mut counts = self.waited();
        let ran = self
            .run_one(conn, piece, &mut counts, said)
            .and_then(|()| flush(conn, &counts, self.clock.now()));
        match ran {
            Ok(()) => commit(conn),
            Err(e) => {
                roll_back(conn);
                Some(Trouble::Undone(e))
            }
        }
    }

    /// Runs one piece. An error means that the whole transaction is to be rolled back.
    fn run_one(
        &self,
        conn: &Connection,
        piece: &mut dyn Piece,
        counts: &mut BTreeMap<String, i64>,
        said: &mut Vec<Said>,
    ) -> Result<(), StoreError> {
        let tx = Tx::after(self.failed, conn, self.clock.both());
        // A step that cannot be written down holds nothing else up; the next transaction finds it again.
        if let Err(e) = self.clocks.borrow_mut().compare(&tx, self.clock.as_ref())
            && self.uncompared.due()
        {
            log::error!("a clock that was set could not be written down: {e}");
        }
        let keep = !conn.is_autocommit() && piece.run(&tx);
        if conn.is_autocommit() {
            return Err(StoreError::Sqlite("SQLite rolled the whole transaction back".into()));
        }
        if !keep {
            return Err(StoreError::Sqlite("it was given up".into()));
        }
        tx.end(counts, said);
        Ok(())
    }

    /// COMMIT went well. Did it go into the file that others see? If not, it may be in nobody's sight after a restart.
    fn nameless(&mut self) -> Option<Trouble> {
        let wrong = self.stands().err()?;
        self.failed = self.failed.saturating_add(1);
        Some(Trouble::Nameless(wrong.to_string()))
    }

    /// A COMMIT failed. On a full disk that may be each one for hours, so it is told once a step.
    fn doubt(&mut self, why: &str) {
        self.close();
        self.failed = self.failed.saturating_add(1);
        if self.doubts.due() {
            log::error!(
                "COMMIT to {} failed: {why}; whether it is stored is not known until the file is opened anew, which is \
                 done before the next write",
                self.file.path().display()
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
                self.close();
                return Err(Trouble::Undone(e.into()));
            }
            // The write itself will tell.
            Err(_) => self.fold = Some(Instant::now() + QUIET),
        }
        Ok(())
    }

    /// The connection; after a failed COMMIT a new one, with the log folded into the file and read afresh.
    fn connected(&mut self) -> Result<&Connection, Trouble> {
        self.stands().map_err(Trouble::Undone)?;
        if self.conn.is_none() {
            // A new file in its place would take the log away from the old one.
            let path = self.file.path();
            if !path.exists() {
                return Err(Trouble::Undone(StoreError::NoFile(path.to_path_buf())));
            }
            self.conn = Some(schema::connect(path).map_err(Trouble::Undone)?);
            self.file.opened();
            self.seen = None;
            (self.fold, self.doubted) = (Some(Instant::now()), true);
        }
        self.fold_first()?;
        self.conn.as_ref().ok_or(Trouble::Undone(StoreError::Closed))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.close();
    }
}

fn next_in_line(line: &Mutex<Line>, most: usize) -> Vec<Box<dyn Piece>> {
    let mut line = lock(line);
    let many = line.waiting.len().min(most);
    line.waiting.drain(..many).collect()
}

enum Trouble {
    /// Certainly not stored.
    Undone(StoreError),
    /// COMMIT failed.
    Doubtful(String),
    /// Stored, but in a file or a log that has lost its name.
    Nameless(String),
}

/// Begins, and tells whether another program's lock was in the way.
fn begin(conn: &Connection) -> (bool, Result<(), Trouble>) {
    let immediate = |patience| {
        conn.busy_timeout(patience)?;
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
    };
    // SQLite waits without a word, so it is asked first whether it would have to.
    let at_once = immediate(Duration::ZERO);
    let waited = at_once.as_ref().is_err_and(schema::busy);
    let begun = if waited { immediate(schema::PATIENCE) } else { at_once };
    let patient = conn.busy_timeout(schema::PATIENCE);
    let begun = begun
        .and(patient)
        .map_err(StoreError::from)
        // Another process may have brought the file to a schema that this one does not know.
        .and_then(|()| schema::still_known(conn))
        .map_err(|e| {
            roll_back(conn);
            Trouble::Undone(e)
        });
    (waited, begun)
}

fn commit(conn: &Connection) -> Option<Trouble> {
    crate::crash::point("before commit");
    let committed = conn.prepare_cached("COMMIT").and_then(|mut statement| statement.execute([]));
    crate::crash::point("after commit");
    match committed {
        Ok(_) => None,
        Err(e) => Some(Trouble::Doubtful(e.to_string())),
    }
}

fn roll_back(conn: &Connection) {
    if !conn.is_autocommit()
        && let Err(e) = conn.execute_batch("ROLLBACK")
    {
        log::error!("ROLLBACK failed: {e}");
    }
}
