//! Norms of rows.

use mlx::Array;
use mlx::gpu::{AddNorm, LayerNorm, NormColumns, Operand};

use super::operand_of;
use crate::gpu_switches::{GpuKernel, is_on};

/// The RMS norm of each group of a row, in the shape of `x`; `None` if the kernel does not apply.
pub(super) fn rms(x: &Array, weight: &Array, groups: i32, eps: f32) -> mlx::Result<Option<Array>> {
    let (dtype, width) = (x.dtype()?, x.dim(-1)? / groups.max(1));
    let rows = x.size() as i32 / width.max(1);
    let used = weight.dtype()? == dtype && rows > 0 && is_on(GpuKernel::AddNorm);
    let norm = AddNorm { dtype, rows, width, eps, term: Operand::Whole };
    let Some(plan) = norm.plan_without_sum(groups).filter(|_| used) else { return Ok(None) };
    let normed = plan.call(&[x, weight])?.pop().ok_or_else(|| mlx::Error::new("a norm"))?;
    if x.shape() == [rows, width] { Ok(Some(normed)) } else { normed.reshape(x.shape()).map(Some) }
}

/// The layer norm, in the shape of `x`; `None` if the kernel does not apply.
pub(super) fn layer(x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> mlx::Result<Option<Array>> {
    let (dtype, width) = (x.dtype()?, x.dim(-1)?);
    let rows = x.size() as i32 / width.max(1);
    let alike = weight.dtype()? == dtype && bias.map_or(Ok(dtype), Array::dtype)? == dtype;
    let norm = LayerNorm { dtype, rows, width, eps, has_bias: bias.is_some() };
    let plan = norm.plan().filter(|_| alike && rows > 0 && is_on(GpuKernel::AddNorm));
    let Some(plan) = plan else { return Ok(None) };
    let normed = plan.call(&[x, weight, bias.unwrap_or(weight)])?.pop();
    let normed = normed.ok_or_else(|| mlx::Error::new("a norm"))?;
    if x.shape() == [rows, width] { Ok(Some(normed)) } else { normed.reshape(x.shape()).map(Some) }
}

/// The norms of the columns of rows, `[T, width]`; `None` if the kernel does not apply.
pub(super) fn columns(x: &Array, weights: [&Array; 2], eps: f32) -> mlx::Result<Option<Array>> {
    let (dtype, [rows, width]) = (x.dtype()?, x.dims()?);
    let alike = weights[0].dtype()? == dtype && weights[1].dtype()? == dtype;
    let normed = [weights[0].dim(0)?, weights[1].dim(0)?];
    let (stored, operand) = operand_of(x);
    let plan = NormColumns { dtype, rows, width, normed, eps, operand }.plan();
    let Some(plan) = plan.filter(|_| alike && rows > 0 && is_on(GpuKernel::AddNorm)) else {
        return Ok(None);
    };
    plan.call(&[&stored, weights[0], weights[1]])?.pop().map(Some).ok_or_else(|| mlx::Error::new("a norm"))
}
