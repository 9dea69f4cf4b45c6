//! What others have published of their servers, beside the same ratio of a report.
//!
//! The models and machines differ, so a row says how far batching, caches and drafts carry, and not who is faster.

use super::contender::OURS;
use super::interval::Interval;
use super::results::{Metric, Report};
use crate::settings::load_kind::LoadKind;

/// A published ratio.
pub struct Published {
    /// Who published it, of what.
    pub source: &'static str,
    /// What it compares.
    pub what: &'static str,
    /// The ratio, as published.
    pub theirs: &'static str,
    /// What a report has for it.
    ratio: fn(&Report) -> Ratio,
}

/// A ratio and the ends of its interval; `None` where a report lacks one of its loads or servers.
type Ratio = Option<(f64, f64, f64)>;

const VLLM_MLX: &str = "vllm-mlx (arXiv 2601.19139), M4 Max";
const M5_MAX: &str = "Llama 3.3 70B in 4 bits, prompts of 4,096 tokens, M5 Max";
const MLXCEL: &str = "mlxcel 0.7 beta, 8B, M1 Ultra";
const MLX_VLM: &str = "mlx-vlm, batched speculation";

/// All of them, by source.
pub const PUBLISHED: &[Published] = &[
    Published {
        source: VLLM_MLX,
        what: "tokens/s of 16 streams over 1",
        theirs: "4.3",
        ratio: |report| streams(report, LoadKind::Streams16),
    },
    Published {
        source: VLLM_MLX,
        what: "time of a request with a picture: without the cache of pictures over with it",
        theirs: "28",
        ratio: |report| without(report, "media-cache", LoadKind::Media, Metric::E2eP50),
    },
    Published {
        source: M5_MAX,
        what: "tokens/s of 2 streams over 1",
        theirs: "1.8",
        ratio: |report| streams(report, LoadKind::Streams2),
    },
    Published {
        source: M5_MAX,
        what: "tokens/s of 4 streams over 1",
        theirs: "3.1",
        ratio: |report| streams(report, LoadKind::Streams4),
    },
    Published {
        source: M5_MAX,
        what: "tokens/s of 8 streams over 1",
        theirs: "4.9",
        ratio: |report| streams(report, LoadKind::Streams8),
    },
    Published {
        source: M5_MAX,
        what: "tokens/s of 16 streams over 1",
        theirs: "6.2",
        ratio: |report| streams(report, LoadKind::Streams16),
    },
    Published {
        source: MLXCEL,
        what: "tokens/s of 4 streams over 1",
        theirs: "1.9",
        ratio: |report| streams(report, LoadKind::Streams4),
    },
    Published {
        source: MLXCEL,
        what: "tokens/s of 8 streams over 1",
        theirs: "1.8",
        ratio: |report| streams(report, LoadKind::Streams8),
    },
    Published {
        source: MLX_VLM,
        what: "tokens/s of 4 streams with drafts over those without",
        theirs: "2.3 to 3.9",
        ratio: |report| inverse(without(report, "spec", LoadKind::Streams4, Metric::OutputThroughput)),
    },
];

impl Published {
    /// What a report has for it.
    pub fn here(&self, report: &Report) -> Ratio {
        (self.ratio)(report)
    }
}

/// How many times the tokens per second of one stream a load has.
fn streams(report: &Report, load: LoadKind) -> Ratio {
    let tokens = |load| report.value(OURS, load, Metric::OutputThroughput);
    tokens(load)?.ratio(tokens(LoadKind::Streams1)?)
}

/// How many times the value with a part the one without it is.
fn without(report: &Report, part: &str, load: LoadKind, metric: Metric) -> Ratio {
    let without: Interval = report.value(&format!("without {part}"), load, metric)?;
    without.ratio(report.value(OURS, load, metric)?)
}

fn inverse(ratio: Ratio) -> Ratio {
    ratio.map(|(mean, low, high)| (mean.recip(), high.recip(), low.recip()))
}

#[cfg(test)]
mod tests {
    use super::super::results::Measurement;
    use super::*;

    fn measured(contender: &str, load: LoadKind, metric: Metric, mean: f64) -> Measurement {
        Measurement { contender: contender.to_owned(), load, metric, value: Interval { mean, half: None } }
    }

    fn here(what: &str, values: Vec<Measurement>) -> Vec<f64> {
        let report = Report { values, ..Report::default() };
        let rows = PUBLISHED.iter().filter(|row| row.what == what);
        rows.filter_map(|row| Some(row.here(&report)?.0)).collect()
    }

    #[test]
    fn streams_are_compared_with_one() {
        let tokens = |load, mean| measured(OURS, load, Metric::OutputThroughput, mean);
        let values = vec![tokens(LoadKind::Streams1, 10.0), tokens(LoadKind::Streams16, 50.0)];
        assert_eq!(here("tokens/s of 16 streams over 1", values), [5.0, 5.0]);
        assert!(here("tokens/s of 16 streams over 1", Vec::new()).is_empty(), "nothing was measured");
    }

    #[test]
    fn a_part_is_compared_with_the_server_that_lacks_it() {
        let time = |name, mean| measured(name, LoadKind::Media, Metric::E2eP50, mean);
        let what = "time of a request with a picture: without the cache of pictures over with it";
        assert_eq!(here(what, vec![time(OURS, 2.0), time("without media-cache", 14.0)]), [7.0]);
        let tokens = |name, mean| measured(name, LoadKind::Streams4, Metric::OutputThroughput, mean);
        let what = "tokens/s of 4 streams with drafts over those without";
        assert_eq!(here(what, vec![tokens(OURS, 20.0), tokens("without spec", 10.0)]), [2.0]);
    }
}
