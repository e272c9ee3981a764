//! `init` and `check`

use super::{CliError, Context, Opened};
use crate::clock::{Clock, Ms, SANE};
use crate::config::{Config, Kind};
use crate::door::restored;
use crate::job::{Code, Refusal, State};
use crate::provider::{self, Programs, Providers};
use crate::schedule::Schedule;
use crate::store::{RefusedRow, Stats, Store, StoreError, sync_folder};
use clap::Args;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `init` writes: it runs as it is, and explains each line.
const CONFIG: &str = include_str!("init.toml");

#[derive(Serialize)]
struct InitView<'a> {
    config: &'a Path,
    store: &'a Path,
}

pub fn init(context: &Context) -> Result<(), CliError> {
    let path = place(context.config.clone());
    let io = |error| CliError::Io { what: format!("{} cannot be written", path.display()), error };
    // `create_new` decides and makes in one step: whatever is there is never overwritten.
    let mut file = File::create_new(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let why = format!(
                "{} is there already and is never overwritten: edit it, or name another file with --config",
                path.display()
            );
            CliError::from(Refusal::new(Code::NotAllowed, why))
        }
        _ => io(e),
    })?;
    file.write_all(CONFIG.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| sync_folder(&path))
        .map_err(io)?;
    let opened = Opened::new(Config::load(&path)?);
    opened.store(true, None)?;
    let view = InitView { config: &path, store: &opened.config.store.path };
    context.out.result(&view, || {
        format!(
            "wrote {} and made {}\nnext: edit [providers.bank], then\n  onceward enqueue payout --payload \
             '{{\"invoice_id\":\"INV-1001\",\"amount_minor\":1250,\"currency\":\"EUR\"}}'\n  onceward check",
            view.config.display(),
            view.store.display()
        )
    })
}

/// Where the config is to be: where it would be looked for first.
fn place(explicit: Option<PathBuf>) -> PathBuf {
    let named = || std::env::var_os("ONCEWARD_CONFIG").filter(|file| !file.is_empty()).map(PathBuf::from);
    explicit.or_else(named).unwrap_or_else(|| PathBuf::from("onceward.toml"))
}

/// One finding of `check`.
#[derive(Serialize)]
struct Finding {
    ok: bool,
    what: &'static str,
    finding: String,
    #[serde(flatten)]
    online: Option<OnlineView>,
}

/// What `check --online` adds to a finding.
#[derive(Serialize)]
struct OnlineView {
    provider: String,
    /// `dns`, `tcp`, `tls`, `token` or `read`.
    step: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_days: Option<i64>,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Reach each provider too: name, TCP, TLS, a harmless read, and each look-up with a key that cannot exist; nothing that
    /// could have an effect
    #[arg(long)]
    online: bool,
}

pub fn check(context: &Context, args: &CheckArgs) -> Result<(), CliError> {
    let opened = context.load()?;
    let mut findings = vec![fine("config", format!("{} can be used", opened.config.file.display()))];
    let missing = opened.config.missing_secrets();
    if missing.is_empty() {
        findings.push(fine("secrets", "all can be read".into()));
    }
    findings.extend(missing.iter().map(|e| bad("secrets", e.to_string())));
    findings.push(clock(opened.clock.as_ref()));
    findings.push(disk(&opened.config));
    findings.extend(super::place::doubt(&opened.config.store.path).map(|doubt| bad("place", doubt)));
    findings.extend(opened.config.kinds.values().filter_map(unread));
    findings.extend(opened.config.kinds.values().filter_map(by_key));
    findings.extend(opened.config.kinds.values().filter_map(asks_nothing));
    let programs = Programs::new(Arc::clone(&opened.config));
    findings.extend(programs.unfit().into_iter().map(|(kind, why)| {
        bad(
            "exec",
            format!("kind {kind}: {why}. Its jobs wait until that is mended; nothing of them is lost"),
        )
    }));
    findings.extend(opened.config.kinds.values().flat_map(program_risks));
    if let Some(http) = &opened.config.http {
        findings.push(fine("http", format!("`onceward work` listens on http://{}", http.listen)));
    }
    let (store, other_business) = match file(&opened, &mut findings) {
        Ok(store) => (store, None),
        Err(e) => (None, Some(e)),
    };
    let schedules = opened.config.schedules.values();
    findings.extend(schedules.map(|s| schedule(s, store.as_ref(), opened.clock.now())));
    if args.online {
        let providers = Providers::new(Arc::clone(&opened.config), Arc::clone(&opened.clock));
        findings.extend(providers.online().into_iter().map(online));
    }
    for finding in &findings {
        context.out.result(finding, || {
            format!("{:<4} {:<9} {}", if finding.ok { "ok" } else { "BAD" }, finding.what, finding.finding)
        })?;
    }
    if let Some(missing) = super::all_missing(missing) {
        return Err(missing.into());
    }
    if let Some(namespace) = other_business {
        return Err(namespace.into());
    }
    match findings.iter().filter(|f| !f.ok).count() {
        0 => Ok(()),
        count => Err(CliError::Findings(count)),
    }
}

