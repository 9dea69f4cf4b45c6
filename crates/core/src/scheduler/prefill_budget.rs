//! How much prefill a step may do: a time, turned into tokens by the cost model.
//!
//! Invariant: while a sequence decodes, no step prefills more than twice the tokens of the largest measured step. So an
//! unmeasured machine is learned from small chunks. A span that a step computes whole may be larger; nothing is left then.

use crate::cost::{CostModel, StepLoad};

/// The first chunk, before any measurement, in tokens.
const CAREFUL_TOKENS: usize = 32;
/// Where decodes are late anyway, the first prompt in line gets this share of their time.
const PROMPT_SHARE: f64 = 0.4;
/// Smaller chunks are given only to the first prompt in line, which gets this many where its share is less than one.
pub(super) const LEAST_TOKENS: usize = 16;

/// Microseconds that a step may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeBudget {
    /// Conservative: nearly every step is in time.
    pub(super) conservative_us: f64,
    /// Expected: the step is in time if it takes as long as predicted.
    pub(super) expected_us: f64,
    /// Where decodes are late whatever the step does: they get no later if it takes this long.
    pub(super) late_us: f64,
}

/// How much prefill a step may do.
pub(super) struct PrefillBudget<'a> {
    cost: &'a CostModel,
    /// The load that is scheduled or reserved.
    load: StepLoad,
    /// `None` when no sequence decodes.
    budget: Option<TimeBudget>,
    /// Prefill tokens left, whatever the time.
    tokens_left: usize,
    /// The minimum for the next prompt, if it is the first.
    least: usize,
    /// The smallest chunk of the others.
    smallest: usize,
}

impl<'a> PrefillBudget<'a> {
    /// For a step that decodes `load`. `tokens`: most prefill tokens.
    pub(super) fn new(
        cost: &'a CostModel,
        load: StepLoad,
        budget: Option<TimeBudget>,
        tokens: usize,
    ) -> Self {
        let known = CAREFUL_TOKENS.max(2 * cost.prefill_tokens_max as usize);
        let tokens_left = if budget.is_some() { tokens.min(known) } else { tokens };
        Self { cost, load, budget, tokens_left, least: LEAST_TOKENS, smallest: LEAST_TOKENS }
    }

    /// True when no worthwhile chunk fits any more.
    pub(super) fn is_spent(&self) -> bool {
        self.tokens(0, LEAST_TOKENS) == 0
    }

    /// The most tokens from `start` on, up to `wanted`, for the next prompt.
    pub(super) fn tokens(&self, start: usize, wanted: usize) -> usize {
        let most = wanted.min(self.tokens_left);
        let Some(TimeBudget { conservative_us, expected_us, late_us }) = self.budget else { return most };
        let within = |budget_us| self.cost.prefill_within(&self.load, start, most, budget_us);
        let sure = within(conservative_us);
        if self.least == 0 {
            // Chunks under `LEAST_TOKENS` cost more steps than they save latency.
            return if sure < self.smallest.min(most) { 0 } else { sure };
        }
        let alone_us = self.cost.predict(&self.load);
        match within(expected_us).max(sure) {
            // Decodes in time are delayed as little as possible, and small chunks are measured.
            0 if alone_us <= expected_us => most.min(1),
            // Decodes that are late anyway pay for some progress; where the flat part of the step takes all of that, for as
            // many tokens as it is worth.
            0 => match within(late_us.max(alone_us * (1.0 + PROMPT_SHARE))) {
                0 => within(alone_us + 2.0 * self.cost.flat_us()).max(most.min(self.least)),
                fit => fit,
            },
            _ if sure > 0 => sure,
            likely => likely,
        }
    }

    /// Limits what is added to the step from now on: it takes no longer than `most_us`. No prompt has more than fits into
    /// that for certain, however little it is.
    pub(super) fn limit(&mut self, most_us: f64) {
        let conservative_us = self.budget.map_or(most_us, |budget| budget.conservative_us.min(most_us));
        let (expected_us, late_us) = (conservative_us, conservative_us);
        self.budget = Some(TimeBudget { conservative_us, expected_us, late_us });
        (self.least, self.smallest) = (0, 1);
    }

    /// How long what is planned is expected to take, in microseconds.
    pub(super) fn load_us(&self) -> f64 {
        self.cost.predict(&self.load)
    }

    /// Accounts for one more decode, if the step stays in time with it and takes no longer than `most_us`. Whether it does.
    pub(super) fn add_decode(&mut self, decode: StepLoad, most_us: f64) -> bool {
        let load = self.load.plus(decode);
        let most_us = self.budget.map_or(most_us, |budget| budget.conservative_us.min(most_us));
        let is_in_time = self.cost.predict(&load) <= most_us;
        if is_in_time {
            self.load = load;
        }
        is_in_time
    }

    /// Accounts for a chunk of `tokens` from `start` on.
    pub(super) fn take(&mut self, start: usize, tokens: usize) {
        self.load = self.load.plus(StepLoad::prefill(start, tokens));
        self.tokens_left = self.tokens_left.saturating_sub(tokens);
        self.least = 0;
    }
}
