//! A computation that is launched again with other inputs: runs of our CUDA programs in it become CUDA graphs, built once,
//! so that the host's part of a step is a few launches instead of hundreds.
//!
//! What it computes is traced from lazy arrays. Operations of MLX between the programs are called anew each time.

mod plan;

use std::collections::BTreeSet;

use cxx::{SharedPtr, UniquePtr};
use mlx_sys as sys;

use super::program::waits_itself;
use crate::array::{Array, list, unlist};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use plan::{Node, NodeKind, Part, Place, StepPlan};

/// A computation that was taken apart, for graphs of it. Keeps what it borrows alive.
pub struct StepTrace {
    trace: SharedPtr<sys::Trace>,
    borrowed: UniquePtr<cxx::CxxVector<sys::Array>>,
    inputs: Vec<(Vec<i32>, Dtype)>,
}

/// A computation with its graphs. Belongs to the thread that made it.
pub struct StepGraph {
    graph: UniquePtr<sys::StepGraph>,
    inputs: Vec<(Vec<i32>, Dtype)>,
    launches: usize,
    graphs: usize,
    operations: Vec<String>,
    /// Of each node of the trace.
    names: Vec<String>,
}

/// A kernel, or an operation of MLX, in a computation that was taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedLaunch {
    /// The kernel's name, or MLX's of the operation.
    pub name: String,
    /// `None` for operations of MLX, which choose their own.
    pub grid: Option<LaunchGrid>,
    /// Of the arrays that it takes and makes, as wholes; borrowed ones are not counted.
    pub bytes: u64,
}

/// The grid of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchGrid {
    /// Groups of threads on each axis.
    pub groups: [u32; 3],
    /// Threads of a group.
    pub threads: u32,
    /// Shared memory of a group in bytes, beside what the kernel declares.
    pub shared_bytes: u32,
}

/// How long a kernel, or an operation of MLX, takes.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// The kernel's name, or MLX's of the operation.
    pub name: String,
    /// By itself, with nothing beside it.
    pub microseconds: f64,
}

/// Which evaluated arrays a computation may read besides those that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherArrays {
    /// None: it is called again for other inputs.
    Refused,
    /// Any: it is called again for the same inputs alone.
    Held,
}

/// How the kernels of a graph follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelOrder {
    /// Each may begin while the one before it ends, where kernels wait for its results by themselves (programmatic dependent
    /// launch, compute capability 9.0); else [`Serial`](Self::Serial).
    Overlapped,
    /// Each begins when the one before it has ended.
    Serial,
}

/// What a computation reads.
#[derive(Clone, Copy, Debug)]
pub struct StepArrays<'a> {
    /// Differ from call to call, in the same shapes and types. Contiguous.
    pub inputs: &'a [&'a Array],
    /// Evaluated, and the same at each call: they live as long as the graph.
    pub constants: &'a [&'a Array],
    /// Evaluated, and perhaps written in place; not kept alive. [`StepGraph::fits`] tells whether they have moved.
    pub borrowed: &'a [&'a Array],
    /// What is not named.
    pub others: OtherArrays,
}

impl StepTrace {
    /// Of what a computation gave lazily. Computing that afterwards does not change it.
    ///
    /// Fails if it reads an evaluated array of more than one element that is not named.
    pub fn new(outputs: &[&Array], arrays: &StepArrays<'_>) -> Result<Self> {
        let borrowed = list(arrays.borrowed.iter().copied())?;
        let trace = sys::trace(
            &*list(outputs.iter().copied())?,
            &*list(arrays.inputs.iter().copied())?,
            &*list(arrays.constants.iter().copied())?,
            &borrowed,
            match arrays.others {
                OtherArrays::Refused => sys::Leaves::Named,
                OtherArrays::Held => sys::Leaves::Any,
            },
        );
        let trace = trace.map_err(|e| Error::op("step_trace", arrays.inputs.iter().copied(), e.what()))?;
        let inputs = arrays.inputs.iter().map(|input| kind(input)).collect::<Result<_>>()?;
        Ok(Self { trace, borrowed, inputs })
    }

    /// What it launches, in an order in which it can run: kernels and operations of MLX, without views.
    pub fn launches(&self) -> Vec<TracedLaunch> {
        let (bytes, borrowed) = (self.trace.bytes(), self.trace.borrowed_values());
        let size = |value: u32| {
            let counts = !borrowed.contains(&value);
            bytes.get(value as usize).copied().filter(|_| counts).unwrap_or(0)
        };
        let sizes = |node: &sys::TraceNode| {
            let values: BTreeSet<u32> = node.inputs.iter().chain(&node.outputs).copied().collect();
            values.into_iter().map(size).sum()
        };
        let nodes = self.trace.list().into_iter().filter(|node| node.kind != sys::NodeKind::View);
        let grid = |node: &sys::TraceNode| LaunchGrid {
            groups: node.groups,
            threads: node.threads,
            shared_bytes: node.shared_bytes,
        };
        let launch = |node: sys::TraceNode| TracedLaunch {
            name: kernel_name(&node.name).to_owned(),
            grid: (node.kind == sys::NodeKind::Program).then(|| grid(&node)),
            bytes: sizes(&node),
        };
        nodes.map(launch).collect()
    }

    /// Graphs that its kernels become: operations of MLX between them make more of them.
    pub fn graphs(&self) -> usize {
        self.plan(&self.trace.list()).graphs()
    }

