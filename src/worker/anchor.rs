//! The anchor: the end of the history's chain, written now and then to a file elsewhere, so that a file whose history
//! was made anew with a chain of its own is found, and one that was put back from a copy by hand too.
//!
//! An anchor that cannot be written is told loudly and stops nothing.

use crate::clock::Ms;
use crate::intent::hex;
use crate::job::{Code, Refusal};
use crate::store::{Store, StoreError, sync_folder};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// One line of the anchor.
#[derive(Serialize, Deserialize)]
struct Line {
    at: String,
    instance: String,
    seq: i64,
    chain: String,
}

/// A line is much shorter.
const LONGEST: u64 = 4096;

/// Appends where the chain ends now, and waits until it is on disk.
pub fn append(store: &Store, path: &Path) {
    if let Err(e) = try_append(store, path) {
        log::error!("THE AUDIT IS NOT ANCHORED: {} could not be written: {e}", path.display());
    }
}

fn try_append(store: &Store, path: &Path) -> Result<(), String> {
    let head = store.chain_head().map_err(|e| e.to_string())?;
    let instance = store.instance().map_err(|e| e.to_string())?;
    let at = store.clock().now().rfc3339();
    let line = Line { at, instance, seq: head.seq, chain: hex(&head.chain) };
    let mut text = serde_json::to_string(&line).map_err(|e| e.to_string())?;
    text.push('\n');
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let new = !path.exists();
    let write = |mut file: File| file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    options.open(path).and_then(write).map_err(|e| e.to_string())?;
    if new {
        sync_folder(path).map_err(|e| e.to_string())?;
    }
    store.note_anchor().map_err(|e| e.to_string())
}

/// Refuses a file that ends before its own anchor: it was put back from a copy by hand, and what was sent since is not in
/// it.
pub fn refuse_rolled_back(store: &Store, path: &Path) -> Result<(), StoreError> {
    let Some(line) = last_line(path) else { return Ok(()) };
    let head = store.chain_head()?;
    if line.instance != store.instance()? || line.seq <= head.seq {
        return Ok(());
    }
    let why = format!(
        "the history ends at row {}, and the anchor {} has had row {} at {}: an older copy was put in place, or the log \
         beside the file (-wal) was taken away, and what was sent since is not in it. Put the log back, or run `onceward restore {} --copied-at TIME`",
        head.seq,
        path.display(),
        line.seq,
        line.at,
        store.path().display()
    );
    Err(Refusal::new(Code::NotAllowed, why).into())
}

/// The last whole line; `None` if there is none that can be read.
fn last_line(path: &Path) -> Option<Line> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LONGEST))).ok()?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

/// What an anchor says of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Anchored {
    /// Lines that agree.
    pub agree: u64,
    /// Lines of rows that a restore lost.
    pub lost: u64,
    /// The highest row that is anchored and agrees.
    pub last_seq: i64,
    /// What is wrong, at most 20.
    pub breaks: Vec<String>,
}

/// Holds a store against its anchor, line by line. An error of the file's is given as it is.
pub fn check(store: &Store, path: &Path) -> Result<Result<Anchored, std::io::Error>, StoreError> {
    let mut anchored = Anchored::default();
    let mut lines = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(e) => return Ok(Err(e)),
    };
    let (instance, restored) = (store.instance()?, store.restored_at()?);
    let (mut bytes, mut number) = (Vec::new(), 0);
    loop {
        bytes.clear();
        match (&mut lines).take(LONGEST).read_until(b'\n', &mut bytes) {
            Ok(0) => return Ok(Ok(anchored)),
            Ok(_) => {}
            Err(e) => return Ok(Err(e)),
        }
        number += 1;
        let wrong = match serde_json::from_slice::<Line>(&bytes) {
            // A line that was being written when the power went.
            Err(_) if !bytes.ends_with(b"\n") => None,
            Err(e) => Some(format!("it cannot be read: {e}")),
            Ok(line) if line.seq <= 0 => None,
            Ok(line) => match store.chain_at(line.seq)? {
                Some(chain) if hex(&chain) == line.chain => {
                    anchored.agree += 1;
                    anchored.last_seq = anchored.last_seq.max(line.seq);
                    None
                }
                _ if line.instance != instance && restored.is_some_and(|(seq, _)| line.seq > seq) => {
                    anchored.lost += 1;
                    None
                }
                Some(_) => Some(format!(
                    "row {} had another chain at {}: the history was rewritten",
                    line.seq, line.at
                )),
                None => Some(format!("row {} was there at {} and is gone", line.seq, line.at)),
            },
        };
        if let Some(what) = wrong.filter(|_| anchored.breaks.len() < 20) {
            anchored.breaks.push(format!("anchor line {number}: {what}"));
        }
    }
}

/// When the file was last restored, for people.
pub fn restored_words(restored: Option<(i64, Ms)>) -> Option<String> {
    restored.map(|(seq, at)| format!("restored at {at} from a copy that ended at row {seq}"))
}
