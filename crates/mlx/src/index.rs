//! Reading and writing parts of an array.
//!
//! MLX never checks the values of indices: out of range they read, or overwrite, foreign memory. Validate
//! token ids, positions and block numbers before they become an array.
//!
//! Methods that write take `self`, and return the new value. The buffer is then reused in place if, when the
//! op runs, no other handle, view or running kernel holds it; otherwise MLX copies it whole. Clone first to
//! keep the old value.

use mlx_sys as sys;

use crate::array::Array;
use crate::error::{Error, Result};

impl Array {
    /// Elements `start[i]..stop[i]` of each axis. Negative numbers count from the end; too large ones are cut.
    pub fn slice(&self, start: &[i32], stop: &[i32]) -> Result<Self> {
        Self::made("slice", [self], sys::slice(self.raw()?, start, stop, &[]))
    }

    /// Like [`slice`](Self::slice), taking every `strides[i]`-th element. Strides must not be 0.
    pub fn slice_strided(&self, start: &[i32], stop: &[i32], strides: &[i32]) -> Result<Self> {
        if strides.len() != self.ndim() || strides.contains(&0) {
            let text = format!("{strides:?} is not one stride per axis, none of them 0");
            return Err(Error::op("slice_strided", [self], text));
        }
        Self::made("slice_strided", [self], sys::slice(self.raw()?, start, stop, strides))
    }

    /// Replaces `start[i]..stop[i]` by `update`, which is broadcast and takes this array's dtype.
    pub fn slice_update(self, update: &Array, start: &[i32], stop: &[i32]) -> Result<Self> {
        let raw = sys::slice_update(self.raw()?, update.raw()?, start, stop);
        Self::made("slice_update", [&self, update], raw)
    }

    /// The entries of `axis` that `indices` names. The indices' shape takes the axis' place:
    /// `[v, d].take([n], 0)` is `[n, d]`. Negative indices count from the end; others are not checked.
    pub fn take(&self, indices: &Array, axis: i32) -> Result<Self> {
        Self::made("take", [self, indices], sys::take(self.raw()?, indices.raw()?, axis))
    }

    /// One element of `axis` for each index; both arrays have the same rank and are broadcast on the other
    /// axes. Indices are not checked.
    pub fn take_along_axis(&self, indices: &Array, axis: i32) -> Result<Self> {
        let raw = sys::take_along_axis(self.raw()?, indices.raw()?, axis);
        Self::made("take_along_axis", [self, indices], raw)
    }

    /// Writes `values` where [`take_along_axis`](Self::take_along_axis) would read. Indices are not checked.
    pub fn put_along_axis(self, indices: &Array, values: &Array, axis: i32) -> Result<Self> {
        let raw = sys::put_along_axis(self.raw()?, indices.raw()?, values.raw()?, axis);
        Self::made("put_along_axis", [&self, indices, values], raw)
    }

    /// `self[indices] = updates` on axis 0. `indices`: `[n]`, integers, not checked. `updates`: `[n, …]`
    /// with the other axes of `self`, converted to its dtype. Of equal indices, any one may win.
    pub fn scatter_rows(self, indices: &Array, updates: &Array) -> Result<Self> {
        self.scatter("scatter_rows", sys::ScatterKind::Assign, indices, updates)
    }

    /// `self[indices] += updates` on axis 0, as [`scatter_rows`](Self::scatter_rows); equal indices add up.
    pub fn scatter_add_rows(self, indices: &Array, updates: &Array) -> Result<Self> {
        self.scatter("scatter_add_rows", sys::ScatterKind::Add, indices, updates)
    }

    fn scatter(
        self,
        name: &'static str,
        kind: sys::ScatterKind,
        indices: &Array,
        updates: &Array,
    ) -> Result<Self> {
        let fits = match (self.raw()?, indices.shape(), updates.shape().split_first()) {
            (_, [n], Some((first, rest))) => n == first && self.shape().get(1..) == Some(rest),
            _ => false,
        };
        if !fits {
            let text = "needs indices [n] and updates [n, …] with the other axes of the array";
            return Err(Error::op(name, [&self, indices, updates], text));
        }
        let raw = sys::scatter_rows(kind, self.raw()?, indices.raw()?, updates.raw()?);
        Self::made(name, [&self, indices, updates], raw)
    }
}
