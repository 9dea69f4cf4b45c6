//! Speculative decoding: draft tokens, and which of them are accepted.
//!
//! Invariant: a draft token is accepted only if it equals the token that is sampled at its position. A sampled token
//! depends on seed, position and logits alone, so the output has the same bits with any proposer and with none.

mod ngram;

use mlx::device::Device;
use omnibus_core::{AcceptedTokens, DraftKind, SequenceId};

use crate::message::TokenLogprobs;
use crate::settings::Settings;
use crate::speculation::DraftSource;
use ngram::NgramProposer;

/// Proposes draft tokens.
pub(super) trait Proposer: Send {
    /// Tokens that may follow those of a sequence.
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal;

    /// A sequence has ended.
    fn remove(&mut self, sequence: SequenceId);

    /// All sequences are gone. Their numbers will be those of others.
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Proposal {
    pub(super) tokens: Vec<u32>,
    pub(super) kind: DraftKind,
}

/// The proposer that the settings name, for a model on a device.
pub(super) fn proposer_of(settings: &Settings, device: Device) -> Option<Box<dyn Proposer>> {
    match (settings.speculation.source, device) {
        (DraftSource::Off, _) | (DraftSource::Auto, Device::Gpu) => None,
        (DraftSource::Auto, Device::Cpu) | (DraftSource::Ngram, _) => {
            Some(Box::new(NgramProposer::default()))
        }
    }
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
