//! What is remembered of failed steps: how much a step may do, and who is suspected.
//!
//! Invariant: between two failures, limits only grow after a number of good steps that doubles with each failure. So
//! a machine that cannot do what it is told loses less and less time to trying.

use std::collections::{BTreeSet, VecDeque};

use super::Flight;
use crate::{SequenceId, StepLimits};

/// Good steps before limits are doubled, if there was no failure for long.
const PATIENCE_MIN: u32 = 8;
/// However often steps failed.
const PATIENCE_MAX: u32 = 4096;

/// What is remembered of failed steps.
#[derive(Debug, Clone)]
pub(super) struct Recovery {
    full: StepLimits,
    limits: StepLimits,
    /// A step of so few tokens is not made smaller.
    floor_tokens: usize,
    /// Were in a failed step, and not in a good one since. They wait.
    suspects: BTreeSet<SequenceId>,
    /// Failed alone in the smallest step, and was in no good one since.
    struck: Option<SequenceId>,
    /// Good steps since the limits last changed.
    calm: u32,
    patience: u32,
}

impl Recovery {
    /// Nothing has failed.
    pub(super) fn new(full: StepLimits, block_size: usize) -> Self {
        let floor_tokens = block_size.min(full.tokens);
        Self {
            full,
            limits: full,
            floor_tokens,
            suspects: BTreeSet::new(),
            struck: None,
            calm: 0,
            patience: PATIENCE_MIN,
        }
    }

    /// The most the next step may do.
    pub(super) fn limits(&self) -> StepLimits {
        self.limits
    }

    /// True while there are suspects.
    pub(super) fn is_on(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// How many are suspected.
    pub(super) fn suspects(&self) -> usize {
        self.suspects.len()
    }

    /// True for a suspect.
    pub(super) fn is_suspect(&self, id: SequenceId) -> bool {
        self.suspects.contains(&id)
    }

    /// The sequence has ended.
    pub(super) fn forget(&mut self, id: SequenceId) {
        self.suspects.remove(&id);
        self.struck = self.struck.filter(|struck| *struck != id);
    }

    /// Takes note of steps that failed together. Says who is to blame, if that is proven: who fails alone, in the
    /// smallest step, twice in a row.
    pub(super) fn failed(
        &mut self,
        flights: &VecDeque<Flight>,
        is_there: impl Fn(SequenceId) -> bool,
    ) -> Option<SequenceId> {
        let involved: BTreeSet<_> = flights.iter().flat_map(Flight::sequences).collect();
        let tokens = flights.iter().map(|flight| flight.tokens).max()?;
        let sequences = flights.iter().map(|flight| flight.works.len()).max()?;
        let smallest = involved.len() == 1 && tokens <= self.floor_tokens;
        let struck = if smallest { involved.first().copied() } else { None };
        let culprit = struck.filter(|_| self.struck == struck);
        self.struck = struck;
        self.suspects.extend(involved.into_iter().filter(|id| is_there(*id)));
        self.limits = StepLimits {
            sequences: (sequences.min(self.limits.sequences) / 2).max(1),
            tokens: (tokens.min(self.limits.tokens) / 2).max(self.floor_tokens),
        };
        self.calm = 0;
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        culprit
    }

    /// Takes note of a good step.
    pub(super) fn succeeded(&mut self, sequences: impl Iterator<Item = SequenceId>) {
        sequences.for_each(|id| self.forget(id));
        if self.is_on() {
            return;
        }
        self.calm = self.calm.saturating_add(1);
        if self.calm < self.patience {
            return;
        }
        self.calm = 0;
        if self.limits == self.full {
            self.patience = PATIENCE_MIN;
        }
        self.limits = StepLimits {
            sequences: (self.limits.sequences * 2).min(self.full.sequences),
            tokens: (self.limits.tokens * 2).min(self.full.tokens),
        };
    }
}
