//! Convolutions and recurrences by our CPU kernels, which write states in place.

use mlx::{Array, cpu};

use crate::forward::StateMetadata;
use crate::kv_cache::poisoned;
use crate::mixers::{GatedDelta, Mamba2};
use crate::ops::{CausalConv, GatedDeltaWeights, LayerContext, Mamba2Weights, WkvRows, WkvWeights};

/// `silu(gate) · y`, `[T, inner]`.
pub(super) fn mamba2(
    spec: &Mamba2,
    weights: &Mamba2Weights,
    projected: &Array,
    layer: &mut LayerContext,
) -> mlx::Result<Array> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let inner = spec.inner();
    let [last, memory] = pool.take()?;
    let (mixed, last) = causal_conv(&weights.conv, (projected, inner), metadata, last)?;
    let (y, memory) = cpu::Recurrence {
        rule: cpu::Rule::StateSpace { limits: spec.step_limits, skip: &weights.skip },
        key_heads: spec.groups as i32,
        heads: spec.heads as i32,
        mixed: &mixed,
        projected,
        gate: 0,
        step: (inner + spec.conv_channels()) as i32,
        a_log: &weights.a_log,
        dt_bias: &weights.dt_bias,
        runs: &metadata.runs,
        pool: memory,
    }
    .run()?;
    pool.put([last, memory]);
    Ok(y)
}

/// `silu(gate) · norm(y)`, `[T, values]`.
pub(super) fn gated_delta(
    spec: &GatedDelta,
    weights: &GatedDeltaWeights,
    projected: &Array,
    layer: &mut LayerContext,
) -> mlx::Result<Array> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let gate = spec.conv_channels();
    let beta = gate + spec.values();
    let [last, memory] = pool.take()?;
    let (mixed, last) = causal_conv(&weights.conv, (projected, 0), metadata, last)?;
    let (y, memory) = cpu::Recurrence {
        rule: cpu::Rule::Delta { write: beta as i32, norm: &weights.norm, eps: spec.norm_eps },
        key_heads: spec.k_heads as i32,
        heads: spec.v_heads as i32,
        mixed: &mixed,
        projected,
        gate: gate as i32,
        step: (beta + spec.v_heads) as i32,
        a_log: &weights.a_log,
        dt_bias: &weights.dt_bias,
        runs: &metadata.runs,
        pool: memory,
    }
    .run()?;
    pool.put([last, memory]);
    Ok(y)
}

/// `x + (before − x) · share` for each share, `[T, width]` each.
pub(super) fn token_shift(x: &Array, shares: &Array, layer: &mut LayerContext) -> mlx::Result<Vec<Array>> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let [last, other] = pool.take()?;
    let (mixes, last) = cpu::TokenShift { x, shares, runs: &metadata.runs, pool: last }.run()?;
    pool.put([last, other]);
    Ok(mixes)
}

/// `gate · (norm(S r) + bonus)`, `[T, heads · head_dim]`.
pub(super) fn wkv(rows: &WkvRows, weights: &WkvWeights, layer: &mut LayerContext) -> mlx::Result<Array> {
    let metadata = layer.ctx.state_of(layer.cache, layer.index)?;
    let pool = layer.cache.pools.get_mut(layer.index).ok_or_else(poisoned)?;
    let [other, memory] = pool.take()?;
    let WkvRows { receptance, decay, key, value, rate, gate, first_values } = *rows;
    let WkvWeights { k_k, k_a, r_k, norm: [weight, bias] } = weights;
    let (y, memory) = cpu::Wkv {
        rows: [receptance, decay, key, value, rate, gate],
        first_values,
        weights: [k_k, k_a, r_k, weight, bias],
        runs: &metadata.runs,
        pool: memory,
    }
    .run()?;
    pool.put([other, memory]);
    Ok(y)
}

/// Rows `[T, _]` with channels from an offset on → `[T, channels]` and the pool, which is written in place.
fn causal_conv(
    conv: &CausalConv,
    (x, offset): (&Array, usize),
    metadata: &StateMetadata,
    pool: Array,
) -> mlx::Result<(Array, Array)> {
    let (weight, bias) = (&conv.weight, conv.bias.as_deref());
    cpu::CausalConv { x, offset: offset as i32, weight, bias, runs: &metadata.runs, pool }.run()
}
