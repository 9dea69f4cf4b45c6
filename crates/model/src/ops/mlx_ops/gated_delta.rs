//! The gated delta rule in MLX's operations.
//!
//! Source: arXiv 2412.06464 §3.

use mlx::{Array, Dtype, fast};

use super::conv::causal_conv;
use crate::GatedDelta;
use crate::kv_cache::poisoned;
use crate::ops::GatedDeltaWeights;
use crate::ops::LayerContext;

/// Added to the square of a key's or query's length.
const LENGTH_EPS: f32 = 1e-6;

/// `silu(gate) · norm(y)`, `[T, values]`, in the dtype of `projected`.
pub(super) fn forward(
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
    let y = metadata.advance(layer.index, pool, |run, [last, memory]| {
        let (mixed, last) = causal_conv(&weights.conv, &run.rows(channels)?, last)?;
        let (y, memory) = scan(spec, &mixed, (&run.rows(&decay)?, &run.rows(&beta)?), memory)?;
        Ok((y, [last, memory]))
    })?;
    let [rows, _] = y.dims()?;
    let norm = weights.norm.astype(Dtype::F32)?;
    let by_head = y.reshape(&[rows, heads, spec.v_dim as i32])?;
    let normed = fast::rms_norm(&by_head, Some(&norm), spec.norm_eps)?;
    (normed.reshape(&[rows, values])? * gate.silu()?).astype(dtype)
}

/// `mixed`: `[n, len, channels]`; `decay` and `beta`: `[n, len, v_heads]`; `memory`:
/// `[n, v_heads, v_dim, k_dim]` → `[n, len, values]` and the memory after it.
fn scan(
    spec: &GatedDelta,
    mixed: &Array,
    (decay, beta): (&Array, &Array),
    memory: &Array,
) -> mlx::Result<(Array, Array)> {
    let [count, len, _] = mixed.dims()?;
    let keys = spec.keys() as i32;
    let parts = mixed.split(&[keys, 2 * keys], -1)?;
    let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
    let [k_heads, k_dim, v_heads, v_dim] =
        [spec.k_heads, spec.k_dim, spec.v_heads, spec.v_dim].map(|n| n as i32);
    let unit = |x: &Array| -> mlx::Result<Array> {
        let x = x.reshape(&[count, len, k_heads, k_dim])?;
        // A mean square is the length's square over the width.
        fast::rms_norm(&x, None, LENGTH_EPS / k_dim as f32)
    };
    let length = (k_dim as f32).sqrt();
    let (q, k) = (unit(q)? / (length * length), unit(k)? / length);
    let v = v.reshape(&[count, len, v_heads, v_dim])?;
    let (y, memory) = fast::gated_delta_update(&fast::GatedDelta {
        q: &q,
        k: &k,
        v: &v,
        gates: decay,
        beta,
        state: Some(memory),
        mask: None,
    })?;
    Ok((y.reshape(&[count, len, v_heads * v_dim])?, memory))
}
