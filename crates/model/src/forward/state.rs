//! Where the recurrent layers of one cache group read and write the states of a pass's sequences.
//!
//! A sequence that verifies draft tokens has several state slots: the state before the step is in the first, and the
//! states after its sampled rows go to one each, so that rolling back is choosing a slot.

use std::collections::BTreeMap;
use std::ops::Range;

use mlx::gpu::{RUN_FIELDS, RunCount, copy_to_device, host_numbers};
use mlx::{Array, Dtype};

use super::items::Numbers;
use super::kv_path::StatePath;
use super::rows::{Rows, indices, order_of, table_of};
use crate::batch::{Batch, Segment};
use crate::kv_cache::{KvCache, Pool, poisoned};
use crate::take_rows::take_rows;

/// State slots of one group.
pub(crate) struct StateMetadata {
    /// For kernels that write states in place, `[n, 4]` i32: first row, rows, the slot that they write, and the slot whose
    /// state they start from, −1 for zeros. Those of one sequence follow each other.
    pub(crate) runs: Array,
    /// For the GPU's kernels.
    device_runs: Option<DeviceRuns>,
    /// For MLX's operations: the same rows, in an order in which many advance together.
    waves: Vec<Wave>,
    /// Slots in the order of the waves' runs, `[n]` i32.
    slots: Array,
    /// Puts the waves' rows, end to end, back in the batch's order, `[T]` i32; `None` if they are in order.
    order: Option<Array>,
}

/// Runs in the device's memory.
pub(crate) struct DeviceRuns {
    numbers: Numbers,
    /// Runs of sequences, then one for each row of padding.
    count: RunCount,
    /// Whether each run has one row, as those that decode and those that verify draft tokens have.
    of_single_rows: bool,
    /// Whether a sequence starts from a state, which the pass replaces.
    replaces: bool,
}

impl DeviceRuns {
    /// `sequences`: numbers of runs; `advances`: rows of each sequence; `rows`: of the pass.
    fn new(mut numbers: Vec<i32>, sequences: &[Vec<Advance>], rows: usize) -> mlx::Result<Self> {
        let of = |advances: &Vec<Advance>| advances.iter().map(|advance| advance.rows.len()).sum::<usize>();
        let longest = sequences.iter().map(of).max().unwrap_or(1).max(1);
        let of_single_rows = sequences.iter().flatten().all(|advance| advance.rows.len() == 1);
        let replaces =
            sequences.iter().filter_map(|advances| advances.first()).any(|first| first.from.is_some());
        let mut is_padding = vec![true; rows];
        for Advance { rows, .. } in sequences.iter().flatten() {
            let range = is_padding.get_mut(rows.clone());
            range.ok_or_else(|| mlx::Error::new("segments lie within the batch"))?.fill(false);
        }
        let padding = is_padding.iter().enumerate().filter(|(_, is_padding)| **is_padding);
        numbers.extend(padding.flat_map(|(row, _)| [row as i32, 1, -1, -1]));
        let runs = numbers.len() / RUN_FIELDS;
        // Few lengths, so that a prebuilt graph fits many steps.
        let host = host_numbers(&numbers, numbers.len().next_power_of_two())?;
        let numbers = Numbers { device: copy_to_device(&host)?, host };
        let count = RunCount { runs: runs as i32, longest: longest as i32 };
        Ok(Self { numbers, count, of_single_rows, replaces })
    }

    /// `[4 · runs or more]` i32.
    pub(crate) fn array(&self) -> &Array {
        &self.numbers.device
    }

    pub(crate) fn count(&self) -> RunCount {
        self.count
    }

    /// The numbers of a pass whose runs have one row each: all that differs from another one with the same [`shape`](Self::shape).
    pub(crate) fn numbers_of_decode(&self) -> Option<&Numbers> {
        self.of_single_rows.then_some(&self.numbers)
    }

    /// Whether the pass replaces a state that it starts from, so that computing it again would start from another one.
    pub(crate) fn replaces(&self) -> bool {
        self.replaces
    }

    /// Sizes that launches depend on.
    pub(crate) fn shape(&self) -> [i32; 3] {
        [self.numbers.host.size() as i32, self.count.conv_tiles(), self.count.runs]
    }
}

/// Sequences that advance by equally many rows in one computation.
pub(crate) struct Run {
    rows: Rows,
    /// The initial states of each layer, read before any is written: an array that is read and written by one graph
    /// would be copied whole. Empty in all waves but the first.
    initial: BTreeMap<usize, [Array; 2]>,
}

/// Runs that do not depend on each other. The first wave starts from the pools; each later one has a single run, which
/// starts from final states of the wave before it.
struct Wave {
    runs: Vec<Run>,
    /// Which of those, `[n]` i32; `None` in the first wave.
    from: Option<Array>,
}

