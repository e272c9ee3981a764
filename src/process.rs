//! Other processes of this machine, as far as the system shows them. Linux shows what /proc has; elsewhere nothing is
//! known, and whoever asks takes that for "it may be".

use std::fs::Metadata;

/// The most processes that are named; who holds a file is seldom more than one.
const NAMED: usize = 5;

/// Who has this file open, for a person: `4711 (flock) of uid 1000`. Empty where it cannot be seen: another user's
/// process, another container's, or another system than Linux.
#[cfg(target_os = "linux")]
pub fn holders(file: &Metadata) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let this = (file.dev(), file.ino());
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else {
            continue;
        };
        if pid == std::process::id().to_string() {
            continue;
        }
        let open = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|fd| std::fs::metadata(fd.path()).ok());
        if open.any(|file| (file.dev(), file.ino()) == this) {
            let what = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let what: String = what.trim().chars().filter(|c| !c.is_control()).collect();
            let uid = process.metadata().map_or_else(|_| "?".into(), |of| of.uid().to_string());
            found.push(format!("{pid} ({what}) of uid {uid}"));
            if found.len() == NAMED {
                break;
            }
        }
    }
    found
}

#[cfg(not(target_os = "linux"))]
pub fn holders(_: &Metadata) -> Vec<String> {
    Vec::new()
}
