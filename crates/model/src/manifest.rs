//! Names and shapes of tensors: what a blueprint needs of a checkpoint, and nothing else.
//!
//! Names follow mlx-lm 0.32, so its converted checkpoints load without a single rewrite.

use std::collections::BTreeMap;

use crate::Norm;

/// Tensor names and shapes, outermost axis first, in name order; as if nothing were quantized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest(pub BTreeMap<String, Vec<usize>>);

impl Manifest {
    /// Inputs of the module at a path, if there is one.
    pub(crate) fn inputs_of(&self, path: &str) -> Option<usize> {
        self.0.get(&format!("{path}.weight"))?.last().copied()
    }
}

/// A place in the tensor tree.
pub(crate) struct Scope<'a> {
    manifest: &'a mut Manifest,
    path: String,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
}

impl<'a> Scope<'a> {
    /// The root of a tree.
    pub(crate) fn root(manifest: &'a mut Manifest, hidden: usize) -> Self {
        Self { manifest, path: String::new(), hidden }
    }

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

    /// A projection of the stream: `<name>_proj`, or `<name>_a_proj` to a narrow vector and `<name>_b_proj` from it.
    pub(crate) fn projection(&mut self, name: &str, rank: Option<usize>, width: usize) {
        let hidden = self.hidden;
        match rank {
            None => self.linear(&format!("{name}_proj"), hidden, width, false),
            Some(rank) => {
                self.linear(&format!("{name}_a_proj"), hidden, rank, false);
                self.linear(&format!("{name}_b_proj"), rank, width, false);
            }
        }
    }

    /// Linear layers of many experts, `weight: [experts, out, in]` and perhaps `bias: [experts, out]`.
    pub(crate) fn experts(&mut self, name: &str, [experts, output, input]: [usize; 3], bias: bool) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[experts, output, input]);
        if bias {
            scope.tensor("bias", &[experts, output]);
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
        match norm {
            Norm::Rms { .. } | Norm::ScaledRms { .. } | Norm::Layer { bias: false, .. } => {
                scope.tensor("weight", &[width]);
            }
            Norm::Layer { bias: true, .. } => {
                scope.tensor("weight", &[width]);
                scope.tensor("bias", &[width]);
            }
            Norm::Gain => scope.tensor("weight", &[1]),
            Norm::RmsUnweighted { .. } | Norm::LayerUnweighted { .. } => {}
        }
    }
}
