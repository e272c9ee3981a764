//! What every door does alike, so that the command line and the API refuse the same things in the same words: reading
//! what asks for a job, finding one, checking the words of a list, amending.

mod line;
pub mod restored;

/// Lines that are stored together share one transaction, and so one wait for the disk: at most so many jobs,
pub const BATCH_JOBS: usize = 200;
/// and payloads of about so many bytes.
pub const BATCH_BYTES: usize = 4 * 1024 * 1024;

pub use line::{Line, Lines, job_of_line, request};

use crate::config::{Config, Request};
use crate::job::{Code, JobId, Reason, Refusal};
use crate::outcome::Class;
use crate::store::{Amendment, Store, StoreError, Story};

/// The number of the job that a person means: KEY or `#ID`.
pub fn find(store: &Store, key: &str) -> Result<JobId, StoreError> {
    store.find(key)?.ok_or_else(|| no_job(key).into())
}

/// There is no such job.
pub fn no_job(key: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("there is no job `{key}`: `onceward list` shows what there is"))
}

/// A word out of a fixed list, or an error that names the list.
pub fn known<T: Copy>(word: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let wrong = || {
        let words: Vec<_> = all.iter().map(|t| name(*t)).collect();
        format!("`{word}` is none of {}", words.join(", "))
    };
    all.iter().copied().find(|t| name(*t) == word).ok_or_else(wrong)
}

/// A class or park reason, checked.
pub fn known_class(word: &str) -> Result<(), String> {
    let reasons = Reason::ALL.iter().map(|r| r.as_str()).filter(|r| Class::parse(r).is_none());
    let words: Vec<&'static str> = Class::ALL.iter().map(|c| c.as_str()).chain(reasons).collect();
    known(word, &words, |word| word).map(|_| ())
}

/// A list found nothing: perhaps because the kind is misspelt. Jobs of a kind that left the config are still listed.
pub fn known_kind(config: &Config, kind: &str) -> Result<(), String> {
    if config.kinds.contains_key(kind) {
        return Ok(());
    }
    let words: Vec<&str> = config.kinds.keys().map(String::as_str).collect();
    Err(format!("`{kind}` is none of {}", words.join(", ")))
}

/// New content for a job, checked like any other, under the key that the job has. `money`: account, amount and currency
/// may change as well.
pub fn amendment(config: &Config, story: &Story, payload: String, money: bool) -> Result<Amendment, Refusal> {
    let content = config.prepare(amended(config, story, payload)?)?;
    Ok(Amendment { content, money })
}

/// The job as it would be asked for with this payload: what the kind draws from the payload is drawn anew, what was
/// given beside it stays.
fn amended(config: &Config, story: &Story, payload: String) -> Result<Request, Refusal> {
    let Some(kind) = config.kinds.get(&story.job.kind) else {
        let why = format!("kind `{}` is not in the config: put it back first", story.job.kind);
        return Err(Refusal::new(Code::NotAllowed, why));
    };
    let intent = &story.intent;
    let kept = |templated: bool, value: Option<String>| if templated { None } else { value };
    Ok(Request {
        kind: story.job.kind.clone(),
        payload,
        key: Some(story.job.key.as_str().to_string()),
        // An order that the new payload would change is refused, not passed over.
        group: story.job.group.clone(),
        account: kept(kind.account.is_some(), intent.account.clone()),
        amount_minor: kept(kind.amount_minor.is_some(), intent.amount_minor.map(|a| a.to_string())),
        currency: kept(kind.currency.is_some(), intent.currency.clone()),
        ..Request::default()
    })
}