fn fine(what: &'static str, finding: String) -> Finding {
    Finding { ok: true, what, finding, online: None }
}

fn bad(what: &'static str, finding: String) -> Finding {
    Finding { ok: false, what, finding, online: None }
}

fn online(found: provider::Finding) -> Finding {
    let provider::Finding { ok, provider, step, words, certificate_days } = found;
    let finding = format!("{provider}, {step}: {words}");
    Finding { ok, what: "online", finding, online: Some(OnlineView { provider, step, certificate_days }) }
}

fn clock(clock: &dyn Clock) -> Finding {
    let now = clock.now();
    if now < SANE {
        return bad("clock", format!("it says {now}, which is long past: set it before anything is sent"));
    }
    fine("clock", format!("it says {now}"))
}

/// A kind that moves money and looks into no answer: a refusal inside a 2xx would settle it. It can be meant so.
fn unread(kind: &Kind) -> Option<Finding> {
    let sends = kind.request.is_some() && kind.amount_minor.is_some();
    (sends && kind.reply.is_none()).then(|| {
        fine(
            "reply",
            format!(
                "beware: kind {} moves money and has no `reply`, so that any 2xx settles it, whatever its body says",
                kind.name
            ),
        )
    })
}

/// A kind that moves money, may have a next generation by itself, and asks by a key that is the same in each: what failed
/// there may be an earlier generation's. It can be meant so, where the objects carry the wire key too.
fn by_key(kind: &Kind) -> Option<Finding> {
    let path = kind.lookup.as_ref()?.path.text();
    let asks = path.contains("{$key}") && !path.contains("{$wire_key}");
    let goes_on = !kind.retry_on.is_empty() || kind.terms.lookup.is_some_and(|lookup| lookup.authoritative);
    (kind.amount_minor.is_some() && asks && goes_on).then(|| {
        fine(
            "lookup",
            format!(
                "beware: kind {} looks up by {{$key}}, which is the same in every generation: from the second one on a failed \
                 object answers nothing unless it carries {{$wire_key}}, so send that along",
                kind.name
            ),
        )
    })
}

/// An `authoritative` look-up whose path is the same for every job: what it finds, or does not, is about none of them.
fn asks_nothing(kind: &Kind) -> Option<Finding> {
    let lookup = kind.lookup.as_ref().filter(|lookup| lookup.path.fixed().is_some())?;
    kind.terms.lookup.filter(|terms| terms.authoritative)?;
    Some(fine(
        "lookup",
        format!(
            "beware: kind {} calls its look-up authoritative, and asks {} for every job alike: put {{$wire_key}} or {{$key}} \
             into the path, or \"nothing there\" proves nothing",
            kind.name,
            lookup.path.text()
        ),
    ))
}

/// What a kind that a program does relies on. It can be meant so.
fn program_risks(kind: &Kind) -> Vec<Finding> {
    let Some(exec) = &kind.exec else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(lookup) = kind.terms.lookup
        && lookup.lag < exec.timeout
    {
        let (name, lag, timeout) = (&kind.name, lookup.lag, exec.timeout);
        let then = if lookup.authoritative { "and then it is run again" } else { "and then it is parked" };
        found.push(fine(
            "exec",
            format!(
                "beware: kind {name}: its look-up is believed {lag:?} after a run (lag), and a run may take {timeout:?}: a run whose \
                 worker dies is waited for, but what the program left in the background must show in the look-up within the lag, \
                 {then}"
            ),
        ));
    }
    if exec.repeat_safe {
        found.push(fine(
            "exec",
            format!(
                "beware: kind {} is repeat_safe: after a crash or time-out its program is run again under the same \
                 ONCEWARD_WIRE_KEY, beside whatever an earlier run left behind. It must have no second effect then",
                kind.name
            ),
        ));
    }
    found
}

/// When a schedule runs next. A mark ahead of the clock was made by a clock that ran ahead, and is waited for.
fn schedule(schedule: &Schedule, store: Option<&Store>, now: Ms) -> Finding {
    let name = &schedule.name;
    let mark = store.and_then(|store| store.schedule_mark(name).ok().flatten());
    match schedule.timetable.next(mark.map_or(now, |mark| mark.max(now))) {
        Some(next) => {
            fine("schedule", format!("{name} runs next at {}, {next}", schedule.timetable.local(next)))
        }
        None => bad("schedule", format!("{name} does not come due within 40 years")),
    }
}

