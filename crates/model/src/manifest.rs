//! The tensors a blueprint needs: every name, every shape, nothing else.
//!
//! Names follow mlx-lm 0.32, so its converted checkpoints load without a single rewrite.

use std::collections::BTreeMap;

use crate::{Blueprint, Head, LayerSpec, Norm};

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
pub(crate) struct Scope<'a> {
    manifest: &'a mut Manifest,
    path: String,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
}

impl Scope<'_> {
    pub(crate) fn at(&mut self, name: &str) -> Scope<'_> {
        Scope { path: format!("{}{name}.", self.path), manifest: self.manifest, hidden: self.hidden }
    }

    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) {
        let clash = self.manifest.0.insert(format!("{}{name}", self.path), shape.to_vec());
        assert!(clash.is_none(), "two tensors named {}{name}", self.path);
    }

    /// `weight: [out, in]` and perhaps `bias: [out]`.
    pub(crate) fn linear(&mut self, name: &str, input: usize, output: usize, bias: bool) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[output, input]);
        if bias {
            scope.tensor("bias", &[output]);
        }
    }

    /// A depthwise convolution: `weight: [channels, conv_kernel_size, 1]` and perhaps `bias: [channels]`.
    pub(crate) fn conv(&mut self, name: &str, channels: usize, conv_kernel_size: usize, bias: bool) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[channels, conv_kernel_size, 1]);
        if bias {
            scope.tensor("bias", &[channels]);
        }
    }

    pub(crate) fn norm(&mut self, name: &str, norm: Norm, width: usize) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[width]);
        match norm {
            Norm::Layer { bias: true, .. } => scope.tensor("bias", &[width]),
            Norm::Layer { bias: false, .. } | Norm::Rms { .. } => {}
        }
    }
}

impl LayerSpec {
    fn name(&self, at: &mut Scope) {
        self.mixer.spec().tensors(&mut at.at(self.mixer_name));
        if let Some(mlp) = &self.mlp {
            mlp.spec().tensors(&mut at.at(self.mlp_name));
        }
        for name in self.norm_placement.norms() {
            at.norm(name, self.norm, at.hidden);
        }
    }
}
