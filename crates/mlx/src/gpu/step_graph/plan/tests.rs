//! Plans of random computations, run on numbered memory.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A random computation.
#[derive(Debug, Clone)]
struct Computation {
    nodes: Vec<Node>,
    bytes: Vec<u64>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
}

/// Leaves first (some of them inputs), then nodes that read a few earlier arrays.
fn computation() -> impl Strategy<Value = Computation> {
    let node = (0..6u8, prop::collection::vec(any::<prop::sample::Index>(), 1..4), 1..3usize, 0..3u64);
    let nodes = prop::collection::vec(node, 1..60);
    (prop::collection::vec(any::<bool>(), 1..6), nodes, prop::collection::vec(1..2000u64, 200)).prop_map(
        |(leaves, drawn, sizes)| {
            let inputs = (0..leaves.len() as u32).filter(|leaf| leaves[*leaf as usize]).collect();
            // Arrays are large enough for every view's offset.
            let mut bytes: Vec<u64> =
                sizes.iter().copied().take(leaves.len()).map(|size| size + 4096).collect();
            let mut nodes = Vec::new();
            for (kind, read, made, offset) in drawn {
                let kind = match kind {
                    0 => NodeKind::Operation,
                    1 => NodeKind::View,
                    _ => NodeKind::Program,
                };
                let mut inputs: Vec<u32> = read.iter().map(|at| at.index(bytes.len()) as u32).collect();
                let made = if kind == NodeKind::View { 1 } else { made };
                inputs.truncate(if kind == NodeKind::View { 1 } else { inputs.len() });
                let outputs: Vec<u32> = (0..made).map(|at| (bytes.len() + at) as u32).collect();
                for output in &outputs {
                    let size = match kind {
                        NodeKind::View => bytes[inputs[0] as usize] - offset * 16,
                        _ => sizes[*output as usize % sizes.len()] + 4096,
                    };
                    bytes.push(size);
                }
                nodes.push(Node {
                    kind,
                    inputs,
                    outputs,
                    offset: if kind == NodeKind::View { offset * 16 } else { 0 },
                });
            }
            let outputs = nodes.last().map(|node| node.outputs.clone()).unwrap_or_default();
            Computation { nodes, bytes, inputs, outputs }
        },
    )
}

/// The values that nodes would see if every array had memory of its own: a number for each byte range is enough, because
/// views keep their base's number and begin at an offset.
fn number(value: u32) -> u64 {
    u64::from(value) + 1
}

