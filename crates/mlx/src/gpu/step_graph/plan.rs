//! Which nodes of a computation become one graph, and where in one arena the arrays between programs are.
//!
//! Invariant: pure. Arrays and nodes are numbers.

mod arena;

use std::collections::{BTreeMap, BTreeSet};

use arena::Arena;

/// What computes arrays from arrays.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) inputs: Vec<u32>,
    pub(super) outputs: Vec<u32>,
    /// Of a view: bytes into an input at which its output begins.
    pub(super) offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// One of our programs.
    Program,
    /// The outputs are in the memory of the inputs, one for one.
    View,
    /// An operation of MLX.
    Operation,
}

/// What runs, in order, and where programs find their arrays.
#[derive(Debug)]
pub(super) struct StepPlan {
    pub(super) parts: Vec<Part>,
    /// Of every array; programs read and write no array whose place is of another that is not evaluated.
    pub(super) places: Vec<Place>,
    pub(super) arena_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A node that MLX computes.
    Operation(u32),
    /// Programs as one graph.
    Graph {
        /// Nodes.
        programs: Vec<u32>,
        /// Arrays that come from outside and are copied to their place first.
        copied: Vec<u32>,
        /// Arrays of earlier graphs, which must have run.
        awaited: Vec<u32>,
        /// Arrays that operations, later graphs or the caller read.
        writes: Vec<u32>,
    },
}

/// Where an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// So many bytes into the arena.
    Arena(u64),
    /// In the memory of an array that is evaluated, so many bytes into it.
    Of { base: u32, offset: u64 },
}

impl StepPlan {
    /// `nodes`: in an order in which they can run. `bytes`: of each array. `inputs`: arrays that come with a call; others
    /// that no node makes are evaluated. `outputs`: what the caller reads.
    pub(super) fn new(nodes: &[Node], bytes: &[u64], inputs: &[u32], outputs: &[u32]) -> Self {
        let flow = Flow::new(nodes, inputs, outputs);
        let parts = flow.parts();
        let (offsets, arena_bytes) = flow.offsets(&parts, bytes);
        let place = |value: u32| {
            let (base, offset) = flow.base(value);
            match offsets.get(&base) {
                Some(at) => Place::Arena(at + offset),
                None => Place::Of { base, offset },
            }
        };
        let places = (0..bytes.len() as u32).map(place).collect();
        Self { parts, places, arena_bytes }
    }

    /// Parts that are graphs.
    pub(super) fn graphs(&self) -> usize {
        let is_graph = |part: &&Part| matches!(part, Part::Graph { programs, .. } if !programs.is_empty());
        self.parts.iter().filter(is_graph).count()
    }
}

/// Who makes an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It comes with the call.
    Input,
    /// It is evaluated.
    Evaluated,
    Program(usize),
    Operation(usize),
}

/// How arrays go from node to node.
struct Flow<'a> {
    nodes: &'a [Node],
    inputs: BTreeSet<u32>,
    made_by: BTreeMap<u32, usize>,
    /// Arrays that must exist for MLX: what operations and the caller read.
    exposed: BTreeSet<u32>,
    /// The graph that a program is of, counted from 1; of an operation, the last graph that it waits for.
    level: Vec<usize>,
}

impl<'a> Flow<'a> {
    fn new(nodes: &'a [Node], inputs: &[u32], outputs: &[u32]) -> Self {
        let made = nodes.iter().enumerate();
        let made_by =
            made.flat_map(|(at, node)| node.outputs.iter().map(move |value| (*value, at))).collect();
        let mut exposed: BTreeSet<u32> = outputs.iter().copied().collect();
        for node in nodes.iter().rev() {
            let is_read = match node.kind {
                NodeKind::Program => false,
                NodeKind::View => node.outputs.iter().any(|value| exposed.contains(value)),
                NodeKind::Operation => true,
            };
            if is_read {
                exposed.extend(&node.inputs);
            }
        }
        let inputs = inputs.iter().copied().collect();
        let mut flow = Self { nodes, inputs, made_by, exposed, level: Vec::with_capacity(nodes.len()) };
        for node in nodes {
            let level = node.inputs.iter().map(|value| flow.level_after(*value, node.kind)).max();
            flow.level.push(match node.kind {
                NodeKind::Program => level.unwrap_or(0).max(1),
                NodeKind::View | NodeKind::Operation => level.unwrap_or(0),
            });
        }
        flow
    }

    /// The earliest level of a node that reads `value`.
    fn level_after(&self, value: u32, reader: NodeKind) -> usize {
        let (origin, level) = match self.origin(value) {
            origin @ (Origin::Program(node) | Origin::Operation(node)) => {
                (origin, self.level.get(node).copied().unwrap_or(0))
            }
            origin => (origin, 0),
        };
        let between = matches!(origin, Origin::Operation(_)) && reader == NodeKind::Program;
        level + usize::from(between)
    }

    /// The array in whose memory `value` is, and how many bytes into it.
    fn base(&self, value: u32) -> (u32, u64) {
        let (mut value, mut offset) = (value, 0);
        while let Some(node) = self.made_by.get(&value).and_then(|node| self.nodes.get(*node)) {
            let place = node.outputs.iter().position(|output| *output == value);
            match (node.kind, place.and_then(|place| node.inputs.get(place))) {
                (NodeKind::View, Some(input)) => (value, offset) = (*input, offset + node.offset),
                _ => break,
            }
        }
        (value, offset)
    }

