//! Delta attention in MLX's operations.
//!
//! Source: arXiv 2510.26692 §3.

use mlx::{Array, Dtype, fast};

use super::conv::causal_conv;
use crate::mixers::{Decay, DeltaAttention, DeltaGate};
use crate::ops::{DeltaRows, DeltaRule, GatedDeltaWeights, LayerContext};

/// See [`Ops::delta_attention`](crate::ops::Ops::delta_attention).
pub(in crate::ops) fn delta_attention(
    spec: &DeltaAttention,
    weights: &GatedDeltaWeights,
    rows: &DeltaRows,
    layer: LayerContext,
) -> mlx::Result<Array> {
    let rule = DeltaRule {
        k_heads: spec.k_heads as i32,
        k_dim: spec.k_dim as i32,
        v_heads: spec.v_heads as i32,
        v_dim: spec.v_dim as i32,
    };
    let qkv = rows.qkv.astype(Dtype::F32)?;
    let decays = decays(spec, weights, rows.steps)?;
    let write = rows.write.astype(Dtype::F32)?.sigmoid()? * spec.write_scale;
    let y = layer.advance(|run, [last, memory]| {
        let (mixed, last) = causal_conv(&weights.conv, &run.rows(&qkv)?, last)?;
        let (y, memory) = rule.scan(&mixed, [&run.rows(&decays)?, &run.rows(&write)?], memory)?;
        Ok((y, [last, memory]))
    })?;
    gated(spec, weights, &y, rows.gate)
}

/// Factors of each row, `[T, v_heads]` or `[T, v_heads · k_dim]` f32.
fn decays(spec: &DeltaAttention, weights: &GatedDeltaWeights, steps: &Array) -> mlx::Result<Array> {
    let steps = steps.astype(Dtype::F32)? + &weights.dt_bias;
    let rate = weights.a_log.exp()?;
    let rate = match spec.decay {
        Decay::PerHead => rate,
        Decay::PerChannel | Decay::Bounded(_) => rate.repeat(spec.k_dim as i32, 0)?,
    };
    match spec.decay {
        Decay::PerHead | Decay::PerChannel => (steps.softplus()? * rate).negative()?.exp(),
        Decay::Bounded(bound) => ((steps * rate).sigmoid()? * bound).exp(),
    }
}

/// `y`: `[T, values]` f32 → normed head by head, times the gate.
fn gated(spec: &DeltaAttention, weights: &GatedDeltaWeights, y: &Array, gate: &Array) -> mlx::Result<Array> {
    let [rows, values] = y.dims()?;
    let by_head = y.reshape(&[rows, spec.v_heads as i32, spec.v_dim as i32])?;
    let normed = fast::rms_norm(&by_head, Some(&weights.norm.astype(Dtype::F32)?), spec.norm_eps)?;
    let factors = gate.astype(Dtype::F32)?;
    let factors = match spec.gate {
        DeltaGate::Silu => factors.silu()?,
        DeltaGate::Sigmoid => factors.sigmoid()?,
    };
    (normed.reshape(&[rows, values])? * factors).astype(gate.dtype()?)
}