    fn plan(&self, traced: &[sys::TraceNode]) -> StepPlan {
        let nodes: Vec<Node> = traced.iter().map(node).collect();
        let given = self.trace.input_values();
        StepPlan::new(&nodes, &self.trace.bytes(), &given, &self.trace.output_values())
    }

    /// Its graph. Fails without CUDA, and where a graph cannot be built.
    pub fn graph(&self, order: KernelOrder) -> Result<StepGraph> {
        let traced = self.trace.list();
        let plan = self.plan(&traced);
        let parts: Vec<sys::GraphPart> = plan.parts.iter().map(part).collect();
        let places: Vec<sys::GraphPlace> = plan.places.iter().map(place).collect();
        let overlaps = order == KernelOrder::Overlapped && waits_itself();
        let shape = sys::GraphShape { arena_bytes: plan.arena_bytes, overlaps };
        let launches = traced.iter().filter(|node| node.kind != sys::NodeKind::View).count();
        let graphs = plan.graphs();
        let operations = traced.iter().filter(|node| node.kind == sys::NodeKind::Operation);
        let operations = operations.map(|node| node.name.clone()).collect();
        let names = traced.iter().map(|node| kernel_name(&node.name).to_owned()).collect();
        let graph = sys::step_graph(self.trace.clone(), &self.borrowed, &parts, &places, &shape);
        let graph = graph.map_err(|e| Error::new(format!("step_graph: {}", e.what())))?;
        Ok(StepGraph { graph, inputs: self.inputs.clone(), launches, graphs, operations, names })
    }
}

impl StepGraph {
    /// Whether the borrowed arrays, and the memory of its results, are where they were.
    pub fn fits(&self, borrowed: &[&Array]) -> Result<bool> {
        Ok(self.graph.fits(&*list(borrowed.iter().copied())?))
    }

    /// Lazy outputs for other inputs. Calls share memory: one must be dispatched before the next is made.
    ///
    /// Fails for other shapes and types than those that were recorded.
    pub fn call(&self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let kinds = inputs.iter().map(|input| kind(input)).collect::<Result<Vec<_>>>()?;
        if kinds != self.inputs {
            return Err(Error::op("step_graph", inputs.iter().copied(), "other inputs than were recorded"));
        }
        let made = self.graph.call(&*list(inputs.iter().copied())?);
        let made = made.map_err(|e| Error::op("step_graph", inputs.iter().copied(), e.what()))?;
        Ok(unlist(&made))
    }

    /// Computes it `runs` times, kernel by kernel: how long each takes, in the order in which they run. Outputs are
    /// dropped; what a kernel writes in place is written several times.
    pub fn times(&self, inputs: &[&Array], borrowed: &[&Array], runs: u32) -> Result<Vec<KernelTime>> {
        let [given, pools] = [list(inputs.iter().copied())?, list(borrowed.iter().copied())?];
        let found = self.graph.times(&given, &pools, runs);
        let found = found.map_err(|e| Error::op("step_graph", inputs.iter().copied(), e.what()))?;
        let time = |of: sys::NodeTime| KernelTime {
            name: self.names.get(of.node as usize).cloned().unwrap_or_default(),
            microseconds: f64::from(of.microseconds),
        };
        Ok(found.into_iter().map(time).collect())
    }

    /// Kernels and operations of one call.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// MLX's operations in one call, in order.
    pub fn operations(&self) -> &[String] {
        &self.operations
    }

    /// Graphs of one call.
    pub fn graphs(&self) -> usize {
        self.graphs
    }
}

impl std::fmt::Debug for StepTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepTrace").field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for StepGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepGraph").field("launches", &self.launches).field("graphs", &self.graphs).finish()
    }
}

fn kind(array: &Array) -> Result<(Vec<i32>, Dtype)> {
    Ok((array.shape().to_vec(), array.dtype()?))
}

/// A program's kernel; the name itself for operations of MLX.
fn kernel_name(name: &str) -> &str {
    let kernel = name.strip_prefix("omnibus_").and_then(|rest| rest.rsplit_once('_'));
    kernel.map_or(name, |(kernel, _)| kernel)
}

fn node(node: &sys::TraceNode) -> Node {
    let kind = match node.kind {
        sys::NodeKind::Program => NodeKind::Program,
        sys::NodeKind::View => NodeKind::View,
        _ => NodeKind::Operation,
    };
    Node { kind, inputs: node.inputs.clone(), outputs: node.outputs.clone(), offset: node.offset }
}

fn part(part: &Part) -> sys::GraphPart {
    let nothing =
        sys::GraphPart { node: 0, programs: vec![], copied: vec![], awaited: vec![], writes: vec![] };
    match part {
        Part::Operation(node) => sys::GraphPart { node: *node, ..nothing },
        Part::Graph { programs, copied, awaited, writes } => sys::GraphPart {
            programs: programs.clone(),
            copied: copied.clone(),
            awaited: awaited.clone(),
            writes: writes.clone(),
            ..nothing
        },
    }
}

fn place(place: &Place) -> sys::GraphPlace {
    match *place {
        Place::Arena(offset) => sys::GraphPlace { in_arena: true, base: 0, offset },
        Place::Of { base, offset } => sys::GraphPlace { in_arena: false, base, offset },
    }
}
