//! All the SQL. There is one write connection, and whoever comes first writes for all who wait; readers go through a
//! pool of read-only connections.
//!
//! Invariants: nothing else in the process opens the file (closing any descriptor on it would drop SQLite's locks);
//! every write runs inside the writer's `BEGIN IMMEDIATE`; no transaction is open while a provider is called, for the
//! store never calls the network. What is acknowledged is on disk: WAL, `synchronous=FULL`, read back at open.

mod adrift;
mod alerts;
mod audit;
mod backup;
mod browse;
mod claim;
mod clocks;
mod deeds;
mod doubt;
mod enqueue;
pub mod events;
mod export;
mod facts;
mod figures;
mod foreign;
mod groups;
mod history;
mod holds;
mod hours;
mod identity;
mod inbox;
mod leases;
mod life;
mod list;
mod ledger;
mod many;
mod migrate;
mod newfile;
mod operate;
mod order;
mod preview;
mod pauses;
mod programs;
mod prune;
mod read;
mod record;
mod resolve;
mod restore;
mod rows;
mod schedules;
mod schema;
mod set_aside;
mod statement;
mod totals;
mod trail;
mod turns;
mod tx;
mod writer;

pub use alerts::Sighting;
pub use audit::{Break, Head, RawRow, Total, Verdict};
pub use backup::Copied;
pub use browse::{Browse, By, Cursor, Line, NEEDS_MOST, Needs, Page};
pub use claim::{Claim, Claimed};
pub use deeds::Deed;
pub use enqueue::{Enqueued, Receipt};
pub use export::{ArchiveRow, ArchiveVerdict, EventExport, ExportFilter, ExportRow, verify_archive};
pub use figures::{AfterRestore, BlockedGroup, Gap, Stats};
pub use groups::{GroupStory, Place};
pub use history::{Action, Entry};
pub use holds::{Health, Paused};
pub use hours::{HOUR, Hour};
pub use inbox::{INBOX_BATCH, InboxRow, RefusedRow};
pub use leases::{Owner, OwnerLock, Voice};
pub use list::Filter;
pub use many::Meant;
pub use newfile::{NewFile, sync_folder};
pub use operate::{Amendment, Selection};
pub use pauses::{Pause, PauseScope};
pub use preview::Preview;
pub use prune::{ArchivedJob, Freed, PRUNE_BATCH, Retention};
pub use read::Story;
pub use record::{GAP_EDGES_S, Recorded, Unrecorded, Want};
pub use resolve::{About, Resolution, Which, Word};
pub use restore::{Fate, InDoubt, OpenRestore, Restored, Restoring, Said};
pub use schedules::Turn;
pub use statement::{Counterpart, Statement, StatementLine};
pub use trail::{EventPage, EventRow, TrailFilter, TrailPage, TrailRow};
pub use tx::Tx;

use crate::clock::{Clock, Ms};
use crate::decide::{Now, Terms};
use crate::intent::{Frozen, Intent, Scope};
use crate::job::{Code, Job, NewJob, Refusal};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What went wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no file, and nothing asked for one to be made.
    #[error("there is no store at {}: run `onceward init`, or enqueue a job", .0.display())]
    NoFile(PathBuf),
    /// The file is not ours to write.
    #[error("{} cannot be used as a store: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The namespace is pinned in the file.
    #[error(
        "the file was made with namespace `{pinned}` and the config says `{given}`: another namespace would give every key another wire key; set [store] namespace back to `{pinned}`"
    )]
    Namespace {
        /// What the file says.
        pinned: String,
        /// What the config says.
        given: String,
    },
    /// Somebody else kept the file locked.
    #[error("another program kept the file locked for too long; nothing was stored, try again")]
    Busy,
    /// The disk is full.
    #[error("the disk is full: {0}; nothing was stored, free some space")]
    Full(String),
    /// COMMIT failed, which is not a no.
    #[error("not known whether it was stored ({0}): ask again with the same key")]
    CommitUnknown(String),
    /// A row does not hold what this program writes, or the file's own rules refuse it: somebody changed it by hand.
    #[error("a row of the file cannot be used: {0}. Mend the row; `onceward check` names every such job")]
    Row(String),
    /// Any other trouble of SQLite's.
    #[error("the database failed: {0}")]
    Sqlite(String),
    /// A copy could not be made or read.
    #[error("{} cannot be copied: {why}", path.display())]
    Copy {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The store was shut down.
    #[error("the store is closed")]
    Closed,
    /// A refusal that only the file could know.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl StoreError {
    /// Its code in JSON.
    pub fn code(&self) -> Code {
        match self {
            StoreError::Refused(refusal) => refusal.code,
            StoreError::Namespace { .. } => Code::Config,
            StoreError::Busy => Code::Busy,
            StoreError::NoFile(_) => Code::NotFound,
            StoreError::Copy { .. } => Code::Io,
            StoreError::Unusable { .. }
            | StoreError::Full(_)
            | StoreError::CommitUnknown(_)
            | StoreError::Row(_)
            | StoreError::Sqlite(_)
            | StoreError::Closed => Code::Database,
        }
    }

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

const WRITABLE: &str = "this user must be able to write the file of [store] path, those beside it (-wal, -shm), and their \
     folder";

impl From<rusqlite::Error> for StoreError {
    fn from(e: rusqlite::Error) -> StoreError {
        if matches!(e, rusqlite::Error::QueryReturnedNoRows) {
            return StoreError::Row("a row that belongs to it is missing".into());
        }
        if of_a_row(&e) {
            return StoreError::Row(e.to_string());
        }
        match e.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
            Some(ErrorCode::DiskFull) => StoreError::Full(e.to_string()),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                StoreError::Sqlite(format!("{e}; nothing was stored: {WRITABLE}"))
            }
            Some(ErrorCode::CannotOpen) => StoreError::Sqlite(format!("{e}: {WRITABLE}")),
            Some(ErrorCode::SystemIoFailure) => {
                StoreError::Sqlite(format!("{e}: if its disk is not failing, {WRITABLE}"))
            }
            _ => StoreError::Sqlite(e.to_string()),
        }
    }
}

