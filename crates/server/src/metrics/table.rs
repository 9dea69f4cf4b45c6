//! Every metric: those that are recorded where something happens, and the engine's statistics.
//!
//! Invariant: docs/metrics.md is made of these rows. A test compares them with what `/metrics` gives.

use omnibus_engine::statistic::{Metric, Source, Statistic, Total};
use omnibus_engine::{SCHEDULER_STATISTICS, STATISTICS};

/// The type of a metric in Prometheus' text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An integer that only grows.
    Counter,
    /// A number that rises and falls; one named `…_total` only grows, and is no integer.
    Gauge,
    /// A number of values in buckets, their sum and their count.
    Histogram,
}

/// A metric that is recorded where something happens.
pub struct Recorded {
    #[allow(missing_docs)]
    pub kind: Kind,
    #[allow(missing_docs)]
    pub name: &'static str,
    #[allow(missing_docs, dead_code, reason = "only the page lists them")]
    pub labels: &'static [&'static str],
    /// One line without an end.
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Recorded {
    Recorded { kind: Kind::Counter, name, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Recorded {
    Recorded { kind: Kind::Gauge, name, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Recorded {
    Recorded { kind: Kind::Histogram, name, labels, help }
}

/// Metrics beside the engine's statistics.
pub const RECORDED: &[Recorded] = &[
    counter("omnibus_requests_total", &["api", "outcome"], "generation requests by API and outcome"),
    counter(
        "omnibus_unknown_fields_total",
        &[],
        "unknown fields, block types and tool types that were left out",
    ),
    counter(
        "omnibus_http_requests_total",
        &["route", "method", "status"],
        "HTTP requests by route, method and status",
    ),
    counter("omnibus_prompt_tokens_total", &[], "prompt tokens"),
    counter("omnibus_cached_tokens_total", &[], "prompt tokens found in the prefix cache"),
    counter("omnibus_generated_tokens_total", &[], "tokens generated"),
    counter("omnibus_transcribed_seconds_total", &[], "seconds of audio transcribed"),
    gauge("omnibus_engine_alive", &[], "1 while the engine steps or is idle, else 0"),
    gauge("omnibus_build_info", &["version"], "always 1; the version is a label"),
    histogram("omnibus_queue_seconds", &["api"], "time from arrival to the first step"),
    histogram("omnibus_ttft_seconds", &["api"], "time from arrival to the first token or text"),
    histogram("omnibus_tpot_seconds", &["api"], "mean time between tokens of a request"),
    histogram("omnibus_e2e_seconds", &["api"], "time from arrival to the end"),
    histogram(
        "omnibus_http_request_seconds",
        &["route"],
        "time from a request's headers to its response's headers",
    ),
    histogram("omnibus_step_seconds", &[], "time of an engine step"),
    histogram("omnibus_step_tokens", &[], "tokens computed in an engine step"),
];

/// The metrics of the engine's statistics, each with its kind. One with labels has several rows.
pub fn of_engine() -> impl Iterator<Item = (Kind, Metric)> {
    let row = |kind, metric: &Option<Metric>| metric.map(|metric| (kind, metric));
    let scheduler =
        SCHEDULER_STATISTICS.iter().filter_map(move |statistic| row(kind_of(statistic), &statistic.metric));
    let engine = STATISTICS.iter().filter_map(move |statistic| row(kind_of(statistic), &statistic.metric));
    scheduler.chain(engine)
}

/// The counters of the recorder are integers, so totals in seconds are gauges.
fn kind_of<S: Default>(statistic: &Statistic<S>) -> Kind {
    match statistic.source {
        Source::Total(field) => match field(&mut S::default()) {
            Total::Count(_) => Kind::Counter,
            Total::Seconds(_) => Kind::Gauge,
        },
        Source::Derived(_) => Kind::Counter,
        Source::Gauge(_) => Kind::Gauge,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::expect_file;

    use super::*;

    const HEAD: &str = "\
# Metrics

<!-- Generated from the tables in crates/server, engine and core: `cargo xtask docs` writes it. -->

`GET /metrics` has these in Prometheus' text format. Base units are in the names. A counter only grows, and starts at
zero with the server; the engine's numbers go on when its process is restarted. A histogram has `_bucket`, `_sum` and
`_count`. Counters and histograms of requests appear with the first one. Totals of seconds have fractions and the type
gauge; `rate()` takes them. `GET /v1/status` has the engine's numbers as JSON.

| name | type | unit | labels | what it is |
| --- | --- | --- | --- | --- |
";

    struct Row {
        kind: Kind,
        help: &'static str,
        labels: Vec<String>,
    }

    fn rows() -> BTreeMap<&'static str, Row> {
        let recorded = RECORDED.iter().map(|Recorded { kind, name, labels, help }| {
            let labels = labels.iter().map(|label| format!("`{label}`")).collect();
            (*name, Row { kind: *kind, help, labels })
        });
        let mut rows: BTreeMap<_, _> = recorded.collect();
        for (kind, Metric { name, help, label }) in of_engine() {
            let row = rows.entry(name).or_insert_with(|| Row { kind, help, labels: Vec::new() });
            assert_eq!((row.kind, row.help), (kind, help), "{name} differs between its series");
            row.labels.extend(label.map(|(label, value)| format!("`{label}=\"{value}\"`")));
        }
        rows
    }

    /// The last word of a name without `_total`, if it is a unit.
    fn unit(name: &str) -> &'static str {
        const UNITS: &[&str] = &["seconds", "bytes", "tokens", "blocks", "files", "ratio"];
        let name = name.trim_end_matches("_total");
        UNITS.iter().copied().find(|unit| name.ends_with(unit)).unwrap_or_default()
    }

    #[test]
    fn docs_of_the_metrics_are_current() {
        let line = |(name, Row { kind, help, labels }): (&str, &Row)| {
            let kind = format!("{kind:?}").to_lowercase();
            format!("| `{name}` | {kind} | {} | {} | {help} |\n", unit(name), labels.join(", "))
        };
        let lines: String = rows().iter().map(|(name, row)| line((name, row))).collect();
        expect_file!["../../../../docs/metrics.md"].assert_eq(&format!("{HEAD}{lines}"));
    }
}
