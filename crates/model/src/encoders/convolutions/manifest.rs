//! The tensors of a tower. Those of convolutions are `[out, kernel, kernel, in / groups]`; kernels of one place are linear
//! layers.

use super::blueprint::{ConvBlock, ConvBlockKind, ConvTower};
use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;

impl ConvTower {
    /// Names them below `at`. `hidden`: width of the rows.
    pub(in crate::encoders) fn name(&self, at: &mut Scope, hidden: usize) {
        let stem = &mut at.at("conv_stem");
        stem.tensor("conv.weight", &[self.stem, 3, 3, 3], TensorRole::Replicated);
        stem.tensor("conv.bias", &[self.stem], TensorRole::Replicated);
        stem.norm("bn", self.norm, self.stem);
        for (number, stage) in self.stages.iter().enumerate() {
            for (index, block) in stage.iter().enumerate() {
                block.name(&mut at.at(&format!("blocks.{number}.{index}")), self.norm);
            }
        }
        let mut fusion = at.at("msfa");
        linear(&mut fusion, "ffn.pw_exp", (self.fused(), self.fusion.inner), self.norm);
        linear(&mut fusion, "ffn.pw_proj", (self.fusion.inner, hidden), self.norm);
        fusion.norm("norm", self.norm, hidden);
    }
}

impl ConvBlock {
    fn name(&self, at: &mut Scope, norm: Norm) {
        let Self { from, to, .. } = *self;
        match self.kind {
            ConvBlockKind::Edge { kernel, inner } => {
                at.tensor("conv_exp.weight", &[inner, kernel, kernel, from], TensorRole::Replicated);
                at.norm("bn1", norm, inner);
                at.replicated("conv_pwl", inner, to, false);
                at.norm("bn2", norm, to);
            }
            ConvBlockKind::Inverted { before, between, behind, inner } => {
                depthwise(at, "dw_start", (before, from), norm);
                linear(at, "pw_exp", (from, inner), norm);
                depthwise(at, "dw_mid", (between, inner), norm);
                linear(at, "pw_proj", (inner, to), norm);
                depthwise(at, "dw_end", (behind, to), norm);
                at.tensor("layer_scale.gamma", &[to], TensorRole::Replicated);
            }
            ConvBlockKind::Attention { heads, head_dim, kernel, key_stride } => {
                at.norm("norm", norm, from);
                at.replicated("attn.query.proj", from, heads * head_dim, false);
                for part in ["attn.key", "attn.value"] {
                    let mut part = at.at(part);
                    if key_stride > 1 {
                        part.tensor("down_conv.weight", &[from, kernel, kernel, 1], TensorRole::Replicated);
                        part.norm("norm", norm, from);
                    }
                    part.replicated("proj", from, head_dim, false);
                }
                at.replicated("attn.output.proj", heads * head_dim, to, false);
                at.tensor("layer_scale.gamma", &[to], TensorRole::Replicated);
            }
        }
    }
}

/// A linear layer with its norm.
fn linear(at: &mut Scope, name: &str, (from, to): (usize, usize), norm: Norm) {
    let mut at = at.at(name);
    at.replicated("conv", from, to, false);
    at.norm("bn", norm, to);
}

/// A depthwise convolution with its norm; none if its kernel has no places.
fn depthwise(at: &mut Scope, name: &str, (kernel, channels): (usize, usize), norm: Norm) {
    if kernel > 0 {
        let mut at = at.at(name);
        at.tensor("conv.weight", &[channels, kernel, kernel, 1], TensorRole::Replicated);
        at.norm("bn", norm, channels);
    }
}
