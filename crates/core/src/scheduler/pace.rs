//! How much of a step prompts may take: a time, turned into tokens by the cost model.
//!
//! Invariant: while somebody is being answered, no step reads more than twice the prompt tokens that a measured step
//! has read. So a machine that is not known yet is learned from small chunks.

use crate::{CostModel, Load};

/// A chunk that is tried before anything is known, in tokens.
const CAREFUL_TOKENS: usize = 32;
/// Where not one token is in time, the first prompt in line gets this share of the decodes' own time all the same.
const PROMPT_SHARE: f64 = 0.25;
/// Fewer are worth a step only to the first prompt in line, which gets so many where its share is not enough for one.
pub(super) const LEAST_TOKENS: usize = 16;

/// How much of a step prompts may take.
pub(super) struct Pace<'a> {
    cost: &'a CostModel,
    /// What is in the step or has its place there.
    load: Load,
    /// Microseconds; `None` when nobody is waiting for a next token.
    budget_us: Option<f64>,
    /// Prompt tokens that are left, whatever the time.
    tokens_left: usize,
    /// What the next prompt gets at least, if it is the first.
    least: usize,
}

impl<'a> Pace<'a> {
    /// For a step that decodes `load`. `tokens`: that prompts may take.
    pub(super) fn new(cost: &'a CostModel, load: Load, budget_us: Option<f64>, tokens: usize) -> Self {
        let known = CAREFUL_TOKENS.max(2 * cost.prefill_tokens_max as usize);
        let tokens_left = if budget_us.is_some() { tokens.min(known) } else { tokens };
        Self { cost, load, budget_us, tokens_left, least: LEAST_TOKENS }
    }

    /// True when nothing worth reading fits any more.
    pub(super) fn is_spent(&self) -> bool {
        self.tokens(0, LEAST_TOKENS) == 0
    }

    /// The most tokens from `start` on, of `wanted`, that the next prompt may take.
    pub(super) fn tokens(&self, start: usize, wanted: usize) -> usize {
        let most = wanted.min(self.tokens_left);
        let Some(budget) = self.budget_us else { return most };
        let within = |budget| self.cost.prefill_within(&self.load, start, most, budget);
        match within(budget) {
            0 if self.least == 0 => 0,
            0 => match within(self.cost.predict(&self.load) * (1.0 + PROMPT_SHARE)) {
                // Who waits for a token waits too long in any case: then it is for something.
                0 => most.min(self.least),
                fit => fit,
            },
            // A crumb costs a prompt more steps than it saves others time.
            fit if fit < LEAST_TOKENS.min(most) && self.least == 0 => 0,
            fit => fit,
        }
    }

    /// Somebody reads so many tokens from `start` on.
    pub(super) fn take(&mut self, start: usize, tokens: usize) {
        self.load = self.load.plus(Load::prefill(start, tokens));
        self.tokens_left = self.tokens_left.saturating_sub(tokens);
        self.least = 0;
    }
}
