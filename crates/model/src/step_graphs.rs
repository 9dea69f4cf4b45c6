//! Decode steps as prebuilt CUDA graphs, one for each shape of a step. Everything that a step takes but its tokens and
//! the numbers of its rows is in the graph, so the host launches it in a tenth of the time of its kernels.
//!
//! Invariant: a step's result does not depend on whether a graph computed it. The first graph of each number of rows is
//! [compared](comparison) with the launches one by one. If they differ, kernels of graphs do not overlap, and if that
//! differs, too, no graph is used.

mod comparison;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use comparison::{Comparison, GraphUse, difference};
use mlx::gpu::{KernelOrder, OtherArrays, StepArrays, StepGraph, StepTrace};
use mlx::{Array, Dtype};

use crate::batch::HiddenPlace;
use crate::draft_states::DraftStates;
use crate::forward::{ForwardContext, Numbers};
use crate::kv_cache::KvCache;

/// The graphs of one model.
#[derive(Default)]
pub(crate) struct StepGraphs {
    /// `None` for shapes without a graph.
    graphs: RefCell<BTreeMap<StepShape, Option<StepGraph>>>,
    comparison: RefCell<Comparison>,
    built: Cell<u64>,
    /// Of the last decode step; 0 if it was not a graph.
    launches: Cell<usize>,
    problem: RefCell<Option<String>>,
    /// All so far.
    reported: RefCell<BTreeSet<String>>,
}

/// A pass that may be a graph.
#[derive(Clone, Copy)]
pub(crate) struct GraphPass<'a> {
    /// `[T]` i32.
    pub(crate) tokens: &'a Array,
    /// What a pass of a draft head reads.
    pub(crate) states: Option<DraftStates<'a>>,
    /// Hidden states that it gives.
    pub(crate) places: &'a [HiddenPlace],
}

/// All that the launches of a decode step depend on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StepShape {
    rows: i32,
    groups: Vec<[i32; 3]>,
    /// Whose hidden states it reads.
    reads: Option<StatesOf>,
    hidden: Vec<HiddenPlace>,
}

/// Whose hidden states a pass of a draft head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StatesOf {
    Target,
    Head,
}

impl StatesOf {
    fn of(states: &DraftStates<'_>) -> Self {
        match states {
            DraftStates::OfTarget(_) => Self::Target,
            DraftStates::OfHead(_) => Self::Head,
        }
    }
}

/// Graphs that are kept. Each takes a few megabytes of the device's memory.
const GRAPHS_MAX: usize = 48;
/// Graphs of a step that are worth their launches; operations of MLX between programs make more of them.
pub(crate) const SEGMENTS_MAX: usize = 4;

impl StepGraphs {
    /// Of all rows logits, and the hidden states that the pass gives, lazily; `None` where the kernels must be launched one by one.
    /// The next step of this shape writes to the same memory. `compute`: launches them. `constants`: all arrays that the model
    /// holds.
    pub(crate) fn run(
        &self,
        pass: GraphPass<'_>,
        ctx: &ForwardContext,
        cache: &mut KvCache,
        constants: impl FnOnce() -> Vec<Array>,
        compute: impl FnOnce(&Array, &mut KvCache) -> mlx::Result<Vec<Array>>,
    ) -> mlx::Result<Option<Vec<Array>>> {
        let tokens = pass.tokens.view(Dtype::I32)?;
        let pass = GraphPass { tokens: &tokens, ..pass };
        let rows = tokens.size() as i32;
        let graph_use = match ctx.is_repeatable() {
            true => self.comparison.borrow().in_repeatable_step(rows),
            false => self.comparison.borrow().in_other_step(),
        };
        let numbers = ctx.numbers_of_decode().filter(|_| graph_use != GraphUse::None);
        let Some(numbers) = numbers else {
            self.launches.set(0);
            return Ok(None);
        };
        let reads = pass.states.as_ref().map(StatesOf::of);
        let shape = StepShape { rows, groups: ctx.shapes_of_decode(), reads, hidden: pass.places.to_vec() };
        let called = pass.inputs(&numbers, |numbers| &numbers.host);
        let mut graphs = self.graphs.borrow_mut();
        match graphs.get(&shape) {
            Some(Some(graph)) if graph.fits(&cache.arrays().collect::<Vec<_>>())? => {
                self.launches.set(graph.launches());
                return graph.call(&called).map(Some);
            }
            Some(None) => {
                self.launches.set(0);
                return Ok(None);
            }
            Some(Some(_)) | None => {}
        }
        if graphs.len() >= GRAPHS_MAX || graphs.contains_key(&shape) {
            // Graphs of pools that are gone are useless, too.
            graphs.clear();
        }
        drop(graphs);
        let graph = match self.built_for(graph_use, (pass, &numbers), cache, constants, compute) {
            // What else is in flight may have failed with it, so the step fails; the next one has no graph of this shape.
            Err(error) if error.is_eval() => {
                self.report(format!("decode steps are not launched as one graph: {error}"));
                self.graphs.borrow_mut().insert(shape, None);
                return Err(error);
            }
            graph => graph?,
        };
        self.launches.set(graph.as_ref().map_or(0, StepGraph::launches));
        let called = graph.as_ref().map(|graph| graph.call(&called)).transpose()?;
        self.graphs.borrow_mut().insert(shape, graph);
        // Without a graph the step is built once more, because its arrays write to pools that were put back.
        Ok(called)
    }

