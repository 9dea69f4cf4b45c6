//! The tensors a blueprint needs: every name, every shape, nothing else.
//!
//! Names follow mlx-lm 0.32, so its converted checkpoints load without a single rewrite.

use std::collections::BTreeMap;

use crate::{Attention, Blueprint, Gated, Head, LayerSpec, Mixer, Mlp, Moe, Norm, QkNorm};

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

    fn norm(&mut self, name: &str, norm: Norm, width: usize) {
        let Norm::Rms { .. } = norm;
        self.at(name).tensor("weight", &[width]);
    }
}

impl LayerSpec {
    fn name(&self, at: &mut Scope) {
        let Mixer::Attention(attention) = &self.mixer;
        attention.name(&mut at.at(self.mixer_name));
        match &self.mlp {
            Mlp::Gated(spec) => spec.name(&mut at.at("mlp")),
            Mlp::Moe(spec) => spec.name(&mut at.at("mlp")),
        }
        for name in self.wiring.norms() {
            at.norm(name, self.norm, at.hidden);
        }
    }
}

impl Attention {
    fn name(&self, at: &mut Scope) {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        at.linear("q_proj", at.hidden, q, self.qkv_bias);
        at.linear("k_proj", at.hidden, kv, self.qkv_bias);
        at.linear("v_proj", at.hidden, kv, self.qkv_bias);
        at.linear("o_proj", q, at.hidden, self.out_bias);
        if let Some(QkNorm::PerHead(norm)) = self.qk_norm {
            at.norm("q_norm", norm, self.head_dim);
            at.norm("k_norm", norm, self.head_dim);
        }
    }
}

impl Gated {
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
    }
}
