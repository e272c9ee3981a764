//! Jobs and figures as JSON: the shapes that CLI and HTTP promise. Names and order are the contract's.

use crate::clock::Ms;
use crate::intent::hex;
use crate::job::State;
use crate::json::{Json, quote};
use crate::store::{Enqueued, Entry, GroupStory, OpenRestore, Pause, PauseScope, Stats, Story};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// One job.
#[derive(Serialize, Debug)]
pub struct JobView<'a> {
    id: i64,
    key: &'a str,
    kind: &'a str,
    state: &'static str,
    /// As it was given, so that numbers keep their digits; null once pruned.
    payload: Option<Box<RawValue>>,
    payload_sha256: String,
    /// Only once job row, payload and words are gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pruned: bool,
    account: Option<&'a str>,
    amount_minor: Option<i64>,
    currency: Option<&'a str>,
    group: Option<&'a str>,
    sequence: Option<i64>,
    priority: i64,
    attempts: u32,
    max_attempts: u32,
    run_after: String,
    error_class: Option<&'static str>,
    last_error: Option<&'a str>,
    park_reason: Option<&'static str>,
    blocked_by: Option<&'a str>,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseView<'a>>,
    intent: IntentView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<EntryView<'a>>>,
}

#[derive(Serialize, Debug)]
struct LeaseView<'a> {
    owner: &'a str,
    token: i64,
    expires_at: String,
    /// What the program does that does the work, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
}

#[derive(Serialize, Debug)]
struct IntentView<'a> {
    state: &'static str,
    generation: u32,
    wire_key: &'a str,
    provider: Option<&'a str>,
    reference: Option<&'a str>,
    requested_at: Option<String>,
    confirmed_at: Option<String>,
    result: Option<Box<RawValue>>,
    /// Only where the file was restored and nobody knows what the lost one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<DoubtView<'a>>,
    /// Only where the app makes the call itself and is to be told `again`: since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for_app: Option<String>,
}

#[derive(Serialize, Debug)]
struct DoubtView<'a> {
    since: String,
    restored_at: String,
    no_words: bool,
    wire_keys: Vec<WireKeyView<'a>>,
}

#[derive(Serialize, Debug)]
struct WireKeyView<'a> {
    generation: u32,
    wire_key: &'a str,
}

/// One row of a history.
#[derive(Serialize, Debug)]
pub struct EntryView<'a> {
    seq: i64,
    action: &'static str,
    attempt: Option<u32>,
    from: Option<&'static str>,
    to: Option<&'static str>,
    class: Option<&'static str>,
    phase: Option<&'static str>,
    http_status: Option<u16>,
    error: Option<&'a str>,
    detail: Option<&'a str>,
    run_after: Option<String>,
    started_at: Option<String>,
    at: String,
    actor: &'a str,
}

/// A job as JSON; `with_history` as `show` gives it.
pub fn job(story: &Story, with_history: bool) -> JobView<'_> {
    let (job, intent) = (&story.job, &story.intent);
    JobView {
        id: job.id.0,
        key: job.key.as_str(),
        kind: &job.kind,
        state: job.state.as_str(),
        payload: job.payload.as_deref().map(raw),
        payload_sha256: hex(&story.payload_hash),
        pruned: story.job.payload.is_none(),
        account: intent.account.as_deref(),
        amount_minor: intent.amount_minor,
        currency: intent.currency.as_deref(),
        group: job.group.as_deref(),
        sequence: job.sequence,
        priority: job.priority,
        attempts: job.attempts,
        max_attempts: job.max_attempts,
        run_after: job.run_after.rfc3339(),
        error_class: job.error_class.map(|c| c.as_str()),
        last_error: job.last_error.as_deref(),
        park_reason: job.park_reason.map(|r| r.as_str()),
        blocked_by: story.blocked_by.as_deref(),
        created_at: job.created.rfc3339(),
        updated_at: job.updated.rfc3339(),
        lease: job.lease.as_ref().map(|l| LeaseView {
            owner: &l.owner,
            token: l.token,
            expires_at: l.expires.rfc3339(),
            program: story.program.as_deref(),
        }),
        intent: IntentView {
            state: intent.state.as_str(),
            generation: intent.generation.number,
            wire_key: &intent.wire_key,
            provider: intent.provider.as_deref(),
            reference: intent.reference.as_deref(),
            requested_at: intent.requested.map(Ms::rfc3339),
            confirmed_at: intent.confirmed.map(Ms::rfc3339),
            result: intent.result.as_deref().map(raw),
            doubt: intent.doubt.as_ref().map(|doubt| DoubtView {
                since: doubt.since.rfc3339(),
                restored_at: doubt.restored.rfc3339(),
                no_words: doubt.no_words,
                wire_keys: story
                    .wire_keys
                    .iter()
                    .map(|(generation, wire_key)| WireKeyView { generation: *generation, wire_key })
                    .collect(),
            }),
            waits_for_app: intent.waits_for_app.map(Ms::rfc3339),
        },
        history: with_history.then(|| story.history.iter().map(entry).collect()),
    }
}

