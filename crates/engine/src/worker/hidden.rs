//! Hidden states of prompts, where they were requested.

use mlx::{Array, Dtype};
use omnibus_core::SequenceId;
use omnibus_model::{HiddenPlace, HiddenRows};

use super::step_input::ReportedRows;
use crate::hidden::HiddenStates;
use crate::message::JobUpdate;

/// Most bytes of one report, unless one position has more.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// What a pass has to give for these rows; `None` without any.
pub(super) fn requested(rows: &[ReportedRows]) -> Option<HiddenRows> {
    let all = rows.iter().flat_map(|rows| rows.first..rows.first + rows.len).collect();
    (!rows.is_empty()).then(|| HiddenRows { rows: all, places: vec![HiddenPlace::FinalNorm] })
}

/// Hidden states of one sequence's rows in one step, not yet read.
pub(super) struct PendingHidden {
    pub(super) sequence: SequenceId,
    position: usize,
    /// `[rows, width]` f32
    states: Array,
}

impl PendingHidden {
    /// Hidden states of all `rows`, in order. `hidden`: what the pass gave for them, `[n, width]`.
    pub(super) fn of(rows: &[ReportedRows], hidden: &Array) -> mlx::Result<Vec<Self>> {
        let [_, width] = hidden.dims()?;
        let mut from = 0;
        let one = |rows: &ReportedRows| {
            let to = from + rows.len as i32;
            let states = hidden.slice(&[from, 0], &[to, width])?.astype(Dtype::F32)?;
            from = to;
            Ok(Self { sequence: rows.sequence, position: rows.position, states })
        };
        rows.iter().map(one).collect()
    }

    pub(super) fn array(&self) -> &Array {
        &self.states
    }

    /// Waits, and returns updates with some positions each.
    pub(super) fn read(&self) -> mlx::Result<Vec<JobUpdate>> {
        let [_, width] = self.states.dims()?;
        let width = width as usize;
        let positions = (REPORT_BYTES_MAX / size_of::<f32>() / width.max(1)).max(1);
        let values = self.states.to_vec::<f32>()?;
        let chunks = values.chunks(positions * width.max(1)).enumerate();
        let update = |(index, values): (usize, &[f32])| {
            let first = self.position + index * positions;
            JobUpdate::Hidden(HiddenStates { first, width, values: values.to_vec() })
        };
        Ok(chunks.map(update).collect())
    }
}
