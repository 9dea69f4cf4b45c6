//! Where the recurrent layers of one cache group read and write the states of a pass's sequences.

use std::collections::BTreeMap;

use mlx::{Array, Dtype};

use super::KvPath;
use super::rows::{Rows, indices, order_of, singles_and_chunks, table_of};
use crate::kv_cache::{Pool, poisoned};
use crate::{Batch, KvCache, Segment};

/// State slots of one group.
pub(crate) struct StateMetadata {
    /// For kernels that write states in place, `[n, 4]` i32: first row, rows, slot, and 1 where the sequence begins.
    pub(crate) segments: Array,
    /// For MLX's operations: sequences that advance together, all of the batch's.
    runs: Vec<Run>,
    /// Slots in the order of the runs, `[n]` i32.
    slots: Array,
    /// Puts the runs' rows, end to end, back in the batch's order, `[T]` i32; `None` if they are in order.
    order: Option<Array>,
}

/// Sequences that advance by equally many rows in one computation.
pub(crate) struct Run {
    rows: Rows,
    /// The initial states of each layer, read before any is written: an array that is read and written by one graph
    /// would be copied whole.
    initial: BTreeMap<usize, [Array; 2]>,
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

    fn new(segments: &[&Segment], group: usize, cache: &KvCache) -> mlx::Result<Self> {
        let slots: Vec<i32> =
            segments.iter().map(|segment| slot(segment, group, cache)).collect::<mlx::Result<_>>()?;
        let slots = indices(&slots)?;
        let begins: Vec<bool> = segments.iter().map(|segment| segment.context == 0).collect();
        let any_begins = begins.iter().any(|begins| *begins);
        let begins = Array::from_slice(&begins, &[begins.len() as i32])?;
        let zero = Array::scalar(0.0, Dtype::F32)?;
        let initial = |pool: &Array| -> mlx::Result<Array> {
            let found = pool.take(&slots, 0)?;
            if !any_begins {
                return Ok(found);
            }
            let axes: Vec<i32> = (1..found.ndim() as i32).collect();
            mlx::where_(&begins.expand_dims(&axes)?, &zero, &found)
        };
        let layers = cache.pools.iter().enumerate().filter(|(_, pool)| pool.group == group);
        let states = layers.map(|(index, pool)| match pool.arrays() {
            [first, second] => Ok((index, [initial(first)?, initial(second)?])),
            _ => Err(poisoned()),
        });
        Ok(Self { rows: Rows::of(segments)?, initial: states.collect::<mlx::Result<_>>()? })
    }
}

impl StateMetadata {
    pub(super) fn new(
        batch: &Batch,
        rows: usize,
        group: usize,
        cache: &KvCache,
        path: KvPath,
    ) -> mlx::Result<Self> {
        let mut numbers = Vec::with_capacity(4 * batch.segments.len());
        for segment in &batch.segments {
            let begins = i32::from(segment.context == 0);
            numbers.extend([segment.first as i32, segment.len as i32, slot(segment, group, cache)?, begins]);
        }
        let segments = Array::from_slice(&numbers, &[batch.segments.len() as i32, 4])?;
        let (runs, slots, order) = match path {
            KvPath::Paged => (Vec::new(), Vec::new(), None),
            KvPath::Gather => {
                let (singles, chunks) = singles_and_chunks(&batch.segments);
                let slots = singles.iter().chain(&chunks).map(|segment| slot(segment, group, cache));
                let slots = slots.collect::<mlx::Result<Vec<i32>>>()?;
                let mut runs = Vec::new();
                if !singles.is_empty() {
                    runs.push(Run::new(&singles, group, cache)?);
                }
                for segment in &chunks {
                    runs.push(Run::new(&[segment], group, cache)?);
                }
                mlx::eval(runs.iter().flat_map(|run| run.initial.values().flatten()))?;
                (runs, slots, order_of(singles.into_iter().chain(chunks), rows)?)
            }
        };
        Ok(Self { segments, runs, slots: indices(&slots)?, order })
    }

    /// With MLX's operations: computes every run from the initial states of layer `index`, writes the final states to
    /// its pool, and gives the rows in the batch's order, `[T, width]`. `compute` gives `[n, len, width]` and the final
    /// states.
    pub(crate) fn advance(
        &self,
        index: usize,
        pool: &mut Pool,
        compute: impl Fn(&Run, &[Array; 2]) -> mlx::Result<(Array, [Array; 2])>,
    ) -> mlx::Result<Array> {
        let (mut outputs, mut firsts, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
        for run in &self.runs {
            let initial = run.initial.get(&index).ok_or_else(|| mlx::Error::new("a state for each layer"))?;
            let (y, [first, second]) = compute(run, initial)?;
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

/// The state slot of a segment's sequence.
fn slot(segment: &Segment, group: usize, cache: &KvCache) -> mlx::Result<i32> {
    let slot = table_of(segment, group)?.blocks.first().filter(|slot| slot.index() < cache.blocks[group]);
    slot.map(|slot| slot.0 as i32).ok_or_else(|| mlx::Error::new("a sequence has a slot for its state"))
}