/// A row of a history as JSON.
pub fn entry(e: &Entry) -> EntryView<'_> {
    EntryView {
        seq: e.seq,
        action: e.action.as_str(),
        attempt: e.attempt,
        from: e.from.map(|s| s.as_str()),
        to: e.to.map(|s| s.as_str()),
        class: e.class.map(|c| c.as_str()),
        phase: e.phase.map(|p| p.as_str()),
        http_status: e.http_status,
        error: e.error.as_deref(),
        detail: e.detail.as_deref(),
        run_after: e.run_after.map(Ms::rfc3339),
        started_at: e.started.map(Ms::rfc3339),
        at: e.at.rfc3339(),
        actor: &e.actor,
    }
}

/// Stored JSON text as JSON, on one line; any other text as a string.
fn raw(text: &str) -> Box<RawValue> {
    let one_line = match Json::parse(text) {
        Ok(json) => json.to_text(),
        Err(_) => quote(text),
    };
    // Both are JSON by construction; null stands in if that were ever wrong.
    RawValue::from_string(one_line).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The figures.
#[derive(Serialize, Debug)]
pub struct StatsView<'a> {
    jobs: BTreeMap<&'static str, u64>,
    oldest_ready_age_s: f64,
    oldest_unknown_age_s: f64,
    duplicate_keys: i64,
    key_mismatches: i64,
    suppressed: i64,
    stale_sequence: i64,
    sequence_taken: i64,
    attempts_by_class: BTreeMap<&'a str, i64>,
    parked_by_reason: BTreeMap<&'a str, i64>,
    confirmation_gap_s: GapView,
    unconfirmed: u64,
    blocked_groups: Vec<GroupView<'a>>,
    providers: BTreeMap<&'a str, ProviderView<'a>>,
    /// Kinds and groups that a person paused; a provider says so itself.
    paused: Vec<PauseView<'a>>,
    double_effects: i64,
    unclaimed_kinds: &'a [String],
    wal_bytes: u64,
    busy_waits: i64,
    log_lines_dropped: i64,
    inbox_refused: u64,
    open_restores: Vec<RestoreView>,
    in_doubt_since_restore: u64,
}

/// A restore that is not closed.
#[derive(Serialize, Debug)]
pub struct RestoreView {
    copied_at: String,
    restored_at: String,
    new_keys: u64,
}

/// A restore that is not closed, as JSON.
pub fn open_restore(open: &OpenRestore) -> RestoreView {
    RestoreView {
        copied_at: open.copied.rfc3339(),
        restored_at: open.restored.rfc3339(),
        new_keys: open.new_keys,
    }
}

#[derive(Serialize, Debug)]
struct GapView {
    count: u64,
    p50: f64,
    p95: f64,
    max: f64,
}

#[derive(Serialize, Debug)]
struct GroupView<'a> {
    group: &'a str,
    head: &'a str,
    since: String,
    waiting: u64,
}

#[derive(Serialize, Debug)]
struct ProviderView<'a> {
    state: &'static str,
    since: Option<String>,
    why: Option<&'a str>,
    in_flight: u64,
}

