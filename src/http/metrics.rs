//! `/metrics`: the figures as OpenMetrics text. The series are made anew from [`Stats`] at each scrape, so they are the
//! file's and not this process's, and survive a restart. Labels are words of this program and names out of the config,
//! never keys.

use super::api::Ask;
use super::message::{Content, Problem, Response};
use super::wire::Body;
use crate::clock::Ms;
use crate::eyes;
use crate::outcome::Class;
use crate::store::{GAP_EDGES_S, Stats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt::Error;

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The route.
pub fn scrape(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    ask.no_query()?;
    let stats = {
        let _turn = ask.app.reads.enter()?;
        ask.app.store.stats()?
    };
    let now = ask.app.store.clock().now();
    let text = write(Figures { stats, now, denied: ask.app.guard.denied() })
        .map_err(|e| Problem::new(500, "internal", format!("the figures could not be written: {e}")))?;
    Ok(Response::new(200, TYPE, Content::Bytes(eyes::page(&text).into_bytes())))
}

fn write(figures: Figures) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("onceward");
    registry.register_collector(Box::new(figures));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Figures {
    stats: Stats,
    now: Ms,
    denied: u64,
}

/// One histogram's counters: one a bucket, and the sum.
#[derive(Default)]
struct Gap {
    buckets: [u64; GAP_EDGES_S.len() + 1],
    sum_ms: u64,
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut out = Out(encoder);
        let stats = &self.stats;
        let jobs = stats.jobs.iter().map(|(state, n)| ([("state", state.as_str())], *n as f64));
        out.gauges("jobs", "Jobs by state", None, jobs)?;
        out.gauge(
            "oldest_ready_age",
            "Age of the oldest job that could run",
            Some(Unit::Seconds),
            stats.oldest_ready_age_s,
        )?;
        out.gauge(
            "oldest_unknown_age",
            "Age of the oldest outcome in doubt",
            Some(Unit::Seconds),
            stats.oldest_unknown_age_s,
        )?;
        out.gauge("unconfirmed", "Requested and not confirmed", None, stats.unconfirmed as f64)?;
        for (name, help) in [
            ("duplicate_keys", "Repeats of a key with the same content"),
            ("key_mismatches", "Repeats of a key with other content"),
            ("suppressed", "Jobs suppressed inside a dedup window"),
            ("stale_sequence", "Jobs for a place that their group had passed"),
            ("sequence_taken", "Jobs for a place that another key held"),
            ("double_effects", "Keys that seem to have had two effects"),
            ("busy_waits", "Waits for another program's lock on the file"),
            ("log_lines_dropped", "Log lines that nobody read in time"),
        ] {
            out.counter(name, help, self.counter(name))?;
        }
        out.counter("denied_requests", "Requests with a wrong token since the start", self.denied)?;
        out.counters("attempts", "Attempts by how they ended", self.attempts())?;
        let parked = self.family("parked:").map(|(reason, n)| ([("reason", reason)], n as f64));
        out.gauges("parked", "Parked jobs by reason", None, parked)?;
        self.gaps(&mut out)?;
        self.kept_back(&mut out)?;
        out.gauge(
            "unclaimed_kinds",
            "Kinds whose jobs wait and that no running worker knows",
            None,
            stats.unclaimed_kinds.len() as f64,
        )?;
        out.gauge(
            "inbox_refused",
            "Rows of the SQL inbox that stand refused",
            None,
            stats.inbox_refused as f64,
        )?;
        out.gauge(
            "open_restores",
            "Restores that nobody has closed",
            None,
            stats.open_restores.len() as f64,
        )?;
        out.gauge(
            "in_doubt_since_restore",
            "Keys that the lost file may have gone on with, up to 10000",
            None,
            stats.in_doubt_since_restore as f64,
        )?;
        // Those since a later restore are among those since an earlier one.
        let new = stats.open_restores.iter().map(|open| open.new_keys).max();
        out.gauge(
            "new_keys_since_restore",
            "Keys that are new since an open restore, up to 10000",
            None,
            new.unwrap_or(0) as f64,
        )?;
        out.gauge("wal", "Size of the write-ahead log", Some(Unit::Bytes), stats.wal_bytes as f64)
    }
}

impl Figures {
    fn counter(&self, name: &str) -> u64 {
        self.stats.counters.get(name).map_or(0, |n| (*n).max(0).unsigned_abs())
    }

