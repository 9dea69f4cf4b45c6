//! What there is to compute of the waiting sequences, added up as they come and go.
//!
//! Invariant: sums only; no operation looks at more than one sequence.

use crate::cost::StepLoad;
use crate::sequence::Sequence;

/// What there is to compute of the waiting sequences, added up as they come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedLoad {
    /// Prompt and sampled tokens.
    tokens: u64,
    /// Positions that these attend to.
    context: u128,
    /// By the bits of the number of tokens that a sequence may still sample: how many sequences, and their tokens. Those
    /// that sample none are first.
    answers: [(u64, u64); u64::BITS as usize + 1],
}

impl Default for QueuedLoad {
    fn default() -> Self {
        Self { tokens: 0, context: 0, answers: [(0, 0); u64::BITS as usize + 1] }
    }
}

impl QueuedLoad {
    /// A sequence begins to wait.
    pub(super) fn add(&mut self, sequence: &Sequence) {
        let (tokens, answer) = Self::lengths(sequence);
        self.tokens += tokens;
        self.context += Self::context(tokens);
        let (count, answers) = &mut self.answers[Self::bits(answer)];
        (*count, *answers) = (*count + 1, *answers + answer);
    }

    /// A sequence waits no longer. It has as many tokens as when it was added.
    pub(super) fn remove(&mut self, sequence: &Sequence) {
        let (tokens, answer) = Self::lengths(sequence);
        self.tokens -= tokens;
        self.context -= Self::context(tokens);
        let (count, answers) = &mut self.answers[Self::bits(answer)];
        (*count, *answers) = (*count - 1, *answers - answer);
    }

    /// Prompt and sampled tokens.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The prefill of all.
    pub(super) fn prefill(&self) -> StepLoad {
        StepLoad {
            prefill_tokens: self.tokens as f64,
            prefill_context: self.context as f64,
            ..StepLoad::default()
        }
    }

    /// Tokens to sample, if outputs have the `usual` length, or their limit where that is shorter.
    pub(super) fn answers(&self, usual: f64) -> f64 {
        let of =
            |(count, tokens): &(u64, u64)| (*tokens as f64).min(usual * *count as f64).max(*count as f64);
        self.answers.iter().skip(1).map(of).sum()
    }

    /// A sequence's tokens, and how many it may still sample.
    fn lengths(sequence: &Sequence) -> (u64, u64) {
        let tokens = sequence.tokens.len();
        (tokens as u64, (sequence.max_tokens - tokens) as u64)
    }

    fn context(tokens: u64) -> u128 {
        let tokens = u128::from(tokens);
        tokens * (tokens + 1) / 2
    }

    fn bits(answer: u64) -> usize {
        (u64::BITS - answer.leading_zeros()) as usize
    }
}
