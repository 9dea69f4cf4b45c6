//! The longest that a step may take, on devices whose driver or display suffers from longer ones.
//!
//! Invariant: pure. What the device suffers from is the engine's to know.

use serde::{Deserialize, Serialize};

use crate::cost::{CostModel, StepLoad};
use crate::request::Tick;

/// Tokens that any step may have.
const LEAST_TOKENS: usize = 32;
/// Measured steps with prefill after which the cost model alone says how long a step takes. Before, whichever of model and estimate
/// is slower counts.
const SAMPLES: u64 = 8;

/// The longest that a step should take, and what a token takes at most before steps are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    /// Of a step with prefill.
    pub most: Tick,
    /// Nanoseconds of each token, by the device's description.
    pub token_ns: u64,
}

impl StepTime {
    /// The most tokens of a step that computes a prompt after `context` positions: at most `most`, and at least a few.
    pub fn tokens(&self, cost: &CostModel, context: usize, most: usize) -> usize {
        let samples = cost.prefill.samples;
        let by_estimate = (self.most.saturating_mul(1000) / self.token_ns.max(1)) as usize;
        let estimated = if samples < SAMPLES { by_estimate } else { usize::MAX };
        let measured = match samples {
            0 => usize::MAX,
            _ => cost.prefill_within(&StepLoad::default(), context, most, self.most as f64),
        };
        estimated.min(measured).max(LEAST_TOKENS).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a second, at a millisecond a token.
    const STEP_TIME: StepTime = StepTime { most: 500_000, token_ns: 1_000_000 };

    fn learned(steps: usize, token_us: u64) -> CostModel {
        let mut cost = CostModel::default();
        for _ in 0..steps {
            for tokens in [64, 256] {
                cost.learn(&StepLoad::prefill(0, tokens), 1_000 + token_us * tokens as u64);
            }
        }
        cost
    }

    #[test]
    fn the_estimate_counts_until_steps_are_measured() {
        let tokens = |cost: &CostModel| STEP_TIME.tokens(cost, 0, 2048);
        assert_eq!(tokens(&CostModel::default()), 500);
        assert_eq!(tokens(&learned(1, 100)), 500, "two steps may have been lucky");
        assert!(tokens(&learned(1, 4_000)) < 140, "a slower device than expected is believed at once");
        assert_eq!(tokens(&learned(20, 100)), 2048);
        let slow = tokens(&learned(20, 2_000));
        assert!((200..=260).contains(&slow), "{slow}");
    }

    #[test]
    fn a_step_has_a_few_tokens_and_no_more_than_its_limit() {
        let slow = learned(20, 100_000);
        assert_eq!(STEP_TIME.tokens(&slow, 0, 2048), LEAST_TOKENS);
        assert_eq!(STEP_TIME.tokens(&slow, 0, 8), 8);
        assert_eq!(StepTime { most: 0, token_ns: 0 }.tokens(&CostModel::default(), 0, 64), LEAST_TOKENS);
    }

    #[test]
    fn positions_before_the_chunk_count() {
        let mut cost = CostModel::default();
        for step in 0..40 {
            let (start, tokens) = (1_000 * (step % 8), 64 + 16 * (step % 5));
            let load = StepLoad::prefill(start, tokens);
            cost.learn(&load, (1_000.0 + 500.0 * tokens as f64 + load.prefill_context) as u64);
        }
        let near = STEP_TIME.tokens(&cost, 0, 2048);
        let far = STEP_TIME.tokens(&cost, 8_000, 2048);
        assert!(far < near / 4, "{far} after 8,000 positions, {near} at first");
    }
}
