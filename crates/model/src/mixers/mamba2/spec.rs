//! Mamba-2: what a layer computes, and its rules.

use crate::norm::Norm;
use crate::rules::Broken;
use crate::spec::Rules;

/// Mamba-2: a recurrence in which each head's state decays as a whole. Output: `norm(silu(gate) · y)`.
///
/// Source: arXiv 2405.21060.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Mamba2 {
    pub heads: usize,
    pub head_dim: usize,
    /// Groups of heads that share keys and queries (B and C).
    pub groups: usize,
    /// Width of a key.
    pub state_dim: usize,
    /// Length of the causal convolution.
    pub conv_kernel_size: usize,
    /// Least and most of a step Δt, in model time.
    pub step_limits: [f32; 2],
    pub bias: bool,
    pub conv_bias: bool,
    /// Of the gated output; none leaves it as it is.
    pub norm: Option<Norm>,
    /// Parts of the output that are normalised each on its own.
    pub norm_groups: usize,
}

impl Mamba2 {
    /// Width of the heads together.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels through the convolution: the heads, then B, then C.
    pub fn conv_channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.state_dim
    }
}

impl Rules for Mamba2 {
    fn check_rules(&self, broken: &mut Broken) {
        let (heads, head_dim) = (("num_heads", self.heads), ("head_dim", self.head_dim));
        let (groups, state) = (("n_groups", self.groups), ("state_size", self.state_dim));
        broken.divides(groups, heads);
        broken.divides(("the groups of the norm", self.norm_groups), ("the width", self.inner()));
        broken.conv_kernel("conv_kernel", self.conv_kernel_size);
        broken.size(&[heads, head_dim]);
        broken.size(&[groups, state]);
        broken.size(&[head_dim, state]);
        let [low, high] = self.step_limits;
        broken.check(0.0 <= low && low <= high, || {
            format!("`time_step_limit` ([{low}, {high}]) is in order and not negative")
        });
    }
}
