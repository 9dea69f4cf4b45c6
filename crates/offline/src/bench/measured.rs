//! What a benchmark measured, as it is printed.

use std::time::Instant;

use omnibus_engine::Stats;
use serde::Serialize;

use super::DecodeLoad;

/// Steps in which every stream decoded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decode {
    /// Sequences in each step.
    pub streams: usize,
    /// Tokens of each sequence's prompt.
    pub context: usize,
    /// Steps measured.
    pub steps: usize,
    /// Milliseconds from one step's tokens to the next one's: the median.
    pub step_ms: f64,
    /// The mean of the same.
    pub step_ms_mean: f64,
    /// Of all streams together, by the mean.
    pub tokens_per_s: f64,
    /// Tokens of a stream in a step: one without draft tokens.
    pub tokens_per_step: f64,
    /// What the loop's thread did, in milliseconds a step; `None` if the run was too short to say.
    pub host: Option<HostSplit>,
    /// Kernels and operations of a step over the model's layers, where it is launched as a graph.
    pub launches_per_layer: Option<f64>,
    /// Memory at the end.
    pub memory: MemoryUse,
}

/// A step in which every stream decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepReport {
    /// When it was reported.
    pub(super) at: Instant,
    /// Its tokens, of all streams.
    pub(super) tokens: usize,
}

/// What the loop's thread did, in milliseconds a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HostSplit {
    /// In the scheduler: planning, allocating, committing.
    pub plan_ms: f64,
    /// Building the step's graph and inputs.
    pub build_ms: f64,
    /// Dispatching the graph to MLX. On the CPU this includes most of the computation.
    pub dispatch_ms: f64,
    /// Waiting for results.
    pub wait_ms: f64,
}

/// Memory of arrays, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// In use.
    pub active_bytes: u64,
    /// Most in use during the measurement.
    pub peak_bytes: u64,
    /// Kept by MLX's allocator for reuse.
    pub cache_bytes: u64,
}

impl MemoryUse {
    pub(super) fn now() -> Self {
        Self {
            active_bytes: mlx::memory::active_memory() as u64,
            peak_bytes: mlx::memory::peak_memory() as u64,
            cache_bytes: mlx::memory::cache_memory() as u64,
        }
    }
}

/// Prompts computed one after the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prefill {
    /// Tokens of each prompt.
    pub tokens: usize,
    /// Milliseconds from submitting a prompt to its first token: the median.
    pub ms: f64,
    /// Tokens of the prompt per second.
    pub tokens_per_s: f64,
    /// What the loop's thread did, in milliseconds a step; a prompt is one if no chunk is smaller.
    pub host: Option<HostSplit>,
    /// Memory at the end.
    pub memory: MemoryUse,
}

impl Decode {
    /// `steps`: at least two; `stats`: statistics sent meanwhile.
    pub(super) fn of(load: DecodeLoad, layers: usize, steps: &[StepReport], stats: &[Stats]) -> Self {
        let gap = |pair: &[StepReport]| 1e3 * (pair[1].at - pair[0].at).as_secs_f64();
        let gaps: Vec<f64> = steps.windows(2).map(gap).collect();
        let tokens: usize = steps.iter().skip(1).map(|step| step.tokens).sum();
        let tokens_per_step = tokens as f64 / (gaps.len() * load.streams).max(1) as f64;
        let launches =
            stats.last().map(|stats| stats.launches.step_launches).filter(|launches| *launches > 0);
        let step_ms_mean = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
        Self {
            streams: load.streams,
            context: load.context,
            steps: gaps.len(),
            step_ms: median(&gaps),
            step_ms_mean,
            tokens_per_s: 1e3 * tokens_per_step * load.streams as f64 / step_ms_mean.max(f64::MIN_POSITIVE),
            tokens_per_step,
            host: HostSplit::between(stats),
            launches_per_layer: launches.map(|launches| launches as f64 / layers as f64),
            memory: MemoryUse::now(),
        }
    }
}

impl Prefill {
    /// `stats`: statistics sent meanwhile.
    pub(super) fn of(tokens: usize, seconds: &[f64], stats: &[Stats]) -> Self {
        let seconds = median(seconds);
        let tokens_per_s = tokens as f64 / seconds.max(f64::MIN_POSITIVE);
        let host = HostSplit::between(stats);
        Self { tokens, ms: 1e3 * seconds, tokens_per_s, host, memory: MemoryUse::now() }
    }
}

impl HostSplit {
    /// From the first to the last of the statistics.
    fn between(stats: &[Stats]) -> Option<Self> {
        let (first, last) = (stats.first()?, stats.last()?);
        let steps = last.steps_total.checked_sub(first.steps_total).filter(|steps| *steps > 0)?;
        let per_step = |total: fn(&Stats) -> f64| 1e3 * (total(last) - total(first)) / steps as f64;
        let plan_ms = per_step(|stats| stats.plan_seconds_total);
        Some(Self {
            plan_ms,
            build_ms: (per_step(|stats| stats.host_seconds_total) - plan_ms).max(0.0),
            dispatch_ms: per_step(|stats| stats.dispatch_seconds_total),
            wait_ms: per_step(|stats| stats.wait_seconds_total),
        })
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::Adapted;
    use omnibus_engine::{LaunchStats, Speculation};

    #[test]
    fn step_times_are_gaps_between_reports() {
        let begun = Instant::now();
        let step = |(ms, tokens)| StepReport { at: begun + Duration::from_millis(ms), tokens };
        let steps = [(0, 99), (2, 8), (4, 16), (10, 24)].map(step);
        let speculation = Speculation::Off;
        let load =
            DecodeLoad { streams: 8, context: 32, shortest: 32, steps: 3, adapted: Adapted::No, speculation };
        let stats = |steps, seconds: f64| Stats {
            steps_total: steps,
            host_seconds_total: 3.0 * seconds,
            plan_seconds_total: seconds,
            dispatch_seconds_total: 4.0 * seconds,
            wait_seconds_total: 5.0 * seconds,
            launches: LaunchStats { step_launches: 36, ..LaunchStats::default() },
            ..Stats::default()
        };
        let decode = Decode::of(load, 4, &steps, &[stats(10, 1.0), stats(11, 1.5), stats(20, 2.0)]);
        assert_eq!((decode.steps, decode.step_ms), (3, 2.0));
        assert!((decode.tokens_per_s - 4800.0).abs() < 1.0, "{decode:?}");
        assert_eq!(decode.tokens_per_step, 2.0);
        let split = HostSplit { plan_ms: 100.0, build_ms: 200.0, dispatch_ms: 400.0, wait_ms: 500.0 };
        assert_eq!(decode.host, Some(split));
        assert_eq!(decode.launches_per_layer, Some(9.0));
        assert_eq!(Decode::of(load, 4, &steps, &[stats(10, 1.0)]).host, None);
    }
}
