//! Matrix products, convolutions and transforms.

use mlx_sys as sys;

use crate::array::{Array, opt};
use crate::error::{Error, Result};

/// Whether the rows of a gathered product come in the order of their matrices, which lets MLX use a faster
/// kernel. Claiming it falsely gives wrong results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// The right-hand indices ascend.
    Yes,
    /// Any order.
    No,
}

/// How a convolution's window moves; one number per spatial axis.
#[derive(Clone, Debug)]
pub struct Conv<'a> {
    /// Steps between windows; at least 1.
    pub stride: &'a [i32],
    /// Zeros before the first element.
    pub pad_low: &'a [i32],
    /// Zeros after the last element.
    pub pad_high: &'a [i32],
    /// Steps between the elements of a window; at least 1.
    pub dilation: &'a [i32],
    /// Steps between the input's elements, zeros between them; above 1 it is a transposed convolution.
    pub input_dilation: &'a [i32],
    /// Channels are cut into this many groups that do not mix.
    pub groups: i32,
    /// Whether the window is reversed, as in a transposed convolution.
    pub flip: bool,
}

impl Array {
    /// Matrix product of the last two axes; leading axes are broadcast. A vector counts as a row on the left
    /// and as a column on the right.
    pub fn matmul(&self, rhs: &Array) -> Result<Self> {
        Self::made("matmul", [self, rhs], sys::matmul(self.raw()?, rhs.raw()?))
    }

    /// Matrix products of chosen pairs: `self[lhs[i]] @ rhs[rhs_indices[i]]`, where the indices (u32, not
    /// checked) count the matrices in the leading axes, and both index arrays are broadcast against each
    /// other. `None` stands for all matrices in order.
    pub fn gather_mm(
        &self,
        rhs: &Array,
        lhs_indices: Option<&Array>,
        rhs_indices: Option<&Array>,
        sorted: Sorted,
    ) -> Result<Self> {
        let sorted = sorted == Sorted::Yes;
        // SAFETY: both pointers are null or borrowed from arrays that outlive the call.
        let raw =
            unsafe { sys::gather_mm(self.raw()?, rhs.raw()?, opt(lhs_indices)?, opt(rhs_indices)?, sorted) };
        Self::made("gather_mm", [Some(self), Some(rhs), lhs_indices, rhs_indices], raw)
    }

    /// Convolution of `[batch, length, channels]` with `[out, window, channels / groups]`.
    pub fn conv1d(
        &self,
        weight: &Array,
        stride: i32,
        padding: i32,
        dilation: i32,
        groups: i32,
    ) -> Result<Self> {
        self.conv_plain("conv1d", weight, [stride], [padding], [dilation], groups)
    }

    /// Convolution of `[batch, height, width, channels]` with `[out, rows, columns, channels / groups]`.
    pub fn conv2d(
        &self,
        weight: &Array,
        stride: [i32; 2],
        padding: [i32; 2],
        dilation: [i32; 2],
        groups: i32,
    ) -> Result<Self> {
        self.conv_plain("conv2d", weight, stride, padding, dilation, groups)
    }

    fn conv_plain<const N: usize>(
        &self,
        name: &'static str,
        weight: &Array,
        stride: [i32; N],
        padding: [i32; N],
        dilation: [i32; N],
        groups: i32,
    ) -> Result<Self> {
        let conv = Conv {
            stride: &stride,
            pad_low: &padding,
            pad_high: &padding,
            dilation: &dilation,
            input_dilation: &[1; N],
            groups,
            flip: false,
        };
        self.convolve(name, weight, &conv)
    }

    /// Convolution of `[batch, …, channels]` with `[out, …, channels / groups]` over one to three axes.
    pub fn conv(&self, weight: &Array, conv: &Conv<'_>) -> Result<Self> {
        self.convolve("conv", weight, conv)
    }

    fn convolve(&self, name: &'static str, weight: &Array, conv: &Conv<'_>) -> Result<Self> {
        let axes = self.ndim().saturating_sub(2);
        let lists = [conv.stride, conv.pad_low, conv.pad_high, conv.dilation, conv.input_dilation];
        let lowest = [1, 0, 0, 1, 1];
        let fits = |(list, lowest): (&&[i32], i32)| list.len() == axes && list.iter().all(|n| *n >= lowest);
        if conv.groups < 1 || !lists.iter().zip(lowest).all(fits) {
            return Err(Error::op(
                name,
                [self, weight],
                format!("{conv:?} does not fit {axes} spatial axes"),
            ));
        }
        let shape = sys::ConvShape {
            stride: conv.stride.into(),
            pad_low: conv.pad_low.into(),
            pad_high: conv.pad_high.into(),
            dilation: conv.dilation.into(),
            input_dilation: conv.input_dilation.into(),
            groups: conv.groups,
            flip: conv.flip,
        };
        Self::made(name, [self, weight], sys::conv(self.raw()?, weight.raw()?, &shape))
    }

    /// Walsh-Hadamard transform of the last axis, of size m·2ᵏ with m one of 1, 12, 20 and 28, times `scale`.
    pub fn hadamard(&self, scale: f32) -> Result<Self> {
        Self::made("hadamard", [self], sys::hadamard(self.raw()?, scale))
    }
}
