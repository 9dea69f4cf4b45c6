//! Convolved keys and values: what a layer computes, its rules, tensors, state and scratch memory.

use crate::manifest::Scope;
use crate::mixers::Recurrence;
use crate::norm::Norm;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// `out(sigmoid(q · convolution(k)) · convolution(v))`, element by element; keys and values are shared by groups of heads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConvGate {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Length of the causal convolutions.
    pub conv_kernel_size: usize,
    /// Of the RMS norm of each head's queries and keys.
    pub norm_eps: f32,
    /// Bias on projections and convolutions.
    pub bias: bool,
}

impl ConvGate {
    pub(super) fn keys(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

impl Rules for ConvGate {
    fn check_rules(&self, broken: &mut Broken) {
        let heads = ("num_attention_heads", self.heads);
        broken.divides(("num_key_value_heads", self.kv_heads), heads);
        broken.size(&[heads, ("head_dim", self.head_dim)]);
        broken.conv_kernel("conv_L_cache", self.conv_kernel_size);
    }
}

impl Tensors for ConvGate {
    fn name_tensors(&self, at: &mut Scope) {
        let queries = self.heads * self.head_dim;
        at.heads("q_proj", at.hidden, queries, self.bias);
        for (name, conv) in [("k_proj", "key_conv"), ("v_proj", "value_conv")] {
            at.heads(name, at.hidden, self.keys(), self.bias);
            at.conv(conv, self.keys(), self.conv_kernel_size, self.bias);
        }
        at.norm("q_norm", Norm::Rms { eps: self.norm_eps }, self.head_dim);
        at.norm("k_norm", Norm::Rms { eps: self.norm_eps }, self.head_dim);
        at.row("o_proj", queries, at.hidden, self.bias);
    }
}

impl Recurrence for ConvGate {
    /// The last rows of keys and values together; there is no other state.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.conv_kernel_size - 1, 2 * self.keys()], vec![1]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Footprint for ConvGate {
    /// Queries, keys and values, the convolutions' output, the gated values, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        4 * self.heads * self.head_dim + 4 * self.keys() + hidden
    }
}
