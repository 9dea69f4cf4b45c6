//! Weights of a Mamba-2 layer's convolution and recurrence.

use mlx::Array;

use crate::mixers::CausalConv;

/// Weights between the projections.
pub(crate) struct Mamba2Weights {
    pub(crate) conv: CausalConv,
    /// `[heads]` f32, all three.
    pub(crate) a_log: Array,
    pub(crate) dt_bias: Array,
    pub(crate) skip: Array,
}
