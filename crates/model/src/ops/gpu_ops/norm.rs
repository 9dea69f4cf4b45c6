//! Norms of rows.

use mlx::Array;
use mlx::gpu::{AddNorm, JoinedTerm, LayerNorm, NormColumns, RmsNorm};

use super::operand_of;
use crate::ops::{Joined, Term};

/// The RMS norm of each group of a row, in the shape of `x`; `None` if the kernel does not apply.
pub(super) fn rms(x: &Array, weight: &Array, groups: i32, eps: f32) -> mlx::Result<Option<Array>> {
    let (dtype, width) = (x.dtype()?, x.dim(-1)? / groups.max(1));
    let rows = x.size() as i32 / width.max(1);
    let used = weight.dtype()? == dtype && rows > 0;
    let norm = RmsNorm { dtype, rows, width, eps, weights: groups };
    let Some(plan) = norm.plan().filter(|_| used) else { return Ok(None) };
    let normed = plan.call(&[x, weight])?.pop().ok_or_else(|| mlx::Error::new("a norm"))?;
    if x.shape() == [rows, width] { Ok(Some(normed)) } else { normed.reshape(x.shape()).map(Some) }
}

/// The layer norm, in the shape of `x`; `None` if the kernel does not apply.
pub(super) fn layer(x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> mlx::Result<Option<Array>> {
    let (dtype, width) = (x.dtype()?, x.dim(-1)?);
    let rows = x.size() as i32 / width.max(1);
    let alike = weight.dtype()? == dtype && bias.map_or(Ok(dtype), Array::dtype)? == dtype;
    let norm = LayerNorm { dtype, rows, width, eps, has_bias: bias.is_some() };
    let plan = norm.plan().filter(|_| alike && rows > 0);
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
    let Some(plan) = plan.filter(|_| alike && rows > 0) else {
        return Ok(None);
    };
    plan.call(&[&stored, weights[0], weights[1]])?.pop().map(Some).ok_or_else(|| mlx::Error::new("a norm"))
}

/// `sum` and a term, and the RMS norm of both; `None` if the kernel does not apply.
pub(super) fn add(sum: &Array, term: &Term, weight: &Array, eps: f32) -> mlx::Result<Option<(Array, Array)>> {
    let Some((kernel, stored, own)) = joined(sum, term, eps)? else { return Ok(None) };
    let alike = weight.dtype()? == kernel.dtype;
    let Some(plan) = kernel.plan().filter(|_| alike) else { return Ok(None) };
    let made: Result<[Array; 2], _> = plan.call(&[&stored, sum, weight, own.unwrap_or(weight)])?.try_into();
    let [sum, normed] = made.map_err(|_| mlx::Error::new("a sum and its norm"))?;
    Ok(Some((sum, normed)))
}

/// `sum` and the norm of a term; `None` if the kernel does not apply, and for other terms.
pub(super) fn add_normed(sum: &Array, term: &Term) -> mlx::Result<Option<Array>> {
    let Some((kernel, stored, Some(own))) = joined(sum, term, 0.0)? else { return Ok(None) };
    let Some(plan) = kernel.plan_of_sum() else { return Ok(None) };
    plan.call(&[&stored, sum, own])?.pop().map(Some).ok_or_else(|| mlx::Error::new("a sum"))
}

/// The kernel of a sum, its term as it is stored, and the weight of the term's norm.
fn joined<'a>(
    sum: &Array,
    term: &'a Term,
    eps: f32,
) -> mlx::Result<Option<(AddNorm, Array, Option<&'a Array>)>> {
    let dtype = sum.dtype()?;
    let (joined, own) = match &term.joined {
        Joined::Plain => (JoinedTerm::Plain, None),
        Joined::Scaled(factor) => (JoinedTerm::Scaled(*factor), None),
        Joined::Normed { weight, eps } => (JoinedTerm::Normed(*eps), Some(weight)),
    };
    let alike = term.rows.dtype()? == dtype && term.rows.shape() == sum.shape();
    let alike = alike && own.map_or(Ok(dtype), Array::dtype)? == dtype;
    let [rows, width] = *sum.shape() else { return Ok(None) };
    if !alike || rows == 0 {
        return Ok(None);
    }
    let (stored, operand) = operand_of(&term.rows);
    Ok(Some((AddNorm { dtype, rows, width, eps, operand, joined }, stored, own)))
}
