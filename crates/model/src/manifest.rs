//! The tensors a blueprint needs: every name, every shape, nothing else.
//!
//! Names follow mlx-lm 0.32, so its converted checkpoints load without a single rewrite.

use std::collections::BTreeMap;

use crate::{
    Attention, Blueprint, GatedDelta, GatedMlp, Head, LayerSpec, Mamba2, Mixer, Mlp, Moe, Norm, QkNorm,
};

/// Tensor names and shapes, outermost axis first, in name order; as if nothing were quantized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest(pub BTreeMap<String, Vec<usize>>);

impl Blueprint {
    /// Every tensor this network is made of, unquantized. [`Head::OwnIfPresent`] counts as tied.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        let mut top = Scope { manifest: &mut manifest, path: String::new(), hidden: self.hidden };
        if self.head == Head::Own {
            top.linear("lm_head", self.hidden, self.vocab, false);
        }
        let mut root = top.at(self.names.root);
        root.linear(self.names.embed, self.hidden, self.vocab, false);
        root.norm(self.names.final_norm, self.final_norm, self.hidden);
        for (index, layer) in self.layers.iter().enumerate() {
            layer.name(&mut root.at(&format!("layers.{index}")));
        }
        manifest
    }
}

/// A place in the tensor tree.
struct Scope<'a> {
    manifest: &'a mut Manifest,
    path: String,
    /// Width of the residual stream.
    hidden: usize,
}

impl Scope<'_> {
    fn at(&mut self, name: &str) -> Scope<'_> {
        Scope { path: format!("{}{name}.", self.path), manifest: self.manifest, hidden: self.hidden }
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) {
        let clash = self.manifest.0.insert(format!("{}{name}", self.path), shape.to_vec());
        assert!(clash.is_none(), "two tensors named {}{name}", self.path);
    }

    /// `weight: [out, in]` and perhaps `bias: [out]`.
    fn linear(&mut self, name: &str, input: usize, output: usize, bias: bool) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[output, input]);
        if bias {
            scope.tensor("bias", &[output]);
        }
    }

    /// A depthwise convolution: `weight: [channels, conv_kernel_size, 1]` and perhaps `bias: [channels]`.
    fn conv(&mut self, name: &str, channels: usize, conv_kernel_size: usize, bias: bool) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[channels, conv_kernel_size, 1]);
        if bias {
            scope.tensor("bias", &[channels]);
        }
    }

    fn norm(&mut self, name: &str, norm: Norm, width: usize) {
        let Norm::Rms { .. } = norm;
        self.at(name).tensor("weight", &[width]);
    }
}

impl LayerSpec {
    fn name(&self, at: &mut Scope) {
        let mut mixer = at.at(self.mixer_name);
        match &self.mixer {
            Mixer::Attention(spec) => spec.name(&mut mixer),
            Mixer::Mamba2(spec) => spec.name(&mut mixer),
            Mixer::GatedDelta(spec) => spec.name(&mut mixer),
        }
        match &self.mlp {
            Some(Mlp::Gated(spec)) => spec.name(&mut at.at("mlp")),
            Some(Mlp::Moe(spec)) => spec.name(&mut at.at("mlp")),
            None => {}
        }
        for name in self.norm_placement.norms() {
            at.norm(name, self.norm, at.hidden);
        }
    }
}

impl Attention {
    fn name(&self, at: &mut Scope) {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let gated = if self.out_gate { 2 * q } else { q };
        at.linear("q_proj", at.hidden, gated, self.qkv_bias);
        at.linear("k_proj", at.hidden, kv, self.qkv_bias);
        at.linear("v_proj", at.hidden, kv, self.qkv_bias);
        at.linear("o_proj", q, at.hidden, self.out_bias);
        if let Some(QkNorm::PerHead(norm)) = self.qk_norm {
            at.norm("q_norm", norm, self.head_dim);
            at.norm("k_norm", norm, self.head_dim);
        }
    }
}

impl Mamba2 {
    fn name(&self, at: &mut Scope) {
        // One projection yields the gate, the convolution's input and one step for each head.
        at.linear("in_proj", at.hidden, self.inner() + self.conv_channels() + self.heads, self.bias);
        at.conv("conv1d", self.conv_channels(), self.conv_kernel_size, self.conv_bias);
        for per_head in ["A_log", "D", "dt_bias"] {
            at.tensor(per_head, &[self.heads]);
        }
        at.norm("norm", self.norm, self.inner());
        at.linear("out_proj", self.inner(), at.hidden, self.bias);
    }
}

impl GatedDelta {
    fn name(&self, at: &mut Scope) {
        at.linear("in_proj_qkvz", at.hidden, self.conv_channels() + self.values(), false);
        at.linear("in_proj_ba", at.hidden, 2 * self.v_heads, false);
        at.conv("conv1d", self.conv_channels(), self.conv_kernel_size, false);
        for per_head in ["A_log", "dt_bias"] {
            at.tensor(per_head, &[self.v_heads]);
        }
        at.norm("norm", self.norm, self.v_dim);
        at.linear("out_proj", self.values(), at.hidden, false);
    }
}

impl GatedMlp {
    fn name(&self, at: &mut Scope) {
        at.linear("gate_proj", at.hidden, self.width, self.bias);
        at.linear("up_proj", at.hidden, self.width, self.bias);
        at.linear("down_proj", self.width, at.hidden, self.bias);
    }
}

impl Moe {
    fn name(&self, at: &mut Scope) {
        let (experts, width, hidden) = (self.experts, self.expert.width, at.hidden);
        at.linear("gate", hidden, experts, false);
        let mut routed = at.at("switch_mlp");
        routed.tensor("gate_proj.weight", &[experts, width, hidden]);
        routed.tensor("up_proj.weight", &[experts, width, hidden]);
        routed.tensor("down_proj.weight", &[experts, hidden, width]);
        if let Some(shared) = self.shared {
            self.expert.with_width(shared.width).name(&mut at.at(shared.name));
            at.linear(&format!("{}_gate", shared.name), hidden, 1, false);
        }
    }
}
