//! Mamba in MLX's operations, a row after the other.
//!
//! Source: arXiv 2312.00752 §3.

use mlx::{Array, Dtype};

use super::conv::causal_conv;
use crate::kv_cache::poisoned;
use crate::ops::{CausalConv, LayerContext, Mamba1Rows};

/// `[T, inner]` in the dtype of `channels`, see [`Ops::mamba1`](crate::ops::Ops::mamba1).
pub(in crate::ops) fn mamba1(
    channels: &Array,
    conv: &CausalConv,
    select: &dyn Fn(&Array) -> mlx::Result<[Array; 3]>,
    weights: Mamba1Rows,
    layer: LayerContext,
) -> mlx::Result<Array> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let dtype = channels.dtype()?;
    let channels = channels.astype(Dtype::F32)?;
    let y = metadata.advance(layer.index, pool, |run, [last, memory]| {
        let (mixed, last) = causal_conv(conv, &run.rows(&channels)?, last)?;
        let [count, len, inner] = mixed.dims()?;
        let flat = mixed.reshape(&[count * len, inner])?;
        let parts = select(&flat.astype(dtype)?)?;
        let by_row = |part: &Array| part.astype(Dtype::F32)?.reshape(&[count, len, -1]);
        let rows = [&mixed, &by_row(&parts[0])?, &by_row(&parts[1])?, &by_row(&parts[2])?];
        let (y, memory) = scan(rows, weights.rate, memory)?;
        Ok((y + mixed.clone() * weights.skip, [last, memory]))
    })?;
    y.astype(dtype)
}

/// Rows `x` and `step`: `[n, len, inner]`, `write` and `read`: `[n, len, state_dim]`; `memory`: `[n, inner, state_dim]` →
/// `[n, len, inner]` and the memory after it.
fn scan([x, step, write, read]: [&Array; 4], rate: &Array, memory: &Array) -> mlx::Result<(Array, Array)> {
    let [_, len, _] = x.dims()?;
    let row = |part: &Array, at: i32| -> mlx::Result<Array> {
        let [count, _, width] = part.dims()?;
        part.slice(&[0, at, 0], &[count, at + 1, width])?.squeeze(&[1])
    };
    let (mut memory, mut outputs) = (memory.clone(), Vec::new());
    for at in 0..len {
        let (x, step) = (row(x, at)?, row(step, at)?);
        let decay = (step.expand_dims(&[-1])? * rate).exp()?;
        let written = (step * x).expand_dims(&[-1])? * row(write, at)?.expand_dims(&[1])?;
        memory = memory * decay + written;
        outputs.push(memory.matmul(&row(read, at)?.expand_dims(&[-1])?)?.squeeze(&[-1])?);
    }
    Ok((mlx::stack(&outputs.iter().collect::<Vec<_>>(), 1)?, memory))
}
