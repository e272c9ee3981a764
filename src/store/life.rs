//! Is a worker alive? One rule for whoever asks: taking over, restoring, migrating, figures, `check`.
//!
//! A worker is alive as long as somebody holds the OS lock on its file beside the store, which the kernel gives back
//! when the process ends, however it ends. What cannot be told (the file may not be opened, or is something else than a
//! worker's lock file) counts as alive and is named: a guess could run an effect twice. The files are made with mode
//! 0600, so that no other user can take hold of one.

use super::rows::shown;
use super::{Store, StoreError};
use crate::clock::Ms;
use crate::pace::Pace;
use crate::process;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a worker's lock file says about the worker.
#[derive(Debug)]
pub(super) enum Life {
    /// Somebody holds the lock.
    Alive,
    /// Nobody held it. The lock is ours until this is dropped, so that two do not take over at once.
    Dead(File),
    /// There is no such file: the worker said goodbye, or somebody has tidied up. No proof of anything.
    Missing,
    /// It cannot be told, for this reason.
    Unclear(String),
}

impl Life {
    /// May the worker be at work?
    pub(super) fn may_work(&self) -> bool {
        match self {
            Life::Alive | Life::Unclear(_) => true,
            Life::Dead(_) | Life::Missing => false,
        }
    }
}

/// The lock file of one start of a worker, beside the store's own file.
pub(super) fn lock_path(store: &Path, nonce: &str) -> PathBuf {
    let mut name = store.as_os_str().to_os_string();
    name.push(format!("{MARK}{nonce}"));
    PathBuf::from(name)
}

const MARK: &str = "-owner-";

/// Makes a lock file and takes its lock.
pub(super) fn make(path: &Path) -> Result<File, StoreError> {
    let unusable = |what: &str, e: &dyn std::fmt::Display| StoreError::Unusable {
        path: path.to_path_buf(),
        why: format!("the worker's lock file could not be {what}: {e}"),
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(|e| unusable("made", &e))?;
    // A strange umask takes bits away that the next worker needs.
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .map_err(|e| unusable("made private", &e))?;
    // Nobody else wants it for longer than a look takes.
    file.lock().map_err(|e| unusable("locked", &e))?;
    Ok(file)
}

/// Looks, and takes the lock where nobody has it. Who only asks does not keep another from asking.
pub(super) fn look(path: &Path) -> Life {
    judge(path, File::try_lock_shared)
}

/// The same for whoever is to take over.
pub(super) fn take(path: &Path) -> Life {
    judge(path, File::try_lock)
}

fn judge(path: &Path, try_lock: impl Fn(&File) -> Result<(), TryLockError>) -> Life {
    let file = match open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Life::Missing,
        Err(e) => return Life::Unclear(why_not(path, &e)),
    };
    match try_lock(&file) {
        Ok(()) => Life::Dead(file),
        Err(TryLockError::WouldBlock) => Life::Alive,
        Err(TryLockError::Error(e)) => Life::Unclear(format!("its lock cannot be tried ({e})")),
    }
}

/// Opens what is a file and nothing else, without waiting for anybody.
fn open(path: &Path) -> std::io::Result<File> {
    let odd = |what: &str| {
        Error::new(ErrorKind::InvalidInput, format!("it is {what}, and no worker makes such a one"))
    };
    // Also where the system has no flag against following a link.
    if path.symlink_metadata()?.is_symlink() {
        return Err(odd("a symbolic link"));
    }
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(odd("no plain file")) }
}

fn why_not(path: &Path, e: &Error) -> String {
    let whose = path.symlink_metadata().ok().map(|of| belongs_to(&of)).unwrap_or_default();
    format!("it cannot be opened ({e}){whose}")
}

#[cfg(unix)]
fn belongs_to(file: &Metadata) -> String {
    format!("; it belongs to uid {}", std::os::unix::fs::MetadataExt::uid(file))
}

#[cfg(not(unix))]
fn belongs_to(_: &Metadata) -> String {
    String::new()
}

