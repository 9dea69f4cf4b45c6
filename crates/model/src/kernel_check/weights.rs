//! Weights that products are checked with, and the same ones unpacked.

use std::collections::BTreeSet;

use mlx::{Dtype, QuantMode};

use super::normal;
use crate::ops::Weight;
use crate::quantization::{Quantization, QuantizationChoice};

/// How the weights of a check are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckedWeights {
    /// As floats.
    Dense,
    /// Packed, in a way that kernels have.
    Packed(QuantizationChoice),
}

impl CheckedWeights {
    /// The kinds of weights that `doctor --kernels` shows.
    pub(super) fn of_table() -> Vec<Self> {
        let affine = |bits| QuantizationChoice { group: 64, bits, mode: QuantMode::Affine };
        let float = QuantizationChoice { group: 32, bits: 4, mode: QuantMode::Mxfp4 };
        vec![Self::Packed(affine(4)), Self::Packed(affine(8)), Self::Packed(float), Self::Dense]
    }

    /// The kinds of weights that a checkpoint has and kernels take; floats are among them unless all are packed alike.
    pub(super) fn of(quantization: &Quantization) -> Vec<Self> {
        let by_path = quantization.by_path.values().map(Option::as_ref);
        let choices: BTreeSet<_> = by_path
            .chain([quantization.default.as_ref()])
            .map(|choice| choice.map(|choice| (choice.mode.name(), choice.bits, choice.group)))
            .collect();
        let weights = choices.into_iter().filter_map(|choice| {
            let Some((mode, bits, group)) = choice else { return Some(Self::Dense) };
            let mode = QuantMode::from_name(mode)?;
            Some(Self::Packed(QuantizationChoice { group, bits, mode })).filter(Self::has_kernels)
        });
        weights.collect()
    }

    fn has_kernels(&self) -> bool {
        match self {
            Self::Dense => true,
            Self::Packed(QuantizationChoice { group, bits, mode }) => match mode {
                QuantMode::Affine => matches!(bits, 4 | 8) && matches!(group, 32 | 64 | 128),
                QuantMode::Mxfp4 => true,
                QuantMode::Mxfp8 | QuantMode::Nvfp4 => false,
            },
        }
    }

    /// Whether an embedding stored like this has a kernel.
    pub(super) fn is_affine_or_dense(&self) -> bool {
        !matches!(self, Self::Packed(choice) if choice.mode != QuantMode::Affine)
    }

    /// Whether rows of so many inputs can be packed like this.
    pub(super) fn fits(&self, inputs: usize) -> bool {
        match self {
            Self::Dense => inputs.is_multiple_of(64),
            Self::Packed(choice) => inputs.is_multiple_of(64.max(choice.group as usize)),
        }
    }

    /// Random weights of this shape, and the same unpacked.
    pub(super) fn random(&self, shape: &[usize], dtype: Dtype, seed: u64) -> mlx::Result<[Weight; 2]> {
        let dense = normal(shape, dtype, seed)?;
        Ok(match self {
            Self::Dense => [Weight::Dense(dense.clone()), Weight::Dense(dense)],
            Self::Packed(choice) => {
                let packed = dense.quantize(choice.group, choice.bits, choice.mode)?;
                let unpacked = packed.dequantize(dtype)?;
                [Weight::Packed(packed), Weight::Dense(unpacked)]
            }
        })
    }

    /// `4 bits in groups of 64`.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Dense => "floats".to_owned(),
            Self::Packed(QuantizationChoice { group, bits, mode: QuantMode::Affine }) => {
                format!("{bits} bits in groups of {group}")
            }
            Self::Packed(choice) => choice.mode.name().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixed_checkpoint_is_checked_with_all_that_has_kernels() {
        let affine = |group, bits| QuantizationChoice { group, bits, mode: QuantMode::Affine };
        let by_path = [("a", Some(affine(64, 6))), ("b", Some(affine(32, 8))), ("c", None)];
        let quantization = Quantization {
            default: Some(affine(64, 4)),
            by_path: by_path.map(|(path, choice)| (path.to_owned(), choice)).into(),
            foreign: None,
        };
        let found = CheckedWeights::of(&quantization);
        let packed = |group, bits| CheckedWeights::Packed(affine(group, bits));
        assert_eq!(found, [CheckedWeights::Dense, packed(64, 4), packed(32, 8)]);
        assert_eq!(CheckedWeights::of(&Quantization::default()), [CheckedWeights::Dense]);
    }
}