/// The figures as JSON.
pub fn stats(stats: &Stats) -> StatsView<'_> {
    let counter = |name: &str| stats.counters.get(name).copied().unwrap_or(0);
    let family = |prefix: &str| {
        let of = stats.counters.iter().filter_map(|(name, n)| Some((name.strip_prefix(prefix)?, *n)));
        of.filter(|(_, n)| *n != 0).collect()
    };
    let (count, p50, p95, max) = stats.confirmation_gap_s;
    StatsView {
        jobs: stats.jobs.iter().map(|(state, n)| (state.as_str(), *n)).collect(),
        oldest_ready_age_s: stats.oldest_ready_age_s,
        oldest_unknown_age_s: stats.oldest_unknown_age_s,
        duplicate_keys: counter("duplicate_keys"),
        key_mismatches: counter("key_mismatches"),
        suppressed: counter("suppressed"),
        stale_sequence: counter("stale_sequence"),
        sequence_taken: counter("sequence_taken"),
        attempts_by_class: family("class:"),
        parked_by_reason: family("parked:"),
        confirmation_gap_s: GapView { count, p50, p95, max },
        unconfirmed: stats.unconfirmed,
        blocked_groups: stats
            .blocked_groups
            .iter()
            .map(|g| GroupView {
                group: &g.group,
                head: &g.head,
                since: g.since.rfc3339(),
                waiting: g.waiting,
            })
            .collect(),
        providers: stats
            .providers
            .iter()
            .map(|(name, p)| {
                let view = ProviderView {
                    state: p.state,
                    since: p.since.map(Ms::rfc3339),
                    why: p.why.as_deref(),
                    in_flight: p.in_flight,
                };
                (name.as_str(), view)
            })
            .collect(),
        paused: stats.paused.iter().filter(|p| p.scope != PauseScope::Provider).map(pause).collect(),
        double_effects: counter("double_effects"),
        unclaimed_kinds: &stats.unclaimed_kinds,
        wal_bytes: stats.wal_bytes,
        busy_waits: counter("busy_waits"),
        log_lines_dropped: counter("log_lines_dropped"),
        inbox_refused: stats.inbox_refused,
        open_restores: stats.open_restores.iter().map(open_restore).collect(),
        in_doubt_since_restore: stats.in_doubt_since_restore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::{Earlier, Generation, Intent, IntentState};
    use crate::job::{Job, JobId, Key, Lease, State};
    use crate::store::Action;

    fn story() -> Story {
        let job = Job {
            id: JobId(7),
            key: Key::new("payout:INV-1").unwrap(),
            kind: "payout".into(),
            state: State::Ready,
            payload: Some("{ \"n\" : 1.50,\n \"big\": 12345678901234567890123 }".into()),
            group: None,
            sequence: None,
            priority: 0,
            attempts: 2,
            max_attempts: 10,
            tries: 2,
            pauses: 0,
            age_from: None,
            run_after: Ms(0),
            error_class: None,
            last_error: None,
            park_reason: None,
            created: Ms(0),
            updated: Ms(1),
            lease: None,
        };
        let intent = Intent {
            state: IntentState::Pending,
            generation: Generation { number: 1, ..Generation::default() },
            earlier: Earlier::default(),
            doubt: None,
            waits_for_app: None,
            earlier_unknown: false,
            wire_key: "w".into(),
            provider: None,
            account: None,
            amount_minor: None,
            currency: None,
            frozen: None,
            scope: None,
            reference: None,
            requested: None,
            confirmed: None,
            result: None,
        };
        Story {
            job,
            intent,
            payload_hash: vec![0xab, 0x01],
            blocked_by: None,
            wire_keys: BTreeMap::new(),
            program: None,
            history: Vec::new(),
        }
    }

    fn text(story: &Story, with_history: bool) -> String {
        serde_json::to_string(&job(story, with_history)).unwrap()
    }

    #[test]
    fn a_job_has_every_field_in_the_order_of_the_documents() {
        let empty = concat!(
            r#"{"id":7,"key":"payout:INV-1","kind":"payout","state":"ready","#,
            r#""payload":{"n":1.50,"big":12345678901234567890123},"payload_sha256":"ab01","#,
            r#""account":null,"amount_minor":null,"currency":null,"group":null,"sequence":null,"priority":0,"#,
            r#""attempts":2,"max_attempts":10,"run_after":"1970-01-01T00:00:00.000Z","error_class":null,"#,
            r#""last_error":null,"park_reason":null,"blocked_by":null,"created_at":"1970-01-01T00:00:00.000Z","#,
            r#""updated_at":"1970-01-01T00:00:00.001Z","intent":{"state":"pending","generation":1,"wire_key":"w","#,
            r#""provider":null,"reference":null,"requested_at":null,"confirmed_at":null,"result":null}}"#,
        );
        assert_eq!(text(&story(), false), empty);
    }

    #[test]
    fn a_lease_stands_before_the_intent_and_the_history_after_it() {
        let mut story = story();
        story.job.lease = Some(Lease { owner: "till-3:4711".into(), token: 2, expires: Ms(5), boot: None });
        story.history.push(Entry::new(JobId(7), Action::Enqueue, Ms(0), "cli:me@till-3"));
        let text = text(&story, true);
        let lease =
            r#""lease":{"owner":"till-3:4711","token":2,"expires_at":"1970-01-01T00:00:00.005Z"},"intent":"#;
        assert!(text.contains(lease), "{text}");
        let entry = concat!(
            r#""history":[{"seq":0,"action":"enqueue","attempt":null,"from":null,"to":null,"class":null,"phase":null,"#,
            r#""http_status":null,"error":null,"detail":null,"run_after":null,"started_at":null,"#,
            r#""at":"1970-01-01T00:00:00.000Z","actor":"cli:me@till-3"}]}"#,
        );
        assert!(text.ends_with(entry), "{text}");
    }

    #[test]
    fn a_pruned_payload_is_null_and_a_result_is_json_or_a_string() {
        let mut story = story();
        story.job.payload = None;
        for (stored, shown) in [(r#"{"id" : "po_1"}"#, r#"{"id":"po_1"}"#), ("<html>\n", r#""<html>\n""#)] {
            story.intent.result = Some(stored.into());
            let text = text(&story, false);
            assert!(text.contains(r#""payload":null"#), "{text}");
            assert!(text.ends_with(&format!(r#""result":{shown}}}}}"#)), "{text}");
        }
    }

    #[test]
    fn counters_become_figures_by_their_names() {
        let counters =
            [("duplicate_keys", 3), ("class:ok", 10), ("class:timeout", 0), ("parked:rejected", 1)];
        let figures =
            Stats { counters: counters.map(|(name, n)| (name.to_string(), n)).into(), ..Stats::empty() };
        let json: serde_json::Value = serde_json::to_value(stats(&figures)).unwrap();
        assert_eq!(json["duplicate_keys"], 3);
        assert_eq!(json["attempts_by_class"], serde_json::json!({ "ok": 10 }));
        assert_eq!(json["parked_by_reason"], serde_json::json!({ "rejected": 1 }));
        assert_eq!(json["jobs"].as_object().unwrap().len(), 8);
        for zero in [
            "key_mismatches",
            "suppressed",
            "double_effects",
            "stale_sequence",
            "busy_waits",
            "log_lines_dropped",
            "wal_bytes",
        ] {
            assert_eq!(json[zero], 0, "{zero}");
        }
    }
}

/// A pause as JSON.
#[derive(Serialize, Debug)]
pub struct PauseView<'a> {
    scope: &'static str,
    name: &'a str,
    since: String,
    by: &'a str,
    why: Option<&'a str>,
}

fn pause(pause: &Pause) -> PauseView<'_> {
    PauseView {
        scope: pause.scope.as_str(),
        name: &pause.name,
        since: pause.since.rfc3339(),
        by: &pause.by,
        why: pause.why.as_deref(),
    }
}

/// The queue of a group.
#[derive(Serialize, Debug)]
pub struct QueueView<'a> {
    group: &'a str,
    numbering: &'a str,
    next: i64,
    passed: i64,
    head: Option<&'a str>,
    blocked_by: Option<&'a str>,
    waiting: u64,
    paused: Option<PauseView<'a>>,
    jobs: Vec<PlaceView<'a>>,
}

#[derive(Serialize, Debug)]
struct PlaceView<'a> {
    sequence: i64,
    key: &'a str,
    state: &'static str,
}

/// The queue of a group as JSON.
pub fn group(story: &GroupStory) -> QueueView<'_> {
    QueueView {
        group: &story.group,
        numbering: &story.numbering,
        next: story.passed + 1,
        passed: story.passed,
        head: story.head.as_deref(),
        blocked_by: story.blocked_by.as_deref(),
        waiting: story.waiting,
        paused: story.paused.as_ref().map(pause),
        jobs: story
            .jobs
            .iter()
            .map(|place| PlaceView { sequence: place.sequence, key: &place.key, state: place.state.as_str() })
            .collect(),
    }
}

/// What an enqueue answers.
#[derive(Serialize, Debug)]
pub struct EnqueuedView<'a> {
    outcome: &'static str,
    id: i64,
    key: &'a str,
    state: &'static str,
    wire_key: &'a str,
    generation: u32,
}

