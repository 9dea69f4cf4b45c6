//! How much of a step prompts may take: a time, turned into tokens by the cost model.
//!
//! Invariant: while somebody is being answered, no step reads more than twice the prompt tokens that a measured step
//! has read. So a machine that is not known yet is learned from small chunks.

use crate::{CostModel, StepLoad};

/// A chunk that is tried before anything is known, in tokens.
const CAREFUL_TOKENS: usize = 32;
/// Where answers are too late without it, the first prompt in line gets this share of their time all the same.
const PROMPT_SHARE: f64 = 0.4;
/// Fewer are worth a step only to the first prompt in line, which gets so many where its share is not enough for one.
pub(super) const LEAST_TOKENS: usize = 16;

/// Microseconds that a step may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// So that nearly every step is in time.
    pub(super) sure_us: f64,
    /// So that it is in time if it takes as long as expected.
    pub(super) likely_us: f64,
}

/// How much of a step prompts may take.
pub(super) struct Pace<'a> {
    cost: &'a CostModel,
    /// What is in the step or has its place there.
    load: StepLoad,
    /// `None` when nobody is waiting for a next token.
    budget: Option<Budget>,
    /// Prompt tokens that are left, whatever the time.
    tokens_left: usize,
    /// What the next prompt gets at least, if it is the first.
    least: usize,
}

impl<'a> Pace<'a> {
    /// For a step that decodes `load`. `tokens`: that prompts may take.
    pub(super) fn new(cost: &'a CostModel, load: StepLoad, budget: Option<Budget>, tokens: usize) -> Self {
        let known = CAREFUL_TOKENS.max(2 * cost.prefill_tokens_max as usize);
        let tokens_left = if budget.is_some() { tokens.min(known) } else { tokens };
        Self { cost, load, budget, tokens_left, least: LEAST_TOKENS }
    }

    /// True when nothing worth reading fits any more.
    pub(super) fn is_spent(&self) -> bool {
        self.tokens(0, LEAST_TOKENS) == 0
    }

    /// The most tokens from `start` on, of `wanted`, that the next prompt may take.
    pub(super) fn tokens(&self, start: usize, wanted: usize) -> usize {
        let most = wanted.min(self.tokens_left);
        let Some(Budget { sure_us, likely_us }) = self.budget else { return most };
        let within = |budget_us| self.cost.prefill_within(&self.load, start, most, budget_us);
        let sure = within(sure_us);
        if self.least == 0 {
            // A crumb costs a prompt more steps than it saves others time.
            return if sure < LEAST_TOKENS.min(most) { 0 } else { sure };
        }
        let alone_us = self.cost.predict(&self.load);
        match within(likely_us).max(sure) {
            // Answers that are in time are not made late by more than they must, and small chunks become known.
            0 if alone_us <= likely_us => most.min(1),
            // Those that wait too long in any case wait for something.
            0 => match within(alone_us * (1.0 + PROMPT_SHARE)) {
                0 => most.min(self.least),
                fit => fit,
            },
            _ if sure > 0 => sure,
            likely => likely,
        }
    }

    /// Somebody reads so many tokens from `start` on.
    pub(super) fn take(&mut self, start: usize, tokens: usize) {
        self.load = self.load.plus(StepLoad::prefill(start, tokens));
        self.tokens_left = self.tokens_left.saturating_sub(tokens);
        self.least = 0;
    }
}