/// Is it about what stands in a row, and not about the file? What a trigger raises is somebody's word about the whole change:
/// it may pass, and says nothing of the row.
fn of_a_row(e: &rusqlite::Error) -> bool {
    let raised = |e: &rusqlite::ffi::Error| e.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER;
    matches!(
        e,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
    ) || e.sqlite_error().is_some_and(|e| e.code == ErrorCode::ConstraintViolation && !raised(e))
}

/// A kind as the engine sees it.
#[derive(Clone, Debug)]
pub struct KindDesk {
    /// Its name.
    pub kind: String,
    /// Its provider; an in-process handler's kind stands for itself.
    pub provider: String,
    /// The provider as the ledger has it; `None`: it is done in this process.
    pub called: Option<String>,
    /// What decisions need.
    pub terms: Terms,
    /// Its jobs are alerts to people.
    pub alerts: bool,
    /// A reference belongs to one key only.
    pub unique: bool,
}

/// A provider as the claim sees it.
#[derive(Clone, Debug)]
pub struct ProviderDesk {
    /// Its name.
    pub name: String,
    /// Calls in flight at once.
    pub concurrency: u32,
    /// Calls a second.
    pub rate: Option<f64>,
}

/// What this process can do: the store asks it inside a claim, and calls nothing else outside itself.
pub trait Desk: Send + Sync {
    /// The kinds it knows.
    fn kinds(&self) -> &[KindDesk];
    /// Their providers.
    fn providers(&self) -> &[ProviderDesk];
    /// Where a request of this kind would go now.
    fn scope(&self, kind: &str) -> Scope;
    /// Renders the request of a first send. The error becomes the reason of an `invalid` park.
    fn freeze(&self, job: &Job, intent: &Intent) -> Result<Frozen, String>;

    /// The kind's key template as the config has it, so that a change of it can be named.
    fn key_template(&self, kind: &str) -> Option<String>;

    /// Turns a row of the SQL inbox into a job, or says why it can't be one.
    fn prepare(&self, row: InboxRow, now: Ms) -> Result<NewJob, Refusal>;
    /// A row of the SQL inbox with more bytes than this is refused unread.
    fn row_limit(&self) -> usize;
    /// A kind that the config knows and only another process can do: an app's handler. Nothing of it is claimed here,
    /// but a person may steer its jobs from here. Whether it can be looked up is not known here, so it is taken as no.
    fn elsewhere(&self, _kind: &str) -> Option<&KindDesk> {
        None
    }

    /// One kind.
    fn kind(&self, kind: &str) -> Option<&KindDesk> {
        self.kinds().iter().find(|k| k.kind == kind)
    }
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Make the file if there is none.
    pub create: bool,
    /// Enters the wire keys; pinned in the file at its making.
    pub namespace: String,
    /// How often a thread looks for other processes' commits; `None`: never.
    pub watch: Option<Duration>,
}

