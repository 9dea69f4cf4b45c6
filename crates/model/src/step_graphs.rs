//! Decode steps as prebuilt CUDA graphs, one for each shape of a step. Everything that a step takes but its tokens and
//! the numbers of its rows is in the graph, so the host launches it in a tenth of the time of its kernels.
//!
//! Invariant: a step's result does not depend on whether a graph computed it. The first graph's result is compared with
//! that of the launches one by one. If they differ, kernels of graphs do not overlap, and if that differs, too, no graph is
//! used. The step is computed twice for that, so it is one
//! that does not replace the states that it starts from; until then kernels are launched one by one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use mlx::gpu::{KernelOrder, OtherArrays, StepArrays, StepGraph};
use mlx::{Array, Dtype};

use crate::forward::{ForwardContext, Numbers};
use crate::{Batch, KvCache};

/// The graphs of one model.
#[derive(Default)]
pub(crate) struct StepGraphs {
    /// `None` for shapes without a graph.
    graphs: RefCell<BTreeMap<StepShape, Option<StepGraph>>>,
    trust: Cell<Trust>,
    built: Cell<u64>,
    /// Of the last decode step; 0 if it was not a graph.
    launches: Cell<usize>,
    problem: RefCell<Option<String>>,
    reported: Cell<bool>,
}

/// Whether graphs compute what their kernels compute.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Trust {
    #[default]
    Unchecked,
    /// Yes, with kernels in this order.
    Checked(KernelOrder),
    Refuted,
}

/// All that the launches of a decode step depend on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StepShape {
    rows: i32,
    groups: Vec<[i32; 3]>,
}

/// Graphs that are kept. Each takes a few megabytes of the device's memory.
const GRAPHS_MAX: usize = 48;
/// Graphs of a step that are worth their launches; operations of MLX between programs make more of them.
const SEGMENTS_MAX: usize = 4;

impl StepGraphs {
    /// Logits of all rows, lazily; `None` where the kernels must be launched one by one. `compute`: launches them, for
    /// logits of all rows. `constants`: all arrays that the model holds.
    pub(crate) fn run(
        &self,
        batch: &Batch,
        ctx: &ForwardContext,
        cache: &mut KvCache,
        constants: impl FnOnce() -> Vec<Array>,
        compute: impl FnOnce(&Array, &mut KvCache) -> mlx::Result<Array>,
    ) -> mlx::Result<Option<Array>> {
        let usable = match self.trust.get() {
            Trust::Unchecked => ctx.is_repeatable(),
            Trust::Checked(_) => true,
            Trust::Refuted => false,
        };
        let Some(numbers) = ctx.numbers_of_decode().filter(|_| usable) else { return Ok(None) };
        let tokens = batch.tokens.view(Dtype::I32)?;
        let shape = StepShape { rows: tokens.size() as i32, groups: ctx.shapes_of_decode() };
        let inputs = |of: fn(&Numbers) -> &Array| -> Vec<&Array> {
            std::iter::once(&tokens).chain(numbers.iter().map(|numbers| of(numbers))).collect()
        };
        let called = inputs(|numbers| &numbers.host);
        let mut graphs = self.graphs.borrow_mut();
        match graphs.get(&shape) {
            Some(Some(graph)) if graph.fits(&cache.arrays().collect::<Vec<_>>())? => {
                self.launches.set(graph.launches());
                return first(graph.call(&called)?).map(Some);
            }
            Some(None) => {
                self.launches.set(0);
                return Ok(None);
            }
            Some(Some(_)) | None => {}
        }
        if graphs.len() >= GRAPHS_MAX || graphs.contains_key(&shape) {
            // Those of pools that are gone are useless, too.
            graphs.clear();
        }
        let pools: Vec<Array> = cache.arrays().cloned().collect();
        let pools: Vec<&Array> = pools.iter().collect();
        let constants = constants();
        let traced = inputs(|numbers| &numbers.device);
        let arrays = StepArrays {
            inputs: &traced,
            constants: &constants.iter().collect::<Vec<_>>(),
            borrowed: &pools,
            others: OtherArrays::Refused,
        };
        let computed = compute(&tokens, cache);
        cache.restore(&pools);
        let computed = computed?;
        let graph = match self.recorded(&computed, &arrays, &called) {
            Ok(graph) => graph,
            Err(error) => {
                // What failed must not reach the next evaluation.
                let _failures = mlx::recover();
                self.report(format!("decode steps are not launched as one graph: {error}"));
                None
            }
        };
        self.built.set(self.built.get() + u64::from(graph.is_some()));
        self.launches.set(graph.as_ref().map_or(0, StepGraph::launches));
        let called = graph.as_ref().map(|graph| graph.call(&called)).transpose()?;
        graphs.insert(shape, graph);
        // Without a graph the step is built once more, because `computed` writes to pools that were put back.
        called.map(first).transpose()
    }