/// Rows that bring the state of one sequence from one slot to another.
struct Advance {
    rows: Range<usize>,
    /// `None` starts from zeros.
    from: Option<i32>,
    to: i32,
}

impl Run {
    /// Its rows of `x`, `[T, width]` → `[n, len, width]`.
    pub(crate) fn rows(&self, x: &Array) -> mlx::Result<Array> {
        match &self.rows {
            Rows::Singles(rows) => take_rows(x, rows)?.expand_dims(&[1]),
            Rows::Chunk { first, len } => {
                x.slice(&[*first, 0], &[first + len, x.dim(-1)?])?.expand_dims(&[0])
            }
        }
    }

    /// A run of the first wave.
    fn first(advances: &[&Advance], group: usize, cache: &KvCache) -> mlx::Result<Self> {
        let slots: Vec<i32> = advances.iter().map(|advance| advance.from.unwrap_or(advance.to)).collect();
        let slots = indices(&slots)?;
        let begins: Vec<bool> = advances.iter().map(|advance| advance.from.is_none()).collect();
        let any_begins = begins.iter().any(|begins| *begins);
        let begins = Array::from_slice(&begins, &[begins.len() as i32])?;
        let zero = Array::scalar(0.0, Dtype::F32)?;
        let initial = |pool: &Array| -> mlx::Result<Array> {
            let found = take_rows(pool, &slots)?;
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
        Ok(Self { rows: rows_of(advances)?, initial: states.collect::<mlx::Result<_>>()? })
    }
}

impl StateMetadata {
    pub(super) fn new(
        batch: &Batch,
        rows: usize,
        group: usize,
        cache: &KvCache,
        path: StatePath,
    ) -> mlx::Result<Self> {
        let sequences = batch.segments.iter().map(|segment| advances(segment, group, cache));
        let sequences = sequences.collect::<mlx::Result<Vec<_>>>()?;
        let mut numbers = Vec::with_capacity(4 * sequences.len());
        for Advance { rows, from, to } in sequences.iter().flatten() {
            numbers.extend([rows.start as i32, rows.len() as i32, *to, from.unwrap_or(-1)]);
        }
        let runs = Array::from_slice(&numbers, &[numbers.len() as i32 / 4, 4])?;
        match path {
            StatePath::Runs => {
                Ok(Self { runs, device_runs: None, waves: Vec::new(), slots: indices(&[])?, order: None })
            }
            StatePath::DeviceRuns => {
                let device_runs = Some(DeviceRuns::new(numbers, &sequences, rows)?);
                Ok(Self { runs, device_runs, waves: Vec::new(), slots: indices(&[])?, order: None })
            }
            StatePath::Gather => {
                let (waves, in_order) = waves(&sequences, group, cache)?;
                let slots: Vec<i32> = in_order.iter().map(|advance| advance.to).collect();
                let order = order_of(in_order.iter().map(|advance| advance.rows.clone()), rows)?;
                Ok(Self { runs, device_runs: None, waves, slots: indices(&slots)?, order })
            }
        }
    }

