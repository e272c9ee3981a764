//! Today: is all well, and what needs me?

use super::chart::{self, Bar, Chart, bars};
use super::page::{self, Here, ago, number, plural, seconds, time};
use super::{Visit, words};
use crate::clock::Ms;
use crate::http::message::{Problem, Response};
use crate::job::State;
use crate::outcome::Class;
use crate::store::{HOUR, Hour, Needs, Stats};
use maud::{Markup, html};
use std::collections::BTreeMap;

pub fn page(visit: &Visit<'_>) -> Result<Response, Problem> {
    let store = &visit.app.store;
    let (stats, needs, now) = (store.stats()?, store.needs_a_person()?, visit.app.clock.now());
    let days = visit.query("span") == Some("30d");
    let hours = store.hours(first_column(now, days))?;
    let news = News { stats: &stats, needs, now, alive: visit.app.worker.is_alive() };
    let (headline, lead) = news.headline();
    let main = html! {
        h1 { (headline) }
        p.lead { (lead) }
        @if news.is_empty() { (empty()) }
        (news.list())
        (states(&stats))
        (charts(&stats, &hours, now, days))
    };
    visit.page(Here::Today, &news.title(), &main)
}

struct News<'a> {
    stats: &'a Stats,
    needs: Needs,
    now: Ms,
    alive: bool,
}

