//! A person's word about many jobs that are in doubt since a restore: which they are, and the word of each by itself.
//!
//! Between the list that a person has read and the word, a worker or somebody else may have brought a job on. The word is
//! about what the list showed: it does not count for a job whose history has grown since.

use super::operate::{Selection, refuse};
use super::resolve::clear_at;
use super::rows::{shown, shown_if_any};
use super::{About, Resolution, Store, StoreError, Story, Word};
use crate::clock::Ms;
use crate::job::{JobId, State};

/// A job that is in doubt since a restore, as a list showed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meant {
    /// Its number.
    pub id: JobId,
    /// Its key.
    pub key: String,
    /// Its kind.
    pub kind: String,
    /// Where it stood.
    pub state: State,
    /// Minor units.
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    /// The last row of its history.
    seen: i64,
}

/// What a look-up has proved and nothing has made doubtful since is left out: it goes on by itself.
const MEANT: &str = "SELECT i.id, i.key, i.kind, j.state, i.amount_minor, i.currency,
    (SELECT coalesce(max(h.seq), 0) FROM onceward_history h WHERE h.job_id = i.id)
  FROM onceward_intents i LEFT JOIN onceward_jobs j ON j.id = i.id
  WHERE i.doubt_since_ms IS NOT NULL AND i.state <> 'settled' AND NOT (i.proved = 1 AND i.unknown = 0)
    AND (?1 IS NULL OR j.park_reason = ?1 OR j.error_class = ?1) ORDER BY i.id";
const LAST: &str = "SELECT coalesce(max(seq), 0) FROM onceward_history WHERE job_id = ?1";

impl Store {
    /// The jobs that are in doubt since a restore, oldest first.
    pub fn doubtful(&self, selection: &Selection) -> Result<Vec<Meant>, StoreError> {
        let class = match selection {
            Selection::All => None,
            Selection::Class(class) => Some(class),
        };
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(MEANT)?;
        let rows = statement.query_map([class], |row| {
            Ok(Meant {
                id: JobId(row.get(0)?),
                key: shown(row, 1)?,
                kind: shown(row, 2)?,
                // Pruned, or a word that is none, which is refused when it comes to it.
                state: shown_if_any(row, 3)?.and_then(|word| State::parse(&word)).unwrap_or(State::Cancelled),
                amount_minor: row.get(4)?,
                currency: shown_if_any(row, 5)?,
                seen: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// From when on a person's word about all generations of it is taken. `None`: the config does not know its kind.
    pub fn word_is_taken_from(&self, story: &Story) -> Option<Ms> {
        let kind = self.desk().kind(&story.job.kind).or_else(|| self.desk().elsewhere(&story.job.kind))?;
        story.intent.doubt.as_ref().map(|doubt| clear_at(kind, doubt))
    }

    /// A person's word that nothing of it happened, in any generation; refused if the job has gone on since it was listed.
    pub fn none_applied(
        &self,
        meant: &Meant,
        note: Option<String>,
        actor: &str,
    ) -> Result<State, StoreError> {
        let word = Word { says: Resolution::NotApplied, about: About::All };
        let seen = meant.seen;
        self.operate(meant.id, actor, move |work| {
            let last: i64 =
                work.tx.conn().prepare_cached(LAST)?.query_row([work.job.id.0], |row| row.get(0))?;
            if last != seen {
                return refuse(format!("{} has gone on since it was listed: look at it again", work.job.key));
            }
            work.resolve(&word, note.as_deref())
        })
    }
}
