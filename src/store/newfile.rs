//! A file that is there whole or not at all, and that never takes the place of another.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A file under a passing name beside its own. Dropped before [`NewFile::finish`], it is gone.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    passing: PathBuf,
    done: bool,
}

impl NewFile {
    /// Makes an empty file, readable by its owner only. `AlreadyExists` if something has the name.
    pub fn create(path: &Path) -> io::Result<(NewFile, File)> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut passing = path.as_os_str().to_os_string();
        passing.push(format!(".tmp-{}", uuid::Uuid::new_v4().simple()));
        let passing = PathBuf::from(passing);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&passing)?;
        Ok((NewFile { path: path.to_path_buf(), passing, done: false }, file))
    }

    /// Where it is until it is whole.
    pub fn passing(&self) -> &Path {
        &self.passing
    }

    /// Puts it on disk and gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        File::options().read(true).write(true).open(&self.passing)?.sync_all()?;
        // A second name never replaces a file that came meanwhile, as a rename would.
        match std::fs::hard_link(&self.passing, &self.path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(e),
            // Some file systems know no second names.
            Err(_) if self.path.symlink_metadata().is_ok() => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Err(_) => {
                std::fs::rename(&self.passing, &self.path)?;
                self.done = true;
                return sync_folder(&self.path);
            }
        }
        std::fs::remove_file(&self.passing)?;
        self.done = true;
        sync_folder(&self.path)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.done {
            for end in ["", "-wal", "-shm", "-journal"] {
                let mut name = self.passing.as_os_str().to_os_string();
                name.push(end);
                let _ = std::fs::remove_file(name);
            }
        }
    }
}

/// Puts a file's name on disk: it is there only once its folder is.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}
