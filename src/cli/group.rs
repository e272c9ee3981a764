//! `pause`, `resume`, `group show`, `group skip`

use super::{CliError, Context, actor};
use crate::eyes;
use crate::job::{Code, Refusal};
use crate::store::{GroupStory, Pause, PauseScope};
use crate::view;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use serde::Serialize;

#[derive(Args, Debug)]
pub struct PauseArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ResumeArgs {
    /// Everything that a restore paused
    #[arg(long)]
    all: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Every call to a provider
    Provider(Named),
    /// Every job of a kind
    Kind(Named),
    /// Every job of a group
    Group(Named),
}

#[derive(Args, Debug)]
struct Named {
    /// Its name
    name: String,
    /// Why, for whoever finds it so
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

impl What {
    fn parts(self) -> (PauseScope, Named) {
        match self {
            What::Provider(named) => (PauseScope::Provider, named),
            What::Kind(named) => (PauseScope::Kind, named),
            What::Group(named) => (PauseScope::Group, named),
        }
    }
}

#[derive(Subcommand, Debug)]
pub enum GroupCommand {
    /// Who is next, who waits, and for what
    Show {
        /// The group's name
        name: String,
    },
    /// Give up a missing or cancelled place
    Skip {
        /// The group's name
        name: String,
        /// The place
        #[arg(long, value_name = "N")]
        sequence: i64,
    },
}

#[derive(Serialize)]
struct SkippedView<'a> {
    group: &'a str,
    sequence: i64,
    changed: bool,
}

pub fn pause(context: &Context, args: PauseArgs) -> Result<(), CliError> {
    let (scope, Named { name, why }) = args.what.parts();
    let opened = context.load()?;
    opened.config.refuse_card_in("name", Some(&name))?;
    opened.config.refuse_card_in("reason", why.as_deref())?;
    let changed = opened.store(true, None)?.pause(scope, &name, why, &actor())?;
    let view = view::paused(scope, &name, true, changed);
    let already = if changed { "" } else { "already " };
    context
        .out
        .result(&view, || format!("{scope} {name} is {already}paused; what is in flight ends as usual"))
}

pub fn resume(context: &Context, args: ResumeArgs) -> Result<(), CliError> {
    let Some(what) = args.what else {
        return if args.all { resume_all(context) } else { Err(CliError::Usage(WHAT.into())) };
    };
    let (scope, Named { name, why }) = what.parts();
    let opened = context.load()?;
    opened.config.refuse_card_in("name", Some(&name))?;
    opened.config.refuse_card_in("reason", why.as_deref())?;
    let changed = opened.store(true, None)?.resume(scope, &name, why, &actor())?;
    let view = view::paused(scope, &name, false, changed);
    let word = if changed { "is resumed" } else { "was not paused" };
    context.out.result(&view, || format!("{scope} {name} {word}"))
}

const WHAT: &str = "say what goes on: `provider NAME`, `kind NAME`, `group NAME`, or --all for everything that a restore paused";

#[derive(Serialize)]
struct ResumedView<'a> {
    resumed: Vec<view::PausedView<'a>>,
    still_paused: Vec<view::PausedView<'a>>,
}

fn views(pauses: &[Pause], paused: bool) -> Vec<view::PausedView<'_>> {
    pauses.iter().map(|p| view::paused(p.scope, &p.name, paused, !paused)).collect()
}

/// Everything that a restore paused. What a person paused stays: there was a reason.
fn resume_all(context: &Context) -> Result<(), CliError> {
    let (resumed, left) = context.load()?.store(false, None)?.resume_restored(&actor())?;
    let view = ResumedView { resumed: views(&resumed, false), still_paused: views(&left, true) };
    context.out.result(&view, || {
        let mut lines: Vec<String> =
            resumed.iter().map(|pause| format!("{} {} is resumed", pause.scope, pause.name)).collect();
        if lines.is_empty() {
            lines.push("nothing is paused by a restore".into());
        }
        lines.extend(left.iter().map(|pause| {
            format!("{} {} stays paused: {} paused it at {}", pause.scope, pause.name, pause.by, pause.since)
        }));
        lines.join("\n")
    })
}

pub fn run(context: &Context, command: GroupCommand) -> Result<(), CliError> {
    match command {
        GroupCommand::Show { name } => show(context, &name),
        GroupCommand::Skip { name, sequence } => skip(context, &name, sequence),
    }
}

fn no_group(name: &str) -> CliError {
    Refusal::new(Code::NotFound, format!("no job was ever in group `{name}`")).into()
}

fn show(context: &Context, name: &str) -> Result<(), CliError> {
    let story = match context.load()?.store_if_there()? {
        Some(store) => store.group(name)?,
        None => None,
    };
    let story = story.ok_or_else(|| no_group(name))?;
    context.out.result(&view::group(&story), || tell(&story))
}

fn tell(story: &GroupStory) -> String {
    let mut lines = vec![format!(
        "group {}, numbered by {}: next is {}, {} wait",
        story.group,
        if story.numbering == "app" { "the app" } else { "arrival" },
        story.passed + 1,
        story.waiting
    )];
    if let Some(pause) = &story.paused {
        let why = pause.why.as_deref().map(|why| format!(": {}", eyes::line(why))).unwrap_or_default();
        lines.push(format!("paused since {} by {}{why}", pause.since, pause.by));
    }
    if let Some(blocked_by) = &story.blocked_by {
        lines.push(format!("blocked by {blocked_by}"));
    }
    if !story.jobs.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["PLACE", "KEY", "STATE"]);
        for place in &story.jobs {
            table.add_row([place.sequence.to_string(), place.key.clone(), place.state.to_string()]);
        }
        lines.push(table.to_string().trim_end().to_string());
    }
    lines.join("\n")
}

fn skip(context: &Context, name: &str, sequence: i64) -> Result<(), CliError> {
    let store = context.load()?.store_if_there()?.ok_or_else(|| no_group(name))?;
    let changed = store.skip_place(name, sequence, &actor())?;
    let view = SkippedView { group: name, sequence, changed };
    let already = if changed { "" } else { "already " };
    context.out.result(&view, || format!("sequence {sequence} of group {name} is {already}given up"))
}
