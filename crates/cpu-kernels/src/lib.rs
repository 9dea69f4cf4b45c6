//! CPU kernels in Rust, run by one MLX primitive on its stream's worker.
//!
//! Start at [`Kernel`]. Invariants: kernels do not panic (that would abort), take no locks, and check whatever
//! comes from the contents of arrays (ids, slots, tables), because sizes alone are checked by the crate `mlx`.
//! A row's result never depends on which other rows share the call.

// Kernels are arithmetic on raw memory from end to end; each entry point states its contract, and a block
// around every line would hide more than it shows. Loops over lanes read best with an index.
#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc, clippy::needless_range_loop)]

mod adjust;
mod attention;
mod choose;
mod conv;
mod copy;
mod element;
mod embed;
mod environment;
mod gemm;
mod half;
mod int8;
mod linear;
mod low_rank;
mod math;
#[cfg(target_arch = "x86_64")]
mod matrix;
mod packing;
mod pool;
mod recurrence;
mod route;
mod rows;
mod runs;
mod shift;
mod simd;
mod unit;
mod weighted_sum;
mod weights;
mod wkv;

pub use adjust::Adjust;
pub use attention::{
    Attention, Ends, Latent, Norm as HeadNorm, Projected, Rope, RotaryAxes, RotaryPairing, Store,
};
pub use choose::{Choose, Masks, Xtc};
pub use conv::Conv;
pub use copy::Copy;
pub use element::Float;
pub use embed::Embed;
pub use linear::{Activations, Layout, Linear, Rows};
pub use low_rank::{LowRank, LowRankPart};
pub use packing::Packing;
pub use pool::threads;
pub use recurrence::{Recurrence, Rule};
pub use route::{Route, RouteGroups, RouteScores};
pub use rows::{Act, Center, Gated, Gates, Norm};
pub use shift::Shift;
pub use simd::{Isa, isa, limit_isa};
pub use unit::{Unit, has_matrix_unit};
pub use weighted_sum::WeightedSum;
pub use weights::{ExpertAddresses, Weights};
pub use wkv::Wkv;

/// What a primitive computes: everything that is known when the graph is built.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    Linear(Linear),
    LowRank(LowRank),
    Norm(Norm),
    Gated(Gated),
    Attention(Attention),
    Embed(Embed),
    Conv(Conv),
    Copy(Copy),
    Recurrence(Recurrence),
    Route(Route),
    Shift(Shift),
    WeightedSum(WeightedSum),
    Wkv(Wkv),
    Adjust(Adjust),
    Choose(Choose),
}

impl Kernel {
    /// The name of its primitive in graphs.
    pub fn name(&self) -> &'static str {
        match self {
            Kernel::Linear(_) => "OmnibusLinear",
            Kernel::LowRank(_) => "OmnibusLowRank",
            Kernel::Norm(_) => "OmnibusNorm",
            Kernel::Gated(_) => "OmnibusGated",
            Kernel::Attention(_) => "OmnibusAttention",
            Kernel::Embed(_) => "OmnibusEmbed",
            Kernel::Conv(_) => "OmnibusConv",
            Kernel::Copy(_) => "OmnibusCopy",
            Kernel::Recurrence(_) => "OmnibusRecurrence",
            Kernel::Route(_) => "OmnibusRoute",
            Kernel::Shift(_) => "OmnibusShift",
            Kernel::WeightedSum(_) => "OmnibusWeightedSum",
            Kernel::Wkv(_) => "OmnibusWkv",
            Kernel::Adjust(_) => "OmnibusAdjust",
            Kernel::Choose(_) => "OmnibusChoose",
        }
    }

    /// # Safety
    /// Buffers are as the kernel's own documentation says, dense and in row order.
    pub unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        match self {
            Kernel::Linear(kernel) => kernel.run(inputs, outputs[0]),
            Kernel::LowRank(kernel) => kernel.run(inputs, outputs[0]),
            Kernel::Norm(kernel) => kernel.run(inputs, outputs),
            Kernel::Gated(kernel) => kernel.run(inputs, outputs[0]),
            Kernel::Attention(kernel) => kernel.run(inputs, outputs),
            Kernel::Embed(kernel) => kernel.run(inputs, outputs[0]),
            Kernel::Conv(kernel) => kernel.run(inputs, outputs),
            Kernel::Copy(kernel) => kernel.run(inputs, outputs[0]),
            Kernel::Recurrence(kernel) => kernel.run(inputs, outputs),
            Kernel::Route(kernel) => kernel.run(inputs, outputs),
            Kernel::Shift(kernel) => kernel.run(inputs, outputs),
            Kernel::WeightedSum(kernel) => kernel.run(inputs, outputs[0]),
            Kernel::Wkv(kernel) => kernel.run(inputs, outputs),
            Kernel::Adjust(kernel) => kernel.run(inputs, outputs[0]),
            Kernel::Choose(kernel) => kernel.run(inputs, outputs[0]),
        }
    }
}
