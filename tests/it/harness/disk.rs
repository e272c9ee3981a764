//! A small disk of its own, for tests of what happens when it is full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs; unmounted when it is dropped.
pub struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// A disk of so many MiB. `None`, and a line that says so: this user may not mount one.
    pub fn small(mebibytes: u32) -> Option<Disk> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "onceward-test"])
            .arg(folder.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Disk { folder });
        }
        let name = std::thread::current().name().unwrap_or_default().to_string();
        eprintln!("SKIPPED {name}: it needs a small disk, and mounting one needs root on Linux");
        None
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Fills it with a file, but for about so many bytes.
    pub fn fill_but(&self, room: u64) {
        self.empty();
        let free = fs4::available_space(self.path()).expect("the disk's free space");
        let mut file = File::create(self.filler()).expect("the filler");
        let mut left = free.saturating_sub(room);
        let block = [0u8; 4096];
        while left > 0 {
            let size = left.min(4096) as usize;
            if file.write_all(&block[..size]).is_err() {
                break;
            }
            left -= size as u64;
        }
    }

    /// Takes the filler away.
    pub fn empty(&self) {
        let _ = std::fs::remove_file(self.filler());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a child that still runs must not keep it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
