//! What the writer does while the file under it is not the one that it opened ([`OpenedFile`]).
//!
//! Nothing more is written, and what was acknowledged is made safe: the log is folded into the file, so that it is there
//! for whoever opens the file by its name, unless somebody writes to it with another log already. Once all is right again
//! the work goes on; not if the file was written meanwhile past our log, for its index, which all share who have it open,
//! knows nothing of that: then it stays as it is until all of them have closed it.

use super::identity::{Content, OpenedFile, Others, Wrong};
use super::schema;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::time::Duration;

/// The state of it: `None` while all is well.
#[derive(Default)]
pub struct Adrift(Option<Away>);

#[derive(Default)]
struct Away {
    /// Nothing stands in the log alone.
    folded: bool,
    /// What the file and its log held when that was tried last.
    left: (Option<Content>, Option<Traffic>),
    /// It was said that the log cannot be folded any more.
    told: bool,
}

/// What passes through the log: its frames, those of them that are in the file, and what other connections committed.
type Traffic = (i64, i64, i64);

impl Adrift {
    /// Looks, says what has changed, and does what can be done. An error: nothing may be written.
    pub fn look(&mut self, file: &OpenedFile, conn: Option<&Connection>) -> Result<(), Wrong> {
        let wrong = match (file.check(), &self.0) {
            (Ok(()), None) => return Ok(()),
            (Ok(()), Some(away)) if away.may_go_on(file, conn) => {
                self.0 = None;
                file.tell(None);
                log::warn!("{} is as it was when it was opened: the work goes on", file.path().display());
                return Ok(());
            }
            (Ok(()), Some(_)) => Wrong { why: WRITTEN.into(), readable: false },
            (Err(wrong), _) => {
                self.0.get_or_insert_default().save(file, conn);
                wrong
            }
        };
        if file.tell(Some(wrong.clone())) {
            log::error!("{}: {}", file.path().display(), wrong.why);
        }
        Err(wrong)
    }

    /// Closes the connection. The last one to close folds its log into the file and deletes the log by its name: not where
    /// that would be another's.
    pub fn close(&self, file: &OpenedFile, conn: Connection) {
        let away = self.0.is_some() || file.check().is_err();
        if away
            && file.others() != Others::Same
            && let Err(e) = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        {
            log::error!("{}: its log could not be kept apart at the close: {e}", file.path().display());
        }
        drop(conn);
        file.closed();
    }
}

impl Away {
    fn save(&mut self, file: &OpenedFile, conn: Option<&Connection>) {
        let Some(conn) = conn.filter(|_| !self.folded) else { return };
        match file.others() {
            Others::Same | Others::EmptyLog => {}
            // Whoever opens the file has all of it.
            Others::Index => return,
            Others::Log => {
                if !std::mem::replace(&mut self.told, true) {
                    log::error!(
                        "{}: another program writes to it with another log. What this one stored since its own was last \
                         folded into the file may be in that log alone",
                        file.path().display()
                    );
                }
                return;
            }
        }
        self.folded = schema::fold(conn, Duration::ZERO).unwrap_or(false);
        self.left = (file.content(), traffic(conn));
    }

    /// Whether the file is as it was left, or was written through this connection's log only.
    fn may_go_on(&self, file: &OpenedFile, conn: Option<&Connection>) -> bool {
        let (content, traffic_then) = self.left;
        let unchanged = content.is_some() && content == file.content();
        unchanged || traffic_then.is_some() && conn.and_then(traffic) != traffic_then
    }
}

fn traffic(conn: &Connection) -> Option<Traffic> {
    let frames = conn.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| Ok((row.get(1)?, row.get(2)?)));
    let (frames, folded) = frames.ok()?;
    Some((frames, folded, conn.query_row("PRAGMA data_version", [], |row| row.get(0)).ok()?))
}

const WRITTEN: &str = "it was written by another program while it was moved or linked, past the log that this one has open: nothing \
   is stored or sent any more. Stop every process that has it open, start again, and look with `onceward audit verify`";