/// What became of an enqueue, as JSON.
pub fn enqueued(enqueued: &Enqueued) -> EnqueuedView<'_> {
    let receipt = enqueued.receipt();
    EnqueuedView {
        outcome: enqueued.word(),
        id: receipt.id.0,
        key: &receipt.key,
        state: receipt.state.as_str(),
        wire_key: &receipt.wire_key,
        generation: receipt.generation,
    }
}

/// What a change of one job answers.
#[derive(Serialize, Debug)]
pub struct StateView<'a> {
    key: &'a str,
    state: &'static str,
    generation: u32,
}

/// A job's state after a change, and its generation then, as JSON.
pub fn state(key: &str, state: State, generation: u32) -> StateView<'_> {
    StateView { key, state: state.as_str(), generation }
}

/// What `pause` and `resume` answer.
#[derive(Serialize, Debug)]
pub struct PausedView<'a> {
    scope: &'static str,
    name: &'a str,
    state: &'static str,
    changed: bool,
}

/// A pause that was made (or ended) just now, as JSON; `changed` is false if it was so already.
pub fn paused(scope: PauseScope, name: &str, paused: bool, changed: bool) -> PausedView<'_> {
    PausedView { scope: scope.as_str(), name, state: if paused { "paused" } else { "resumed" }, changed }
}
