//! The steps in flight: what they compute, and when they begin and end on the device, estimated from the times that the
//! scheduler is given.
//!
//! Invariant: reads no clock, and a given time may jump.

use std::collections::VecDeque;
use std::ops::Range;

use crate::cost::StepLoad;
use crate::plan::{Plan, PlanId, ScheduledSequence};
use crate::request::{SequenceId, Tick};

/// Steps that may be in flight at once: one computes while the next is built.
const IN_FLIGHT_MAX: usize = 2;

/// Plans that were applied and not committed, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct StepsInFlight {
    steps: VecDeque<InFlightStep>,
    /// When the last step that was committed had ended.
    ended: Tick,
}

/// A plan that was applied and not committed.
#[derive(Debug, Clone)]
pub(super) struct InFlightStep {
    pub(super) id: PlanId,
    pub(super) tokens: usize,
    pub(super) load: StepLoad,
    pub(super) sequences: Vec<InFlightSequence>,
    launched: Tick,
    /// How long it was expected to take.
    expected: Tick,
    /// How long it would take without its offline sequences, in microseconds, if there are such sequences and online ones.
    pub(super) online_us: Option<f64>,
}

/// One sequence of a step in flight.
#[derive(Debug, Clone)]
pub(super) struct InFlightSequence {
    pub(super) id: SequenceId,
    /// The first position.
    pub(super) start: usize,
    /// One past the last position, draft tokens included.
    pub(super) end: usize,
    pub(super) samples: usize,
}

impl InFlightSequence {
    fn of(scheduled: &ScheduledSequence) -> Self {
        let Range { start, end } = scheduled.positions;
        Self { id: scheduled.sequence, start, end, samples: scheduled.samples }
    }
}

impl StepsInFlight {
    /// Number of steps.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// True when no further step may be launched.
    pub(super) fn is_full(&self) -> bool {
        self.steps.len() >= IN_FLIGHT_MAX
    }

    /// When a step that is launched now will begin.
    pub(super) fn next_begins(&self, now: Tick) -> Tick {
        let end = |ended: Tick, step: &InFlightStep| ended.max(step.launched).saturating_add(step.expected);
        self.steps.iter().fold(self.ended.min(now), end).max(now)
    }

    /// A step is launched.
    pub(super) fn launch(
        &mut self,
        plan: &Plan,
        load: StepLoad,
        (expected_us, online_us): (f64, Option<f64>),
    ) {
        assert!(!self.is_full(), "at most {IN_FLIGHT_MAX} steps are in flight");
        // A committed step has ended, even if the given time has jumped back since.
        self.ended = self.ended.min(plan.at);
        self.steps.push_back(InFlightStep {
            id: plan.id,
            tokens: plan.tokens(),
            load,
            sequences: plan.scheduled.iter().map(InFlightSequence::of).collect(),
            launched: plan.at,
            expected: expected_us as Tick,
            online_us,
        });
    }

    /// Takes the oldest step, which has ended. When that was, as far as is known; the next one begins then.
    pub(super) fn finish(&mut self, plan: PlanId, took: Option<Tick>) -> Option<(InFlightStep, Tick)> {
        let step = self.steps.pop_front();
        let oldest = step.as_ref().map(|step| step.id);
        assert_eq!(oldest, Some(plan), "the oldest plan in flight is committed first");
        let step = step?;
        self.ended = self.ended.max(step.launched).saturating_add(took.unwrap_or(step.expected));
        Some((step, self.ended))
    }

    /// Takes all steps, which have failed.
    pub(super) fn fail(&mut self) -> Vec<InFlightStep> {
        std::mem::take(&mut self.steps).into()
    }

    /// In how many steps a sequence is.
    pub(super) fn count(&self, id: SequenceId) -> usize {
        let sequences = self.steps.iter().flat_map(|step| &step.sequences);
        sequences.filter(|sequence| sequence.id == id).count()
    }

    /// Panics if more steps are in flight than may be.
    pub(super) fn audit(&self) {
        assert!(self.steps.len() <= IN_FLIGHT_MAX, "too many steps are in flight");
    }
}
