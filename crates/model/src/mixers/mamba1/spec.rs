//! Mamba: what a layer computes, its rules, tensors, state and scratch memory.

use crate::manifest::{Scope, TensorRole};
use crate::mixers::Recurrence;
use crate::norm::Norm;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// Mamba: each channel has a state of its own, and what is written, read and how fast it decays depends on the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mamba1 {
    /// Channels.
    pub inner: usize,
    /// Numbers of a channel's state.
    pub state_dim: usize,
    /// Length of the causal convolution.
    pub conv_kernel_size: usize,
    /// Width of the vector that steps come from.
    pub step_rank: usize,
    /// Bias on the projections to and from channels.
    pub bias: bool,
    /// Bias on the convolution.
    pub conv_bias: bool,
    /// Norms on the steps' vector, on what is written and on what reads.
    pub step_norms: Option<StepNorms>,
}

/// Norms inside a Mamba layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepNorms {
    /// RMS without weights (Falcon Mamba).
    Unweighted(f32),
    /// RMS, `dt_layernorm`, `b_layernorm` and `c_layernorm` (Jamba).
    Weighted(f32),
}

impl StepNorms {
    pub(super) fn norm(self) -> Norm {
        match self {
            Self::Unweighted(eps) => Norm::RmsUnweighted { eps },
            Self::Weighted(eps) => Norm::Rms { eps },
        }
    }
}

impl Mamba1 {
    /// Names and widths of what the norms run over.
    pub(super) fn normed(&self) -> [(&'static str, usize); 3] {
        [("dt_layernorm", self.step_rank), ("b_layernorm", self.state_dim), ("c_layernorm", self.state_dim)]
    }
}

impl Rules for Mamba1 {
    fn check_rules(&self, broken: &mut Broken) {
        broken.conv_kernel("conv_kernel", self.conv_kernel_size);
        broken.size(&[("intermediate_size", self.inner), ("state_size", self.state_dim)]);
        broken.size(&[("time_step_rank", self.step_rank)]);
    }
}

impl Tensors for Mamba1 {
    fn name_tensors(&self, at: &mut Scope) {
        at.heads("in_proj", at.hidden, 2 * self.inner, self.bias);
        at.conv("conv1d", self.inner, self.conv_kernel_size, self.conv_bias);
        at.row("x_proj", self.inner, self.step_rank + 2 * self.state_dim, false);
        at.heads("dt_proj", self.step_rank, self.inner, true);
        at.tensor("A_log", &[self.inner, self.state_dim], TensorRole::Heads);
        at.tensor("D", &[self.inner], TensorRole::Heads);
        at.row("out_proj", self.inner, at.hidden, self.bias);
        if let Some(norms) = self.step_norms {
            self.normed().into_iter().for_each(|(name, width)| at.norm(name, norms.norm(), width));
        }
    }
}

impl Recurrence for Mamba1 {
    /// The convolution's last rows, and the state, `[inner, state_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.conv_kernel_size - 1, self.inner], vec![self.inner, self.state_dim]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Footprint for Mamba1 {
    /// Channels and gates, the convolution's output, steps, and what is written to each channel's state.
    fn row_elements(&self, hidden: usize) -> usize {
        (6 + 2 * self.state_dim) * self.inner + self.step_rank + 2 * self.state_dim + hidden
    }
}
