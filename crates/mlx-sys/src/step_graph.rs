//! The bridge to computations whose programs are launched as CUDA graphs.

pub use ffi::{
    GraphPart, GraphPlace, GraphShape, Leaves, NodeKind, NodeTime, StepGraph, Trace, TraceNode, step_graph,
    trace,
};

#[allow(missing_docs)]
#[cxx::bridge(namespace = "mlx_shim")]
mod ffi {
    /// What a node of a trace is.
    #[derive(Debug)]
    #[repr(u8)]
    enum NodeKind {
        /// One of our CUDA programs.
        Program,
        /// Its outputs are in the memory of its inputs.
        View,
        /// Any other operation of MLX.
        Operation,
    }

    /// A node of a trace; arrays are named by their index.
    #[derive(Debug)]
    struct TraceNode {
        kind: NodeKind,
        inputs: Vec<u32>,
        outputs: Vec<u32>,
        /// Of a view: bytes into the input at which the output begins.
        offset: u64,
        /// MLX's name of it, or the program's.
        name: String,
        /// Of a program: groups on each axis, threads of a group, and its shared memory beside what the program declares;
        /// else zeros.
        groups: [u32; 3],
        threads: u32,
        shared_bytes: u32,
    }

    /// Which evaluated arrays a trace may read.
    #[derive(Debug)]
    #[repr(u8)]
    enum Leaves {
        /// Only evaluated arrays that are named.
        Named,
        /// All: the computation is made again for the same inputs only.
        Any,
    }

    /// How long a node of a trace takes.
    #[derive(Debug, Clone, Copy)]
    struct NodeTime {
        node: u32,
        microseconds: f32,
    }

    /// An operation of MLX, or programs that become one graph.
    #[derive(Debug)]
    struct GraphPart {
        /// The operation, where there are no programs.
        node: u32,
        programs: Vec<u32>,
        /// Arrays that are copied to their place before the graph runs.
        copied: Vec<u32>,
        /// Arrays of earlier graphs.
        awaited: Vec<u32>,
        /// Arrays that others read.
        writes: Vec<u32>,
    }

    /// Where an array is that programs read or write.
    #[derive(Debug, Clone, Copy)]
    struct GraphPlace {
        in_arena: bool,
        /// Elsewhere: the array in whose memory it is.
        base: u32,
        /// Bytes from there.
        offset: u64,
    }

    /// What all graphs of a step share.
    #[derive(Debug, Clone, Copy)]
    struct GraphShape {
        arena_bytes: u64,
        /// Kernels wait for the one before by themselves, so that one may begin before the other ends.
        overlaps: bool,
    }

    unsafe extern "C++" {
        include!("mlx-sys/shim/step_graph.h");

        #[namespace = "mlx::core"]
        #[cxx_name = "array"]
        type Array = crate::Array;

        type Trace;
        fn trace(
            outputs: &CxxVector<Array>,
            inputs: &CxxVector<Array>,
            constants: &CxxVector<Array>,
            borrowed: &CxxVector<Array>,
            leaves: Leaves,
        ) -> Result<SharedPtr<Trace>>;
        fn list(self: &Trace) -> Vec<TraceNode>;
        fn bytes(self: &Trace) -> Vec<u64>;
        fn input_values(self: &Trace) -> Vec<u32>;
        fn borrowed_values(self: &Trace) -> Vec<u32>;
        fn output_values(self: &Trace) -> Vec<u32>;
        type StepGraph;
        fn step_graph(
            trace: SharedPtr<Trace>,
            borrowed: &CxxVector<Array>,
            parts: &[GraphPart],
            places: &[GraphPlace],
            shape: &GraphShape,
        ) -> Result<UniquePtr<StepGraph>>;
        fn fits(self: &StepGraph, borrowed: &CxxVector<Array>) -> bool;
        fn call(self: &StepGraph, inputs: &CxxVector<Array>) -> Result<UniquePtr<CxxVector<Array>>>;
        fn times(
            self: &StepGraph,
            inputs: &CxxVector<Array>,
            borrowed: &CxxVector<Array>,
            runs: u32,
        ) -> Result<Vec<NodeTime>>;
    }
}
