//! How the weights of products are stored.

use super::plan::int;
use crate::fast::{TemplateArg, TemplateValue};

/// How the weights of a product are stored, `[outputs, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// Affine codes of 4 bits with scales and biases in the rows' dtype, one of each for a group of 32, 64 or 128.
    Four {
        /// Weights of a group.
        group: i32,
    },
    /// Affine codes of 8 bits, likewise.
    Eight {
        /// Weights of a group.
        group: i32,
    },
    /// Floats of 4 bits in groups of 32, whose scales are powers of two: MLX's `mxfp4`.
    MxFp4,
    /// The rows' dtype.
    Dense,
}

impl WeightFormat {
    pub(super) fn bits(self) -> i32 {
        match self {
            Self::Four { .. } | Self::MxFp4 => 4,
            Self::Eight { .. } => 8,
            Self::Dense => 16,
        }
    }

    pub(super) fn group(self) -> i32 {
        match self {
            Self::Four { group } | Self::Eight { group } => group,
            Self::MxFp4 => 32,
            Self::Dense => 64,
        }
    }

    /// Whether kernels have it for so many inputs, of which they read 64 at a time.
    pub(super) fn fits(self, inputs: i32) -> bool {
        inputs > 0 && inputs % 64 == 0 && matches!(self.group(), 32 | 64 | 128) && inputs % self.group() == 0
    }

    pub(super) fn constants(self) -> [TemplateArg<'static>; 3] {
        let is_float = ("FLOAT4", TemplateValue::Bool(self == Self::MxFp4));
        [int("BITS", self.bits()), int("GROUP", self.group()), is_float]
    }
}
