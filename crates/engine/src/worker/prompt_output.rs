//! What is reported of a prompt's tokens, beside the tokens that are sampled.

use mlx::Array;
use omnibus_core::SequenceId;

use super::alignment::PendingAlignment;
use super::prompt_logprobs::PromptLogprobs;
use crate::message::JobUpdate;

/// Of one sequence's rows in one step, not yet read.
pub(super) enum PromptOutput {
    Logprobs(PromptLogprobs),
    Alignment(PendingAlignment),
}

impl PromptOutput {
    pub(super) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Logprobs(logprobs) => logprobs.arrays().collect(),
            Self::Alignment(alignment) => vec![alignment.array()],
        }
    }

    /// Waits, and returns the update of the sequence.
    pub(super) fn read(&self) -> mlx::Result<(SequenceId, JobUpdate)> {
        match self {
            Self::Logprobs(logprobs) => Ok((logprobs.sequence, logprobs.read()?)),
            Self::Alignment(alignment) => Ok((alignment.sequence, alignment.read()?)),
        }
    }
}
