//! Where recurrences find and leave the states of a pass's sequences.

use std::collections::BTreeMap;

use mlx::{Array, Dtype};

use super::Rows;
use super::step::{indices, order_of, table_of};
use crate::blocks::Kernels;
use crate::state::Pool;
use crate::{Batch, KvState, Segment};

/// Where one group's layers find and leave their states.
pub(crate) struct SlotStep {
    /// For the CPU kernels, `[n, 4]` i32: first row, rows, slot, and 1 where the sequence begins.
    pub(crate) segments: Array,
    /// For the reference path: sequences that advance together. Together they are all.
    runs: Vec<Run>,
    /// Slots in the order of the runs, `[n]` i32.
    slots: Array,
    /// Puts the runs' rows, end to end, back in the batch's order, `[T]` i32; `None` if they are.
    order: Option<Array>,
}

/// Sequences that advance by equally many rows in one computation.
pub(crate) struct Run {
    rows: Rows,
    /// The states where each layer begins, read before any is written: an array that is read and written
    /// by one graph would be copied whole.
    starts: BTreeMap<usize, [Array; 2]>,
}

impl Run {
    /// Its rows of `x`, `[T, width]` → `[n, len, width]`.
    pub(crate) fn rows(&self, x: &Array) -> mlx::Result<Array> {
        match &self.rows {
            Rows::Singles(rows) => x.take(rows, 0)?.expand_dims(&[1]),
            Rows::Chunk { first, len } => {
                x.slice(&[*first, 0], &[first + len, x.dim(-1)?])?.expand_dims(&[0])
            }
        }
    }
}

impl SlotStep {
    pub(super) fn new(
        batch: &Batch,
        rows: usize,
        group: usize,
        state: &KvState,
        kernels: Kernels,
    ) -> mlx::Result<Self> {
        let mut numbers = Vec::with_capacity(4 * batch.segments.len());
        for segment in &batch.segments {
            let fresh = i32::from(segment.context == 0);
            numbers.extend([segment.first as i32, segment.len as i32, slot(segment, group, state)?, fresh]);
        }
        let segments = Array::from_slice(&numbers, &[batch.segments.len() as i32, 4])?;
        let (runs, slots, order) = match kernels {
            Kernels::Cpu => (Vec::new(), Vec::new(), None),
            Kernels::Reference => {
                let (singles, chunks): (Vec<&Segment>, Vec<&Segment>) =
                    batch.segments.iter().partition(|segment| segment.len == 1);
                let slots = singles.iter().chain(&chunks).map(|segment| slot(segment, group, state));
                let slots = slots.collect::<mlx::Result<Vec<i32>>>()?;
                let mut runs = Vec::new();
                if !singles.is_empty() {
                    runs.push(run(&singles, group, state)?);
                }
                for segment in &chunks {
                    runs.push(run(&[segment], group, state)?);
                }
                mlx::eval(runs.iter().flat_map(|run| run.starts.values().flatten()))?;
                (runs, slots, order_of(singles.into_iter().chain(chunks), rows)?)
            }
        };
        Ok(Self { segments, runs, slots: indices(&slots)?, order })
    }

    /// For the reference path: computes every run from where layer `index` begins, leaves the states behind in its
    /// pool, and gives the rows in the batch's order, `[T, width]`. `compute` gives `[n, len, width]` and the
    /// states after it.
    pub(crate) fn advance(
        &self,
        index: usize,
        pool: &mut Pool,
        compute: impl Fn(&Run, &[Array; 2]) -> mlx::Result<(Array, [Array; 2])>,
    ) -> mlx::Result<Array> {
        let (mut outputs, mut firsts, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
        for run in &self.runs {
            let starts = run.starts.get(&index).ok_or_else(|| mlx::Error::new("a state for each layer"))?;
            let (y, [first, second]) = compute(run, starts)?;
            let [count, len, width] = y.dims()?;
            outputs.push(y.reshape(&[count * len, width])?);
            firsts.push(first);
            seconds.push(second);
        }
        let joined = |parts: &[Array]| mlx::concatenate(&parts.iter().collect::<Vec<_>>(), 0);
        let [first, second] = pool.take()?;
        pool.put([
            first.scatter_rows(&self.slots, &joined(&firsts)?)?,
            second.scatter_rows(&self.slots, &joined(&seconds)?)?,
        ]);
        let y = joined(&outputs)?;
        match &self.order {
            Some(order) => y.take(order, 0),
            None => Ok(y),
        }
    }
}

fn slot(segment: &Segment, group: usize, state: &KvState) -> mlx::Result<i32> {
    let slot =
        table_of(segment, group)?.blocks.first().filter(|slot| (**slot as usize) < state.blocks[group]);
    slot.map(|slot| *slot as i32).ok_or_else(|| mlx::Error::new("a sequence has a slot for its state"))
}

fn run(segments: &[&Segment], group: usize, state: &KvState) -> mlx::Result<Run> {
    let slots: Vec<i32> =
        segments.iter().map(|segment| slot(segment, group, state)).collect::<mlx::Result<_>>()?;
    let slots = indices(&slots)?;
    let begins: Vec<bool> = segments.iter().map(|segment| segment.context == 0).collect();
    let fresh = begins.iter().any(|fresh| *fresh);
    let begins = Array::from_slice(&begins, &[begins.len() as i32])?;
    let nothing = Array::scalar(0.0, Dtype::F32)?;
    let start = |pool: &Array| -> mlx::Result<Array> {
        let found = pool.take(&slots, 0)?;
        if !fresh {
            return Ok(found);
        }
        let axes: Vec<i32> = (1..found.ndim() as i32).collect();
        mlx::where_(&begins.expand_dims(&axes)?, &nothing, &found)
    };
    let layers = state.pools.iter().enumerate().filter(|(_, pool)| pool.group == group);
    let starts = layers.map(|(index, pool)| match pool.arrays() {
        [first, second] => Ok((index, [start(first)?, start(second)?])),
        _ => Err(crate::state::lost()),
    });
    let rows = match segments {
        [one] if one.len != 1 => Rows::Chunk { first: one.first as i32, len: one.len as i32 },
        _ => {
            let rows: Vec<i32> = segments.iter().map(|segment| segment.first as i32).collect();
            Rows::Singles(indices(&rows)?)
        }
    };
    Ok(Run { rows, starts: starts.collect::<mlx::Result<_>>()? })
}
