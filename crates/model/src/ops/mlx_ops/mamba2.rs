//! Mamba-2 in MLX's operations: chunks of rows with all their pairs at once.
//!
//! Source: arXiv 2405.21060 §6.

use mlx::{Array, Dtype};

use super::conv::causal_conv;
use crate::kv_cache::poisoned;
use crate::mixers::Mamba2;
use crate::ops::{LayerContext, Mamba2Weights};

/// Rows that are computed at once; their decays form a square.
const CHUNK: i32 = 64;

/// `silu(gate) · y`, `[T, inner]`, in the dtype of `projected`.
pub(in crate::ops) fn forward(
    spec: &Mamba2,
    weights: &Mamba2Weights,
    projected: &Array,
    layer: LayerContext,
) -> mlx::Result<Array> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let (inner, dtype) = (spec.inner() as i32, projected.dtype()?);
    let projected = projected.astype(Dtype::F32)?;
    let parts = projected.split(&[inner, inner + spec.conv_channels() as i32], -1)?;
    let [gate, channels, dt] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
    let dt = (dt + &weights.dt_bias).softplus()?;
    let [low, high] = spec.step_limits;
    let dt = dt.clip(Some(&Array::scalar(low, Dtype::F32)?), Some(&Array::scalar(high, Dtype::F32)?))?;
    let y = metadata.advance(layer.index, pool, |run, [last, memory]| {
        let (mixed, last) = causal_conv(&weights.conv, &run.rows(channels)?, last)?;
        let (y, memory) = weights.scan(spec, [&mixed, &run.rows(&dt)?], memory)?;
        Ok((y, [last, memory]))
    })?;
    (gate.silu()? * y).astype(dtype)
}

impl Mamba2Weights {
    /// Rows `mixed`: `[n, len, channels]`, and `dt`: `[n, len, heads]`; `memory`: `[n, heads, head_dim, state_dim]` →
    /// `[n, len, inner]` and the memory after it.
    pub(crate) fn scan(
        &self,
        spec: &Mamba2,
        [mixed, dt]: [&Array; 2],
        memory: &Array,
    ) -> mlx::Result<(Array, Array)> {
        let [count, len, channels] = mixed.dims()?;
        let heads = spec.heads as i32;
        let mut memory = memory.clone();
        let mut outputs = Vec::new();
        for start in (0..len).step_by(CHUNK as usize) {
            let end = len.min(start + CHUNK);
            let mixed = mixed.slice(&[0, start, 0], &[count, end, channels])?;
            let dt = dt.slice(&[0, start, 0], &[count, end, heads])?;
            let (y, after) = chunk(spec, self, [&mixed, &dt], &memory)?;
            outputs.push(y);
            memory = after;
        }
        let y = mlx::concatenate(&outputs.iter().collect::<Vec<_>>(), 1)?;
        Ok((y, memory))
    }
}

/// As [`Mamba2Weights::scan`], with all pairs of rows at once.
fn chunk(
    spec: &Mamba2,
    weights: &Mamba2Weights,
    rows: [&Array; 2],
    memory: &Array,
) -> mlx::Result<(Array, Array)> {
    let [mixed, dt] = rows;
    let [count, len, _] = mixed.dims()?;
    let [heads, dim, groups, keys] =
        [spec.heads, spec.head_dim, spec.groups, spec.state_dim].map(|n| n as i32);
    let inner = heads * dim;
    let parts = mixed.split(&[inner, inner + groups * keys], -1)?;
    let [values, written, read] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
    // [n, heads, len, _], keys repeated for the heads of a group.
    let by_head = |x: &Array| -> mlx::Result<Array> {
        x.reshape(&[count, len, groups, keys])?.transpose(&[0, 2, 1, 3])?.repeat(heads / groups, 1)
    };
    let (written, read) = (by_head(written)?, by_head(read)?);
    let values = values.reshape(&[count, len, heads, dim])?.transpose(&[0, 2, 1, 3])?;
    let dt = dt.transpose(&[0, 2, 1])?;
    let rate = weights.a_log.exp()?.negative()?.expand_dims(&[1])?;
    // The logarithm of how much of the chunk's beginning is left at each row, [n, heads, len].
    let decay = (&dt * &rate).cumsum(-1)?;
    let steps = &values * dt.expand_dims(&[-1])?;
    // How much of row j is left at row i, for j up to i.
    let ages = decay.expand_dims(&[-1])? - decay.expand_dims(&[-2])?;
    let seen = Array::ones(&[len, len], Dtype::F32)?.tril(0)?;
    let never = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
    let left = mlx::where_(&seen.astype(Dtype::Bool)?, &ages, &never)?.exp()?;
    let scores = read.matmul(&written.swapaxes(-1, -2)?)? * left;
    let before = read.matmul(&memory.swapaxes(-1, -2)?)? * decay.exp()?.expand_dims(&[-1])?;
    let y = scores.matmul(&steps)? + before + &values * weights.skip.expand_dims(&[-1, -2])?;
    let last = decay.slice(&[0, 0, len - 1], &[count, heads, len])?;
    let kept = steps * (&last - &decay).exp()?.expand_dims(&[-1])?;
    let after = kept.swapaxes(-1, -2)?.matmul(&written)? + memory * last.exp()?.expand_dims(&[-1])?;
    Ok((y.transpose(&[0, 2, 1, 3])?.reshape(&[count, len, inner])?, after))
}
