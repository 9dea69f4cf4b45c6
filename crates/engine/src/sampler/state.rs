//! What sampling keeps of each sequence, and how the loop changes it.

use omnibus_core::SequenceId;
use omnibus_grammar::TokenMask;
use serde::{Deserialize, Serialize};

use super::adjustments::LogitAdjustments;
use crate::Sampling;

/// Changes of the sequences' sampling state since the last step. Applied in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SamplingChanges {
    /// Sequences that have ended.
    pub(crate) removed: Vec<SequenceId>,
    /// New sequences.
    pub(crate) added: Vec<NewSequence>,
    /// Tokens added to known sequences, in order.
    pub(crate) appended: Vec<(SequenceId, Vec<u32>)>,
    /// The tokens that sequences with a grammar may sample in the step at hand.
    pub(crate) masks: Vec<(SequenceId, TokenMask)>,
}

/// A sequence that the runner does not know yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewSequence {
    pub(crate) sequence: SequenceId,
    /// Its parameters; the seed is set.
    pub(crate) sampling: Sampling,
    /// As in [`crate::Request::logprobs`].
    pub(crate) logprobs: Option<usize>,
    /// Its prompt and the answer so far.
    pub(crate) tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub(crate) prompt: usize,
}

/// What sampling keeps of one sequence.
pub(super) struct SequenceState {
    sequence: SequenceId,
    pub(super) sampling: Sampling,
    pub(super) logprobs: Option<usize>,
    pub(super) adjustments: LogitAdjustments,
    /// Its update panicked: its rows yield no token.
    pub(super) failed: bool,
}

impl SequenceState {
    pub(super) fn new(new: &NewSequence) -> Self {
        let adjustments = LogitAdjustments::new(&new.sampling);
        let (sampling, logprobs) = (new.sampling.clone(), new.logprobs);
        let sequence = new.sequence;
        let mut state = Self { sequence, sampling, logprobs, adjustments, failed: false };
        state.update(|state| state.adjustments.start(&new.tokens, new.prompt));
        state
    }

    /// The sequence has got these tokens.
    pub(super) fn append(&mut self, tokens: &[u32]) {
        self.update(|state| tokens.iter().for_each(|token| state.adjustments.push(*token)));
    }

    /// Changes the state. A panic fails this sequence alone: no other shares its state.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut Self)) {
        if let Err(panic) = omnibus_text::catch_panic(|| change(self)) {
            tracing::error!(%panic, sequence = self.sequence.0, "a sequence's sampling state failed");
            self.failed = true;
        }
    }
}
