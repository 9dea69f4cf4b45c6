//! Names and shapes of a gated delta layer's tensors.

use super::GatedDelta;
use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;
use crate::spec::Tensors;

impl Tensors for GatedDelta {
    fn name_tensors(&self, at: &mut Scope) {
        at.heads("in_proj_qkv", at.hidden, self.conv_channels(), false);
        at.heads("in_proj_z", at.hidden, self.values(), false);
        at.heads("in_proj_b", at.hidden, self.v_heads, false);
        at.heads("in_proj_a", at.hidden, self.v_heads, false);
        at.conv("conv1d", self.conv_channels(), self.conv_kernel_size, false);
        for per_head in ["A_log", "dt_bias"] {
            at.tensor(per_head, &[self.v_heads], TensorRole::Heads);
        }
        at.norm("norm", Norm::Rms { eps: self.norm_eps }, self.v_dim);
        at.row("out_proj", self.values(), at.hidden, false);
    }
}