    /// The graph of a computation that is not computed yet; `None` where graphs do not compute what their kernels compute.
    fn recorded(
        &self,
        computed: &Array,
        arrays: &StepArrays<'_>,
        inputs: &[&Array],
    ) -> mlx::Result<Option<StepGraph>> {
        let recorded = |order| few_segments(StepGraph::record(&[computed], arrays, order)?);
        match self.trust.get() {
            Trust::Refuted => return Ok(None),
            Trust::Checked(order) => return recorded(order).map(Some),
            Trust::Unchecked => {}
        }
        // Once it is computed, nothing is left of a computation to record.
        let [overlapped, serial] = [recorded(KernelOrder::Overlapped)?, recorded(KernelOrder::Serial)?];
        self.trust.set(Trust::Refuted);
        // All write the same keys, values and states.
        let difference_of = |graph: &StepGraph| {
            let found = first(graph.call(inputs)?)?;
            mlx::eval([&found])?;
            difference(&found, computed)
        };
        let Some(difference) = difference_of(&overlapped)? else {
            self.trust.set(Trust::Checked(KernelOrder::Overlapped));
            return Ok(Some(overlapped));
        };
        let problem = format!("its logits differ from those of the kernels one by one {difference}");
        if difference_of(&serial)?.is_some() {
            return Err(mlx::Error::new(problem));
        }
        self.trust.set(Trust::Checked(KernelOrder::Serial));
        self.report(format!("kernels of a decode step do not overlap: {problem}"));
        Ok(Some(serial))
    }

    /// Keeps the first problem.
    fn report(&self, problem: String) {
        if !self.reported.replace(true) {
            self.problem.replace(Some(problem));
        }
    }

    /// Why there are no graphs, or why their kernels do not overlap, once.
    pub(crate) fn take_problem(&self) -> Option<String> {
        self.problem.take()
    }

    /// Graphs that were built so far.
    pub(crate) fn built(&self) -> u64 {
        self.built.get()
    }

    /// Kernels and operations of the last decode step; 0 if it was not a graph.
    pub(crate) fn launches(&self) -> usize {
        self.launches.get()
    }
}

/// The graph, if it is worth its launches.
fn few_segments(graph: StepGraph) -> mlx::Result<StepGraph> {
    match graph.graphs() {
        1..=SEGMENTS_MAX => Ok(graph),
        _ => {
            let between = most_common(graph.operations());
            Err(mlx::Error::new(format!("MLX's operations lie between its kernels: {between}")))
        }
    }
}

/// How many elements of two float32 arrays differ, and by how much; `None` if their bits are equal. Compared on the device: what
/// the host reads is moved in memory, and a graph writes to where its results were.
fn difference(found: &Array, expected: &Array) -> mlx::Result<Option<String>> {
    let axes: Vec<i32> = (0..found.ndim() as i32).collect();
    let equal = found.view(Dtype::I32)?.equal(&expected.view(Dtype::I32)?)?;
    let equal = equal.astype(Dtype::I32)?.sum(&axes)?.to_vec::<i32>()?;
    let [equal] = equal[..] else { return Err(mlx::Error::new("one number")) };
    let differ = found.size() as i32 - equal;
    if differ == 0 {
        return Ok(None);
    }
    let largest = (found - expected).abs()?.max(&axes)?.to_vec::<f32>()?;
    let largest = largest.first().copied().unwrap_or(f32::NAN);
    Ok(Some(format!("in {differ} of {}, by up to {largest:e}", found.size())))
}

/// The names that occur most, and how often.
fn most_common(names: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named: Vec<String> = counts.iter().take(6).map(|(name, count)| format!("{name} ({count})")).collect();
    named.join(", ")
}

fn first(arrays: Vec<Array>) -> mlx::Result<Array> {
    arrays.into_iter().next().ok_or_else(|| mlx::Error::new("logits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_differ_by_their_bits() {
        let array = |values: &[f32]| Array::from_slice(values, &[1, values.len() as i32]).unwrap();
        let of = |found: &[f32], expected: &[f32]| difference(&array(found), &array(expected)).unwrap();
        assert_eq!(of(&[1.0, f32::NAN], &[1.0, f32::NAN]), None);
        assert_eq!(of(&[1.0, 2.0, 4.0], &[1.0, 2.5, 3.0]).unwrap(), "in 2 of 3, by up to 1e0");
        assert_eq!(of(&[f32::NAN, 2.0], &[1.0, 2.5]).unwrap(), "in 2 of 2, by up to NaN");
    }
}