    /// A new graph of a step; `None` if there is none. Fails where the step cannot be built, and where its comparison cannot be
    /// evaluated.
    fn built_for(
        &self,
        graph_use: GraphUse,
        (pass, numbers): (GraphPass<'_>, &[&Numbers]),
        cache: &mut KvCache,
        constants: impl FnOnce() -> Vec<Array>,
        compute: impl FnOnce(&Array, &mut KvCache) -> mlx::Result<Vec<Array>>,
    ) -> mlx::Result<Option<StepGraph>> {
        let pools: Vec<Array> = cache.arrays().cloned().collect();
        let pools: Vec<&Array> = pools.iter().collect();
        let constants = constants();
        let traced = pass.inputs(numbers, |numbers| &numbers.device);
        let arrays = StepArrays {
            inputs: &traced,
            constants: &constants.iter().collect::<Vec<_>>(),
            borrowed: &pools,
            others: OtherArrays::Refused,
        };
        let computed = compute(pass.tokens, cache);
        cache.restore(&pools);
        let computed = computed?;
        let called = pass.inputs(numbers, |numbers| &numbers.host);
        let trace = StepTrace::new(&computed.iter().collect::<Vec<_>>(), &arrays);
        let found = trace.and_then(|trace| match graph_use {
            GraphUse::None => Ok(None),
            GraphUse::Trusted(order) => few_segments(trace.graph(order)?).map(Some),
            GraphUse::Compared(order) => self.compared(&trace, order, &called, logits(&computed)?).map(Some),
        });
        let graph = match found {
            Err(error) if !error.is_eval() => {
                // What failed must not reach the next evaluation.
                let _failures = mlx::recover();
                self.report(format!("decode steps are not launched as one graph: {error}"));
                None
            }
            found => found?,
        };
        self.built.set(self.built.get() + u64::from(graph.is_some()));
        Ok(graph)
    }

    /// A graph in this order, or in a stricter one, that computes the logits that its kernels compute one by one.
    fn compared(
        &self,
        trace: &StepTrace,
        order: KernelOrder,
        inputs: &[&Array],
        computed: &Array,
    ) -> mlx::Result<StepGraph> {
        let graph = few_segments(trace.graph(order)?)?;
        let found = graph.call(inputs)?;
        mlx::eval(&found)?;
        // Both write the same keys, values and states.
        let difference = difference(logits(&found)?, computed)?;
        let rows = computed.dim(0)?;
        let Some(difference) = difference else {
            self.comparison.borrow_mut().add_equal(rows);
            return Ok(graph);
        };
        // Others in this order are not trusted either.
        self.graphs.borrow_mut().clear();
        let problem =
            format!("logits of {rows} rows differ from those of the kernels one by one {difference}");
        let Some(stricter) = self.comparison.borrow_mut().add_difference() else {
            return Err(mlx::Error::new(problem));
        };
        let graph = self.compared(trace, stricter, inputs, computed)?;
        self.report(format!("kernels of decode steps do not overlap: {problem}"));
        Ok(graph)
    }

    fn report(&self, problem: String) {
        if self.reported.borrow_mut().insert(problem.clone()) {
            self.problem.replace(Some(problem));
        }
    }

    /// Why a shape has no graph, or why kernels of graphs do not overlap, once each.
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

impl<'a> GraphPass<'a> {
    /// What it takes besides what its graph holds.
    pub(crate) fn inputs(&self, numbers: &[&'a Numbers], of: fn(&Numbers) -> &Array) -> Vec<&'a Array> {
        let states = self.states.map(DraftStates::array);
        [self.tokens].into_iter().chain(states).chain(numbers.iter().map(|numbers| of(numbers))).collect()
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

/// What a step makes first.
fn logits(made: &[Array]) -> mlx::Result<&Array> {
    made.first().ok_or_else(|| mlx::Error::new("logits"))
}
