//! Is the file under the store's name, with its log and the log's index, still what was opened? SQLite does not look: it
//! would go on with files that have no name any more, and all that it acknowledged would be gone with the process; or with a
//! file that others know by another name, under which they have another log and other locks.
//!
//! Looked at before each write and again before it is acknowledged, by a few calls of stat: nothing is ever opened here,
//! since closing any descriptor on the file would drop SQLite's locks. A change that is undone between two looks is not
//! seen. On Linux all of it is seen; on other Unixes all but mounts, which have none of a single file; on Windows nothing,
//! where the system itself refuses to move or delete a file that is open.

use super::StoreError;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file as it was opened. Shared by the writer, the readers and whoever is asked how it stands.
#[derive(Debug)]
pub struct OpenedFile {
    /// By the name that the config has.
    name: PathBuf,
    /// By whatever link it was named: here lie its log, the log's index, and the workers' locks.
    real: PathBuf,
    seen: Mutex<Option<Parts>>,
    trouble: Mutex<Option<Wrong>>,
}

/// Why the file is not to be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// What is wrong, and what to do.
    pub why: String,
    /// What is read would be right all the same.
    pub readable: bool,
}

/// What was opened. A part that could not be seen then is not looked at later.
#[derive(Clone, Copy, Debug)]
struct Parts {
    file: Seen,
    log: Option<Seen>,
    index: Option<Seen>,
}

/// What the system says of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    /// Device and inode.
    id: (u64, u64),
    links: u64,
    is_link: bool,
    mount: Option<u64>,
    /// Size and time of the last change of its content.
    content: (u64, i64, u32),
}

impl Seen {
    fn is(&self, other: &Seen) -> bool {
        self.id == other.id && !self.is_link
    }
}

/// Size and time of a file's content.
pub type Content = (u64, i64, u32);

/// What lies beside the file where others look for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// Our log and index, or nothing.
    Same,
    /// Another log, in which nothing was written.
    EmptyLog,
    /// Another log: what stands in ours only is in nobody's sight.
    Log,
    /// Our log, with another index: all that was acknowledged is there, and so may be what others wrote.
    Index,
}

impl OpenedFile {
    /// The file that has this name. Refused: one that is mounted by itself.
    pub fn of(path: &Path) -> Result<OpenedFile, StoreError> {
        refuse_mount(path)?;
        let name = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let real = real(&name);
        Ok(OpenedFile { name, real, seen: Mutex::default(), trouble: Mutex::default() })
    }

    /// The file itself, by whatever link it was named.
    pub fn path(&self) -> &Path {
        &self.real
    }

    /// Whether this path leads to the file that was opened.
    pub fn is_at(&self, path: &Path) -> bool {
        match (&*lock(&self.seen), look(path, true)) {
            (Some(opened), Ok(there)) => there.id == opened.file.id,
            _ => real(path) == self.real,
        }
    }

    /// The write connection was opened just now, and has made the log if there was none.
    pub fn opened(&self) {
        let part = |end: &str| look(&beside(&self.real, end), false).ok();
        let file = look(&self.real, false).ok();
        *lock(&self.seen) = file.map(|file| Parts { file, log: part("-wal"), index: part("-shm") });
    }

    /// It was closed, and the last one to close deletes the log.
    pub fn closed(&self) {
        if let Some(parts) = &mut *lock(&self.seen) {
            (parts.log, parts.index) = (None, None);
        }
    }

    /// An error if anything is no longer as it was opened.
    pub fn check(&self) -> Result<(), Wrong> {
        let opened = *lock(&self.seen);
        opened.map_or(Ok(()), |opened| self.judge(&opened))
    }

