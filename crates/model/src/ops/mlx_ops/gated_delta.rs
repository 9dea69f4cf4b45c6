//! The gated delta rule in MLX's operations.
//!
//! Source: arXiv 2412.06464 §3.

use mlx::{Array, Dtype, fast};

use super::conv::causal_conv;
use crate::kv_cache::poisoned;
use crate::mixers::GatedDelta;
use crate::ops::{DeltaRule, GatedDeltaWeights, LayerContext};

/// `silu(gate) · norm(y)`, `[T, values]`, in the dtype of `projected`.
pub(in crate::ops) fn forward(
    spec: &GatedDelta,
    weights: &GatedDeltaWeights,
    projected: &Array,
    layer: LayerContext,
) -> mlx::Result<Array> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let [channels, values, heads] = [spec.conv_channels(), spec.values(), spec.v_heads].map(|n| n as i32);
    let dtype = projected.dtype()?;
    let projected = projected.astype(Dtype::F32)?;
    let cuts = [channels, channels + values, channels + values + heads];
    let parts = projected.split(&cuts, -1)?;
    let [channels, gate, beta, dt] = parts.as_slice() else { return Err(mlx::Error::new("four parts")) };
    let decay = ((dt + &weights.dt_bias).softplus()? * weights.a_log.exp()?).negative()?.exp()?;
    let beta = beta.sigmoid()?;
    let rule = DeltaRule {
        k_heads: spec.k_heads as i32,
        k_dim: spec.k_dim as i32,
        v_heads: heads,
        v_dim: spec.v_dim as i32,
    };
    let y = metadata.advance(layer.index, pool, |run, [last, memory]| {
        let (mixed, last) = causal_conv(&weights.conv, &run.rows(channels)?, last)?;
        let (y, memory) = rule.scan(&mixed, [&run.rows(&decay)?, &run.rows(&beta)?], memory)?;
        Ok((y, [last, memory]))
    })?;
    let [rows, _] = y.dims()?;
    let norm = weights.norm.astype(Dtype::F32)?;
    let by_head = y.reshape(&[rows, heads, spec.v_dim as i32])?;
    let normed = fast::rms_norm(&by_head, Some(&norm), spec.norm_eps)?;
    (normed.reshape(&[rows, values])? * gate.silu()?).astype(dtype)
}
