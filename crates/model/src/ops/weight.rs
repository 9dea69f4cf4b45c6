//! A matrix of weights, as stored.

use std::borrow::Cow;

use mlx::device::{self, Backend, Device};
use mlx::{Array, Dtype, QuantMode, Quantized, Transpose};

use crate::params::Held;

/// `[out, in]`, or `[experts, out, in]`.
#[derive(Clone)]
pub(crate) enum Weight {
    Dense(Array),
    Packed(Quantized),
}

impl Held for Weight {
    fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Dense(weight) => vec![weight],
            Self::Packed(packed) => {
                [&packed.weight, &packed.scales].into_iter().chain(&packed.biases).collect()
            }
        }
    }
}

impl Weight {
    /// Outputs of a matrix, or of each expert's.
    pub(crate) fn outputs(&self) -> mlx::Result<i32> {
        match self {
            Self::Dense(weight) => weight.dim(-2),
            Self::Packed(packed) => packed.weight.dim(-2),
        }
    }

    /// Inputs likewise.
    pub(crate) fn inputs(&self) -> mlx::Result<i32> {
        match self {
            Self::Dense(weight) => weight.dim(-1),
            Self::Packed(packed) => Ok(packed.scales.dim(-1)? * packed.group),
        }
    }

    /// How many matrices it has: one, or one for each expert.
    pub(crate) fn matrices(&self) -> mlx::Result<i32> {
        let stored = match self {
            Self::Dense(weight) => weight,
            Self::Packed(packed) => &packed.weight,
        };
        if stored.ndim() == 3 { stored.dim(0) } else { Ok(1) }
    }

    /// Some outputs of a matrix, `[last − first, in]` f32.
    pub(crate) fn rows_as_floats(&self, first: i32, last: i32) -> mlx::Result<Array> {
        let rows: Vec<i32> = (first..last).collect();
        let floats = match self.take_rows(&Array::from_slice(&rows, &[last - first])?)? {
            Self::Dense(weight) => weight,
            Self::Packed(packed) => {
                let is_affine = packed.mode == QuantMode::Affine;
                packed.dequantize(if is_affine { packed.scales.dtype()? } else { Dtype::Bf16 })?
            }
        };
        floats.astype(Dtype::F32)
    }

    /// This weight with only these rows of its first axis, in this order, `[n]` i32.
    pub(crate) fn take_rows(&self, rows: &Array) -> mlx::Result<Self> {
        let take = |array: &Array| array.take(rows, 0);
        Ok(match self {
            Self::Dense(weight) => Self::Dense(take(weight)?),
            Self::Packed(packed) => {
                let biases = packed.biases.as_ref().map(take).transpose()?;
                let (weight, scales) = (take(&packed.weight)?, take(&packed.scales)?);
                Self::Packed(Quantized { weight, scales, biases, ..*packed })
            }
        })
    }

    /// What MLX multiplies `x` with. Of float32 rows and packed weights, MLX 0.32.4's products on CUDA are wrong, of less precision,
    /// or not there: they are unpacked.
    pub(crate) fn for_mlx(&self, x: &Array) -> mlx::Result<Cow<'_, Self>> {
        match self {
            Self::Packed(packed)
                if device::backend() == Backend::Cuda
                    && matches!(device::default(), Ok(Device::Gpu))
                    && x.dtype()? == Dtype::F32 =>
            {
                Ok(Cow::Owned(Self::Dense(packed.dequantize(Dtype::F32)?)))
            }
            Self::Dense(_) | Self::Packed(_) => Ok(Cow::Borrowed(self)),
        }
    }

    /// Of weights `[heads, out, in]`: `[.., heads or 1, n, in]` → `[.., heads, n, out]`.
    pub(crate) fn of_heads(&self, x: &Array) -> mlx::Result<Array> {
        match &*self.for_mlx(x)? {
            Self::Dense(weight) => x.matmul(&weight.swapaxes(-1, -2)?),
            Self::Packed(packed) => x.quantized_matmul_with(packed, Transpose::Yes),
        }
    }

    /// The transposed product, `[.., heads or 1, n, out]` → `[.., heads, n, in]`.
    pub(crate) fn of_heads_back(&self, x: &Array) -> mlx::Result<Array> {
        match &*self.for_mlx(x)? {
            Self::Dense(weight) => x.matmul(weight),
            Self::Packed(packed) => x.quantized_matmul_with(packed, Transpose::No),
        }
    }

    /// The outputs of one weight and then those of another, of each expert, if both are stored alike.
    pub(crate) fn join(first: &Self, second: &Self) -> mlx::Result<Option<Self>> {
        let rows = |a: &Array, b: &Array| mlx::concatenate(&[a, b], -2);
        Ok(match (first, second) {
            (Self::Dense(a), Self::Dense(b)) if a.dtype()? == b.dtype()? => Some(Self::Dense(rows(a, b)?)),
            (Self::Packed(a), Self::Packed(b))
                if (a.group, a.bits, a.mode) == (b.group, b.bits, b.mode)
                    && a.scales.dtype()? == b.scales.dtype()? =>
            {
                let biases = match (&a.biases, &b.biases) {
                    (Some(a), Some(b)) => Some(rows(a, b)?),
                    _ => None,
                };
                let (weight, scales) = (rows(&a.weight, &b.weight)?, rows(&a.scales, &b.scales)?);
                Some(Self::Packed(Quantized { weight, scales, biases, ..*a }))
            }
            _ => None,
        })
    }
}