    /// Who makes the memory of `value`.
    fn origin(&self, value: u32) -> Origin {
        let (base, _) = self.base(value);
        match self.made_by.get(&base).map(|node| (*node, self.nodes.get(*node).map(|node| node.kind))) {
            Some((node, Some(NodeKind::Program))) => Origin::Program(node),
            Some((node, _)) => Origin::Operation(node),
            None if self.inputs.contains(&base) => Origin::Input,
            None => Origin::Evaluated,
        }
    }

    fn programs_at(&self, level: usize) -> Vec<u32> {
        let nodes = self.nodes.iter().zip(&self.level).enumerate();
        let of = nodes.filter(|(_, (node, at))| node.kind == NodeKind::Program && **at == level);
        of.map(|(node, _)| node as u32).collect()
    }

    /// Nodes that MLX computes once the graph of this level has run.
    fn operations_at(&self, level: usize) -> impl Iterator<Item = Part> + '_ {
        let nodes = self.nodes.iter().zip(&self.level).enumerate();
        nodes.filter_map(move |(at, (node, of))| {
            let is_exposed = node.outputs.iter().any(|value| self.exposed.contains(value));
            let is_computed = match node.kind {
                NodeKind::Program => false,
                NodeKind::View => is_exposed,
                NodeKind::Operation => true,
            };
            (is_computed && *of == level).then_some(Part::Operation(at as u32))
        })
    }

    fn parts(&self) -> Vec<Part> {
        let levels = self.level.iter().copied().max().unwrap_or(0);
        let mut parts: Vec<Part> = self.operations_at(0).collect();
        let mut copied_before = BTreeSet::new();
        for level in 1..=levels {
            let programs = self.programs_at(level);
            let (copied, awaited) = self.reads(&programs, level);
            let copied: Vec<u32> = copied.into_iter().filter(|value| copied_before.insert(*value)).collect();
            let writes = self.writes(&programs, level);
            if !programs.is_empty() {
                let awaited = awaited.into_iter().collect();
                parts.push(Part::Graph { programs, copied, awaited, writes });
            }
            parts.extend(self.operations_at(level));
        }
        parts
    }

    /// What a graph's programs read from outside, and from earlier graphs.
    fn reads(&self, programs: &[u32], level: usize) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let (mut copied, mut awaited) = (BTreeSet::new(), BTreeSet::new());
        for value in self.read_by(programs) {
            match self.origin(value) {
                Origin::Input | Origin::Operation(_) => copied.insert(value),
                Origin::Program(node) if self.level.get(node) != Some(&level) => awaited.insert(value),
                Origin::Program(_) | Origin::Evaluated => false,
            };
        }
        (copied, awaited)
    }

    /// The memory that programs read.
    fn read_by(&self, programs: &[u32]) -> BTreeSet<u32> {
        let nodes = programs.iter().filter_map(|node| self.nodes.get(*node as usize));
        nodes.flat_map(|node| &node.inputs).map(|value| self.base(*value).0).collect()
    }

    /// What is read outside the graph.
    fn writes(&self, programs: &[u32], level: usize) -> Vec<u32> {
        let later = self.nodes.iter().zip(&self.level);
        let later = later.filter(|(node, at)| node.kind == NodeKind::Program && **at > level);
        let later: BTreeSet<u32> =
            later.flat_map(|(node, _)| &node.inputs).map(|value| self.base(*value).0).collect();
        let made =
            programs.iter().filter_map(|node| self.nodes.get(*node as usize)).flat_map(|node| &node.outputs);
        made.copied().filter(|value| self.exposed.contains(value) || later.contains(value)).collect()
    }

    /// Where in the arena each array is that programs write, or that is copied for them, and the arena's size. The memory
    /// of an array that is read within its graph alone is used again after its last reader.
    fn offsets(&self, parts: &[Part], bytes: &[u64]) -> (BTreeMap<u32, u64>, u64) {
        let kept: BTreeSet<u32> = parts.iter().flat_map(Part::kept).collect();
        let (mut arena, mut offsets) = (Arena::default(), BTreeMap::new());
        let mut place = |arena: &mut Arena, value: u32| {
            let size = bytes.get(value as usize).copied().unwrap_or(0);
            offsets.insert(value, arena.take(value, size));
        };
        for part in parts {
            let Part::Graph { programs, copied, .. } = part else { continue };
            copied.iter().for_each(|value| place(&mut arena, *value));
            let mut last_reader = BTreeMap::new();
            for program in programs {
                let node = self.nodes.get(*program as usize);
                let values = node.into_iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
                last_reader.extend(values.map(|value| (self.base(*value).0, *program)));
            }
            for program in programs {
                let Some(node) = self.nodes.get(*program as usize) else { continue };
                node.outputs.iter().for_each(|value| place(&mut arena, *value));
                let touched: BTreeSet<u32> =
                    node.inputs.iter().chain(&node.outputs).map(|value| self.base(*value).0).collect();
                for value in touched {
                    if last_reader.get(&value) == Some(program) && !kept.contains(&value) {
                        arena.give_back(value);
                    }
                }
            }
        }
        (offsets, arena.size())
    }
}

impl Part {
    /// Arrays whose memory is not used again: what leaves a graph, and what is copied, which later graphs may read.
    fn kept(&self) -> Vec<u32> {
        match self {
            Self::Operation(_) => Vec::new(),
            Self::Graph { copied, writes, .. } => copied.iter().chain(writes).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
