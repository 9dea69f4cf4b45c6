//! How long a step takes.

use serde::{Deserialize, Serialize};

use crate::plan::{Plan, ScheduledSequence};
use crate::request::Tick;

/// How long a step takes: `step + Σ (token · new tokens + context · tokens attended to)`, with prices for chunks of one
/// token and of more, because memory bounds the one and arithmetic the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Of any step, in nanoseconds.
    pub step_ns: u64,
    /// Of any step with prefill, on top of that, in nanoseconds.
    #[serde(default)]
    pub prefill_step_ns: u64,
    /// Of a sequence that computes its prompt.
    pub prefill: Price,
    /// Of a sequence that decodes.
    pub decode: Price,
}

/// What one sequence adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// For each new token, in nanoseconds.
    pub token_ns: u64,
    /// For each position that a new token attends to, in picoseconds.
    pub context_ps: u64,
}

impl Cost {
    /// Microseconds that the plan takes, at least one.
    pub fn of(&self, plan: &Plan) -> Tick {
        let prices = plan.scheduled.iter().map(|scheduled| {
            let price = if scheduled.is_decode() { self.decode } else { self.prefill };
            price.token_ns * scheduled.positions.len() as u64 + price.context_ps * attended(scheduled) / 1000
        });
        let prefills = plan.scheduled.iter().any(|scheduled| !scheduled.is_decode());
        let flat_ns = self.step_ns + if prefills { self.prefill_step_ns } else { 0 };
        ((flat_ns + prices.sum::<u64>()) / 1000).max(1)
    }
}

/// Positions that each token of a sequence's chunk attends to, itself included, added up.
fn attended(scheduled: &ScheduledSequence) -> u64 {
    let (start, tokens) = (scheduled.positions.start as u64, scheduled.positions.len() as u64);
    tokens * start + tokens * (tokens + 1) / 2
}

impl Default for Cost {
    /// A small model on a laptop.
    fn default() -> Self {
        let prefill = Price { token_ns: 200_000, context_ps: 40 };
        let decode = Price { token_ns: 400_000, context_ps: 100_000 };
        Self { step_ns: 8_000_000, prefill_step_ns: 0, prefill, decode }
    }
}
