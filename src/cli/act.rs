//! `replay`, `resolve`, `cancel`, `confirm`, `note`

use super::{CliError, Context, actor, exit_code, find, known_class, many, no_job};
use crate::door;
use crate::job::{Code, JobId, State};
use crate::store::{About, Resolution, Selection, Store, StoreError, Which, Word};
use crate::view;
use clap::{ArgGroup, Args};

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").required(true).args(["keys", "class", "all"]))]
pub struct ReplayArgs {
    /// Keys, or #IDs
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// All whose park reason or last class is this
    #[arg(long)]
    class: Option<String>,
    /// All that are parked
    #[arg(long)]
    all: bool,
    /// New content for one job of which certainly nothing happened
    #[arg(long, value_name = "JSON", conflicts_with_all = ["class", "all"], allow_hyphen_values = true)]
    payload: Option<String>,
    /// The new content may change account, amount or currency
    #[arg(long, requires = "payload")]
    amend_money: bool,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("word").required(true).args(["settled", "not_applied", "rejected"]))]
#[command(group = ArgGroup::new("whose").required(true).args(["key", "all"]))]
pub struct ResolveArgs {
    /// The key, or #ID
    key: Option<String>,
    /// It happened, under this reference of the provider's
    #[arg(long, value_name = "REFERENCE", allow_hyphen_values = true)]
    settled: Option<String>,
    /// It did not happen: back to work, next generation
    #[arg(long)]
    not_applied: bool,
    /// Which generation you looked for: needed from the second one on
    #[arg(long, value_name = "N", conflicts_with = "all_generations")]
    generation: Option<u32>,
    /// You looked for every wire key that `show` lists: counts in doubt after a restore
    #[arg(long, requires = "not_applied", conflicts_with_all = ["settled", "rejected"])]
    all_generations: bool,
    /// All that are in doubt since a restore: lists them with sums, and asks how many they are
    #[arg(long, requires = "all_generations", conflicts_with_all = ["settled", "rejected"])]
    all: bool,
    /// Of those, the ones whose park reason or last class is this
    #[arg(long, requires = "all", conflicts_with = "key")]
    class: Option<String>,
    /// It was refused: the job is cancelled
    #[arg(long, value_name = "WHY", allow_hyphen_values = true)]
    rejected: Option<String>,
    /// How you know
    #[arg(long, allow_hyphen_values = true)]
    note: Option<String>,
}

pub(super) fn done(
    context: &Context,
    store: &Store,
    id: JobId,
    key: &str,
    state: State,
) -> Result<(), CliError> {
    let generation = store.generation(id)?;
    context.out.result(&view::state(key, state, generation), || match generation {
        1 => format!("{key} is {state}"),
        n => format!("{key} is {state} (generation {n})"),
    })
}

/// The store, and the job in it; a store that does not exist has no jobs.
fn open(context: &Context, key: &str) -> Result<(Store, JobId, String), CliError> {
    let store = context.load()?.store_if_there()?.ok_or_else(|| no_job(key))?;
    let id = find(&store, key)?;
    let name = name_of(&store, id)?;
    Ok((store, id, name))
}

fn name_of(store: &Store, id: JobId) -> Result<String, CliError> {
    Ok(store.story_of(id)?.job.key.as_str().to_string())
}

pub fn resolve(context: &Context, args: ResolveArgs) -> Result<(), CliError> {
    let config = context.load()?.config;
    config.refuse_card_in("note", args.note.as_deref())?;
    config.refuse_card_in("reason", args.rejected.as_deref())?;
    let Some(key) = args.key else { return many::resolve(context, args.class, args.note) };
    let (store, id, key) = open(context, &key)?;
    let says = match (args.settled, args.rejected) {
        (Some(reference), _) => Resolution::Settled(reference),
        (None, Some(why)) => Resolution::Rejected(why),
        (None, None) => Resolution::NotApplied,
    };
    let about = match args.generation {
        Some(generation) => About::Generation(generation),
        None if args.all_generations => About::All,
        None => About::Unsaid,
    };
    let state = store.resolve(id, Word { says, about }, args.note, &actor())?;
    done(context, &store, id, &key, state)
}

pub fn cancel(context: &Context, key: &str) -> Result<(), CliError> {
    let (store, id, key) = open(context, key)?;
    let state = store.cancel(id, &actor())?;
    done(context, &store, id, &key, state)
}

pub fn confirm(
    context: &Context,
    key: &str,
    reference: &str,
    generation: Option<u32>,
) -> Result<(), CliError> {
    let (store, id, key) = open(context, key)?;
    let state = store.confirm_of(id, reference, generation.map(Which::Generation), &actor())?;
    done(context, &store, id, &key, state)
}

pub fn note(context: &Context, key: &str, text: &str, reversed: Option<String>) -> Result<(), CliError> {
    context.load()?.config.refuse_card_in("remark", Some(text))?;
    let (store, id, key) = open(context, key)?;
    let state = store.note(id, text, reversed, &actor())?;
    done(context, &store, id, &key, state)
}

pub fn replay(context: &Context, args: ReplayArgs) -> Result<(), CliError> {
    match (args.payload, args.keys.as_slice()) {
        (Some(payload), [key]) => amend(context, key, payload, args.amend_money),
        (Some(_), _) => Err(CliError::Usage("--payload amends one job: give one KEY".into())),
        (None, [key]) => {
            let (store, id, key) = open(context, key)?;
            let state = store.replay(id, None, &actor())?;
            done(context, &store, id, &key, state)
        }
        (None, keys) => {
            args.class.as_deref().map(|class| known_class("--class", class)).transpose()?;
            several(context, keys, args.class)
        }
    }
}

/// Several jobs, each by itself: what is refused is told, and the rest goes on.
fn several(context: &Context, keys: &[String], class: Option<String>) -> Result<(), CliError> {
    let Some(store) = context.load()?.store_if_there()? else {
        return keys.first().map_or(Ok(()), |key| Err(no_job(key)));
    };
    let mut worst: Option<Code> = None;
    let mut note = |key: &str, e: &CliError| {
        context.out.refusal(Some(key), e.code(), &e.to_string());
        let before = worst.map_or(0, exit_code);
        if exit_code(e.code()) > before {
            worst = Some(e.code());
        }
    };
    let mut jobs: Vec<(String, JobId)> = Vec::new();
    for key in keys {
        match find(&store, key) {
            Ok(id) => jobs.push((key.clone(), id)),
            Err(e) => note(key, &e),
        }
    }
    if keys.is_empty() {
        for id in store.parked(&class.map_or(Selection::All, Selection::Class))? {
            jobs.push((name_of(&store, id)?, id));
        }
        if jobs.is_empty() {
            context.out.text("no parked job is meant by this")?;
        }
    }
    for (key, id) in jobs {
        match store.replay(id, None, &actor()) {
            Ok(state) => done(context, &store, id, &key, state)?,
            Err(e @ (StoreError::Refused(_) | StoreError::Row(_))) => note(&key, &e.into()),
            Err(e) => return Err(e.into()),
        }
    }
    worst.map_or(Ok(()), |code| Err(CliError::Told(code)))
}

/// New content is checked like any other, under the key that the job has.
fn amend(context: &Context, key: &str, payload: String, money: bool) -> Result<(), CliError> {
    let opened = context.load()?;
    let (store, id, key) = open(context, key)?;
    let amendment = door::amendment(&opened.config, &store.story_of(id)?, payload, money)?;
    let state = store.replay(id, Some(amendment), &actor())?;
    done(context, &store, id, &key, state)
}