    fn family<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let of = self.stats.counters.iter();
        of.filter_map(move |(name, n)| Some((name.strip_prefix(prefix)?, (*n).max(0).unsigned_abs())))
    }

    /// By kind, provider and class. What is older than these counters is counted by class alone, and stands under no
    /// kind and no provider, so that the sum over the labels is always all of them.
    fn attempts(&self) -> Vec<([(&'static str, String); 3], u64)> {
        let mut by_class: BTreeMap<&str, u64> = self.family("class:").collect();
        let mut series = Vec::new();
        for (whose, n) in self.family("attempts:") {
            let Some((kind, provider, class)) = three(whose) else { continue };
            if let Some(all) = by_class.get_mut(class) {
                *all = all.saturating_sub(n);
            }
            series.push((attempt(kind, provider, class), n));
        }
        let rest = by_class.into_iter().filter(|(class, n)| *n > 0 && Class::parse(class).is_some());
        series.extend(rest.map(|(class, n)| (attempt("", "", class), n)));
        series
    }

    fn gaps(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let mut gaps: BTreeMap<(&str, &str), Gap> = BTreeMap::new();
        for (whose, n) in self.family("gaps:") {
            let Some((kind, provider, bucket)) = three(whose) else { continue };
            let gap = gaps.entry((kind, provider)).or_default();
            if let Some(count) = bucket.parse().ok().and_then(|b: usize| gap.buckets.get_mut(b)) {
                *count = n;
            }
        }
        for (whose, n) in self.family("gap_ms:") {
            let Some(whose) = whose.split_once(' ') else { continue };
            gaps.entry(whose).or_default().sum_ms = n;
        }
        let help = "From the first request to the confirmed reference";
        let unit = Unit::Seconds;
        let mut metric =
            out.0.encode_descriptor("confirmation_gap", help, Some(&unit), MetricType::Histogram)?;
        for ((kind, provider), gap) in gaps {
            let labels = [("kind", kind.to_string()), ("provider", provider.to_string())];
            let edges = GAP_EDGES_S.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = edges.zip(gap.buckets).collect();
            let count = gap.buckets.iter().sum();
            // Milliseconds of all gaps together: exact far beyond any file's life.
            let sum = gap.sum_ms as f64 / 1000.0;
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn kept_back(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let stats = &self.stats;
        let states = stats.providers.iter().flat_map(|(name, p)| {
            ["ok", "held", "probing", "paused"].map(|state| {
                let labels = [("provider", name.to_string()), ("state", state.to_string())];
                (labels, f64::from(u8::from(p.state == state)))
            })
        });
        out.gauges("provider_state", "1 for the state that a provider is in", None, states)?;
        let flying =
            stats.providers.iter().map(|(name, p)| ([("provider", name.to_string())], p.in_flight as f64));
        out.gauges("in_flight", "Calls in flight", None, flying)?;
        let mut paused: BTreeMap<&str, u64> = BTreeMap::new();
        for pause in &stats.paused {
            *paused.entry(pause.scope.as_str()).or_default() += 1;
        }
        let paused = paused.into_iter().map(|(scope, n)| ([("scope", scope)], n as f64));
        out.gauges("paused", "What a person has paused", None, paused)?;
        let waiting: u64 = stats.blocked_groups.iter().map(|g| g.waiting).sum();
        out.gauge(
            "blocked_groups",
            "Groups whose head is parked, in doubt, due later or missing",
            None,
            stats.blocked_groups.len() as f64,
        )?;
        // Which group it is would be a label without bound: `stats` names each.
        let delays = stats.blocked_groups.iter().map(|g| self.now.since(g.since).as_secs_f64());
        out.gauge(
            "head_of_line_delay",
            "How long the head of a group has kept others waiting, the longest",
            Some(Unit::Seconds),
            delays.fold(0.0, f64::max),
        )?;
        out.gauge("blocked_jobs", "Jobs that wait in them", None, waiting as f64)
    }
}

fn attempt(kind: &str, provider: &str, class: &str) -> [(&'static str, String); 3] {
    [("kind", kind.to_string()), ("provider", provider.to_string()), ("class", class.to_string())]
}

/// The parts of a counter's name, of which no part has a blank.
fn three(name: &str) -> Option<(&str, &str, &str)> {
    let (first, rest) = name.split_once(' ')?;
    let (second, third) = rest.split_once(' ')?;
    Some((first, second, third))
}

struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        metric.encode_gauge(&value)
    }

    fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        series: impl IntoIterator<Item = (L, f64)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        series.into_iter().try_for_each(|(labels, value)| metric.encode_family(&labels)?.encode_gauge(&value))
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        series.into_iter().try_for_each(|(labels, value)| {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }
}
