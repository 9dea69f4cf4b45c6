//! Names and shapes of a Mamba-2 layer's tensors.

use super::Mamba2;
use crate::manifest::{Scope, TensorRole};
use crate::spec::Tensors;

impl Tensors for Mamba2 {
    fn name_tensors(&self, at: &mut Scope) {
        // One projection yields the gate, the convolution's input and one step for each head.
        at.heads("in_proj", at.hidden, self.inner() + self.conv_channels() + self.heads, self.bias);
        at.conv("conv1d", self.conv_channels(), self.conv_kernel_size, self.conv_bias);
        for per_head in ["A_log", "D", "dt_bias"] {
            at.tensor(per_head, &[self.heads], TensorRole::Heads);
        }
        if let Some(norm) = self.norm {
            at.norm_as(TensorRole::Heads, "norm", norm, self.inner());
        }
        at.row("out_proj", self.inner(), at.hidden, self.bias);
    }
}
