//! A matrix of weights, as stored.

use mlx::{Array, Quantized, Transpose};

/// `[out, in]`, or `[experts, out, in]`.
#[derive(Clone)]
pub(crate) enum Weight {
    Dense(Array),
    Packed(Quantized),
}

impl Weight {
    pub(crate) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Dense(weight) => vec![weight],
            Self::Packed(packed) => {
                [&packed.weight, &packed.scales].into_iter().chain(&packed.biases).collect()
            }
        }
    }

    /// The same weight with only these rows of its first axis, in this order, `[n]` i32.
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

    /// Of weights `[heads, out, in]`: `[.., heads or 1, n, in]` → `[.., heads, n, out]`.
    pub(crate) fn of_heads(&self, x: &Array) -> mlx::Result<Array> {
        match self {
            Self::Dense(weight) => x.matmul(&weight.swapaxes(-1, -2)?),
            Self::Packed(packed) => x.quantized_matmul_with(packed, Transpose::Yes),
        }
    }

    /// The transposed product, `[.., heads or 1, n, out]` → `[.., heads, n, in]`.
    pub(crate) fn of_heads_back(&self, x: &Array) -> mlx::Result<Array> {
        match self {
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
