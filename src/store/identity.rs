//! Is the file under the store's name still the one that was opened? SQLite does not look: it would go on with a file
//! that has no name any more, and all that it acknowledged would be gone with the process.

use super::StoreError;
use std::path::{Path, PathBuf};

/// The file itself, by whatever link it was named.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Which file it is: device and inode. Not known where there is no such thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity(Option<(u64, u64)>);

impl Identity {
    /// The file that has this name now.
    pub fn of(path: &Path) -> Identity {
        Identity(read(path))
    }

    /// An error if the name belongs to another file now, or to none.
    pub fn check(self, path: &Path) -> Result<(), StoreError> {
        let why = match (self.0, read(path)) {
            (None, _) => return Ok(()),
            (Some(opened), Some(now)) if opened == now => return Ok(()),
            (Some(_), Some(_)) => "replaced by another file",
            (Some(_), None) => "deleted or moved",
        };
        Err(StoreError::Unusable {
            path: path.to_path_buf(),
            why: format!(
                "it was {why} while this program had it open: nothing is stored or sent any more; stop every process that \
                 has it open, put the right file back with its -wal, then start again"
            ),
        })
    }
}

#[cfg(unix)]
fn read(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn read(_: &Path) -> Option<(u64, u64)> {
    None
}
