//! Steps that were launched and not read.

use std::collections::BTreeSet;
use std::time::Instant;

use omnibus_core::{PlanId, SequenceId, Tick};
use omnibus_power::Row;

use crate::step_record::StepRecord;

/// A sequence that a step samples, and its draft tokens.
pub(super) type SampledSequence = (SequenceId, Vec<u32>);

/// A step that was launched and not read.
pub(super) struct InFlightStep {
    pub(super) plan: PlanId,
    /// Sequences that are sampled, in order. Each has one row more than draft tokens.
    pub(super) samples: Vec<SampledSequence>,
    /// Sampled sequences whose token is known by now, because it was forced.
    pub(super) superseded: BTreeSet<SequenceId>,
    pub(super) tokens: usize,
    /// What its sequences compute, where energy is counted.
    pub(super) rows: Vec<Row<SequenceId>>,
    /// What it computes, where a client looks.
    pub(super) record: Option<StepRecord>,
    pub(super) sampling: StepSampling,
    pub(super) started: Instant,
    /// How long the device is expected to compute draft tokens that are read with it.
    pub(super) drafting: Option<Tick>,
}

/// Whether the sampling of a step is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepSampling {
    /// It waits for tokens of the step before.
    Deferred,
    Launched,
}

impl InFlightStep {
    pub(super) fn is_deferred(&self) -> bool {
        self.sampling == StepSampling::Deferred
    }

    /// Draft tokens that it verified are known.
    pub(super) fn take_drafts(&mut self, drafts: Vec<SampledSequence>) {
        for (sequence, tokens) in drafts {
            let of = self.samples.iter_mut().find(|(sampled, _)| *sampled == sequence);
            if let Some((_, known)) = of
                && known.len() == tokens.len()
            {
                *known = tokens;
            }
        }
    }

    /// The first row of a sampled sequence.
    pub(super) fn row_of(&self, sample: usize) -> usize {
        self.samples.iter().take(sample).map(|(_, drafts)| 1 + drafts.len()).sum()
    }
}