/// Runs a plan. Arena bytes hold the number of the array that was last put there.
fn run(computation: &Computation, plan: &StepPlan) {
    let Computation { nodes, bytes, inputs, outputs } = computation;
    let mut arena = vec![0u64; plan.arena_bytes as usize];
    let mut arrays: BTreeSet<u32> = inputs.iter().copied().collect();
    let made: BTreeSet<u32> = nodes.iter().flat_map(|node| &node.outputs).copied().collect();
    arrays.extend((0..bytes.len() as u32).filter(|value| !made.contains(value)));
    let evaluated: BTreeSet<u32> = arrays.iter().copied().filter(|value| !inputs.contains(value)).collect();
    let bases = bases(nodes);
    let base = |value: u32| bases.get(&value).copied().unwrap_or((value, 0));
    let put = |arena: &mut Vec<u64>, value: u32| {
        let Place::Arena(at) = plan.places[value as usize] else { panic!("{value} has no memory") };
        let range = at as usize..(at + bytes[value as usize]) as usize;
        arena[range].fill(number(value));
    };
    let holds = |arena: &[u64], value: u32| {
        let (of, offset) = base(value);
        match plan.places[value as usize] {
            Place::Arena(at) => {
                let range = at as usize..(at + bytes[value as usize]) as usize;
                assert!(arena[range].iter().all(|found| *found == number(of)), "{value} was overwritten");
                if let Place::Arena(start) = plan.places[of as usize] {
                    assert_eq!(at, start + offset);
                }
            }
            Place::Of { base, offset: at } => {
                assert!(evaluated.contains(&base), "{value} is in no memory");
                assert_eq!((base, at), (of, offset));
            }
        }
    };
    let mut computed: BTreeSet<u32> = BTreeSet::new();
    for part in &plan.parts {
        match part {
            Part::Operation(node) => {
                let node = &nodes[*node as usize];
                assert_ne!(node.kind, NodeKind::Program);
                for value in &node.inputs {
                    assert!(arrays.contains(value), "an operation reads {value} before it is made");
                    if matches!(plan.places[*value as usize], Place::Arena(_))
                        && computed.contains(&base(*value).0)
                    {
                        holds(&arena, *value);
                    }
                }
                arrays.extend(&node.outputs);
            }
            Part::Graph { programs, copied, awaited, writes } => {
                assert!(awaited.iter().all(|value| arrays.contains(value)), "an earlier graph has not run");
                for value in copied {
                    assert!(arrays.contains(value), "{value} is copied before it is made");
                    put(&mut arena, *value);
                }
                for program in programs {
                    let node = &nodes[*program as usize];
                    assert_eq!(node.kind, NodeKind::Program);
                    node.inputs.iter().for_each(|value| holds(&arena, *value));
                    node.outputs.iter().for_each(|value| put(&mut arena, *value));
                    node.inputs.iter().for_each(|value| holds(&arena, *value));
                    computed.extend(&node.outputs);
                }
                arrays.extend(writes);
            }
        }
    }
    for value in outputs {
        assert!(arrays.contains(value), "the caller's {value} is not made");
        if computed.contains(&base(*value).0) {
            holds(&arena, *value);
        }
    }
    let programs = nodes.iter().filter(|node| node.kind == NodeKind::Program);
    assert!(
        programs.flat_map(|node| &node.outputs).all(|value| computed.contains(value)),
        "a program is missing"
    );
}

/// Of each view, the array in whose memory it is.
fn bases(nodes: &[Node]) -> BTreeMap<u32, (u32, u64)> {
    let mut bases = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.kind == NodeKind::View) {
        let (base, offset) = bases.get(&node.inputs[0]).copied().unwrap_or((node.inputs[0], 0));
        bases.insert(node.outputs[0], (base, offset + node.offset));
    }
    bases
}

proptest! {
    #[test]
    fn every_reader_finds_what_was_written(computation in computation()) {
        let Computation { nodes, bytes, inputs, outputs } = &computation;
        run(&computation, &StepPlan::new(nodes, bytes, inputs, outputs));
    }
}

fn node(kind: NodeKind, inputs: &[u32], outputs: &[u32]) -> Node {
    Node { kind, inputs: inputs.to_vec(), outputs: outputs.to_vec(), offset: 0 }
}

/// An embedding, two layers of two programs each, and the logits' conversion.
fn step() -> Vec<Node> {
    use NodeKind::{Operation, Program, View};
    vec![
        node(Operation, &[0, 1], &[2]),
        node(Program, &[2, 1], &[3]),
        node(View, &[3], &[4]),
        node(Program, &[4], &[5]),
        node(Program, &[5], &[6]),
        node(Program, &[6, 3], &[7]),
        node(Operation, &[7], &[8]),
    ]
}

#[test]
fn programs_between_operations_are_one_graph() {
    let plan = StepPlan::new(&step(), &[1024; 9], &[0], &[8]);
    let graph = Part::Graph { programs: vec![1, 3, 4, 5], copied: vec![2], awaited: vec![], writes: vec![7] };
    assert_eq!(plan.parts, [Part::Operation(0), graph, Part::Operation(6)]);
    assert_eq!(plan.places[1], Place::Of { base: 1, offset: 0 });
    assert_eq!(plan.places[3], plan.places[4]);
}

#[test]
fn memory_is_used_again_within_a_graph() {
    let chain: Vec<Node> = (0..100).map(|at| node(NodeKind::Program, &[at], &[at + 1])).collect();
    let plan = StepPlan::new(&chain, &[1024; 101], &[0], &[100]);
    assert!(plan.arena_bytes <= 5 * 1024, "{}", plan.arena_bytes);
}
