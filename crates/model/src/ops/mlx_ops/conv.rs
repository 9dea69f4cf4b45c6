//! A causal convolution of each channel, in MLX's operations.

use mlx::{Array, Dtype};

use crate::kv_cache::poisoned;
use crate::ops::{CausalConv, LayerContext};

/// `[T, channels]` in the dtype of `x`, see [`Ops::convolve`](crate::ops::Ops::convolve).
pub(in crate::ops) fn convolve(conv: &CausalConv, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let (dtype, x) = (x.dtype()?, x.astype(Dtype::F32)?);
    let y = metadata.advance(layer.index, pool, |run, [last, other]| {
        let (mixed, last) = convolved(conv, &run.rows(&x)?, last)?;
        Ok((mixed, [last, other.clone()]))
    })?;
    y.astype(dtype)
}

/// [`convolved`], and silu.
pub(super) fn causal_conv(conv: &CausalConv, x: &Array, before: &Array) -> mlx::Result<(Array, Array)> {
    let (mixed, last) = convolved(conv, x, before)?;
    Ok((mixed.silu()?, last))
}

/// `x`: `[n, len, channels]` f32, after `before`, `[n, conv_kernel_size − 1, channels]` → as many rows of the
/// convolution, and what comes before the next ones.
fn convolved(conv: &CausalConv, x: &Array, before: &Array) -> mlx::Result<(Array, Array)> {
    let [count, len, channels] = x.dims()?;
    let size = conv.weight.dim(0)?;
    let joined = mlx::concatenate(&[before, x], 1)?;
    let mut sum: Option<Array> = conv.bias.clone();
    for tap in 0..size {
        let weight = conv.weight.slice(&[tap, 0], &[tap + 1, channels])?;
        let term = joined.slice(&[0, tap, 0], &[count, tap + len, channels])? * weight;
        sum = Some(match sum {
            Some(sum) => sum + term,
            None => term,
        });
    }
    let sum = sum.ok_or_else(|| mlx::Error::new("a convolution has a kernel"))?;
    Ok((sum, joined.slice(&[0, len, 0], &[count, len + size - 1, channels])?))
}
