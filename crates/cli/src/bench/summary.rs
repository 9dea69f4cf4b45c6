//! What a measurement comes to.

use std::time::Duration;

use serde::Serialize;

use super::client::Trace;
use super::load::Run;
use crate::settings::{BenchSettings, Dataset, Endpoint};

/// The result, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Of the API.
    pub url: String,
    /// Which was asked.
    pub model: String,
    /// `chat` or `completions`
    pub endpoint: &'static str,
    /// `random` or `shared-prefix`
    pub dataset: &'static str,
    /// Words of a prompt.
    pub input_len: usize,
    /// Most tokens of an answer.
    pub output_len: usize,
    /// Most at once, if that was limited.
    pub concurrency: Option<usize>,
    /// Requests a second, if they came at their own pace.
    pub request_rate: Option<f64>,
    /// Of prompts and arrivals.
    pub seed: u64,
    /// Requests that were answered.
    pub completed: usize,
    /// Requests that were not.
    pub failed: usize,
    /// Why the first of them was not.
    pub first_failure: Option<String>,
    /// From the first request to the last answer.
    pub duration_s: f64,
    /// Of all prompts, where the server counts.
    pub input_tokens: usize,
    /// Of all answers.
    pub output_tokens: usize,
    /// Answers a second.
    pub request_throughput: f64,
    /// Tokens of answers a second.
    pub output_throughput: f64,
    /// Tokens of prompts and answers a second.
    pub total_throughput: f64,
    /// From sending to the first text.
    pub ttft_ms: Percentiles,
    /// Between tokens, on average over a request.
    pub tpot_ms: Percentiles,
    /// Between texts.
    pub itl_ms: Percentiles,
    /// From sending to the end.
    pub e2e_ms: Percentiles,
}

/// How something is spread, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// All of it over how many.
    pub mean: f64,
    /// Half are below.
    pub p50: f64,
    /// 95 of a hundred are below.
    pub p95: f64,
    /// 99 of a hundred are below.
    pub p99: f64,
    /// None is above.
    pub max: f64,
}

impl Percentiles {
    /// Of durations, in any order. Between two of them, a percentile is on the line that joins them.
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
    /// What a run comes to.
    pub fn of(settings: &BenchSettings, run: &Run) -> Self {
        let done: Vec<&Trace> = run.traces.iter().filter_map(|trace| trace.as_ref().ok()).collect();
        let seconds = run.wall.as_secs_f64().max(1e-9);
        let input_tokens = done.iter().filter_map(|trace| trace.prompt_tokens).sum::<usize>();
        let output_tokens = done.iter().map(|trace| trace.output_tokens).sum::<usize>();
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
            },
            input_len: settings.input_len,
            output_len: settings.output_len,
            concurrency: settings.arrivals.concurrency,
            request_rate: settings.arrivals.rate,
            seed: settings.seed,
            completed: done.len(),
            failed: run.traces.len() - done.len(),
            first_failure: run.traces.iter().find_map(|trace| trace.as_ref().err().cloned()),
            duration_s: run.wall.as_secs_f64(),
            input_tokens,
            output_tokens,
            request_throughput: done.len() as f64 / seconds,
            output_throughput: output_tokens as f64 / seconds,
            total_throughput: (input_tokens + output_tokens) as f64 / seconds,
            ttft_ms: Percentiles::of(done.iter().map(|trace| trace.first)),
            tpot_ms: Percentiles::of(done.iter().filter_map(|trace| per_token(trace))),
            itl_ms: Percentiles::of(done.iter().flat_map(|trace| trace.gaps.iter().copied())),
            e2e_ms: Percentiles::of(done.iter().map(|trace| trace.whole)),
        }
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut lines = vec![
            format!("{} at {}", self.model, self.url),
            format!(
                "requests    {} answered, {} failed, {:.2} s",
                self.completed, self.failed, self.duration_s
            ),
            format!("tokens      {} in, {} out", self.input_tokens, self.output_tokens),
            format!(
                "throughput  {:.2} requests/s, {:.1} tokens/s out, {:.1} tokens/s in all",
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

/// From the first text to the last, over the tokens that came after the first.
fn per_token(trace: &Trace) -> Option<Duration> {
    let after_first = u32::try_from(trace.output_tokens.checked_sub(1)?).ok().filter(|count| *count > 0)?;
    Some(trace.gaps.iter().sum::<Duration>() / after_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn percentiles_are_on_the_line_between_two_values() {
        let spread = Percentiles::of((0..=100).rev().map(ms));
        assert_eq!(
            (spread.mean, spread.p50, spread.p95, spread.p99, spread.max),
            (50.0, 50.0, 95.0, 99.0, 100.0)
        );
        assert_eq!(Percentiles::of([ms(0), ms(10)]).p50, 5.0);
        assert_eq!(Percentiles::of([]), Percentiles::default());
    }

    #[test]
    fn what_failed_counts_apart_from_what_was_answered() {
        let answered = Trace {
            first: ms(10),
            gaps: vec![ms(10), ms(20)],
            whole: ms(45),
            prompt_tokens: Some(100),
            output_tokens: 4,
        };
        let run = Run { model: "m".into(), wall: ms(500), traces: vec![Ok(answered), Err("500".into())] };
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
