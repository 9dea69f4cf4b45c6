//! Quantized weights in all of MLX's formats.

use mlx_sys as sys;

use crate::array::{Array, opt, unlist};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::product::Sorted;

/// How numbers are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantMode {
    /// Integers of 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128, with a scale and a bias per group.
    Affine,
    /// 4-bit floats in groups of 32, with a power-of-two scale (OCP microscaling).
    Mxfp4,
    /// 8-bit floats in groups of 32, with a power-of-two scale (OCP microscaling).
    Mxfp8,
    /// 4-bit floats in groups of 16, with an E4M3 scale.
    Nvfp4,
}

impl QuantMode {
    /// The name in config.json: `affine`, `mxfp4`, `mxfp8`, `nvfp4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Affine => "affine",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// The mode with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Affine, Self::Mxfp4, Self::Mxfp8, Self::Nvfp4].into_iter().find(|mode| mode.name() == name)
    }

    const fn code(self) -> sys::QuantKind {
        match self {
            Self::Affine => sys::QuantKind::Affine,
            Self::Mxfp4 => sys::QuantKind::Mxfp4,
            Self::Mxfp8 => sys::QuantKind::Mxfp8,
            Self::Nvfp4 => sys::QuantKind::Nvfp4,
        }
    }
}

/// Which side of a product the weights' last axis is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transpose {
    /// `x @ w.T`: the layout of linear layers.
    Yes,
    /// `x @ w`.
    No,
}

/// Weights `[…, out, in]` packed along the last axis.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// u32 words, lowest bits first: `[…, out, in · bits / 32]`.
    pub weight: Array,
    /// One per group: `[…, out, in / group]`; a float for the affine mode, else u8.
    pub scales: Array,
    /// As the scales; the affine mode only.
    pub biases: Option<Array>,
    /// Elements per scale.
    pub group: i32,
    /// Bits per element.
    pub bits: i32,
    /// The format.
    pub mode: QuantMode,
}

impl Quantized {
    /// The weights as numbers: `[…, out, in]`.
    pub fn dequantize(&self, dtype: Dtype) -> Result<Array> {
        self.check("dequantize")?;
        let biases = opt(self.biases.as_ref())?;
        // SAFETY: `biases` is null or borrowed from `self`.
        let raw = unsafe {
            let (weight, scales) = (self.weight.raw()?, self.scales.raw()?);
            sys::dequantize(weight, scales, biases, self.group, self.bits, self.mode.code(), dtype.code())
        };
        Array::made("dequantize", self.parts(), raw)
    }

    /// Bytes of all its arrays.
    pub fn nbytes(&self) -> usize {
        self.parts().into_iter().flatten().map(Array::nbytes).sum()
    }

    fn parts(&self) -> [Option<&Array>; 3] {
        [Some(&self.weight), Some(&self.scales), self.biases.as_ref()]
    }

    /// MLX divides by the group and reads the scales without looking at their shape.
    fn check(&self, op: &'static str) -> Result<()> {
        self.weight.check()?;
        self.scales.check()?;
        let groups = match (self.weight.shape(), self.bits, self.group) {
            ([.., words], 1..=8, 1..) => {
                i64::from(*words) * 32 / i64::from(self.bits) / i64::from(self.group)
            }
            _ => 0,
        };
        let fits = |part: &Array| match (self.weight.shape(), part.shape()) {
            ([outer @ .., _], [same @ .., last]) => outer == same && i64::from(*last) == groups,
            _ => false,
        };
        if groups > 0 && fits(&self.scales) && self.biases.as_ref().is_none_or(fits) {
            return Ok(());
        }
        let text = format!("the parts do not fit together at {} bits in groups of {}", self.bits, self.group);
        Err(Error::op(op, self.parts(), text))
    }
}

impl Array {
    /// Packs the last axis, which must be a multiple of `group`. Modes other than affine fix both numbers.
    pub fn quantize(&self, group: i32, bits: i32, mode: QuantMode) -> Result<Quantized> {
        if group < 1 || !(1..=8).contains(&bits) {
            return Err(Error::op("quantize", [self], format!("groups of {group} at {bits} bits")));
        }
        let parts = sys::quantize(self.raw()?, group, bits, mode.code());
        let parts = unlist(&*parts.map_err(|e| Error::op("quantize", [self], e.what()))?);
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next()) {
            (Some(weight), Some(scales)) => {
                Ok(Quantized { weight, scales, biases: parts.next(), group, bits, mode })
            }
            _ => Err(Error::op("quantize", [self], "MLX returned fewer than two arrays")),
        }
    }

    /// `self @ w.T`: `[…, in]` to `[…, out]`.
    pub fn quantized_matmul(&self, w: &Quantized) -> Result<Self> {
        self.quantized_matmul_with(w, Transpose::Yes)
    }

    /// `self @ w.T` or `self @ w`.
    pub fn quantized_matmul_with(&self, w: &Quantized, transpose: Transpose) -> Result<Self> {
        w.check("quantized_matmul")?;
        let (x, weight, scales, biases) = (self.raw()?, w.weight.raw()?, w.scales.raw()?, w.biases.as_ref());
        let transpose = transpose == Transpose::Yes;
        // SAFETY: the pointer is null or borrowed from `w`.
        let raw = unsafe {
            sys::quantized_matmul(x, weight, scales, opt(biases)?, transpose, w.group, w.bits, w.mode.code())
        };
        Self::made("quantized_matmul", [Some(self), Some(&w.weight), Some(&w.scales), biases], raw)
    }

    /// [`gather_mm`](Self::gather_mm) with packed weights, for mixtures of experts. Indices are not checked.
    pub fn gather_qmm(
        &self,
        w: &Quantized,
        lhs_indices: Option<&Array>,
        rhs_indices: Option<&Array>,
        transpose: Transpose,
        sorted: Sorted,
    ) -> Result<Self> {
        w.check("gather_qmm")?;
        let (lhs, rhs, biases) = (opt(lhs_indices)?, opt(rhs_indices)?, opt(w.biases.as_ref())?);
        let (transpose, sorted) = (transpose == Transpose::Yes, sorted == Sorted::Yes);
        let (x, weight, scales) = (self.raw()?, w.weight.raw()?, w.scales.raw()?);
        let (group, bits, mode) = (w.group, w.bits, w.mode.code());
        // SAFETY: the pointers are null or borrowed from arrays that outlive the call.
        let raw = unsafe {
            sys::gather_qmm(x, weight, scales, biases, lhs, rhs, transpose, group, bits, mode, sorted)
        };
        let inputs = [Some(self), Some(&w.weight), Some(&w.scales), lhs_indices, rhs_indices];
        Self::made("gather_qmm", inputs, raw)
    }

    /// E4M3 bytes (u8) as numbers.
    pub fn from_fp8(&self, dtype: Dtype) -> Result<Self> {
        Self::made("from_fp8", [self], sys::from_fp8(self.raw()?, dtype.code()))
    }

    /// Numbers as E4M3 bytes (u8).
    pub fn to_fp8(&self) -> Result<Self> {
        Self::made("to_fp8", [self], sys::to_fp8(self.raw()?))
    }
}