    /// What the GPU's kernels read, if they compute this pass.
    pub(crate) fn device_runs(&self) -> Option<&DeviceRuns> {
        self.device_runs.as_ref()
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
        let mut before: Option<[Array; 2]> = None;
        for wave in &self.waves {
            let (mut first_states, mut second_states) = (Vec::new(), Vec::new());
            for run in &wave.runs {
                let (y, [first, second]) = compute(run, &wave.initial(run, index, before.as_ref())?)?;
                let [count, len, width] = y.dims()?;
                outputs.push(y.reshape(&[count * len, width])?);
                first_states.push(first);
                second_states.push(second);
            }
            let [first, second] = [joined(&first_states)?, joined(&second_states)?];
            firsts.push(first.clone());
            seconds.push(second.clone());
            before = Some([first, second]);
        }
        let [first, second] = pool.take()?;
        pool.put([
            first.scatter_rows(&self.slots, &joined(&firsts)?)?,
            second.scatter_rows(&self.slots, &joined(&seconds)?)?,
        ]);
        let y = joined(&outputs)?;
        match &self.order {
            Some(order) => take_rows(&y, order),
            None => Ok(y),
        }
    }
}

impl Wave {
    /// What a run of layer `index` starts from. `before`: the final states of the wave before.
    fn initial(&self, run: &Run, index: usize, before: Option<&[Array; 2]>) -> mlx::Result<[Array; 2]> {
        match (&self.from, before) {
            (Some(from), Some([first, second])) => Ok([take_rows(first, from)?, take_rows(second, from)?]),
            _ => run.initial.get(&index).cloned().ok_or_else(|| mlx::Error::new("a state for each layer")),
        }
    }
}

/// A segment's rows, cut behind each sampled row.
fn advances(segment: &Segment, group: usize, cache: &KvCache) -> mlx::Result<Vec<Advance>> {
    let count = segment.samples.max(1);
    let slots = table_of(segment, group)?
        .blocks
        .get(..count)
        .filter(|slots| count <= segment.len && slots.iter().all(|slot| slot.index() < cache.blocks[group]));
    let slots = slots.ok_or_else(|| mlx::Error::new("a sequence has a slot for each of its states"))?;
    let mut start = segment.first;
    let mut from = slots.first().filter(|_| segment.context > 0).map(|slot| slot.0 as i32);
    let advances = slots.iter().enumerate().map(|(sample, slot)| {
        let (rows, to) = (start..segment.rows().end - (count - 1 - sample), slot.0 as i32);
        start = rows.end;
        Advance { rows, from: from.replace(to), to }
    });
    Ok(advances.collect())
}

/// The waves of all sequences, and the order of their rows. The first wave has each sequence's first rows, single ones
/// together; the next ones have one more row each of the sequences that have more.
fn waves<'a>(
    sequences: &'a [Vec<Advance>],
    group: usize,
    cache: &KvCache,
) -> mlx::Result<(Vec<Wave>, Vec<&'a Advance>)> {
    let split = sequences.iter().filter_map(|advances| advances.split_first());
    let (singles, chunks): (Vec<_>, Vec<_>) = split.partition(|(first, _)| first.rows.len() == 1);
    let mut runs = Vec::new();
    if !singles.is_empty() {
        let firsts: Vec<&Advance> = singles.iter().map(|(first, _)| *first).collect();
        runs.push(Run::first(&firsts, group, cache)?);
    }
    for (first, _) in &chunks {
        runs.push(Run::first(&[first], group, cache)?);
    }
    mlx::eval(runs.iter().flat_map(|run| run.initial.values().flatten()))?;
    let (mut in_order, mut rest): (Vec<&Advance>, Vec<&[Advance]>) =
        singles.into_iter().chain(chunks).unzip();
    let mut waves = vec![Wave { runs, from: None }];
    loop {
        let split = rest.iter().enumerate().filter_map(|(place, advances)| {
            let (next, rest) = advances.split_first()?;
            Some((place as i32, (next, rest)))
        });
        let (places, split): (Vec<i32>, Vec<(&Advance, &[Advance])>) = split.unzip();
        if places.is_empty() {
            return Ok((waves, in_order));
        }
        let next: Vec<&Advance> = split.iter().map(|(next, _)| *next).collect();
        let run = Run { rows: rows_of(&next)?, initial: BTreeMap::new() };
        waves.push(Wave { runs: vec![run], from: Some(indices(&places)?) });
        in_order.extend(next);
        rest = split.into_iter().map(|(_, rest)| rest).collect();
    }
}

fn rows_of(advances: &[&Advance]) -> mlx::Result<Rows> {
    Rows::of(advances.iter().map(|advance| advance.rows.clone()))
}

fn joined(parts: &[Array]) -> mlx::Result<Array> {
    mlx::concatenate(&parts.iter().collect::<Vec<_>>(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of so many rows each, of sequences that have been computed, and one row of padding.
    fn device_runs(sequences: &[&[usize]]) -> DeviceRuns {
        let mut row = 0;
        let mut advance = |rows: &usize| {
            let start = row;
            row += rows;
            Advance { rows: start..row, from: Some(start as i32), to: row as i32 }
        };
        let sequences = sequences.iter().map(|runs| runs.iter().map(&mut advance).collect());
        let sequences: Vec<Vec<Advance>> = sequences.collect();
        let numbers = sequences.iter().flatten().flat_map(|of| [of.rows.start as i32, 1, of.to, -1]);
        DeviceRuns::new(numbers.collect(), &sequences, row + 1).unwrap()
    }

    #[test]
    fn rows_that_verify_draft_tokens_are_those_of_a_decode_step() {
        mlx::on_planned_gpu(|| {
            let [decoded, verified] = [&[&[1][..], &[1], &[1]][..], &[&[1, 1], &[1]]].map(device_runs);
            assert!(decoded.numbers_of_decode().is_some() && verified.numbers_of_decode().is_some());
            assert_eq!(decoded.shape(), verified.shape());
            let prompt = device_runs(&[&[2], &[1]]);
            assert!(prompt.numbers_of_decode().is_none());
            let many = vec![1; 40];
            assert_ne!(device_runs(&[&many]).shape(), device_runs(&[&[1; 20], &[1; 20]]).shape());
        });
    }
}
