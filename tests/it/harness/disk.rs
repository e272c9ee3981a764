//! A small disk of its own, for tests of what happens when it is full, read-only, or loses its power.

use super::LIMIT;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A mounted tmpfs, or an ext4 in a file; unmounted when it is dropped.
pub struct Disk {
    folder: tempfile::TempDir,
    /// Where the ext4 is.
    image: Option<tempfile::NamedTempFile>,
}

/// Shuts an ext4 down as a cut of the power would: nothing of what was not synced is written any more, the journal
/// included (FS_IOC_SHUTDOWN without a flush).
const CUT: &str = "import fcntl, os, struct, sys; fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

fn done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
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
            return Some(Disk { folder, image: None });
        }
        let name = std::thread::current().name().unwrap_or_default().to_string();
        eprintln!("SKIPPED {name}: it needs a small disk, and mounting one needs root on Linux");
        None
    }

    /// An ext4 of so many MiB. `None`, and a line that says so: there is no loop device, or this user may not mount it.
    pub fn ext4(mebibytes: u64) -> Option<Disk> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let image = tempfile::NamedTempFile::new().expect("a temporary file");
        image.as_file().set_len(mebibytes << 20).expect("room");
        let disk = Disk { folder, image: Some(image) };
        let made = done(Command::new("mkfs.ext4").arg("-q").arg(disk.image()));
        if made && disk.mount() {
            return Some(disk);
        }
        let name = std::thread::current().name().unwrap_or_default().to_string();
        eprintln!("SKIPPED {name}: it needs mkfs.ext4, a loop device, and root on Linux");
        None
    }

    fn image(&self) -> &Path {
        self.image.as_ref().expect("an ext4").path()
    }

    fn mount(&self) -> bool {
        done(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(self.image()).arg(self.path()))
    }

    /// From here on the ext4 forgets what was not synced, and gives errors.
    #[track_caller]
    pub fn cut_power(&self) {
        assert!(done(Command::new("python3").args(["-c", CUT]).arg(self.path())), "the ext4 is shut down");
    }

    /// The power is back. Whoever had it open must be gone.
    #[track_caller]
    pub fn start_again(&self) {
        let start = Instant::now();
        while !done(Command::new("umount").arg(self.path())) {
            assert!(start.elapsed() < LIMIT, "somebody has the disk open still");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(self.mount(), "the ext4 is mounted again");
    }

    /// `ro` or `rw`.
    #[track_caller]
    pub fn remount(&self, how: &str) {
        let option = format!("remount,{how}");
        assert!(done(Command::new("mount").args(["-o", &option]).arg(self.path())), "{option}");
    }

    /// `+i` or `-i`: nobody may change the file or folder, root included.
    #[track_caller]
    pub fn chattr(&self, how: &str, path: &Path) {
        assert!(done(Command::new("chattr").arg(how).arg(path)), "chattr {how} {}", path.display());
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
