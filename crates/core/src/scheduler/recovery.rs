//! Recovery from failed steps: the limits of a step, and the suspected sequences.
//!
//! Invariant: between two failures, limits only grow after a number of good steps that doubles with each failure. So
//! a machine that cannot run such steps loses less and less time to trying.

use std::collections::BTreeSet;

use super::in_flight::{InFlightSequence, InFlightStep};
use crate::request::SequenceId;
use crate::settings::StepLimits;

/// Good steps before limits are doubled, without recent failures.
const BACKOFF_MIN: u32 = 8;
/// Good steps before limits are doubled, after any number of failures.
const BACKOFF_MAX: u32 = 4096;

/// Limits and suspects after failed steps.
#[derive(Debug, Clone)]
pub(super) struct Recovery {
    full: StepLimits,
    limits: StepLimits,
    /// A step of this many tokens is not made smaller.
    floor_tokens: usize,
    /// Sequences that were in a failed step, and in no good one since. They wait.
    suspects: BTreeSet<SequenceId>,
    /// The sequence that failed alone in the smallest step, and was in no good one since.
    failed_alone: Option<SequenceId>,
    /// Good steps since the limits last changed.
    good_steps: u32,
    backoff: u32,
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
            failed_alone: None,
            good_steps: 0,
            backoff: BACKOFF_MIN,
        }
    }

    /// The limits of the next step.
    pub(super) fn limits(&self) -> StepLimits {
        self.limits
    }

    /// True while there are suspects.
    pub(super) fn is_on(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Number of suspects.
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
        self.failed_alone = self.failed_alone.filter(|failed_alone| *failed_alone != id);
    }

    /// Records steps that failed together. `is_left`: whether a sequence has not ended; `is_span`: whether a part of a step
    /// is one span. Returns the faulty sequence, if that is proven: one that fails alone, in the smallest step, twice in a
    /// row.
    pub(super) fn failed(
        &mut self,
        steps: &[InFlightStep],
        is_left: impl Fn(SequenceId) -> bool,
        is_span: impl Fn(&InFlightSequence) -> bool,
    ) -> Option<SequenceId> {
        let involved: BTreeSet<_> = steps.iter().flat_map(|step| &step.sequences).map(|of| of.id).collect();
        let tokens = steps.iter().map(|step| step.tokens).max()?;
        let sequences = steps.iter().map(|step| step.sequences.len()).max()?;
        let is_smallest =
            |step: &InFlightStep| step.tokens <= self.floor_tokens || step.sequences.iter().all(&is_span);
        let smallest = involved.len() == 1 && steps.iter().all(is_smallest);
        let failed_alone = if smallest { involved.first().copied() } else { None };
        let faulty = failed_alone.filter(|_| self.failed_alone == failed_alone);
        self.failed_alone = failed_alone;
        self.suspects.extend(involved.into_iter().filter(|id| is_left(*id)));
        self.limits = StepLimits {
            sequences: (sequences.min(self.limits.sequences) / 2).max(1),
            tokens: (tokens.min(self.limits.tokens) / 2).max(self.floor_tokens),
        };
        self.good_steps = 0;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        faulty
    }

    /// Records a good step.
    pub(super) fn succeeded(&mut self, sequences: impl Iterator<Item = SequenceId>) {
        sequences.for_each(|id| self.forget(id));
        if self.is_on() {
            return;
        }
        self.good_steps = self.good_steps.saturating_add(1);
        if self.good_steps < self.backoff {
            return;
        }
        self.good_steps = 0;
        if self.limits == self.full {
            self.backoff = BACKOFF_MIN;
        }
        self.limits = StepLimits {
            sequences: (self.limits.sequences * 2).min(self.full.sequences),
            tokens: (self.limits.tokens * 2).min(self.full.tokens),
        };
    }
}
