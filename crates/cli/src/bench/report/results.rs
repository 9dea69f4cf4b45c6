//! What a report says: for each server and load, each metric with its interval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::interval::Interval;
use crate::settings::Config;
use crate::settings::load_kind::LoadKind;

/// A metric of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "`TABLE` says what each is")]
pub enum Metric {
    TtftP50,
    TtftP95,
    TtftP99,
    TpotP50,
    TpotP95,
    TpotP99,
    ItlP50,
    ItlP95,
    ItlP99,
    E2eP50,
    E2eP95,
    E2eP99,
    OutputThroughput,
    Goodput,
    TokensPerJoule,
    PeakMemory,
    CachedShare,
    AcceptedDrafts,
    EncodedMedia,
}

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Low ones.
    Low,
    /// High ones.
    High,
    /// Neither: it explains the others.
    Neither,
}

/// A metric, its label and its direction.
pub const TABLE: &[(Metric, &str, Better)] = &[
    (Metric::TtftP50, "TTFT p50, ms", Better::Low),
    (Metric::TtftP95, "TTFT p95, ms", Better::Low),
    (Metric::TtftP99, "TTFT p99, ms", Better::Low),
    (Metric::TpotP50, "TPOT p50, ms", Better::Low),
    (Metric::TpotP95, "TPOT p95, ms", Better::Low),
    (Metric::TpotP99, "TPOT p99, ms", Better::Low),
    (Metric::ItlP50, "ITL p50, ms", Better::Low),
    (Metric::ItlP95, "ITL p95, ms", Better::Low),
    (Metric::ItlP99, "ITL p99, ms", Better::Low),
    (Metric::E2eP50, "E2E p50, ms", Better::Low),
    (Metric::E2eP95, "E2E p95, ms", Better::Low),
    (Metric::E2eP99, "E2E p99, ms", Better::Low),
    (Metric::OutputThroughput, "output tokens/s", Better::High),
    (Metric::Goodput, "goodput, requests/s", Better::High),
    (Metric::TokensPerJoule, "output tokens/J", Better::High),
    (Metric::PeakMemory, "peak memory of arrays, bytes", Better::Low),
    (Metric::CachedShare, "cached share of prompts", Better::Neither),
    (Metric::AcceptedDrafts, "accepted draft tokens", Better::Neither),
    (Metric::EncodedMedia, "encoded pictures", Better::Neither),
];

impl Metric {
    /// Its label.
    pub fn label(self) -> &'static str {
        TABLE.iter().find(|(metric, ..)| *metric == self).map_or("", |(_, label, _)| label)
    }

    /// Which of its values are better.
    pub fn better(self) -> Better {
        TABLE.iter().find(|(metric, ..)| *metric == self).map_or(Better::Neither, |(.., better)| *better)
    }
}

/// What one round gives. A metric that a server does not have is absent.
pub type Metrics = BTreeMap<Metric, f64>;

/// The values of all rounds.
#[derive(Debug, Default)]
pub struct Collected(BTreeMap<(String, LoadKind, Metric), Vec<f64>>);

impl Collected {
    /// Adds a round.
    pub fn add(&mut self, contender: &str, load: LoadKind, metrics: Metrics) {
        for (metric, value) in metrics {
            self.0.entry((contender.to_owned(), load, metric)).or_default().push(value);
        }
    }
}

/// The report, as `report.json` has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of omnibus.
    pub version: String,
    /// The model.
    pub model: String,
    /// The CPU or the GPU, and the system.
    pub machine: String,
    /// Rounds of each load.
    pub rounds: usize,
    /// Requests of a load in a round.
    pub requests: usize,
    /// Words of a prompt.
    pub input_len: usize,
    /// Most tokens of an answer.
    pub output_len: usize,
    /// Requests at once in closed loops.
    pub concurrency: Option<usize>,
    /// Requests per second in open loops.
    pub request_rate: Option<f64>,
    /// The servers.
    pub contenders: Vec<Described>,
    /// Everything that was measured.
    pub values: Vec<Measurement>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Its flags and variables, or its URL.
    pub setup: String,
}

/// A metric of a server under a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The server.
    pub contender: String,
    /// The load.
    pub load: LoadKind,
    /// The metric.
    pub metric: Metric,
    /// Its mean over the rounds.
    #[serde(flatten)]
    pub value: Interval,
}

impl Report {
    /// The report of what was measured.
    pub fn new(config: &Config, contenders: &[Contender], Collected(values): Collected) -> Self {
        let described =
            contenders.iter().map(|of| Described { name: of.name.clone(), setup: of.setup.clone() });
        let measurement = |((contender, load, metric), values): ((String, LoadKind, Metric), Vec<f64>)| {
            Some(Measurement { contender, load, metric, value: Interval::of(&values)? })
        };
        let threads = std::thread::available_parallelism().map_or(0, usize::from);
        let (system, cpu) = (std::env::consts::OS, std::env::consts::ARCH);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: config.model.clone().unwrap_or_else(|| "the embedded model".to_owned()),
            machine: format!("{system}, {cpu}, {threads} threads"),
            rounds: config.report.rounds,
            requests: config.bench.num_prompts,
            input_len: config.bench.input_len,
            output_len: config.bench.output_len,
            concurrency: config.bench.arrivals.concurrency,
            request_rate: config.bench.arrivals.rate,
            contenders: described.collect(),
            values: values.into_iter().filter_map(measurement).collect(),
        }
    }

    /// A metric of a server under a load.
    pub fn value(&self, contender: &str, load: LoadKind, metric: Metric) -> Option<Interval> {
        let is_it = |of: &&Measurement| of.contender == contender && of.load == load && of.metric == metric;
        self.values.iter().find(is_it).map(|of| of.value)
    }

    /// The loads that were sent, in order.
    pub fn loads(&self) -> Vec<LoadKind> {
        let loads: std::collections::BTreeSet<LoadKind> = self.values.iter().map(|of| of.load).collect();
        loads.into_iter().collect()
    }
}
