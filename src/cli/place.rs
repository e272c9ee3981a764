//! Whether a folder is a good place for the file: one on a network file system, whose locks and syncs may not hold, or
//! one that a program copies to a cloud, file by file, is not.

use std::path::Path;

/// Folders that are kept the same elsewhere, by the beginning of their names.
const SYNCED: [&str; 7] =
    ["onedrive", "dropbox", "google drive", "googledrive", "icloud", "nextcloud", "mobile documents"];

/// What is wrong with the place of this file, and what to do; `None`: nothing that shows.
pub fn doubt(file: &Path) -> Option<String> {
    let path = std::path::absolute(file).ok()?;
    let what =
        network(&path).map(|name| format!("a network file system ({name})")).or_else(|| synced(&path))?;
    Some(format!(
        "{} is in {what}: locks and syncs may not hold there, and jobs could be lost or doubled. Put the file on a local \
         disk, in a folder of its own, and name it in [store] path",
        path.display()
    ))
}

fn synced(path: &Path) -> Option<String> {
    let folder = path.parent()?.iter().find(|name| {
        let name = name.to_string_lossy().to_lowercase();
        SYNCED.iter().any(|synced| name.starts_with(synced))
    })?;
    Some(format!("a folder that is kept the same elsewhere ({})", folder.display()))
}

/// Which network file system the folder is on. What may be a local one (FUSE, 9p) counts as local.
#[cfg(target_os = "linux")]
fn network(path: &Path) -> Option<&'static str> {
    const NAMES: [(u32, &str); 6] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
    ];
    let on = rustix::fs::statfs(path.parent()?).ok()?;
    // The numbers have 32 bits; the field's width and sign are the platform's.
    let kind = on.f_type as u32;
    NAMES.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
fn network(_: &Path) -> Option<&'static str> {
    None
}
