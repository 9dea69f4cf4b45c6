//! Logits of some tokens behind a prompt, where they were requested.

use mlx::{Array, Dtype};
use omnibus_core::SequenceId;

use super::step_input::TokenLogitRow;
use crate::message::JobUpdate;
use crate::token_logits::TokenLogits;

/// Logits of one sequence in one step, not yet read.
pub(super) struct PendingTokenLogits {
    pub(super) sequence: SequenceId,
    /// `[tokens + 1]` f32: the last is the logarithm of the sum of the exponentials of all logits.
    logits: Array,
}

impl PendingTokenLogits {
    /// `logits`: `[n, vocab]` f32 of the whole step.
    pub(super) fn new(logits: &Array, row: &TokenLogitRow) -> mlx::Result<Self> {
        let [_, vocab] = logits.dims()?;
        let (start, count) = (row.logits as i32, row.tokens.len() as i32);
        let tokens: Vec<i32> = row.tokens.iter().map(|token| *token as i32).collect();
        let of_row = logits.slice(&[start, 0], &[start + 1, vocab])?.reshape(&[vocab])?;
        let of_tokens = of_row.take(&Array::from_slice(&tokens, &[count])?, 0)?.astype(Dtype::F32)?;
        let log_sum = of_row.astype(Dtype::F32)?.logsumexp(&[-1])?.reshape(&[1])?;
        Ok(Self { sequence: row.sequence, logits: mlx::concatenate(&[&of_tokens, &log_sum], 0)? })
    }

    pub(super) fn array(&self) -> &Array {
        &self.logits
    }

    /// Waits.
    pub(super) fn read(&self) -> mlx::Result<JobUpdate> {
        let mut logits = self.logits.to_vec::<f32>()?;
        let log_sum = logits.pop().unwrap_or(f32::NAN);
        Ok(JobUpdate::TokenLogits(TokenLogits { logits, log_sum }))
    }
}
