//! Summary of a benchmark run.

use std::time::Duration;

use serde::Serialize;

use super::client::RequestTiming;
use super::load::RunResult;
use crate::settings::report::Targets;
use crate::settings::{BenchSettings, Dataset, Endpoint};

/// The summary, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Base URL of the API.
    pub url: String,
    /// The model's name.
    pub model: String,
    /// `chat` or `completions`
    pub endpoint: &'static str,
    /// `random` or `shared-prefix`
    pub dataset: &'static str,
    /// Words per prompt.
    pub input_len: usize,
    /// Most tokens per completion.
    pub output_len: usize,
    /// Most requests at once, if limited.
    pub concurrency: Option<usize>,
    /// Requests per second, if set.
    pub request_rate: Option<f64>,
    /// Seed of prompts and arrivals.
    pub seed: u64,
    /// Requests completed.
    pub completed: usize,
    /// Requests failed.
    pub failed: usize,
    /// Error of the first failed request.
    pub first_failure: Option<String>,
    /// Time from the first request to the end of the last response.
    pub duration_s: f64,
    /// Tokens of all prompts, if the server reports usage.
    pub input_tokens: usize,
    /// Tokens of all completions.
    pub output_tokens: usize,
    /// Requests completed per second.
    pub request_throughput: f64,
    /// Generated tokens per second.
    pub output_throughput: f64,
    /// Prompt and generated tokens per second.
    pub total_throughput: f64,
    /// Time from sending to the first text.
    pub ttft_ms: Percentiles,
    /// Mean time between tokens of a request.
    pub tpot_ms: Percentiles,
    /// Times between texts.
    pub itl_ms: Percentiles,
    /// Time from sending to the end.
    pub e2e_ms: Percentiles,
}

/// Mean, percentiles and maximum, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Percentiles {
    /// Percentiles of durations in any order, with linear interpolation.
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<f64> =
            durations.into_iter().map(|duration| duration.as_secs_f64() * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        let Some(max) = sorted.last().copied() else { return Self::default() };
        let at = |fraction: f64| {
            let place = fraction * (sorted.len() - 1) as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Self { mean, p50: at(0.5), p95: at(0.95), p99: at(0.99), max }
    }
}

impl Summary {
    /// Summarizes a run.
    pub fn of(settings: &BenchSettings, run: &RunResult) -> Self {
        let done: Vec<&RequestTiming> =
            run.timings.iter().filter_map(|timing| timing.as_ref().ok()).collect();
        let seconds = run.wall.as_secs_f64().max(1e-9);
        let input_tokens = done.iter().filter_map(|timing| timing.prompt_tokens).sum::<usize>();
        let output_tokens = done.iter().map(|timing| timing.output_tokens).sum::<usize>();
        Self {
            url: settings.url.clone(),
            model: run.model.clone(),
            endpoint: match settings.endpoint {
                Endpoint::Chat => "chat",
                Endpoint::Completions => "completions",
            },
            dataset: match settings.dataset {
                Dataset::Random => "random",
                Dataset::SharedPrefix => "shared-prefix",
                Dataset::Turns => "turns",
                Dataset::Media => "media",
            },
            input_len: settings.input_len,
            output_len: settings.output_len,
            concurrency: settings.arrivals.concurrency,
            request_rate: settings.arrivals.rate,
            seed: settings.seed,
            completed: done.len(),
            failed: run.timings.len() - done.len(),
            first_failure: run.timings.iter().find_map(|timing| timing.as_ref().err().cloned()),
            duration_s: run.wall.as_secs_f64(),
            input_tokens,
            output_tokens,
            request_throughput: done.len() as f64 / seconds,
            output_throughput: output_tokens as f64 / seconds,
            total_throughput: (input_tokens + output_tokens) as f64 / seconds,
            ttft_ms: Percentiles::of(done.iter().map(|timing| timing.first)),
            tpot_ms: Percentiles::of(done.iter().filter_map(|timing| per_token(timing))),
            itl_ms: Percentiles::of(done.iter().flat_map(|timing| timing.gaps.iter().copied())),
            e2e_ms: Percentiles::of(done.iter().map(|timing| timing.whole)),
        }
    }

