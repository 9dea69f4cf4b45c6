//! The result of a scenario.

use serde::{Deserialize, Serialize};

use crate::request::Tick;
use crate::stats::Stats;

/// The result of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Accepted requests.
    pub taken: usize,
    /// Rejected requests.
    pub refused: usize,
    /// Sequences that stopped or reached their length.
    pub completed: usize,
    /// The offline ones of those.
    pub offline_completed: usize,
    /// When the last of them ended.
    pub offline_end: Tick,
    /// Sequences that computed their prompt and were to generate nothing.
    pub computed: usize,
    /// Sequences that were cancelled, too late, or failed.
    pub broken_off: usize,
    /// Steps that were committed.
    pub steps: u64,
    /// Spans that were computed.
    pub spans: u64,
    /// Steps of more tokens than their limit, for a span.
    pub exceeded_steps: u64,
    /// Tokens that sessions would have found at the end.
    pub session_tokens: u64,
    /// Blocks restored from disk.
    pub restored: u64,
    /// Blocks offloaded for preempted sequences.
    pub swapped_out: u64,
    /// Blocks restored from host memory.
    pub swapped_in: u64,
    /// When the last one was.
    pub end: Tick,
    /// From arrival to the first token. Like all times below, of online sequences.
    pub ttft: Quantiles,
    /// Between tokens, on average over a sequence.
    pub tpot: Quantiles,
    /// From one token to the next.
    pub itl: Quantiles,
    /// How many of those were longer than [`crate::LatencyTargets`] say; none where they say nothing.
    pub itl_late: usize,
    /// The longest of those.
    pub ttft_max: Tick,
    /// The longest of those, from one token to the next.
    pub itl_max: Tick,
    /// Sequences completed whose first token and whose tokens after it came on average as soon as
    /// [`crate::LatencyTargets`] say; unset ones are two seconds and a tenth.
    pub good: usize,
    /// Generated tokens.
    pub tokens: u64,
    /// From arrival to the end, of those completed.
    pub e2e: Quantiles,
    /// The scheduler's statistics.
    pub stats: Stats,
}

/// The 50th, 95th and 99th percentile, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Quantiles {
    pub p50: Tick,
    pub p95: Tick,
    pub p99: Tick,
}

impl Quantiles {
    /// Of these values; zero if there are none.
    pub fn of(mut values: Vec<Tick>) -> Self {
        values.sort_unstable();
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100);
            values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self { p50: at(50), p95: at(95), p99: at(99) }
    }
}
