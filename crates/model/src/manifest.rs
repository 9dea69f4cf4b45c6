//! Names, shapes and roles of tensors: what a blueprint needs of a checkpoint, and nothing else.
//!
//! Names follow mlx-lm 0.32, so its converted checkpoints load without a single rewrite.

use std::collections::BTreeMap;

use crate::norm::Norm;

/// Tensor names, shapes, outermost axis first, and roles, in name order; as if nothing were quantized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest(pub BTreeMap<String, Vec<usize>>, BTreeMap<String, TensorRole>);

/// How a tensor may be dealt out to several devices that compute a layer together. A bias has the role of its layer's weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorRole {
    /// Whole on each device: what reads the stream as it is, and choices that all must make alike.
    Replicated,
    /// By outputs, the first axis, anywhere.
    Column,
    /// By inputs, the last axis, where the layers before it are dealt out; the devices' products are summed, and a bias is
    /// added once.
    Row,
    /// By heads, or by groups or channels of a recurrence, outputs or elements of the first axis that is longer than one; where
    /// a projection has several parts one after the other, each part by itself.
    Heads,
    /// By experts, the first axis; or the outputs of each expert.
    ExpertColumn,
    /// By experts, the first axis; or the inputs of each expert.
    ExpertRow,
}

impl Manifest {
    /// Inputs of the module at a path, if there is one.
    pub(crate) fn inputs_of(&self, path: &str) -> Option<usize> {
        self.0.get(&format!("{path}.weight"))?.last().copied()
    }

    /// The role of a tensor that the manifest names.
    pub fn role(&self, name: &str) -> Option<TensorRole> {
        self.1.get(name).copied()
    }

    /// Modules with a matrix for each expert.
    pub(crate) fn expert_modules(&self) -> impl Iterator<Item = &str> {
        let of_experts = |(name, shape): (&'_ String, &'_ Vec<usize>)| {
            let by_expert = matches!(self.role(name), Some(TensorRole::ExpertColumn | TensorRole::ExpertRow));
            by_expert && shape.len() == 3
        };
        let names = self.0.iter().filter(move |(name, shape)| of_experts((name, shape)));
        names.filter_map(|(name, _)| name.strip_suffix(".weight"))
    }

    /// The role of a stored tensor: scales and biases of packed weights have that of their weight.
    pub(crate) fn stored_role(&self, name: &str) -> Option<TensorRole> {
        let packed = || {
            let path = name.strip_suffix(".scales").or_else(|| name.strip_suffix(".biases"))?;
            self.role(&format!("{path}.weight"))
        };
        self.role(name).or_else(packed)
    }

    pub(crate) fn insert(&mut self, name: String, shape: &[usize], role: TensorRole) {
        self.1.insert(name.clone(), role);
        let clash = self.0.insert(name.clone(), shape.to_vec());
        assert!(clash.is_none(), "two tensors named {name}");
    }
}

/// A place in the tensor tree.
pub(crate) struct Scope<'a> {
    manifest: &'a mut Manifest,
    path: String,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Of all tensors, whatever their layers say.
    all: Option<TensorRole>,
}

impl<'a> Scope<'a> {
    /// The root of a tree.
    pub(crate) fn root(manifest: &'a mut Manifest, hidden: usize) -> Self {
        Self { manifest, path: String::new(), hidden, all: None }
    }

    /// The root of a tree that each device has whole.
    pub(crate) fn replicated_root(manifest: &'a mut Manifest, hidden: usize) -> Self {
        Self { all: Some(TensorRole::Replicated), ..Self::root(manifest, hidden) }
    }

    pub(crate) fn at(&mut self, name: &str) -> Scope<'_> {
        let path = format!("{}{name}.", self.path);
        Scope { path, manifest: self.manifest, hidden: self.hidden, all: self.all }
    }

    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize], role: TensorRole) {
        self.manifest.insert(format!("{}{name}", self.path), shape, self.all.unwrap_or(role));
    }

    /// A linear layer whose outputs are dealt out: `weight: [out, in]` and perhaps `bias: [out]`.
    pub(crate) fn column(&mut self, name: &str, input: usize, output: usize, bias: bool) {
        self.linear(TensorRole::Column, name, [output, input], bias);
    }

    /// A linear layer whose inputs are dealt out.
    pub(crate) fn row(&mut self, name: &str, input: usize, output: usize, bias: bool) {
        self.linear(TensorRole::Row, name, [output, input], bias);
    }

    /// A linear layer whose outputs are dealt out by heads.
    pub(crate) fn heads(&mut self, name: &str, input: usize, output: usize, bias: bool) {
        self.linear(TensorRole::Heads, name, [output, input], bias);
    }

    /// A linear layer that each device has whole.
    pub(crate) fn replicated(&mut self, name: &str, input: usize, output: usize, bias: bool) {
        self.linear(TensorRole::Replicated, name, [output, input], bias);
    }

    fn linear(&mut self, role: TensorRole, name: &str, [output, input]: [usize; 2], bias: bool) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[output, input], role);
        if bias {
            scope.tensor("bias", &[output], role);
        }
    }

    /// A projection of the stream by heads: `<name>_proj`, or `<name>_a_proj` to a narrow vector and `<name>_b_proj` from it.
    pub(crate) fn projection(&mut self, name: &str, rank: Option<usize>, width: usize) {
        let hidden = self.hidden;
        match rank {
            None => self.heads(&format!("{name}_proj"), hidden, width, false),
            Some(rank) => {
                self.replicated(&format!("{name}_a_proj"), hidden, rank, false);
                self.heads(&format!("{name}_b_proj"), rank, width, false);
            }
        }
    }

    /// Linear layers of many experts or heads, `weight: [experts, out, in]` and perhaps `bias: [experts, out]`.
    pub(crate) fn matrices(
        &mut self,
        role: TensorRole,
        name: &str,
        [experts, output, input]: [usize; 3],
        bias: bool,
    ) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[experts, output, input], role);
        if bias {
            scope.tensor("bias", &[experts, output], role);
        }
    }

    /// A depthwise convolution, dealt out by channels: `weight: [channels, conv_kernel_size, 1]` and perhaps `bias: [channels]`.
    pub(crate) fn conv(&mut self, name: &str, channels: usize, conv_kernel_size: usize, bias: bool) {
        let mut scope = self.at(name);
        scope.tensor("weight", &[channels, conv_kernel_size, 1], TensorRole::Heads);
        if bias {
            scope.tensor("bias", &[channels], TensorRole::Heads);
        }
    }

    /// A norm of what each device has whole, or of each head.
    pub(crate) fn norm(&mut self, name: &str, norm: Norm, width: usize) {
        self.norm_as(TensorRole::Replicated, name, norm, width);
    }

    /// A norm over what may be dealt out, of this role.
    pub(crate) fn norm_as(&mut self, role: TensorRole, name: &str, norm: Norm, width: usize) {
        let mut scope = self.at(name);
        match norm {
            Norm::Rms { .. } | Norm::ScaledRms { .. } | Norm::Layer { bias: false, .. } => {
                scope.tensor("weight", &[width], role);
            }
            Norm::Layer { bias: true, .. } => {
                scope.tensor("weight", &[width], role);
                scope.tensor("bias", &[width], role);
            }
            Norm::Gain => scope.tensor("weight", &[1], TensorRole::Replicated),
            Norm::RmsUnweighted { .. } | Norm::LayerUnweighted { .. } | Norm::Absent => {}
        }
    }
}
