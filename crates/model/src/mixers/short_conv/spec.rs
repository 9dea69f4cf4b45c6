//! A gated short convolution: what a layer computes, its rules, tensors, state and scratch memory.

use crate::manifest::Scope;
use crate::mixers::Recurrence;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// `out(c · convolution(b · x))`, with `b`, `c` and `x` projected from the stream, all as wide as it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortConv {
    /// Width of the stream.
    pub hidden: usize,
    /// Length of the convolution.
    pub conv_kernel_size: usize,
    /// Which rows it reads.
    pub reach: ConvReach,
    /// Bias on projections and convolution.
    pub bias: bool,
}

/// Which rows a convolution reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvReach {
    /// The row's own and those before it.
    Before,
    /// As many before the row as behind it, of a text that is computed whole (LFM2.5-Embedding).
    BothSides,
}

impl Rules for ShortConv {
    fn check_rules(&self, broken: &mut Broken) {
        broken.conv_kernel("conv_L_cache", self.conv_kernel_size);
        broken.check(self.reach == ConvReach::Before || !self.conv_kernel_size.is_multiple_of(2), || {
            format!("`conv_L_cache` ({}) has a middle", self.conv_kernel_size)
        });
    }
}

impl Tensors for ShortConv {
    fn name_tensors(&self, at: &mut Scope) {
        at.heads("in_proj", at.hidden, 3 * self.hidden, self.bias);
        at.conv("conv", self.hidden, self.conv_kernel_size, self.bias);
        at.row("out_proj", self.hidden, at.hidden, self.bias);
    }
}

impl Recurrence for ShortConv {
    /// The convolution's last rows; there is no other state.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.conv_kernel_size - 1, self.hidden], vec![1]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Footprint for ShortConv {
    /// The three projections, their products, the convolution's output, and the output projection.
    fn row_elements(&self, hidden: usize) -> usize {
        6 * self.hidden + hidden
    }
}
