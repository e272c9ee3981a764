//! `enqueue`

use super::{CliError, Context, Payload, actor};
use crate::clock::Ms;
use crate::config::{Request, parse_duration};
use crate::view;
use clap::Args;

#[derive(Args, Debug)]
pub struct EnqueueArgs {
    /// What sort of work: a [kinds.NAME] of the config
    kind: String,
    #[command(flatten)]
    payload: Payload,
    /// The idempotency key, drawn from the business event; needed for a kind without a key template
    #[arg(long, allow_hyphen_values = true)]
    key: Option<String>,
    /// Jobs of one group run one after another
    #[arg(long, allow_hyphen_values = true)]
    group: Option<String>,
    /// The app's own place in the group, from 1
    #[arg(long, allow_hyphen_values = true)]
    sequence: Option<i64>,
    /// Not before this time (RFC 3339)
    #[arg(long, conflicts_with = "delay")]
    at: Option<String>,
    /// Not before so long from now: 500ms, 30s, 5m, 24h, 30d
    #[arg(long)]
    delay: Option<String>,
    /// Higher first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    priority: i64,
    /// Whose account
    #[arg(long, allow_hyphen_values = true)]
    account: Option<String>,
    /// How much, in minor units
    #[arg(long, allow_hyphen_values = true)]
    amount_minor: Option<String>,
    /// ISO 4217
    #[arg(long)]
    currency: Option<String>,
    /// Suppress further jobs of this kind with the same id, to save load
    #[arg(long, requires = "dedup_window", allow_hyphen_values = true)]
    dedup: Option<String>,
    /// For how long
    #[arg(long, requires = "dedup")]
    dedup_window: Option<String>,
}

pub fn enqueue(context: &Context, args: EnqueueArgs) -> Result<(), CliError> {
    let opened = context.load()?;
    let span = |name: &str, text: Option<String>| {
        text.map(|t| parse_duration(&t).map_err(|e| CliError::Usage(format!("{name}: {e}")))).transpose()
    };
    let at = args.at.map(|at| Ms::parse_rfc3339(&at).map_err(|e| CliError::Usage(format!("--at: {e}"))));
    let at = at.transpose()?;
    let delay = span("--delay", args.delay)?;
    let dedup = args.dedup.zip(span("--dedup-window", args.dedup_window)?);
    let payload = args
        .payload
        .read(opened.config.limits.payload)?
        .ok_or_else(|| CliError::Usage("give the payload: --payload JSON or --payload-file FILE".into()))?;
    let request = Request {
        kind: args.kind,
        payload,
        key: args.key,
        group: args.group,
        sequence: args.sequence,
        at,
        delay,
        priority: args.priority,
        account: args.account,
        amount_minor: args.amount_minor,
        currency: args.currency,
        dedup,
    };
    let job = opened.config.prepare(request)?;
    let enqueued = opened.store(true, None)?.enqueue(job, &actor())?;
    context.out.result(&view::enqueued(&enqueued), || {
        let receipt = enqueued.receipt();
        format!("{} {} ({}, {})", enqueued.word(), receipt.key, receipt.id, receipt.state)
    })
}
