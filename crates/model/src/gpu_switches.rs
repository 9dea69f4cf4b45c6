//! Which GPU kernels are used. All are on until a check switches one off.

use std::sync::atomic::{AtomicBool, Ordering};

/// A kernel, or several that are used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuKernel {
    /// Rotation and write, attention of decoding rows and of chunks.
    Attention,
    /// Attention of chunks by warpgroups. Without it, simd groups compute it.
    WarpgroupAttention,
    AddNorm,
    Embed,
    Gated,
    /// Products with weights.
    Linear,
    /// Choice of experts, products with their weights, and the sum of the results.
    Experts,
    /// Choice of tokens.
    Choose,
    /// Convolutions and recurrences with states.
    Recurrence,
}

static OFF: [AtomicBool; 9] = [const { AtomicBool::new(false) }; 9];

/// Whether a kernel is used.
pub(crate) fn is_on(kernel: GpuKernel) -> bool {
    OFF.get(kernel as usize).is_some_and(|off| !off.load(Ordering::Relaxed))
}

/// No longer uses a kernel, in the whole process.
pub(crate) fn switch_off(kernel: GpuKernel) {
    if let Some(off) = OFF.get(kernel as usize) {
        off.store(true, Ordering::Relaxed);
    }
}
