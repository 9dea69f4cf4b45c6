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
        let (mixed, last) = conv.forward(&run.rows(&x)?, last)?;
        Ok((mixed, [last, other.clone()]))
    })?;
    y.astype(dtype)
}

/// [`CausalConv::forward`], and silu.
pub(super) fn causal_conv(conv: &CausalConv, x: &Array, before: &Array) -> mlx::Result<(Array, Array)> {
    let (mixed, last) = conv.forward(x, before)?;
    Ok((mixed.silu()?, last))
}
