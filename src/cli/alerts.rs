//! `alerts test`

use super::{CliError, Context, actor};
use crate::config::{AlertEvent, Request, alert_payload};
use crate::job::{Code, Refusal};
use clap::Subcommand;
use serde::Serialize;

#[derive(Subcommand, Debug)]
pub enum AlertsCommand {
    /// Send a test through [alerts]: it is stored like any other alert, and a worker sends it
    Test,
}

#[derive(Serialize)]
struct Sent {
    outcome: &'static str,
    key: String,
}

pub fn run(context: &Context, command: &AlertsCommand) -> Result<(), CliError> {
    let AlertsCommand::Test = command;
    let opened = context.load()?;
    let Some(alerts) = &opened.config.alerts else {
        let why = "the config has no [alerts]: add one with kind = \"…\", the kind whose jobs carry alerts";
        return Err(Refusal::new(Code::NotAllowed, why.to_string()).into());
    };
    let now = opened.clock.now();
    let request = Request {
        kind: alerts.kind.clone(),
        payload: alert_payload(AlertEvent::Test, "", 1, "", now, now),
        key: Some(format!("alert:test:{}", now.rfc3339())),
        ..Request::default()
    };
    let job = opened.config.prepare(request)?;
    let enqueued = opened.store(true, None)?.enqueue(job, &actor())?;
    let sent = Sent { outcome: enqueued.word(), key: enqueued.receipt().key.to_string() };
    context.out.result(&sent, || {
        format!("{} is stored; a running worker sends it: see `onceward show {}`", sent.key, sent.key)
    })
}
