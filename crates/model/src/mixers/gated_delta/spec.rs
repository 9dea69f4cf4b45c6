//! Gated DeltaNet: what a layer computes, and its rules.

use crate::rules::Broken;
use crate::spec::Rules;

/// Gated DeltaNet: a recurrence that overwrites what its key already stored. Output: `silu(gate) · norm(y)`, the
/// other way round from Mamba-2.
///
/// Source: arXiv 2412.06464.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct GatedDelta {
    pub k_heads: usize,
    /// Divisible by `k_heads`.
    pub v_heads: usize,
    pub k_dim: usize,
    pub v_dim: usize,
    /// Length of the causal convolution.
    pub conv_kernel_size: usize,
    /// Of the RMS norm of each head's output.
    pub norm_eps: f32,
}

impl GatedDelta {
    /// Width of all values together.
    pub fn values(&self) -> usize {
        self.v_heads * self.v_dim
    }

    /// Width of all keys together.
    pub fn keys(&self) -> usize {
        self.k_heads * self.k_dim
    }

    /// Channels through the convolution: queries, keys, values.
    pub fn conv_channels(&self) -> usize {
        2 * self.keys() + self.values()
    }
}

impl Rules for GatedDelta {
    fn check_rules(&self, broken: &mut Broken) {
        let k_heads = ("linear_num_key_heads", self.k_heads);
        let v_heads = ("linear_num_value_heads", self.v_heads);
        let (k_dim, v_dim) = (("linear_key_head_dim", self.k_dim), ("linear_value_head_dim", self.v_dim));
        broken.divides(k_heads, v_heads);
        broken.conv_kernel("linear_conv_kernel_dim", self.conv_kernel_size);
        broken.size(&[k_heads, k_dim]);
        broken.size(&[v_heads, v_dim]);
        broken.size(&[k_dim, v_dim]);
    }
}
