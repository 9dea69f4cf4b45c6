//! What a policy remembers from plan to plan.

use super::sequences::Sequences;
use super::split;
use crate::plan::Plan;
use crate::request::SequenceId;
use crate::sequence::Stage;

/// What a policy remembers from plan to plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyState {
    /// The last sequence of the newest batch, under `static`.
    pub(super) batch: Option<SequenceId>,
    /// The stage of the next step, under `split`.
    pub(super) next_stage: Stage,
    /// Time that offline sequences may take beside online ones, under `fair`, in microseconds.
    pub(super) spare_us: f64,
}

impl Default for PolicyState {
    fn default() -> Self {
        Self { batch: None, next_stage: Stage::Prefill, spare_us: 0.0 }
    }
}

impl PolicyState {
    /// A plan opens a batch, if it does.
    pub(super) fn open_batch(&mut self, plan: &Plan) {
        self.batch = plan.batch.or(self.batch);
    }

    /// The step of a plan is launched.
    pub(super) fn launch(&mut self, plan: &Plan, sequences: &Sequences) {
        self.next_stage = split::stage_after(plan, sequences, self.next_stage);
    }
}