    /// Whether what is read now is what was stored: not where a new reader would find another log.
    pub fn check_reading(&self) -> Result<(), StoreError> {
        let known = self.trouble().map_or(Ok(()), Err);
        match self.check().and(known) {
            Err(wrong) if !wrong.readable => Err(self.unusable(wrong)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The error for whoever wants to use it.
    pub fn unusable(&self, wrong: Wrong) -> StoreError {
        StoreError::Unusable { path: self.name.clone(), why: wrong.why }
    }

    /// What the writer found wrong; `None`: all is well.
    pub fn trouble(&self) -> Option<Wrong> {
        lock(&self.trouble).clone()
    }

    /// The same, for all who ask. `true`: it is news.
    pub fn tell(&self, trouble: Option<Wrong>) -> bool {
        let mut told = lock(&self.trouble);
        let news = *told != trouble;
        *told = trouble;
        news
    }

    fn judge(&self, opened: &Parts) -> Result<(), Wrong> {
        let lost = |why| Err(Wrong { why, readable: false });
        let file = match look(&self.real, false) {
            Ok(file) if file.is(&opened.file) => file,
            Ok(_) | Err(_) => return lost(self.other_file(opened)),
        };
        if self.name != self.real && !look(&self.name, true).is_ok_and(|there| there.id == file.id) {
            return lost(self.other_file(opened));
        }
        if file.mount != opened.file.mount {
            return lost(format!("it was mounted over while this program had it open: {MEND}"));
        }
        for (end, opened) in [("-wal", opened.log), ("-shm", opened.index)] {
            let Some(opened) = opened else { continue };
            let there = beside(&self.real, end);
            let what = match look(&there, false) {
                Ok(now) if now.is(&opened) => continue,
                Ok(_) => "replaced by another file",
                Err(_) => "deleted or moved",
            };
            return lost(format!("{} was {what} while this program had it open: {RESTART}", there.display()));
        }
        if file.links > 1 {
            let why = format!(
                "it has {} names (hard links): whoever opens it by another one has another log and other locks. Nothing is \
                 stored or sent until it has one name again. `find -samefile` finds them; a copy is made by `onceward backup`",
                file.links
            );
            return Err(Wrong { why, readable: true });
        }
        Ok(())
    }

    fn other_file(&self, opened: &Parts) -> String {
        let what = match look(&self.name, true) {
            Ok(there) if there.id == opened.file.id => "moved, and a link stands in its place,",
            Ok(_) => "replaced by another file",
            Err(_) => "deleted or moved",
        };
        format!("it was {what} while this program had it open: {MEND}")
    }

    /// What somebody who opens the file by its name now has beside it.
    pub fn others(&self) -> Others {
        let Some(opened) = *lock(&self.seen) else { return Others::Same };
        let now = real(&self.name);
        let other = |end: &str, opened: Option<Seen>| {
            let there = look(&beside(&now, end), false).ok()?;
            opened.is_none_or(|opened| !there.is(&opened)).then_some(there)
        };
        match (other("-wal", opened.log), other("-shm", opened.index)) {
            (Some(Seen { content: (1.., _, _), .. }), _) => Others::Log,
            (Some(_), _) => Others::EmptyLog,
            (None, Some(_)) => Others::Index,
            (None, None) => Others::Same,
        }
    }

    /// The file's content as its size and times show it, if it can still be found: by its name, or by a descriptor that
    /// SQLite has on it.
    pub fn content(&self) -> Option<Content> {
        let opened = (*lock(&self.seen))?;
        let named = [look(&self.real, false), look(&self.name, true)].into_iter().flatten();
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let open = open.filter_map(|fd| look(&fd.path(), true).ok());
        named.chain(open).find(|there| there.is(&opened.file)).map(|there| there.content)
    }
}

const MEND: &str = "nothing is stored or sent any more. Put the right file back with its -wal, or stop every process that has \
   it open, put everything right, and start again";
const RESTART: &str =
    "nothing is stored or sent any more. Stop every process that has the file open, then start again";

/// Whether a file may be written that is not open yet.
pub fn refuse_links(path: &Path) -> Result<(), StoreError> {
    match look(&real(path), false) {
        Ok(file) if file.links > 1 => {
            let why = format!("it has {} names (hard links): leave it one, then start again", file.links);
            Err(StoreError::Unusable { path: path.to_path_buf(), why })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A file that is mounted without its folder has its log and the workers' locks in another place than the file: in a
/// container's layer, say, that is thrown away with what was acknowledged.
fn refuse_mount(path: &Path) -> Result<(), StoreError> {
    let file = real(path);
    let Some(folder) = file.parent() else { return Ok(()) };
    let mounted = match (look(&file, false), look(folder, true)) {
        (Ok(Seen { mount: Some(file), .. }), Ok(Seen { mount: Some(folder), .. })) => file != folder,
        (Ok(_), _) => is_mount_point(&file),
        (Err(_), _) => false,
    };
    if !mounted {
        return Ok(());
    }
    let why = "it is mounted by itself, without the folder around it (`-v FILE:FILE` of a container, a subPath that is a file): \
               its log and the workers' locks would lie elsewhere, and what is acknowledged would be lost. Mount its folder"
        .into();
    Err(StoreError::Unusable { path: path.to_path_buf(), why })
}

/// The file itself, by whatever link it was named.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_os_string();
    name.push(end);
    PathBuf::from(name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has this name, in one call. With the mount it is reached by, where the kernel tells (Linux 5.8).
#[cfg(target_os = "linux")]
fn look(path: &Path, follow: bool) -> std::io::Result<Seen> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let wanted = StatxFlags::TYPE
        | StatxFlags::INO
        | StatxFlags::NLINK
        | StatxFlags::SIZE
        | StatxFlags::MTIME
        | StatxFlags::MNT_ID;
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    match statx(CWD, path, flags, wanted) {
        Ok(found) => Ok(Seen {
            id: (u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor), found.stx_ino),
            links: found.stx_nlink.into(),
            is_link: rustix::fs::FileType::from_raw_mode(found.stx_mode.into()).is_symlink(),
            mount: (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id),
            content: (found.stx_size, found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        }),
        Err(rustix::io::Errno::NOSYS) => look_as_everywhere(path, follow),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn look(path: &Path, follow: bool) -> std::io::Result<Seen> {
    look_as_everywhere(path, follow)
}

#[cfg(unix)]
fn look_as_everywhere(path: &Path, follow: bool) -> std::io::Result<Seen> {
    use std::os::unix::fs::MetadataExt;
    let found = if follow { path.metadata() } else { path.symlink_metadata() }?;
    Ok(Seen {
        id: (found.dev(), found.ino()),
        links: found.nlink(),
        is_link: found.is_symlink(),
        mount: None,
        content: (found.size(), found.mtime(), found.mtime_nsec().try_into().unwrap_or(0)),
    })
}

#[cfg(not(unix))]
fn look_as_everywhere(_: &Path, _: bool) -> std::io::Result<Seen> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Whether something is mounted exactly there, by the list of mounts; asked where the kernel does not tell at once.
pub(super) fn is_mount_point(path: &Path) -> bool {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    list.lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| unescaped(point) == path.as_os_str().as_encoded_bytes())
}

/// The kernel writes blanks and the like as `\040`.
pub(super) fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let octal = text.get(at + 1..at + 4).filter(|_| *byte == b'\\');
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                out.push(escaped);
                at += 4;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}