/// All lock files beside a store: the worker's nonce, the file, and what it says.
pub(super) fn all(store: &Path) -> std::io::Result<Vec<(String, PathBuf, Life)>> {
    let folder = store.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let begin = format!("{}{MARK}", store.file_name().unwrap_or_default().to_string_lossy());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(nonce) = name.to_string_lossy().strip_prefix(&begin) {
            found.push((nonce.to_string(), entry.path(), look(&entry.path())));
        }
    }
    Ok(found)
}

/// Who holds a lock that stays held, as far as that can be seen.
pub(super) fn held_by(path: &Path) -> String {
    let seen = path.symlink_metadata().map(|file| process::holders(&file)).unwrap_or_default();
    match seen.is_empty() {
        true => "a process that cannot be seen from here".into(),
        false => format!("process {}", seen.join(", ")),
    }
}

/// A worker other than this one that has not said goodbye.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stranger {
    pub(super) nonce: String,
    /// `host:pid`
    pub(super) name: String,
    /// When the last of its leases runs out, or when it was last heard of.
    pub(super) expires: Ms,
    /// When it was last heard of.
    pub(super) seen: Ms,
    /// Jobs that it has running.
    pub(super) running: u64,
}

/// Leases that ran out so long ago belong to a worker that stands still, whatever holds its lock.
const SILENT: Duration = Duration::from_secs(60);

/// What is said in the log of workers whose jobs wait for no good reason: each at once, and then ever more seldom.
#[derive(Default)]
pub(super) struct Watch(Mutex<BTreeMap<String, Doubt>>);

struct Doubt {
    /// Of whom nothing was heard since.
    seen: Ms,
    since: Instant,
    told: Pace,
}

impl Watch {
    /// Its jobs are not taken over, for it may be alive. `None`: somebody holds its lock; else why that cannot be told.
    pub(super) fn note(&self, stranger: &Stranger, path: &Path, unclear: Option<&str>) {
        let mut doubts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Doubt { seen: stranger.seen, since: Instant::now(), told: Pace::default() };
        let doubt = doubts.entry(stranger.nonce.clone()).or_insert_with(new);
        if doubt.seen != stranger.seen {
            *doubt = new();
        }
        // By this process's own clock, for the wall clock may have been set.
        let due = unclear.is_some() || doubt.since.elapsed() >= SILENT;
        if due && doubt.told.due() {
            let why = unclear.map_or_else(|| silent(path), str::to_string);
            log::error!("{}", words(stranger, path, &why));
        }
    }

    /// Nothing is to be said of it any more.
    pub(super) fn forget(&self, nonce: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(nonce);
    }
}

fn silent(path: &Path) -> String {
    format!("its lock is held by {} and its leases have run out", held_by(path))
}

/// What a living worker says is wrong with it.
fn said(path: &Path) -> String {
    let mut text = Vec::new();
    let read = open(path).map(|file| file.take(2000).read_to_end(&mut text));
    let text = String::from_utf8_lossy(if read.is_ok() { &text } else { &[] }).into_owned();
    text.chars().filter(|c| !c.is_control()).collect()
}

/// What is wrong, and what to do.
fn words(stranger: &Stranger, path: &Path, why: &str) -> String {
    format!(
        "{} jobs of the worker {} are not taken over, for it may be at work: {why}. Last heard of {}. Make its lock file, {}, \
         readable for this user, or stop whatever holds it; if that worker is certainly gone, delete the file: what has run \
         out is taken over then",
        stranger.running,
        stranger.name,
        stranger.seen,
        path.display()
    )
}