fn disk(config: &Config) -> Finding {
    let folder = config.store.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs4::available_space(folder) {
        Ok(free) if free < config.limits.free_disk => {
            let floor = config.limits.free_disk;
            bad(
                "disk",
                format!(
                    "{} MiB are free in {}; below {} MiB (limits.free_disk) nothing is claimed: free some space",
                    free >> 20,
                    folder.display(),
                    floor >> 20
                ),
            )
        }
        Ok(free) => fine("disk", format!("{} MiB are free in {}", free >> 20, folder.display())),
        Err(e) => bad(
            "disk",
            format!(
                "{} cannot be looked at ({e}): make the folder with `mkdir -p {0}`, or name another in [store] path",
                folder.display()
            ),
        ),
    }
}

/// The store itself: its pages, its history's chain, and what a change of the config means for what is in it. The error
/// is a fault of the config's, not of the file's.
fn file(opened: &Opened, findings: &mut Vec<Finding>) -> Result<Option<Store>, StoreError> {
    let path = opened.config.store.path.display();
    let store = match opened.store_if_there() {
        Ok(Some(store)) => store,
        Ok(None) => {
            let folder = opened.config.store.path.parent().filter(|p| !p.as_os_str().is_empty());
            // Without its folder, which is told under `disk`, nothing makes it.
            if folder.is_none_or(Path::is_dir) {
                findings.push(fine("file", format!("{path} is not there yet: the first enqueue makes it")));
            }
            return Ok(None);
        }
        Err(e) => {
            findings.push(bad("file", e.to_string()));
            return if e.code() == Code::Config { Err(e) } else { Ok(None) };
        }
    };
    findings.push(match store.check_file() {
        Ok(Ok(())) => fine("file", format!("{path} is sound")),
        Ok(Err(damage)) => bad(
            "file",
            format!("{path} is damaged ({damage}): stop the worker, and put a backup in place with `onceward restore FILE`"),
        ),
        Err(e) => bad("file", e.to_string()),
    });
    findings.push(match store.verify_history() {
        Ok(Ok(rows)) => fine("history", format!("{rows} rows; their chain and the events' are whole")),
        Ok(Err(fault)) => bad(
            "history",
            format!("{fault}: somebody wrote to the file by hand; `onceward audit verify` says what else does not fit"),
        ),
        Err(e) => bad("history", e.to_string()),
    });
    unreadable(&store, findings);
    match store.changed_key_templates() {
        Ok(changed) => findings.extend(changed.into_iter().map(|(kind, then, now)| {
            bad("keys", format!("kind {kind}: jobs were made with the key `{then}`, the config says `{now}`: the same event would get another key, and so another effect. Set it back, or give the new key to a new kind"))
        })),
        Err(e) => findings.push(bad("keys", e.to_string())),
    }
    match store.doubtful_workers() {
        Ok(doubts) => findings.extend(doubts.into_iter().map(|doubt| bad("worker", doubt))),
        Err(e) => findings.push(bad("file", e.to_string())),
    }
    match store.perhaps_put_back() {
        Ok(doubt) => findings.extend(doubt.map(|doubt| fine("file", format!("beware: {doubt}")))),
        Err(e) => findings.push(bad("file", e.to_string())),
    }
    match store.orphaned_programs() {
        Ok(orphans) => findings.extend(
            orphans.into_iter().map(|(key, words)| fine("program", format!("beware: {key}: {words}"))),
        ),
        Err(e) => findings.push(bad("file", e.to_string())),
    }
    inbox(&store, findings);
    missing_places(&store, findings);
    match store.stats() {
        Ok(stats) => {
            if stats.wal_bytes > LONG_LOG {
                let why = format!(
                    "the log beside the file has {} MiB and is not emptied: some program keeps a read transaction open \
                     (lsof or fuser on the file name it)",
                    stats.wal_bytes >> 20
                );
                findings.push(bad("log", why));
            }
            restored(&store, &stats, findings);
            findings.extend(stats.unclaimed_kinds.into_iter().map(|kind| {
                let why = if store.desk().kind(&kind).is_some() {
                    "no running worker knows it, though this config does: start the worker again with this config"
                } else if opened.config.kinds.contains_key(&kind) {
                    "it has no provider and no program: only an app that registers a handler for it and works does them"
                } else {
                    "the config does not know it: nobody will do them. Put [kinds.…] of that name back, or cancel them"
                };
                bad("kinds", format!("jobs of kind {kind} wait, and {why}"))
            }));
            findings.extend(stats.providers.into_iter().filter(|(_, p)| p.state != "ok").map(|(name, p)| {
                let next = if p.state == "paused" {
                    format!("`onceward resume provider {name}` lets it go on")
                } else {
                    "one job at a time tries it, and it goes on by itself once that succeeds".to_string()
                };
                bad("provider", format!("{name} is {}: {}. {next}", p.state, p.why.unwrap_or_default()))
            }));
            findings.extend(asks_for_people(stats.jobs.get(&State::Parked).copied().unwrap_or(0)));
        }
        Err(e) => findings.push(bad("file", e.to_string())),
    }
    Ok(Some(store))
}

