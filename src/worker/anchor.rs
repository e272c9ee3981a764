//! The anchor: the ends of the history's and the events' chains, written now and then to a file elsewhere, so that a file whose
//! record was made anew with a chain of its own is found, and one that was put back from a copy by hand too.
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
    /// The end of the events' chain, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    events: Option<End>,
}

#[derive(Serialize, Deserialize)]
struct End {
    seq: i64,
    chain: String,
}

/// A line is much shorter.
const LONGEST: u64 = 4096;

/// Appends where the chains end now, and waits until it is on disk. `false`: it could not be written, and that is logged.
pub fn append(store: &Store, path: &Path) -> bool {
    let written = try_append(store, path);
    if let Err(e) = &written {
        log::error!("THE AUDIT IS NOT ANCHORED: {} could not be written: {e}", path.display());
    }
    written.is_ok()
}

fn try_append(store: &Store, path: &Path) -> Result<(), String> {
    let head = store.chain_head().map_err(|e| e.to_string())?;
    let instance = store.instance().map_err(|e| e.to_string())?;
    let at = store.clock().now().rfc3339();
    let events = store.events_head().map_err(|e| e.to_string())?;
    let events = events.map(|head| End { seq: head.seq, chain: hex(&head.chain) });
    let line = Line { at, instance, seq: head.seq, chain: hex(&head.chain), events };
    // In a line of its own, whatever a full disk or a power cut left of the last one.
    let torn = ends_in_a_line(path).is_some_and(|whole| !whole);
    let text = serde_json::to_string(&line).map_err(|e| e.to_string())?;
    let text = format!("{}{text}\n", if torn { "\n" } else { "" });
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

/// `None`: there is no file, or nothing in it.
fn ends_in_a_line(path: &Path) -> Option<bool> {
    let mut file = File::open(path).ok()?;
    let mut last = [0];
    file.seek(SeekFrom::End(-1)).ok()?;
    file.read_exact(&mut last).ok()?;
    Some(last == *b"\n")
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
        let wrong = match serde_json::from_slice::<Line>(whole(&bytes)) {
            // A line that was being written when the power went, or the room on the disk.
            Err(e) if e.is_eof() || !bytes.ends_with(b"\n") => None,
            Err(e) => Some(format!("it cannot be read: {e}")),
            Ok(line) if events_differ(store, &line, line.instance == instance || restored.is_none())? => {
                Some(format!(
                    "the events had another chain at {}: they were rewritten, or some are gone",
                    line.at
                ))
            }
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

/// A line without its end, and without the zeros that a power cut may leave of one that was being written.
fn whole(line: &[u8]) -> &[u8] {
    let last = line.iter().rposition(|byte| *byte != 0 && !byte.is_ascii_whitespace());
    &line[..last.map_or(0, |at| at + 1)]
}

/// Are the events not what they were? A line of before a restore does not bind them: the copy may have had fewer.
fn events_differ(store: &Store, line: &Line, binds: bool) -> Result<bool, StoreError> {
    match &line.events {
        Some(end) if binds => {
            Ok(store.events_chain_at(end.seq)?.is_none_or(|chain| hex(&chain) != end.chain))
        }
        _ => Ok(false),
    }
}

/// When the file was last restored, for people.
pub fn restored_words(restored: Option<(i64, Ms)>) -> Option<String> {
    restored.map(|(seq, at)| format!("restored at {at} from a copy that ended at row {seq}"))
}