impl Store {
    /// What is wrong with the workers of this file, in words for a person: lock files that cannot be judged, workers that
    /// hold their lock and do nothing, workers with jobs and without a lock file.
    pub fn doubtful_workers(&self) -> Result<Vec<String>, StoreError> {
        let now = self.clock.now();
        let mut found = Vec::new();
        for stranger in strangers(&*self.reader()?, "")? {
            let path = lock_path(self.place(), &stranger.nonce);
            let late = stranger.expires.plus(SILENT) < now;
            let idle = stranger.running == 0;
            let why = match look(&path) {
                Life::Alive if !said(&path).is_empty() => {
                    found.push(format!("the worker {} does nothing: {}", stranger.name, said(&path)));
                    continue;
                }
                // A worker that is well was heard of a short while ago.
                Life::Missing if idle && now.since(stranger.seen) < SILENT * 10 => {
                    found.push(format!(
                        "the worker {} has not said goodbye, and its lock file {} is not there: was the store moved while it \
                         ran? Then stop it, and start it again where the file is now",
                        stranger.name,
                        path.display()
                    ));
                    continue;
                }
                _ if idle => continue,
                Life::Unclear(why) => why,
                Life::Alive if late => silent(&path),
                Life::Missing if late => "its lock file is not there".into(),
                Life::Alive | Life::Dead(_) | Life::Missing => continue,
            };
            found.push(words(&stranger, &path, &why));
        }
        Ok(found)
    }
}

/// A file that nobody has written to for so long, and that nobody has left cleanly, may be an older one put back.
const STOOD_STILL: Duration = Duration::from_secs(600);

const LAST_WRITE: &str = "SELECT max(
    coalesce((SELECT CAST(value AS INTEGER) FROM onceward_meta WHERE name = 'highest_ms'), 0),
    coalesce((SELECT max(seen_ms) FROM onceward_owners), 0),
    coalesce((SELECT at_ms FROM onceward_history ORDER BY seq DESC LIMIT 1), 0),
    coalesce((SELECT at_ms FROM onceward_events ORDER BY seq DESC LIMIT 1), 0))";

impl Store {
    /// An image of the machine bears no mark, and what it shows is what a crash or a power cut leaves: a worker without a
    /// goodbye, and then nothing. Nobody but a person can tell the two apart, so this is said before anything is written.
    pub fn perhaps_put_back(&self) -> Result<Option<String>, StoreError> {
        let conn = self.reader()?;
        let left: Vec<Stranger> = strangers(&conn, "")?;
        let alive = |left: &Stranger| matches!(look(&lock_path(self.place(), &left.nonce)), Life::Alive);
        let Some(last) = left.last().filter(|_| !left.iter().any(alive)) else { return Ok(None) };
        let written = Ms(conn.prepare_cached(LAST_WRITE)?.query_row([], |row| row.get(0))?);
        let still = self.clock.now().since(written);
        if still < STOOD_STILL {
            return Ok(None);
        }
        Ok(Some(format!(
            "{} was last written to at {written}, {} minutes ago, and the worker {} did not end cleanly. If that was a crash or \
             a power cut, all is well. If the machine or the file was put back from an image, nobody here knows what was \
             sent since: stop every worker now, then `onceward restore --copied-at {written}`",
            self.path().display(),
            still.as_secs() / 60,
            last.name
        )))
    }
}

/// Workers that have not said goodbye, or were taken for gone and yet have claimed since; without the one of this nonce.
pub(super) fn strangers(conn: &Connection, but: &str) -> Result<Vec<Stranger>, StoreError> {
    let mut statement = conn.prepare_cached(STRANGERS)?;
    let rows = statement.query_map([but], |row| {
        let (expires, seen) = (Ms(row.get(2)?), Ms(row.get(3)?));
        Ok(Stranger { nonce: shown(row, 0)?, name: shown(row, 1)?, expires, seen, running: row.get(4)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

const STRANGERS: &str =
    "SELECT o.nonce, o.name, coalesce(max(j.lease_expires_ms), o.seen_ms), o.seen_ms, count(j.id)
  FROM onceward_owners o LEFT JOIN onceward_jobs j ON j.lease_owner = o.nonce AND j.state = 'running'
  WHERE (o.gone_ms IS NULL OR j.id IS NOT NULL) AND o.nonce <> ?1 GROUP BY o.nonce
  ORDER BY o.since_ms";
