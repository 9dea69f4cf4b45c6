//! Tensors beside those of NVFP4: a scale of the weight, and one of what it is multiplied with, which stays floats.

use std::collections::{BTreeMap, BTreeSet};

use crate::head::{Head, TensorInfo};
use crate::tensor_type::TensorType;

/// The scales of a file, and the weights that may have them.
pub struct Scales<'a> {
    /// Weights of NVFP4, without the last part of their names.
    weights: BTreeSet<&'a str>,
    /// By the same names.
    scales: BTreeMap<&'a str, &'a TensorInfo>,
}

impl<'a> Scales<'a> {
    /// Of a file.
    pub fn of(head: &'a Head) -> Self {
        let packed = head.tensors.iter().filter(|tensor| tensor.kind == TensorType::Nvfp4);
        let scale = |tensor: &'a TensorInfo| Some((tensor.name.strip_suffix(".scale")?, tensor));
        Self {
            weights: packed.filter_map(|tensor| tensor.name.strip_suffix(".weight")).collect(),
            scales: head.tensors.iter().filter_map(scale).collect(),
        }
    }

    /// Whether a tensor is a scale.
    pub fn has(&self, tensor: &TensorInfo) -> bool {
        let names = [".scale", ".input_scale"].map(|suffix| tensor.name.strip_suffix(suffix));
        names.into_iter().flatten().any(|name| self.weights.contains(name))
    }

    /// The scale of a weight.
    pub fn of_weight(&self, tensor: &TensorInfo) -> Option<&'a TensorInfo> {
        let name = tensor.name.strip_suffix(".weight").filter(|name| self.weights.contains(name))?;
        self.scales.get(name).copied()
    }
}
