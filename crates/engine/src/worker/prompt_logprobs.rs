//! Log-probabilities of prompt tokens, where they were requested.

use mlx::Array;
use omnibus_core::SequenceId;

use super::step_input::PromptRows;
use crate::message::{JobUpdate, TokenLogprobs};
use crate::sampler::PendingLogprobs;

/// Log-probabilities of one prompt's rows in one step, not yet read.
pub(super) struct PromptLogprobs {
    pub(super) sequence: SequenceId,
    first: usize,
    next: Vec<u32>,
    top: usize,
    logprobs: PendingLogprobs,
}

impl PromptLogprobs {
    /// `logits`: `[n, vocab]` f32 of the whole step.
    pub(super) fn new(logits: &Array, rows: &PromptRows) -> mlx::Result<Self> {
        let [_, vocab] = logits.dims()?;
        let (start, count) = (rows.logits as i32, rows.next.len() as i32);
        let logits = logits.slice(&[start, 0], &[start + count, vocab])?;
        let next: Vec<i32> = rows.next.iter().map(|token| *token as i32).collect();
        let logprobs = PendingLogprobs::new(&logits, &Array::from_slice(&next, &[count])?, rows.top, &[])?;
        Ok(Self {
            sequence: rows.sequence,
            first: rows.first,
            next: rows.next.clone(),
            top: rows.top,
            logprobs,
        })
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.logprobs.arrays()
    }

    /// Waits, and returns the update with the prompt's tokens.
    pub(super) fn read(&self) -> mlx::Result<JobUpdate> {
        let scores = self.logprobs.read()?;
        let tokens = self.next.iter().zip(scores).map(|(token, score)| TokenLogprobs {
            token: *token,
            logprob: score.logprob,
            top: score.top.into_iter().take(self.top).collect(),
        });
        Ok(JobUpdate::Prompt { first: self.first, tokens: tokens.collect() })
    }
}
