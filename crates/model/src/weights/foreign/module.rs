//! The modules of a checkpoint in another library's format: taking their tensors, putting MLX's in their place.

use mlx::{Array, Dtype, QuantMode, Quantized};

use crate::quantization::{Quantization, QuantizationChoice};
use crate::weights::{LoadError, Weights};

/// MLX's sizes of groups, largest first.
const GROUPS: [i32; 3] = [128, 64, 32];

/// A checkpoint whose modules are converted one by one.
pub(super) struct Modules<'a> {
    weights: Weights,
    quantization: &'a mut Quantization,
}

impl<'a> Modules<'a> {
    pub(super) fn new(weights: Weights, quantization: &'a mut Quantization) -> Self {
        Self { weights, quantization }
    }

    pub(super) fn into_weights(self) -> Weights {
        self.weights
    }

    /// The paths of all modules that have this tensor.
    pub(super) fn with(&self, part: &str) -> Vec<String> {
        let path = |name: &String| Some(name.strip_suffix(part)?.strip_suffix('.')?.to_owned());
        self.weights.keys().filter_map(path).collect()
    }

    /// The names that end like this, without the ending.
    pub(super) fn ending(&self, ending: &str) -> Vec<String> {
        self.weights.keys().filter_map(|name| Some(name.strip_suffix(ending)?.to_owned())).collect()
    }

    pub(super) fn get(&self, path: &str, part: &str) -> Option<&Array> {
        self.weights.get(&format!("{path}.{part}"))
    }

    pub(super) fn take(&mut self, path: &str, part: &str) -> Option<Array> {
        self.weights.remove(&format!("{path}.{part}"))
    }

    pub(super) fn take_named(&mut self, name: &str) -> Option<Array> {
        self.weights.remove(name)
    }

    /// A tensor that the format cannot do without.
    pub(super) fn need(&mut self, path: &str, part: &str) -> Result<Array, LoadError> {
        self.take(path, part)
            .ok_or_else(|| refused(path, format!("has no `{part}`, which this format needs")))
    }

    pub(super) fn put(&mut self, path: &str, part: &str, tensor: Array) {
        self.weights.insert(format!("{path}.{part}"), tensor);
    }

    pub(super) fn put_named(&mut self, name: &str, tensor: Array) {
        self.weights.insert(name.to_owned(), tensor);
    }

    /// Stores a module in one of MLX's formats.
    pub(super) fn put_packed(&mut self, path: &str, packed: Quantized) {
        let Quantized { weight, scales, biases, group, bits, mode } = packed;
        self.put(path, "weight", weight);
        self.put(path, "scales", scales);
        if let Some(biases) = biases {
            self.put(path, "biases", biases);
        }
        let choice = QuantizationChoice { group, bits, mode };
        self.quantization.by_path.insert(path.to_owned(), Some(choice));
        // A checkpoint with packed tensors has a packing, whatever its config calls it.
        self.quantization.default.get_or_insert(choice);
    }

    /// Stores integers: `words` as MLX packs them, a scale and a bias for each group of any size that 32 divides.
    pub(super) fn put_integers(&mut self, path: &str, integers: Integers) -> Result<(), LoadError> {
        let Integers { words, scales, biases, bits } = integers;
        let inputs = words.dim(-1)? * 32 / bits;
        let groups = scales.dim(-1)?.max(1);
        let size = inputs / groups;
        let group = GROUPS.into_iter().find(|group| size % group == 0);
        let Some(group) = group.filter(|_| inputs % groups == 0) else {
            return Err(refused(
                path,
                format!("has {groups} groups for {inputs} inputs; their size should be a multiple of 32"),
            ));
        };
        let regroup = |tensor: Array| match size / group {
            1 => Ok(tensor),
            times => tensor.repeat(times, -1),
        };
        let (scales, biases) = (regroup(scales)?, regroup(biases)?);
        let biases = Some(biases.contiguous()?);
        let (weight, scales) = (words.contiguous()?, scales.contiguous()?);
        self.put_packed(path, Quantized { weight, scales, biases, group, bits, mode: QuantMode::Affine });
        Ok(())
    }
}

/// Integers with a scale and a bias per group.
pub(super) struct Integers {
    /// `[out, in · bits / 32]` u32, lowest bits first.
    pub(super) words: Array,
    /// `[out, groups]`
    pub(super) scales: Array,
    /// `[out, groups]`
    pub(super) biases: Array,
    pub(super) bits: i32,
}

impl Integers {
    /// Of zero points `[out, groups]` in float32, or any shape that fits the scales.
    pub(super) fn new(words: Array, scales: Array, zeros: &Array, bits: i32) -> mlx::Result<Self> {
        let biases = (scales.astype(Dtype::F32)? * zeros).negative()?.astype(scales.dtype()?)?;
        Ok(Self { words, scales, biases, bits })
    }
}

pub(super) fn refused(path: &str, problem: String) -> LoadError {
    LoadError::Format { path: path.to_owned(), problem }
}
