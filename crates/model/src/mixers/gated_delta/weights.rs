//! Weights of a gated delta layer's convolution, recurrence and norm.

use mlx::Array;

use crate::mixers::CausalConv;

/// Weights between the projections.
pub(crate) struct GatedDeltaWeights {
    pub(crate) conv: CausalConv,
    /// `[v_heads]` f32, both.
    pub(crate) a_log: Array,
    pub(crate) dt_bias: Array,
    /// `[v_dim]`.
    pub(crate) norm: Array,
}