    /// A table for the terminal.
    pub fn table(&self) -> String {
        let mut lines = vec![
            format!("{} at {}", self.model, self.url),
            format!(
                "requests    {} completed, {} failed, {:.2} s",
                self.completed, self.failed, self.duration_s
            ),
            format!("tokens      {} in, {} out", self.input_tokens, self.output_tokens),
            format!(
                "throughput  {:.2} requests/s, {:.1} tokens/s out, {:.1} tokens/s total",
                self.request_throughput, self.output_throughput, self.total_throughput
            ),
            format!("{:<10} {:>10} {:>10} {:>10} {:>10} {:>10}", "ms", "mean", "p50", "p95", "p99", "max"),
        ];
        let rows =
            [("ttft", self.ttft_ms), ("tpot", self.tpot_ms), ("itl", self.itl_ms), ("e2e", self.e2e_ms)];
        lines.extend(rows.map(|(name, spread)| {
            let Percentiles { mean, p50, p95, p99, max } = spread;
            format!("{name:<10} {mean:>10.2} {p50:>10.2} {p95:>10.2} {p99:>10.2} {max:>10.2}")
        }));
        lines.join("\n")
    }
}

/// Requests per second that were in time.
pub fn goodput(run: &RunResult, targets: Targets) -> f64 {
    let in_time = |timing: &&RequestTiming| {
        timing.first <= targets.ttft && per_token(timing).is_none_or(|each| each <= targets.tpot)
    };
    let count = run.timings.iter().filter_map(|timing| timing.as_ref().ok()).filter(in_time).count();
    count as f64 / run.wall.as_secs_f64().max(1e-9)
}

/// Mean time per token after the first.
fn per_token(timing: &RequestTiming) -> Option<Duration> {
    let after_first = u32::try_from(timing.output_tokens.checked_sub(1)?).ok().filter(|count| *count > 0)?;
    Some(timing.gaps.iter().sum::<Duration>() / after_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn percentiles_interpolate_linearly() {
        let spread = Percentiles::of((0..=100).rev().map(ms));
        assert_eq!(
            (spread.mean, spread.p50, spread.p95, spread.p99, spread.max),
            (50.0, 50.0, 95.0, 99.0, 100.0)
        );
        assert_eq!(Percentiles::of([ms(0), ms(10)]).p50, 5.0);
        assert_eq!(Percentiles::of([]), Percentiles::default());
    }

    #[test]
    fn goodput_counts_requests_that_were_in_time() {
        let timing = |first, gap| {
            Ok(RequestTiming {
                first: ms(first),
                gaps: vec![ms(gap)],
                output_tokens: 2,
                ..RequestTiming::default()
            })
        };
        let timings = vec![timing(10, 10), timing(90, 10), timing(10, 90), Err("500".into())];
        let run = RunResult { model: "m".into(), wall: ms(500), timings };
        assert_eq!(goodput(&run, Targets { ttft: ms(50), tpot: ms(50) }), 2.0);
        assert_eq!(goodput(&run, Targets { ttft: ms(100), tpot: ms(100) }), 6.0);
    }

    #[test]
    fn failed_requests_are_counted_apart() {
        let completed = RequestTiming {
            first: ms(10),
            gaps: vec![ms(10), ms(20)],
            whole: ms(45),
            prompt_tokens: Some(100),
            cached_tokens: None,
            output_tokens: 4,
        };
        let run =
            RunResult { model: "m".into(), wall: ms(500), timings: vec![Ok(completed), Err("500".into())] };
        let summary = Summary::of(&BenchSettings::default(), &run);
        assert_eq!(
            (summary.completed, summary.failed, summary.first_failure.as_deref()),
            (1, 1, Some("500"))
        );
        assert_eq!((summary.output_throughput, summary.total_throughput), (8.0, 208.0));
        assert_eq!(
            (summary.ttft_ms.p50, summary.tpot_ms.p50, summary.itl_ms.p50, summary.e2e_ms.p50),
            (10.0, 10.0, 15.0, 45.0)
        );
    }
}
