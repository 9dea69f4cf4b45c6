//! Speculative decoding: draft tokens, and which of them are accepted.
//!
//! Invariant: a draft token is accepted only if it equals the token that is sampled at its position. A sampled token
//! depends on seed, position and logits alone, so the output has the same bits with any proposer and with none.

mod model;
mod ngram;
mod synthetic;

use std::ops::Range;

use omnibus_core::{AcceptedTokens, DraftKind, DraftLoad, SequenceId};
use omnibus_kv::BlockTable;

use super::device_call::DraftRead;
use super::device_client::DeviceClient;
use super::drafting::{DraftReads, LoadedDrafter};
use super::step_input::RowDrafts;
use crate::message::TokenLogprobs;
use crate::settings::Settings;
use crate::speculation::{DraftOutcome, DraftSource};
use model::ModelProposer;
use ngram::NgramProposer;
use synthetic::SyntheticProposer;

/// Proposes draft tokens.
pub(super) trait Proposer: Send {
    /// Tokens that may follow those of a sequence.
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal;

    /// Computes the draft tokens that were promised, as many as are verified: for each sequence as many or none. All sequences
    /// of the step are given, those without a promise, too. `read`: when the tokens have to be known at the latest.
    fn compute(&mut self, _: &[Promised<'_>], _: DraftRead, _: &mut DeviceClient) -> mlx::Result<Computed> {
        Ok(Computed::default())
    }

    /// Whether the device keeps the hidden states of the step that was computed for last.
    fn keeps_states(&self) -> bool {
        false
    }

    /// A sequence has ended.
    fn remove(&mut self, sequence: SequenceId);

    /// All sequences and the KV cache are gone. Their numbers may be those of others.
    fn clear(&mut self);
}

/// What draft tokens follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct DraftContext<'a> {
    pub(super) sequence: SequenceId,
    /// Its prompt and the answer so far.
    pub(super) tokens: &'a [u32],
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Only sequences of equal salt and adapter may see each other's answers.
    pub(super) salt: (u128, u128),
    /// What the client expects of the answer.
    pub(super) prediction: &'a [u32],
    /// Most draft tokens.
    pub(super) most: usize,
}

/// Draft tokens of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) tokens: DraftTokens,
    pub(super) kind: DraftKind,
}

/// The draft tokens of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DraftTokens {
    Known(Vec<u32>),
    /// At most so many, which are computed once the step that verifies them is planned.
    Promised(usize),
}

impl DraftTokens {
    /// How many.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Known(tokens) => tokens.len(),
            Self::Promised(count) => *count,
        }
    }
}

/// A sequence of a planned step, and the draft tokens that it verifies and that were promised.
#[derive(Debug, Clone)]
pub(super) struct Promised<'a> {
    pub(super) sequence: SequenceId,
    /// Its prompt and the answer so far.
    pub(super) tokens: &'a [u32],
    /// Positions that the step computes, those of draft tokens included.
    pub(super) planned: Range<usize>,
    /// Whether its prompt is computed.
    pub(super) is_decode: bool,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Its blocks in the layer group that has all positions, those of draft tokens included.
    pub(super) table: &'a BlockTable,
    /// How many.
    pub(super) count: usize,
}

/// A network that drafts.
#[derive(Debug, Clone, Copy)]
pub(super) struct DraftNetwork {
    /// Its longest sequence.
    pub(super) context: usize,
    /// Most draft tokens that it can give at once.
    pub(super) most: usize,
    pub(super) reads: DraftReads,
}

impl DraftNetwork {
    /// One that was loaded.
    pub(super) fn of(draft: &LoadedDrafter) -> Self {
        Self { context: draft.context(), most: draft.most(), reads: draft.reads() }
    }
}

/// The proposers that the settings name.
pub(super) fn proposers_of(settings: &Settings, draft: Option<DraftNetwork>) -> Vec<Box<dyn Proposer>> {
    let ngram = || -> Box<dyn Proposer> {
        match settings.speculation.outcome {
            DraftOutcome::Synthetic(_) => Box::new(SyntheticProposer),
            DraftOutcome::Sampled | DraftOutcome::Recorded => Box::new(NgramProposer::default()),
        }
    };
    let model = |network| -> Box<dyn Proposer> {
        Box::new(ModelProposer::new(settings.block_size, settings.step_tokens(), network))
    };
    match (settings.speculation.source, draft) {
        (DraftSource::Off, _) => Vec::new(),
        (DraftSource::Auto, Some(network)) => vec![ngram(), model(network)],
        (DraftSource::Auto, None) | (DraftSource::Ngram, _) => vec![ngram()],
        (DraftSource::Model | DraftSource::Mtp | DraftSource::Eagle3 | DraftSource::Dflash, network) => {
            network.map(model).into_iter().collect()
        }
    }
}

/// Draft tokens that were computed.
#[derive(Debug, Default)]
pub(super) struct Computed {
    /// Of each promise, in order.
    pub(super) drafts: Vec<RowDrafts>,
    /// What the draft model computed.
    pub(super) load: DraftLoad,
    /// Whether kernels or graphs were built for that.
    pub(super) built: bool,
}

/// What a step yields for one sequence.
pub(super) struct Verified {
    /// Draft tokens that were accepted, then the token sampled after them. `None` if that row failed.
    pub(super) tokens: Option<AcceptedTokens>,
    /// True if the last of them is an end token.
    pub(super) stops: bool,
}

/// Compares draft tokens with the sampled ones: one for the newest token, then one for each draft token.
pub(super) fn verify(drafts: &[u32], sampled: &[Option<TokenLogprobs>], stop_tokens: &[u32]) -> Verified {
    let mut tokens = AcceptedTokens::new();
    let mut drafts = drafts.iter();
    for row in sampled {
        // A row that failed after others were accepted is sampled again in the next step.
        let Some(token) = row.as_ref().map(|row| row.token) else { break };
        tokens.push(token);
        if stop_tokens.binary_search(&token).is_ok() {
            return Verified { tokens: Some(tokens), stops: true };
        }
        if drafts.next() != Some(&token) {
            break;
        }
    }
    Verified { tokens: (!tokens.is_empty()).then_some(tokens), stops: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(drafts: &[u32], sampled: &[Option<u32>], accepted: Option<&[u32]>, stops: bool) {
        let row = |token: u32| TokenLogprobs { token, logprob: None, top: Vec::new() };
        let sampled: Vec<Option<TokenLogprobs>> = sampled.iter().map(|token| token.map(row)).collect();
        let verified = verify(drafts, &sampled, &[9]);
        assert_eq!(verified.tokens.as_deref(), accepted, "{drafts:?}");
        assert_eq!(verified.stops, stops, "{drafts:?}");
    }

    #[test]
    fn draft_tokens_are_accepted_up_to_the_first_that_was_not_sampled() {
        check(&[], &[Some(1)], Some(&[1]), false);
        check(&[1, 2], &[Some(1), Some(2), Some(3)], Some(&[1, 2, 3]), false);
        check(&[1, 5], &[Some(1), Some(2), Some(3)], Some(&[1, 2]), false);
        check(&[5, 2], &[Some(1), Some(2), Some(3)], Some(&[1]), false);
    }

    #[test]
    fn nothing_follows_an_end_token() {
        check(&[1, 9, 3], &[Some(1), Some(9), Some(3), Some(4)], Some(&[1, 9]), true);
    }

    #[test]
    fn a_row_that_fails_fails_its_sequence_only_if_nothing_was_accepted() {
        check(&[1], &[None, Some(2)], None, false);
        check(&[1], &[Some(1), None], Some(&[1]), false);
    }
}
