//! Weights of convolutions and recurrences, as [`Ops`](super::Ops) take them.

use mlx::Array;

/// A causal convolution of each channel and its activation, `silu`.
pub(crate) struct CausalConv {
    /// `[conv_kernel_size, channels]` f32, the oldest row first.
    pub(crate) weight: Array,
    /// `[channels]` f32.
    pub(crate) bias: Option<Array>,
}

/// Weights of a Mamba layer's recurrence.
#[derive(Clone, Copy)]
pub(crate) struct Mamba1Rows<'a> {
    /// `[inner, state_dim]` f32: how fast states decay, below zero.
    pub(crate) rate: &'a Array,
    /// `[inner]` f32.
    pub(crate) skip: &'a Array,
}

/// Weights between the projections of a Mamba-2 layer.
pub(crate) struct Mamba2Weights {
    pub(crate) conv: CausalConv,
    /// `[heads]` f32, all three.
    pub(crate) a_log: Array,
    pub(crate) dt_bias: Array,
    pub(crate) skip: Array,
}

/// Weights between the projections of a gated delta layer.
pub(crate) struct GatedDeltaWeights {
    pub(crate) conv: CausalConv,
    /// `[v_heads]` f32, both.
    pub(crate) a_log: Array,
    pub(crate) dt_bias: Array,
    /// `[v_dim]`.
    pub(crate) norm: Array,
}

impl CausalConv {
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.weight].into_iter().chain(&self.bias)
    }
}
