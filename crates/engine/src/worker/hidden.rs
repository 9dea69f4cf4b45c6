//! Hidden states of a pass: of prompts, where they were requested, and those that a draft head reads.

use mlx::{Array, Dtype};
use omnibus_core::SequenceId;
use omnibus_model::{HiddenPlace, HiddenRows, Model};

use super::step_input::{InputSegment, ReportedRows, RowReport, StepInput};
use crate::hidden::HiddenStates;
use crate::message::JobUpdate;

/// Most bytes of one report, unless one position has more.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// What a pass has to give: rows that are reported, then those that a draft head reads.
pub(super) struct HiddenRequest<'a> {
    reported: &'a [ReportedRows],
    /// Of each sequence whose states are kept: its rows, and the position of the first.
    kept: Vec<(&'a InputSegment, usize)>,
    /// Where a draft head reads.
    places: &'a [HiddenPlace],
}

/// Hidden states of a step that a draft head reads later.
pub(super) struct KeptStates {
    /// `[n, width]`: those of all places, one beside the other.
    pub(super) states: Array,
    pub(super) of: Vec<KeptRows>,
}

/// Which of a step's kept states are those of a sequence's positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeptRows {
    pub(super) sequence: SequenceId,
    /// Position of the first.
    pub(super) position: usize,
    /// Its row.
    pub(super) row: usize,
    /// How many.
    pub(super) len: usize,
}

impl<'a> HiddenRequest<'a> {
    /// What a step has to give, where a draft head reads at these places.
    pub(super) fn of(input: &'a StepInput, places: &'a [HiddenPlace]) -> Self {
        let kept = input.segments.iter().filter(|segment| segment.keeps_states && !places.is_empty());
        let mut next: usize = input.hidden.iter().map(|rows| rows.len).sum();
        let mut place = |segment: &'a InputSegment| {
            let first = next;
            next += segment.len;
            (segment, first)
        };
        Self { reported: &input.hidden, kept: kept.map(&mut place).collect(), places }
    }

    /// `None` without any rows.
    pub(super) fn rows(&self) -> Option<HiddenRows> {
        let reported = self.reported.iter().map(|rows| (rows.first, rows.len));
        let kept = self.kept.iter().map(|(segment, _)| (segment.first, segment.len));
        let rows: Vec<usize> = reported.chain(kept).flat_map(|(first, len)| first..first + len).collect();
        let mut places = if self.kept.is_empty() { Vec::new() } else { self.places.to_vec() };
        if !self.reported.is_empty() && !places.contains(&HiddenPlace::FinalNorm) {
            places.push(HiddenPlace::FinalNorm);
        }
        (!rows.is_empty()).then_some(HiddenRows { rows, places })
    }

    /// What is reported. `hidden`: what the pass gave.
    pub(super) fn reported(&self, hidden: &[Array], model: &Model) -> mlx::Result<Vec<PendingHidden>> {
        if self.reported.is_empty() {
            return Ok(Vec::new());
        }
        let places = self.rows().map(|rows| rows.places).unwrap_or_default();
        let norm = places.iter().position(|place| *place == HiddenPlace::FinalNorm);
        let states = norm.and_then(|norm| hidden.get(norm));
        let states = states.ok_or_else(|| mlx::Error::new("states of the final norm"))?;
        PendingHidden::of(self.reported, states, |states| {
            let logits = model.largest_masked_logits(states)?;
            logits.ok_or_else(|| mlx::Error::new("a network with the head of a masked language model"))
        })
    }

    /// What a draft head reads. `hidden`: what the pass gave.
    pub(super) fn kept(&self, hidden: &[Array]) -> mlx::Result<Option<KeptStates>> {
        if self.kept.is_empty() {
            return Ok(None);
        }
        let places =
            hidden.get(..self.places.len()).ok_or_else(|| mlx::Error::new("states of all places"))?;
        let states = match places {
            [one] => one.clone(),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), -1)?,
        };
        let of_segment = |(segment, row): &(&InputSegment, usize)| KeptRows {
            sequence: segment.sequence,
            position: segment.context,
            row: *row,
            len: segment.len,
        };
        Ok(Some(KeptStates { states, of: self.kept.iter().map(of_segment).collect() }))
    }
}

/// Hidden states of one sequence's rows in one step, not yet read.
pub(super) struct PendingHidden {
    pub(super) sequence: SequenceId,
    position: usize,
    /// `[rows, width]` f32, or the largest logits, `[1, vocab]`
    states: Array,
}

impl PendingHidden {
    /// Reports of all `rows`, in order. `hidden`: what the pass gave for them, `[n, width]`; `largest_logits`: see
    /// [`Model::largest_masked_logits`].
    pub(super) fn of(
        rows: &[ReportedRows],
        hidden: &Array,
        largest_logits: impl Fn(&Array) -> mlx::Result<Array>,
    ) -> mlx::Result<Vec<Self>> {
        let [_, width] = hidden.dims()?;
        let mut from = 0;
        let one = |rows: &ReportedRows| {
            let to = from + rows.len as i32;
            let states = hidden.slice(&[from, 0], &[to, width])?;
            from = to;
            let (position, states) = match rows.report {
                RowReport::States => (rows.position, states),
                RowReport::LargestLogits => (0, largest_logits(&states)?),
            };
            Ok(Self { sequence: rows.sequence, position, states: states.astype(Dtype::F32)? })
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