/// An open store.
pub struct Store {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    desk: Arc<dyn Desk>,
    namespace: Arc<str>,
    // Before the writer: the last connection to close folds the log into the file, and a reader could not.
    pool: r2d2::Pool<Readers>,
    writer: writer::Writer,
    file: Arc<identity::OpenedFile>,
    /// What was said of other workers.
    lives: life::Watch,
    /// Dead workers' programs that are waited for.
    programs: programs::Watch,
    /// It is a backup of then, and takes no writes.
    marked: Option<Ms>,
    /// Leases that a claim may have written though its COMMIT failed.
    doubtful: Mutex<Vec<claim::Leased>>,
}

impl Store {
    /// Opens the file, makes it if asked to, brings an older schema forward, refuses a newer one, and reads every setting
    /// back.
    pub fn open(
        path: &Path,
        options: Options,
        clock: Arc<dyn Clock>,
        desk: Arc<dyn Desk>,
    ) -> Result<Store, StoreError> {
        let mut store = Store::open_even_marked(path, options, clock, desk)?;
        store.marked = backup::marked(&*store.reader()?)?;
        Ok(store)
    }

    /// The same, whether or not it is a backup that was not restored.
    fn open_even_marked(
        path: &Path,
        options: Options,
        clock: Arc<dyn Clock>,
        desk: Arc<dyn Desk>,
    ) -> Result<Store, StoreError> {
        if !path.exists() && !options.create {
            return Err(StoreError::NoFile(path.to_path_buf()));
        }
        // Before anything is made beside it, and again once it is there.
        identity::OpenedFile::of(path)?;
        schema::prepare(path, &options.namespace, clock.now())?;
        let file = Arc::new(identity::OpenedFile::of(path)?);
        let pool = r2d2::Pool::builder()
            .max_size(8)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .connection_timeout(Duration::from_secs(10))
            .build_unchecked(Readers { path: file.path().to_path_buf() });
        let writer = writer::Writer::start(Arc::clone(&file), Arc::clone(&clock), options.watch)?;
        let namespace = options.namespace.into();
        Ok(Store {
            path: path.to_path_buf(),
            clock,
            desk,
            namespace,
            pool,
            writer,
            file,
            lives: life::Watch::default(),
            programs: programs::Watch::default(),
            marked: None,
            doubtful: Mutex::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, by whatever link it was named: every process must look for locks in the same place.
    fn place(&self) -> &Path {
        self.file.path()
    }

    /// What is wrong with the file under this program, if anything is: it was moved or linked, or its log is gone.
    pub fn trouble(&self) -> Option<String> {
        self.file.trouble().map(|wrong| wrong.why)
    }

    /// What this process can do.
    pub fn desk(&self) -> &Arc<dyn Desk> {
        &self.desk
    }

    /// The clock that the store goes by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Runs `work` in the next write transaction, and returns once it is on disk; after an error of its own nothing of it
    /// stays. It may be run more than once, so it may change nothing but the file.
    pub fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.marked {
            Some(copied) => Err(backup::refusal(copied)),
            None => self.write_even_marked(work),
        }
    }

    fn write_even_marked<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.run(work)
    }

    /// When this file was copied, if it is a backup that was not restored: it is for reading only.
    pub fn copied_at(&self) -> Option<Ms> {
        self.marked
    }

    /// Called (from the thread that looks around) whenever another process has committed.
    pub fn on_foreign_commit(&self, call: impl Fn() + Send + 'static) {
        self.writer.on_foreign_commit(Box::new(call));
    }

    /// Whether the thread that looks around still runs, where there is one.
    pub fn writer_is_alive(&self) -> bool {
        self.writer.is_alive()
    }

    fn reader(&self) -> Result<r2d2::PooledConnection<Readers>, StoreError> {
        self.file.check_reading()?;
        self.pool.get().map_err(|e| StoreError::Sqlite(format!("no read connection: {e}")))
    }

    /// The present, with fresh jitter.
    fn present(clock: &dyn Clock) -> Now {
        let (wall, boot) = clock.both();
        Now { wall, boot, jitter: fastrand::f64() }
    }
}

/// Makes read-only connections for r2d2. Ours, so that rusqlite can stay current.
struct Readers {
    path: PathBuf,
}

impl r2d2::ManageConnection for Readers {
    type Connection = Connection;
    type Error = rusqlite::Error;

    fn connect(&self) -> Result<Connection, rusqlite::Error> {
        let conn = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        conn.busy_timeout(Duration::from_secs(5))?;
        conn.set_prepared_statement_cache_capacity(64);
        schema::stable_plans(&conn)?;
        Ok(conn)
    }

    fn is_valid(&self, conn: &mut Connection) -> Result<(), rusqlite::Error> {
        conn.execute_batch("SELECT 1")
    }

    fn has_broken(&self, _: &mut Connection) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
