//! What people and providers say happened: `resolve` and `confirm`.
//!
//! A word is about a generation. Said of another generation than the present one it changes nothing: an app that repeats
//! a command whose answer was lost, or a second person with an old page, would else speak of a request that nobody has
//! looked for. Good news is the exception: it is kept whichever generation it is about. In doubt since a restore only good
//! news and a word about all generations count.

use super::history::{Action, Entry};
use super::operate::{Answer, Work, refuse};
use super::record::{alarm, ended_by, move_to_settled, settle};
use super::{KindDesk, Store, StoreError, doubt, history};
use crate::clock::Ms;
use crate::decide::next_generation;
use crate::intent::{Doubt, IntentState, REFERENCE_LIMIT};
use crate::job::{Code, JobId, Refusal, State};
use rusqlite::OptionalExtension;

/// What a person says happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// It happened, under this reference.
    Settled(String),
    /// It did not happen: back to work, next generation.
    NotApplied,
    /// It was refused: intent rejected, job cancelled.
    Rejected(String),
}

/// Which generation a word is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum About {
    /// It is not said: enough while there is only one.
    #[default]
    Unsaid,
    /// This one.
    Generation(u32),
    /// Every one that there can have been, in this file and in one that was lost.
    All,
}

/// A person's word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// What happened.
    pub says: Resolution,
    /// To which generation.
    pub about: About,
}

impl From<Resolution> for Word {
    fn from(says: Resolution) -> Word {
        Word { says, about: About::Unsaid }
    }
}

/// How a generation is named by whoever confirms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// By its number.
    Generation(u32),
    /// By its key, as the provider saw it.
    WireKey(String),
}

impl Store {
    /// Takes a person's word on an unknown.
    pub fn resolve(
        &self,
        id: JobId,
        word: impl Into<Word>,
        note: Option<String>,
        actor: &str,
    ) -> Result<State, StoreError> {
        let word = word.into();
        self.operate(id, actor, move |work| work.resolve(&word, note.as_deref()))
    }

    /// Takes the provider's own later confirmation.
    pub fn confirm(&self, id: JobId, reference: &str, actor: &str) -> Result<State, StoreError> {
        self.confirm_of(id, reference, None, actor)
    }

    /// The same, of a generation that is named.
    pub fn confirm_of(
        &self,
        id: JobId,
        reference: &str,
        of: Option<Which>,
        actor: &str,
    ) -> Result<State, StoreError> {
        let reference = reference.to_string();
        self.operate(id, actor, move |work| work.confirm(&reference, of.as_ref()))
    }
}

const SAID: &str =
    "SELECT detail FROM onceward_history WHERE job_id = ?1 AND action = 'resolve' AND detail IS NOT NULL
  ORDER BY seq DESC";

