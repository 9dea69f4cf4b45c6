//! What tokens of a prompt attend to in a sound, where that was requested.

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_model::{CrossHead, CrossWeights};

use super::step_input::AlignedRows;
use crate::alignment::AlignedTokens;
use crate::message::JobUpdate;

/// Weights of one sequence's rows in one step, not yet read.
pub(super) struct PendingAlignment {
    pub(super) sequence: SequenceId,
    first: usize,
    /// `[heads, rows, frames]` f32
    weights: Array,
}

impl PendingAlignment {
    /// `weights`: those of a pass that is built.
    pub(super) fn new(rows: &AlignedRows, weights: &CrossWeights) -> mlx::Result<Self> {
        Ok(Self { sequence: rows.sequence, first: rows.first, weights: weights.take()? })
    }

    pub(super) fn array(&self) -> &Array {
        &self.weights
    }

    /// Waits, and returns the update with the weights.
    pub(super) fn read(&self) -> mlx::Result<JobUpdate> {
        let weights = self.weights.to_vec::<f32>()?;
        Ok(JobUpdate::Alignment(AlignedTokens { first: self.first, weights }))
    }
}

/// Where a pass leaves the weights of these rows.
pub(super) fn collector(rows: &AlignedRows) -> CrossWeights {
    let heads = rows.alignment.heads.iter().map(|(layer, head)| CrossHead { layer: *layer, head: *head });
    CrossWeights::new(heads.collect(), rows.alignment.frames)
}
