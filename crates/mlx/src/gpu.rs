//! Our GPU kernels. Each is one text for CUDA and Metal, written in a small dialect that `dialect/*.h` spells for either;
//! `tests/gpu` compiles the same texts for the CPU and compares them with references.
//!
//! A spec ([`Rotary`], [`PagedAttention`], [`AddNorm`], [`Gated`]) chooses constants and the grid: a [`Plan`]. A plan
//! becomes lazy arrays with [`Plan::call`]. Constants depend on the model and its pools alone, so nothing is compiled
//! once a model has run each of its kernels; the numbers of rows and of sequences are grid sizes.
//!
//! Invariant: no tokens, caches or models. A kernel writes to its outputs, and to the pools that it says it writes to.

mod attention;
mod blocks;
mod call;
mod choose;
mod elementwise;
mod embed;
mod experts;
mod flow;
mod gated;
mod grouped;
mod latent;
mod linear;
mod norm;
mod peers;
mod plan;
mod program;
mod program_folder;
mod recurrent;
mod route;
mod source;
mod step_graph;
mod take;
mod tiled;
mod unpack;
mod weight_format;

pub use attention::{
    HeadShape, ITEM_FIELDS, PagedArrays, PagedAttention, PoolFormat, Projected, QueryTemperature, Rotary,
    RotaryAxes, RotaryNorm, SinkLogits,
};
pub use blocks::{BlockCopies, POOLS_MAX, copy_blocks};
pub use call::written_by;
pub use choose::{Choose, ChooseEdited, LogitEdits, choose_tokens};
pub use elementwise::{AddChosen, AddTerm, JoinRows, Narrow, Term, copy_to_device, host_numbers, upload};
pub use embed::{Embed, TableFormat};
pub use experts::{ExpertProduct, expert_product, expert_rows, expert_rows_plan, experts_flow};
pub use gated::{GateLayout, Gated, HeadGate, HeadGateFunction, Xielu};
pub use grouped::{GroupedProduct, grouped_product, lane_order_plan};
pub use latent::{
    HeadProduct, LatentArrays, LatentRotation, LatentShape, LatentWrite, PagedLatents, head_product,
};
pub use linear::{FewRows, FewRowsWeight, MatrixUnit, few_rows, parts_of};
pub use norm::{AddNorm, JoinedTerm, LayerNorm, NormColumns, RmsNorm};
pub use peers::{HANDLE_BYTES, PeerGroup, PeerMemory, PeerRoom, PeerRows, Together};
pub use plan::{Operand, Plan};
pub use program::{compile_ahead, compiled_kernels, text as cuda_program_text};
pub use program_folder::set_program_folder;
pub use recurrent::{
    CausalConv, ConvActivation, ConvGates, Decays, GatedHeads, HeadsGate, RUN_FIELDS, Recurrence,
    RecurrenceRule, RunCount, SelectiveScan, StateDecay,
};
pub use route::{Correction, ExpertFactors, ExpertGroups, Route, RouteWeights, WeightedSum};
pub use source::{Dialect, Kernel, Source};
pub use step_graph::{
    KernelOrder, KernelTime, LaunchGrid, OtherArrays, StepArrays, StepGraph, StepTrace, TracedLaunch,
};
pub use take::{TakeColumns, TakeNumbers};
pub use unpack::{Unpack, unpack};
pub use weight_format::WeightFormat;

/// Whether ops of this thread go to a GPU that has these kernels.
pub fn available() -> bool {
    Dialect::of(crate::device::backend()).is_some()
        && matches!(crate::device::default(), Ok(crate::device::Device::Gpu))
}