impl Work<'_> {
    pub(super) fn resolve(&self, word: &Word, note: Option<&str>) -> Result<Answer, StoreError> {
        if let Resolution::Rejected(why) = &word.says
            && why.trim().is_empty()
        {
            return invalid("the reason is empty: say why it was refused, for whoever reads the history");
        }
        if let Resolution::Settled(reference) = &word.says {
            return self.say_settled(reference, word.about, note);
        }
        if let Some(doubt) = self.intent.doubt.as_ref().filter(|_| self.intent.state != IntentState::Settled)
        {
            return self.say_in_doubt(word, doubt, note);
        }
        let present = self.intent.generation.number;
        let about = match word.about {
            About::Generation(about) => about,
            About::Unsaid if present == 1 => 1,
            // The command again, because nobody heard its answer; nobody can have looked for what was not sent.
            About::Unsaid if !self.was_sent() && self.said(&word.says, None)? => {
                return Ok(Ok(self.job.state));
            }
            About::All if self.said(&word.says, Some(About::All))? => return Ok(Ok(self.job.state)),
            About::Unsaid | About::All => return invalid(self.which_is_meant()),
        };
        if about < present {
            let done = match word.says {
                // It was given up as without effect, or there would be no later one.
                Resolution::NotApplied => true,
                _ => self.said(&word.says, Some(About::Generation(about)))?,
            };
            if done {
                return Ok(Ok(self.job.state));
            }
        }
        if about == present && self.said(&word.says, Some(About::Generation(about)))? {
            return Ok(Ok(self.job.state));
        }
        if about != present {
            return self.remark(word, note, self.which_is_meant());
        }
        if self.job.state == State::Running {
            return refuse(format!(
                "{} is being worked on at this moment: wait until its call has ended",
                self.job.key
            ));
        }
        if self.intent.waits_for_app.is_some() && word.says == Resolution::NotApplied {
            return Ok(Ok(self.job.state));
        }
        if self.intent.state != IntentState::Requested {
            return refuse(format!(
                "{}: its intent is {}, not in doubt, so there is nothing to resolve",
                self.job.key, self.intent.state
            ));
        }
        let state = match word.says {
            Resolution::NotApplied => {
                let kind = self.kind()?;
                self.begin(kind, next_generation(&self.intent.generation, None), true)?
            }
            Resolution::Rejected(_) | Resolution::Settled(_) => {
                self.write_intent_state(IntentState::Rejected)?;
                self.end()?
            }
        };
        self.entry(Action::Resolve, state, Some(told(&word.says, About::Generation(about), note)))?;
        Ok(Ok(state))
    }

    /// In doubt since a restore: what the lost file did under later generations nobody has looked for yet, unless a person
    /// has looked for all of them.
    fn say_in_doubt(&self, word: &Word, doubt: &Doubt, note: Option<&str>) -> Result<Answer, StoreError> {
        if (&word.says, word.about) != (&Resolution::NotApplied, About::All) {
            let why = format!(
                "{} is in doubt since the file was restored from a copy of {}: the lost file may have gone on to other \
                 generations. Look at the provider for every one of its wire keys (`onceward show`), then say \
                 `onceward resolve KEY --not-applied --all-generations`, or `--settled REFERENCE` if you find it. This word \
                 is kept as a remark",
                self.job.key, doubt.since
            );
            return self.remark(word, note, why);
        }
        if self.job.state == State::Running {
            return refuse(format!(
                "{} is being worked on at this moment: wait until its call has ended",
                self.job.key
            ));
        }
        let kind = self.kind()?;
        let clear = clear_at(kind, doubt);
        if self.tx.now() < clear {
            return refuse(format!(
                "{}: what the lost file sent last may not be seen at the provider before {clear}: look then",
                self.job.key
            ));
        }
        doubt::end(self.tx, self.job.id)?;
        let state = match self.job.state {
            // Given up already: it only is in doubt no more.
            State::Cancelled => State::Cancelled,
            _ => self.begin(kind, next_generation(&self.intent.generation, Some(doubt)), true)?,
        };
        self.entry(Action::Resolve, state, Some(told(&word.says, About::All, note)))?;
        Ok(Ok(state))
    }

    /// It happened. An earlier generation's success is kept too: it stops one that was not sent, and is the alarm if one was.
    fn say_settled(&self, reference: &str, about: About, note: Option<&str>) -> Result<Answer, StoreError> {
        if self.intent.state == IntentState::Settled {
            return self.again(reference, Action::Resolve);
        }
        let present = self.intent.generation.number;
        let of = match about {
            About::Unsaid => None,
            About::Generation(n) => Some(n),
            About::All => {
                return invalid("it happened once, so name the one generation that did it, or none");
            }
        };
        if self.job.state == State::Running {
            return refuse(format!(
                "{} is being worked on at this moment: wait until its call has ended",
                self.job.key
            ));
        }
        let doubtful = self.intent.doubt.is_some() || self.intent.state == IntentState::Requested;
        if of.is_some_and(|of| of > present) && self.intent.doubt.is_none() {
            return refuse(self.which_is_meant());
        }
        if !doubtful && of.is_none_or(|of| of == present) {
            return refuse(format!(
                "{}: its intent is {}, not in doubt, so there is nothing to resolve",
                self.job.key, self.intent.state
            ));
        }
        if let Err(refusal) = self.reference_is_free(reference)? {
            return Ok(Err(refusal));
        }
        let word = Resolution::Settled(reference.to_string());
        let state = self.settle(reference, of)?;
        self.entry(Action::Resolve, state, Some(told(&word, about, note)))?;
        Ok(Ok(state))
    }

    pub(super) fn confirm(&self, reference: &str, of: Option<&Which>) -> Result<Answer, StoreError> {
        if self.intent.state == IntentState::Settled {
            return self.again(reference, Action::Confirm);
        }
        let ever_sent =
            self.intent.requested.is_some() || self.was_sent() || self.intent.generation.number > 1;
        if !ever_sent && self.intent.doubt.is_none() {
            return refuse(format!("{} was never sent, so nothing of it can be confirmed", self.job.key));
        }
        let of = match of {
            None => None,
            Some(Which::Generation(n)) => Some(*n),
            // A raw key's first generation is sent as the job's own key, which every generation may show.
            Some(Which::WireKey(key))
                if key == self.job.key.as_str() && self.intent.generation.number > 1 =>
            {
                None
            }
            Some(Which::WireKey(key)) => {
                doubt::generation_of(self.tx.conn(), self.job.id, &self.intent, key)?
            }
        };
        if let Err(refusal) = self.reference_is_free(reference)? {
            return Ok(Err(refusal));
        }
        let state = self.settle(reference, of)?;
        let detail = match of {
            Some(of) => format!("reference {reference} of generation {of}"),
            None => format!("reference {reference}"),
        };
        self.entry(Action::Confirm, state, Some(detail))?;
        Ok(Ok(state))
    }

    /// A request of the present generation may have left.
    fn was_sent(&self) -> bool {
        let g = &self.intent.generation;
        (g.sends > 0 || g.unknown || self.job.state == State::Running) && self.intent.waits_for_app.is_none()
    }

    /// `of`: the generation that did it, if that is said. The alarm is raised only if it is certain that another one may
    /// act too: somebody who does not say which one it was contradicts nobody.
    fn settle(&self, reference: &str, of: Option<u32>) -> Result<State, StoreError> {
        let present = self.intent.generation.number;
        if of.is_some_and(|of| of < present) && self.was_sent() {
            alarm(self.tx, &self.job, Some(reference), None);
        }
        let before = || doubt::generation_before(self.tx.conn(), self.job.id, present);
        let generation = match of {
            Some(of) => of,
            None if self.was_sent() => present,
            None => before()?.unwrap_or(present),
        };
        let unique = self.desk.kind(&self.job.kind).is_none_or(|k| k.unique);
        settle(self.tx, &self.job, &self.intent, generation, Some(reference), None, unique)?;
        move_to_settled(self.tx, &self.job)?;
        Ok(State::Settled)
    }

    /// A settled intent is told its reference again: the same is done, another is the alarm.
    fn again(&self, reference: &str, action: Action) -> Result<Answer, StoreError> {
        if self.intent.reference.as_deref() == Some(reference) {
            return Ok(Ok(State::Settled));
        }
        let first = self.intent.reference.as_deref();
        alarm(self.tx, &self.job, first, Some(reference));
        let what = format!("a second, different reference: {reference}; refused");
        let mut entry = Entry::new(self.job.id, action, self.tx.now(), self.actor);
        (entry.from, entry.to, entry.error) = (Some(self.job.state), Some(self.job.state), Some(what));
        entry.attempt = ended_by(&self.job, self.job.state);
        history::append(self.tx, &entry)?;
        refuse(format!(
            "{} is settled as {} and cannot become {reference}: if both are real there were two effects, look at the \
             provider at once",
            self.job.key,
            first.unwrap_or("(no reference)")
        ))
    }

    fn reference_is_free(&self, reference: &str) -> Result<Result<(), Refusal>, StoreError> {
        if reference.trim().is_empty() {
            return Ok(Err(Refusal::new(Code::Invalid, "the reference is empty")));
        }
        // What a reply may not bring, a person may not either.
        if reference.chars().any(char::is_control) || reference.chars().count() > REFERENCE_LIMIT {
            let why = format!(
                "a reference has at most {REFERENCE_LIMIT} characters, and no control characters among them"
            );
            return Ok(Err(Refusal::new(Code::Invalid, why)));
        }
        let holder: Option<String> = self
            .tx
            .conn()
            .query_row(
                "SELECT key FROM onceward_intents WHERE provider IS ?1 AND kind = ?2 AND reference = ?3
                   AND reference IS NOT NULL AND reference_shared = 0 AND id <> ?4",
                (&self.intent.provider, &self.job.kind, reference, self.job.id.0),
                |row| row.get(0),
            )
            .optional()?;
        let unique = self.desk.kind(&self.job.kind).is_none_or(|k| k.unique);
        Ok(match holder {
            Some(key) if unique => Err(Refusal::new(
                Code::NotAllowed,
                format!("the reference {reference} already belongs to {key}"),
            )),
            _ => Ok(()),
        })
    }

    /// Does this word stand in the history? `about`: of this generation, or of all; `None`: whichever.
    fn said(&self, says: &Resolution, about: Option<About>) -> Result<bool, StoreError> {
        let mut statement = self.tx.conn().prepare_cached(SAID)?;
        let mut rows = statement.query([self.job.id.0])?;
        while let Some(row) = rows.next()? {
            let detail: String = row.get(0)?;
            let same = match about {
                Some(about) => detail_is(&detail, &told(says, about, None)),
                None => detail.starts_with(word(says)),
            };
            if same {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps a word that counts for nothing, and says why it does.
    fn remark(&self, word: &Word, note: Option<&str>, why: String) -> Result<Answer, StoreError> {
        let detail = format!("said, and changes nothing: {}", told(&word.says, word.about, note));
        let last = self.last_word()?;
        if last.is_none_or(|(action, said)| action != Action::Note.as_str() || said.as_ref() != Some(&detail))
        {
            self.entry(Action::Note, self.job.state, Some(detail))?;
        }
        refuse(why)
    }

    fn which_is_meant(&self) -> String {
        format!(
            "{}: say which generation you mean with --generation N (\"generation\" in the API). Its present one is {}: look at \
             the provider for that one's wire key, {}",
            self.job.key, self.intent.generation.number, self.intent.wire_key
        )
    }
}

/// From then on the provider shows what the lost file sent last.
pub(super) fn clear_at(kind: &KindDesk, doubt: &Doubt) -> Ms {
    kind.terms.lookup.map_or(doubt.restored, |lookup| doubt.restored.plus(lookup.lag))
}

fn invalid(why: impl Into<String>) -> Result<Answer, StoreError> {
    Ok(Err(Refusal::new(Code::Invalid, why)))
}

fn word(says: &Resolution) -> &'static str {
    match says {
        Resolution::Settled(_) => "settled",
        Resolution::NotApplied => "not-applied",
        Resolution::Rejected(_) => "rejected",
    }
}

/// A word as the history has it: `not-applied (generation 1): looked in the books`.
fn told(says: &Resolution, about: About, note: Option<&str>) -> String {
    let mut text = word(says).to_string();
    if let Resolution::Settled(what) | Resolution::Rejected(what) = says {
        text = format!("{text} {what}");
    }
    match about {
        About::Unsaid => {}
        About::Generation(n) => text = format!("{text} (generation {n})"),
        About::All => text.push_str(" (all generations)"),
    }
    match note {
        Some(note) => format!("{text}: {note}"),
        None => text,
    }
}

/// Is this detail that word, with or without a note?
fn detail_is(detail: &str, word: &str) -> bool {
    detail.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}