impl News<'_> {
    fn counter(&self, name: &str) -> u64 {
        self.stats.counters.get(name).copied().unwrap_or(0).max(0).unsigned_abs()
    }

    fn is_empty(&self) -> bool {
        self.stats.jobs.values().all(|n| *n == 0)
    }

    fn held(&self) -> usize {
        self.stats.providers.values().filter(|p| p.state != "ok").count()
    }

    /// The state in few words, for the browser's tab.
    fn title(&self) -> String {
        let Needs { unknown, parked, parked_unknown } = self.needs;
        match (parked_unknown + unknown, parked, self.stats.blocked_groups.len(), self.held()) {
            _ if self.counter("double_effects") > 0 => "Possible double effect".into(),
            (0, 0, 0, 0) if !self.alive => "The worker stands still".into(),
            (0, 0, 0, 0) => "All is well".into(),
            (0, 0, 0, _) => "A provider is on hold".into(),
            (0, 0, groups, _) => format!("{} blocked", plural(groups as u64, "group", "groups")),
            (0, parked, ..) => format!("{} parked", number(parked)),
            (doubt, ..) => format!("{} in doubt", number(doubt)),
        }
    }

    /// Is all well? One line, and one sentence after it.
    fn headline(&self) -> (String, String) {
        let Needs { unknown, parked, parked_unknown } = self.needs;
        let rest = parked.saturating_sub(parked_unknown);
        let groups = self.stats.blocked_groups.len() as u64;
        if self.counter("double_effects") > 0 {
            return (
                "Something may have happened twice.".into(),
                "Two different references came for one key. Look at the provider at once; the jobs’ stories say which.".into(),
            );
        }
        if parked_unknown > 0 {
            let whose = if parked_unknown == 1 { "Its request" } else { "Each one’s request" };
            let why = "may have taken effect, and only a look at the provider can tell. Nothing is sent again before \
                       you say so.";
            return (
                format!("{} you to look.", plural(parked_unknown, "job needs", "jobs need")),
                format!("{whose} {why}"),
            );
        }
        if rest > 0 {
            let decide = plural(rest, "job waits", "jobs wait");
            return (
                format!("{decide} for your decision."),
                "Nothing of that is in doubt: it certainly did not happen. Read why, then replay or give it up.".into(),
            );
        }
        if !self.alive {
            return (
                "The worker stands still.".into(),
                "It is stopping, or cannot use the file: its log says why. Nothing is lost; nothing goes out meanwhile.".into(),
            );
        }
        if self.held() > 0 {
            return (
                "A provider is on hold.".into(),
                "Jobs for it wait, spend no attempts, and go out when it is back.".into(),
            );
        }
        if groups > 0 || unknown > 0 {
            let what = match unknown {
                0 => "A group waits for the job at its head.".into(),
                1 => "One request has no final answer yet; Onceward keeps asking.".to_string(),
                n => format!("{} requests have no final answer yet; Onceward keeps asking.", number(n)),
            };
            return ("Nothing needs you.".into(), what);
        }
        if self.is_empty() {
            return ("Nothing has been asked for yet.".into(), "The first job will show up here.".into());
        }
        ("All is well.".into(), "Nothing is in doubt, and nothing waits for you.".into())
    }

    /// What needs somebody, the gravest first.
    fn list(&self) -> Markup {
        let Needs { unknown, parked, parked_unknown } = self.needs;
        let rest = parked.saturating_sub(parked_unknown);
        let doubles = self.counter("double_effects");
        let stats = self.stats;
        let paused = stats.paused.iter().filter(|p| p.scope != crate::store::PauseScope::Provider);
        let items = html! {
            @if doubles > 0 {
                (item("bad", "/audit?actor=", &plural(doubles, "possible double effect", "possible double effects"),
                    html! { "A key has been answered with two references. Search the audit, and look at the provider." }))
            }
            @if parked_unknown > 0 {
                (item("doubt", "/doubt", &format!("{} for you to look at", number(parked_unknown)),
                    html! { "It may have happened. Look at the provider, then say what you saw." }))
            }
            @if unknown > 0 {
                (item("doubt", "/doubt", &format!("{} without a final answer", number(unknown)),
                    html! { "Onceward asks again by itself. The oldest is " (seconds(stats.oldest_unknown_age_s)) " old." }))
            }
            @if rest > 0 {
                (item("bad", "/parked", &format!("{} parked", number(rest)), reasons(stats)))
            }
            @for group in stats.blocked_groups.iter().take(3) {
                (item("bad", &format!("/groups?name={}", page::encode(&group.group)), &format!("Group {} is blocked", group.group),
                    html! { (plural(group.waiting, "job waits", "jobs wait")) " behind " code { (group.head) } ", since " (time(group.since)) "." }))
            }
            @if stats.blocked_groups.len() > 3 {
                (item("bad", "/groups", &format!("{} more blocked groups", number(stats.blocked_groups.len() as u64 - 3)),
                    html! { "Each waits for the job at its head." }))
            }
            @for (name, provider) in stats.providers.iter().filter(|(_, p)| p.state != "ok") {
                (item(if provider.state == "paused" { "plain" } else { "bad" }, "/providers",
                    &format!("{name} is {}", super::providers::state_words(provider.state)),
                    html! {
                        @if let Some(why) = &provider.why { (capital(&page::quoted(why))) ". " }
                        @if let Some(since) = provider.since { "Since " (time(since)) ", " (ago(self.now, since)) "." }
                    }))
            }
            @for pause in paused {
                (item("plain", "/providers", &format!("{} {} is paused", capital(pause.scope.as_str()), pause.name),
                    html! { @if let Some(why) = &pause.why { (page::quoted(why)) ". " } "By " (words::actor(&pause.by)) ", " (ago(self.now, pause.since)) "." }))
            }
            @for kind in &stats.unclaimed_kinds {
                (item("bad", &format!("/jobs?kind={}", page::encode(kind)), &format!("Nobody does kind {kind}"),
                    html! { "Jobs of it wait, and no running worker knows it: its config lacks it, or only an app does it." }))
            }
            @if stats.inbox_refused > 0 {
                (item("bad", "/jobs", &plural(stats.inbox_refused, "refused row in the SQL inbox", "refused rows in the SQL inbox"),
                    html! { code { "onceward check" } " says which and why." }))
            }
            @if !self.alive {
                (item("bad", "/", "The worker stands still", html! { "It is stopping, or cannot use the file. Its log says why." }))
            }
        };
        if items.0.is_empty() {
            return items;
        }
        html! { section aria-labelledby="needs" { h2 #needs { "What needs attention" } ul.needs { (items) } } }
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default() + chars.as_str()
}

fn item(tone: &str, href: &str, title: &str, text: Markup) -> Markup {
    html! { li class=(tone) { a href=(href) { (title) } p { (text) } } }
}

fn reasons(stats: &Stats) -> Markup {
    let parked: Vec<(&str, i64)> = stats
        .counters
        .iter()
        .filter_map(|(name, n)| Some((name.strip_prefix("parked:")?, *n)))
        // Those in doubt stand in a line of their own.
        .filter(|(word, n)| *n > 0 && !super::doubt::REASONS.iter().any(|r| r.as_str() == *word))
        .collect();
    html! {
        @for (i, (word, n)) in parked.iter().enumerate() {
            @if i > 0 { ", " }
            @let title = crate::job::Reason::parse(word).map(|r| words::reason(r).0)
                .or_else(|| Class::parse(word).map(words::class));
            @if i == 0 { (title.unwrap_or(word)) } @else { (title.unwrap_or(word).to_lowercase()) }
            " (" (number(n.unsigned_abs())) ")"
        }
        @if parked.is_empty() { "Read why, then replay or give up." } @else { "." }
    }
}

fn empty() -> Markup {
    html! {
        section.teach {
            h2 { "A first job" }
            p { "An app asks for an effect under a key drawn from the business event. From a shell that is:" }
            pre { code {
                "onceward enqueue payout \\\n  --payload '{\"invoice_id\":\"INV-1001\",\"amount_minor\":1250,\"currency\":\"EUR\"}'"
            } }
            p { "Ask for it twice, and it is done once." }
        }
    }
}

fn states(stats: &Stats) -> Markup {
    let order = [
        State::Ready,
        State::Running,
        State::Scheduled,
        State::Waiting,
        State::Unknown,
        State::Parked,
        State::Settled,
        State::Cancelled,
    ];
    html! {
        section aria-labelledby="states" {
            h2 #states { "All jobs" }
            ul.tiles {
                @for state in order {
                    @let n = stats.jobs.get(&state).copied().unwrap_or(0);
                    li {
                        a href={ "/jobs?state=" (state.as_str()) } title=(words::state_meaning(state)) {
                            span.figure { (number(n)) } span { (words::state(state)) }
                        }
                    }
                }
            }
        }
    }
}

const DAY: i64 = 24 * HOUR;

fn first_column(now: Ms, days: bool) -> Ms {
    let (step, columns) = columns(days);
    Ms(now.0.div_euclid(step).saturating_sub(columns - 1).saturating_mul(step))
}

/// How long a column is, and how many there are.
fn columns(days: bool) -> (i64, i64) {
    if days { (DAY, 30) } else { (HOUR, 24) }
}

fn charts(stats: &Stats, hours: &BTreeMap<Ms, Hour>, now: Ms, days: bool) -> Markup {
    let (step, count) = columns(days);
    let first = first_column(now, days);
    let cells: Vec<(Ms, Option<Hour>)> = (0..count)
        .map(|i| {
            let at = Ms(first.0.saturating_add(i.saturating_mul(step)));
            let mut sum: Option<Hour> = None;
            for hour in hours.range(at..Ms(at.0.saturating_add(step))).map(|(_, hour)| hour) {
                sum.get_or_insert_default().merge(hour);
            }
            (at, sum)
        })
        .collect();
    let draw = |value: fn(&Hour) -> Option<f64>, always: bool| -> Vec<Bar> {
        let zero = if always { Some(0.0) } else { None };
        cells.iter().map(|(at, hour)| Bar { at: *at, value: hour.as_ref().map_or(zero, value) }).collect()
    };
    let settled = draw(|hour| Some(hour.settled as f64), true);
    let (waits, gaps) = (draw(Hour::wait_max_s, false), draw(Hour::gap_p50_s, false));
    let total: u64 = cells.iter().filter_map(|(_, hour)| hour.as_ref()).map(|hour| hour.settled).sum();
    let (_, p50, p95, _) = stats.confirmation_gap_s;
    let when = if days { chart::day } else { chart::hour };
    html! {
        section aria-labelledby="course" {
            div.row {
                h2 #course { @if days { "The last 30 days" } @else { "The last 24 hours" } }
                p.switch {
                    a href="/" aria-current=[(!days).then_some("true")] { "24 hours" }
                    a href="/?span=30d" aria-current=[days.then_some("true")] { "30 days" }
                }
            }
            div.charts {
                (bars(&Chart { id: "settled", title: "Done", now: format!("{} in all", number(total)), bars: &settled, say: chart::count, when,
                    empty: "Nothing was done in this time." }))
                (bars(&Chart { id: "gap", title: "From request to confirmation",
                    now: format!("{} as a rule, {} for the slowest twentieth", seconds(p50), seconds(p95)),
                    bars: &gaps, say: seconds, when, empty: "Nothing was confirmed in this time." }))
                (bars(&Chart { id: "wait", title: "Longest wait for a worker",
                    now: match stats.oldest_ready_age_s {
                        age if age > 0.0 => format!("the oldest ready job is {} old", seconds(age)),
                        _ => "nothing waits now".into(),
                    },
                    bars: &waits, say: seconds, when, empty: "No job was taken up in this time." }))
                (attempts(&cells))
            }
        }
    }
}

fn attempts(cells: &[(Ms, Option<Hour>)]) -> Markup {
    let mut sum = Hour::default();
    cells.iter().filter_map(|(_, hour)| hour.as_ref()).for_each(|hour| sum.merge(hour));
    let mut classes: Vec<(String, u64)> = sum.classes.into_iter().collect();
    classes.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let most = classes.first().map_or(0, |(_, n)| *n);
    let said =
        |word: &str| Class::parse(word).map_or(word.to_string(), |class| words::class(class).to_string());
    html! {
        figure.chart {
            figcaption { h3 #attempts { "How attempts ended" } }
            @if classes.is_empty() { p.none { "No attempt ended in this time." } }
            @else {
                table.shares aria-labelledby="attempts" {
                    thead.sr { tr { th scope="col" { "Ended" } th scope="col" { "Times" } } }
                    tbody {
                        @for (word, n) in &classes {
                            tr {
                                th scope="row" { (said(word)) }
                                td { (chart::share(*n, most)) span.n { (number(*n)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
