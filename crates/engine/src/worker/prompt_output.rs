//! What is reported of a prompt's tokens, beside the tokens that are sampled.

use mlx::Array;
use omnibus_core::SequenceId;

use super::alignment::PendingAlignment;
use super::hidden::PendingHidden;
use super::prompt_logprobs::PromptLogprobs;
use super::token_logits::PendingTokenLogits;
use crate::message::JobUpdate;

/// Of one sequence's rows in one step, not yet read.
pub(super) enum PromptOutput {
    Logprobs(PromptLogprobs),
    Alignment(PendingAlignment),
    Hidden(PendingHidden),
    TokenLogits(PendingTokenLogits),
}

impl PromptOutput {
    pub(super) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Logprobs(logprobs) => logprobs.arrays().collect(),
            Self::Alignment(alignment) => vec![alignment.array()],
            Self::Hidden(hidden) => vec![hidden.array()],
            Self::TokenLogits(logits) => vec![logits.array()],
        }
    }

    /// Waits, and returns the updates of the sequence.
    pub(super) fn read(&self) -> mlx::Result<Vec<(SequenceId, JobUpdate)>> {
        let (sequence, updates) = match self {
            Self::Logprobs(logprobs) => (logprobs.sequence, vec![logprobs.read()?]),
            Self::Alignment(alignment) => (alignment.sequence, vec![alignment.read()?]),
            Self::Hidden(hidden) => (hidden.sequence, hidden.read()?),
            Self::TokenLogits(logits) => (logits.sequence, vec![logits.read()?]),
        };
        Ok(updates.into_iter().map(|update| (sequence, update)).collect())
    }
}