/// Rows that somebody changed by hand, into what this program does not write: their jobs go no further.
fn unreadable(store: &Store, findings: &mut Vec<Finding>) {
    match store.unreadable(SHOWN as usize) {
        Ok((count, first)) => {
            let more = count.saturating_sub(first.len() as u64);
            findings.extend(first.into_iter().map(|(id, what)| {
                bad(
                    "rows",
                    format!(
                        "{id} cannot be read ({what}): it is set aside when its turn comes, and all others go on. Put the \
                         value right in the file, then `onceward replay {id}` if it is parked"
                    ),
                )
            }));
            findings.extend((more > 0).then(|| bad("rows", format!("{more} more cannot be read"))));
        }
        Err(e) => findings.push(bad("rows", e.to_string())),
    }
}

/// A restore that is open is no fault, and yet loud: what is in doubt, and what to say next.
fn restored(store: &Store, stats: &Stats, findings: &mut Vec<Finding>) {
    let told = |words: String| fine("restore", format!("beware: {words}"));
    let open = &stats.open_restores;
    findings.extend(open.iter().map(|open| told(restored::open_restore(open, stats.in_doubt_since_restore))));
    if stats.in_doubt_since_restore > 0 {
        if open.is_empty() {
            findings.push(told("every restore is closed, and yet keys are in doubt since one".into()));
        }
        match store.in_doubt_since_restore() {
            Ok(sums) => findings.extend(sums.iter().map(|sum| told(restored::sum(sum)))),
            Err(e) => findings.push(bad("restore", e.to_string())),
        }
        let look = "`onceward show KEY` lists the wire keys to look for at the provider. What you find: `onceward resolve KEY \
                    --settled REFERENCE`, or `--not-applied --all-generations` if there is nothing under any of them";
        findings.push(told(look.into()));
    }
    let next = restored::next_steps(stats).into_iter();
    findings.extend(next.map(|(command, when)| told(format!("next: `{command}` {when}"))));
}

/// Parked jobs are no fault of this installation, but only a person brings them on.
fn asks_for_people(parked: u64) -> Option<Finding> {
    let finding = format!(
        "{parked} are parked and wait for a person: `onceward list --state parked`, then `onceward show KEY`"
    );
    (parked > 0).then(|| fine("jobs", finding))
}

/// Places of groups that have not arrived, and that jobs wait for: only the app or a person can end it.
fn missing_places(store: &Store, findings: &mut Vec<Finding>) {
    match store.gaps() {
        Ok(gaps) => findings.extend(gaps.iter().take(SHOWN as usize).map(|gap| {
            bad(
                "group",
                format!(
                    "{}: sequence {n} has not arrived, and {} jobs wait for it since {}. Enqueue it, or give it up with \
                     `onceward group skip {} --sequence {n}`",
                    gap.group,
                    gap.waiting,
                    gap.since,
                    gap.group,
                    n = gap.sequence
                ),
            )
        })),
        Err(e) => findings.push(bad("file", e.to_string())),
    }
}

/// Refused rows of the SQL inbox: nobody but the app's people can mend them.
fn inbox(store: &Store, findings: &mut Vec<Finding>) {
    match store.refused_inbox(SHOWN + 1) {
        Ok(rows) => findings.extend(rows.into_iter().enumerate().map(|(n, row)| {
            if n == SHOWN as usize {
                return bad("inbox", format!("more than {SHOWN} rows are refused; mend these first"));
            }
            let RefusedRow { id, code, why } = row;
            bad(
                "inbox",
                format!(
                    "row {id} of onceward_inbox is refused ({code}): {why}. Mend it with UPDATE onceward_inbox SET \
                     refused = NULL, refused_why = NULL, … WHERE id = {id}, or delete it"
                ),
            )
        })),
        Err(e) => findings.push(bad("inbox", e.to_string())),
    }
}

/// A write-ahead log is emptied long before it has so many bytes, unless a reader stays.
const LONG_LOG: u64 = 64 << 20;

/// Refused rows, and missing places, that `check` names one by one.
const SHOWN: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_that_init_writes_can_be_used_as_it_is() {
        let config = Config::parse(CONFIG, Path::new("onceward.toml")).unwrap();
        assert!(config.missing_secrets().is_empty());
        assert!(config.kinds.contains_key("payout"));
    }
}
