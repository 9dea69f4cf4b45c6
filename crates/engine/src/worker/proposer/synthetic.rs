//! Draft tokens that mean nothing, for benchmarks that decide by chance which are accepted: they stand for those of any
//! proposer that takes no time.

use omnibus_core::random::nth;
use omnibus_core::{DraftKind, SequenceId};

use super::{DraftContext, DraftTokens, Proposal, Proposer};

/// Proposes tokens of the sequence itself, from other places in each step.
pub(super) struct SyntheticProposer;

impl Proposer for SyntheticProposer {
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal {
        let known = context.tokens;
        let numbers = (known.len()..).take(context.most).map(|at| nth(context.sequence.0, at as u64));
        let tokens = numbers.filter_map(|number| known.get(number as usize % known.len().max(1)).copied());
        Proposal { tokens: DraftTokens::Known(tokens.collect()), kind: DraftKind::default() }
    }

    fn remove(&mut self, _: SequenceId) {}

    fn clear(&mut self) {}
}
