//! Ops that change an array's shape, order or type, and those that join and cut arrays.

use mlx_sys as sys;

use crate::array::{Array, check_shape, list, unlist};
use crate::dtype::Dtype;
use crate::error::{Error, Result};

impl Array {
    /// Converts the values. Floats are cut towards zero on the way to integers; anything but 0 is true.
    pub fn astype(&self, dtype: Dtype) -> Result<Self> {
        Self::made("astype", [self], sys::astype(self.raw()?, dtype.code()))
    }

    /// Reads the bits as `dtype`. The last axis is scaled by the ratio of the element sizes; fails if that is not
    /// whole.
    pub fn view(&self, dtype: Dtype) -> Result<Self> {
        if self.ndim() == 0 && self.dtype()?.size_of() != dtype.size_of() {
            return Err(Error::op("view", [self], format!("a scalar cannot be read as {dtype}")));
        }
        Self::made("view", [self], sys::view(self.raw()?, dtype.code()))
    }

    /// Keeps the elements in row-major order and changes the axes. One dimension may be -1: what is left.
    pub fn reshape(&self, shape: &[i32]) -> Result<Self> {
        if shape.iter().any(|dim| *dim < -1) {
            return Err(Error::op("reshape", [self], format!("a dimension of {shape:?} is below -1")));
        }
        Self::made("reshape", [self], sys::reshape(self.raw()?, shape))
    }

    /// Joins the axes `start..=end` into one.
    pub fn flatten(&self, start: i32, end: i32) -> Result<Self> {
        Self::made("flatten", [self], sys::flatten(self.raw()?, start, end))
    }

    /// Orders the axes as listed. An empty list reverses them.
    pub fn transpose(&self, axes: &[i32]) -> Result<Self> {
        Self::made("transpose", [self], sys::transpose(self.raw()?, axes))
    }

    /// Reverses all axes.
    pub fn t(&self) -> Result<Self> {
        self.transpose(&[])
    }

    /// Exchanges two axes.
    pub fn swapaxes(&self, first: i32, second: i32) -> Result<Self> {
        Self::made("swapaxes", [self], sys::swapaxes(self.raw()?, first, second))
    }

    /// Adds axes of size 1 at these places of the result.
    pub fn expand_dims(&self, axes: &[i32]) -> Result<Self> {
        Self::made("expand_dims", [self], sys::expand_dims(self.raw()?, axes))
    }

    /// Removes these axes, which must have size 1. An empty list removes all such axes.
    pub fn squeeze(&self, axes: &[i32]) -> Result<Self> {
        Self::made("squeeze", [self], sys::squeeze(self.raw()?, axes))
    }

    /// Repeats axes of size 1 (and leading ones that are missing) to make `shape`, without memory.
    pub fn broadcast_to(&self, shape: &[i32]) -> Result<Self> {
        check_shape("broadcast_to", shape)?;
        Self::made("broadcast_to", [self], sys::broadcast_to(self.raw()?, shape))
    }

    /// Puts the values in one row-major block: a copy, unless they lie so already.
    pub fn contiguous(&self) -> Result<Self> {
        Self::made("contiguous", [self], sys::contiguous(self.raw()?))
    }

    /// Repeats every element `count` times in a row along `axis`.
    pub fn repeat(&self, count: i32, axis: i32) -> Result<Self> {
        if count < 0 {
            return Err(Error::op("repeat", [self], format!("cannot repeat {count} times")));
        }
        self.counted("repeat", sys::Counted::Repeat, count, axis)
    }

    /// Repeats the whole array along each axis. Missing leading axes are added.
    pub fn tile(&self, reps: &[i32]) -> Result<Self> {
        check_shape("tile", reps)?;
        Self::made("tile", [self], sys::tile(self.raw()?, reps))
    }

    /// Adds `(before, after)` elements of `value` on each axis; one pair per axis.
    pub fn pad(&self, widths: &[(i32, i32)], value: f32) -> Result<Self> {
        if widths.len() != self.ndim() || widths.iter().any(|w| w.0 < 0 || w.1 < 0) {
            let text = format!("{widths:?} is not one pair of counts per axis");
            return Err(Error::op("pad", [self], text));
        }
        let (low, high): (Vec<_>, Vec<_>) = widths.iter().copied().unzip();
        Self::made("pad", [self], sys::pad(self.raw()?, &low, &high, value))
    }

    /// Cuts along `axis` before each index; `n` indices make `n + 1` arrays.
    pub fn split(&self, indices: &[i32], axis: i32) -> Result<Vec<Self>> {
        let size = self.dim(axis)?;
        let mut last = 0;
        for index in indices {
            if !(last..=size).contains(index) {
                let text = format!("{indices:?} does not cut an axis of {size} in ascending order");
                return Err(Error::op("split", [self], text));
            }
            last = *index;
        }
        let parts = sys::split(self.raw()?, indices, axis);
        Ok(unlist(&*parts.map_err(|e| Error::op("split", [self], e.what()))?))
    }

    /// Keeps the lower triangle of the last two axes, up to `diagonal` above the main one.
    pub fn tril(&self, diagonal: i32) -> Result<Self> {
        Self::made("tril", [self], sys::tril(self.raw()?, diagonal))
    }

    pub(crate) fn counted(
        &self,
        name: &'static str,
        op: sys::Counted,
        count: i32,
        axis: i32,
    ) -> Result<Self> {
        Self::made(name, [self], sys::counted(op, self.raw()?, count, axis))
    }
}

/// Joins arrays along an axis that they have; the other axes must agree.
pub fn concatenate(parts: &[&Array], axis: i32) -> Result<Array> {
    Array::made("concatenate", parts.iter().copied(), sys::concatenate(&*list(parts.iter().copied())?, axis))
}

/// Joins arrays of one shape along a new axis.
pub fn stack(parts: &[&Array], axis: i32) -> Result<Array> {
    Array::made("stack", parts.iter().copied(), sys::stack(&*list(parts.iter().copied())?, axis))
}
