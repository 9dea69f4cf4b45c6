//! A real-gated linear recurrent unit: what a layer computes, its rules, tensors, state and scratch memory.

use crate::manifest::{Scope, TensorRole};
use crate::mixers::Recurrence;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// Each channel's state decays by a learned rate that the input gates: `h = a · h + √(1 − a²) · (gate · x)`, with
/// `a = exp(−8 · gateₐ · softplus(rate))`. Output: `gelu(linear_y) · h`.
///
/// Source: arXiv 2402.19427 §2.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RgLru {
    /// Channels.
    pub width: usize,
    /// Blocks of channels that gates are computed from; divides `width`.
    pub heads: usize,
    /// Length of the causal convolution.
    pub conv_kernel_size: usize,
}

/// The gates, which are linear in each block of channels.
pub(super) const GATES: [&str; 2] = ["input_gate", "recurrent_gate"];

impl Rules for RgLru {
    fn check_rules(&self, broken: &mut Broken) {
        broken.divides(("num_attention_heads", self.heads), ("lru_width", self.width));
        broken.conv_kernel("conv1d_width", self.conv_kernel_size);
    }
}

impl Tensors for RgLru {
    fn name_tensors(&self, at: &mut Scope) {
        at.heads("linear_x", at.hidden, self.width, true);
        at.heads("linear_y", at.hidden, self.width, true);
        at.conv("conv_1d", self.width, self.conv_kernel_size, true);
        let mut unit = at.at("rg_lru");
        unit.tensor("recurrent_param", &[self.width], TensorRole::Heads);
        let block = self.width / self.heads.max(1);
        for gate in GATES {
            unit.tensor(&format!("{gate}_weight"), &[self.heads, block, block], TensorRole::Heads);
            unit.tensor(&format!("{gate}_bias"), &[self.heads, block], TensorRole::Heads);
        }
        at.row("linear_out", self.width, at.hidden, true);
    }
}

impl Recurrence for RgLru {
    /// The convolution's last rows, and the state of each channel.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.conv_kernel_size - 1, self.width], vec![self.width]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Footprint for RgLru {
    /// Two projections, the convolution's output, two gates, decays, the state, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        8 * self.width + hidden
    }
}
