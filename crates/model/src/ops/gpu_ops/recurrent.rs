//! Convolutions and recurrences by our GPU kernels, which write states in place.

use mlx::gpu::{
    CausalConv, ConvActivation, ConvGates, Decays, GatedHeads, HeadsGate, Plan, Recurrence, RecurrenceRule,
    RunCount, SelectiveScan, StateDecay, written_by,
};
use mlx::{Array, Dtype};

use super::operand_of;
use crate::forward::DeviceRuns;
use crate::kv_cache::poisoned;
use crate::mixers::{
    ConvReach, Decay, DeltaAttention, DeltaGate, GatedDelta, Mamba1, Mamba2, Mixer, ShortConv,
};
use crate::ops::{self, DeltaRows, GatedDeltaWeights, LayerContext, Mamba1Rows, Mamba2Weights};

/// Whether there are kernels for a mixer that has a state.
pub(super) fn is_supported(mixer: &Mixer) -> bool {
    let (dtype, rows, count) = (Dtype::Bf16, 1, RunCount { runs: 1, longest: 1 });
    let planned = |layer: Layer| layer.conv.plan(count).and(layer.recurrence.plan(count)).is_some();
    match mixer {
        Mixer::Mamba1(Mamba1 { inner, state_dim, conv_kernel_size, .. }) => {
            let conv = mixing_conv([0, *inner as i32, *conv_kernel_size as i32], false, dtype, rows);
            let scan = scan([*inner as i32, *state_dim as i32], dtype, rows);
            conv.plan(count).and(scan.plan(count)).is_some()
        }
        Mixer::Mamba2(spec) => planned(mamba2_layer(spec, dtype, rows)),
        Mixer::GatedDelta(spec) => planned(gated_delta_layer(spec, dtype, rows)),
        Mixer::DeltaAttention(spec) => {
            planned(delta_attention_layer(spec, dtype, rows)) && spec.k_dim.is_multiple_of(8)
        }
        Mixer::ShortConv(ShortConv { reach: ConvReach::BothSides, .. }) => false,
        Mixer::ShortConv(ShortConv { hidden, conv_kernel_size, bias, reach: ConvReach::Before }) => {
            let conv = plain_conv([*hidden, *conv_kernel_size], *bias, dtype, rows);
            conv.plan(count).is_some()
        }
        _ => false,
    }
}

/// The kernels of a layer.
struct Layer {
    conv: CausalConv,
    recurrence: Recurrence,
    gate: GatedHeads,
}

/// Rows of the projections. One array holds all of them in some layers.
struct Rows<'a> {
    /// What the convolution mixes.
    mixed: &'a Array,
    /// Steps, or decays of channels.
    steps: &'a Array,
    /// How much the delta rule writes.
    writes: &'a Array,
    gates: &'a Array,
}

impl<'a> Rows<'a> {
    fn of(projected: &'a Array) -> Self {
        Self { mixed: projected, steps: projected, writes: projected, gates: projected }
    }
}

/// Weights between the projections.
struct Weights<'a> {
    conv: &'a ops::CausalConv,
    a_log: &'a Array,
    dt_bias: &'a Array,
    /// What a value adds to the result, `[heads]`.
    skip: &'a Array,
    /// Of the norm, `[value_dim]`.
    norm: &'a Array,
}

/// `[T, inner]`, see [`Ops::mamba1`](ops::Ops::mamba1).
pub(super) fn mamba1(
    channels: &Array,
    conv: &ops::CausalConv,
    select: &dyn Fn(&Array) -> mlx::Result<[Array; 3]>,
    weights: Mamba1Rows,
    context: LayerContext,
) -> mlx::Result<Array> {
    let (dtype, [rows, inner]) = (channels.dtype()?, channels.dims()?);
    let (sizes, has_bias) = ([0, inner, conv.weight.dim(0)?], conv.bias.is_some());
    let layer_conv = CausalConv { output: dtype, ..mixing_conv(sizes, has_bias, dtype, rows) };
    let runs = device_runs(&context)?;
    let pool = context.cache.pools.get_mut(context.index).ok_or_else(poisoned)?;
    let [last, memory] = pool.take()?;
    let (mixed, last) = convolved(&layer_conv, conv, channels, runs, &last)?;
    let [steps, writes, reads] = select(&mixed)?;
    let Mamba1Rows { rate, skip } = weights;
    let inputs = [&mixed, &steps, &writes, &reads, rate, skip, runs.array(), &memory];
    let scan = scan([inner, rate.dim(-1)?], dtype, rows);
    let (y, memory) = with_pool(&only(scan.plan(runs.count()), &inputs)?, &memory)?;
    pool.put([last, memory]);
    Ok(y)
}

/// `silu(gate) · y`, `[T, inner]`.
pub(super) fn mamba2(
    spec: &Mamba2,
    weights: &Mamba2Weights,
    projected: &Array,
    context: LayerContext,
) -> mlx::Result<Array> {
    let layer = mamba2_layer(spec, projected.dtype()?, projected.dim(0)?);
    let Mamba2Weights { conv, a_log, dt_bias, skip } = weights;
    layer.run(&Weights { conv, a_log, dt_bias, skip, norm: skip }, Rows::of(projected), context)
}

/// `silu(gate) · norm(y)`, `[T, values]`.
pub(super) fn gated_delta(
    spec: &GatedDelta,
    weights: &GatedDeltaWeights,
    projected: &Array,
    context: LayerContext,
) -> mlx::Result<Array> {
    let layer = gated_delta_layer(spec, projected.dtype()?, projected.dim(0)?);
    let GatedDeltaWeights { conv, a_log, dt_bias, norm } = weights;
    layer.run(&Weights { conv, a_log, dt_bias, skip: a_log, norm }, Rows::of(projected), context)
}

/// See [`Ops::delta_attention`](ops::Ops::delta_attention).
pub(super) fn delta_attention(
    spec: &DeltaAttention,
    weights: &GatedDeltaWeights,
    rows: &DeltaRows,
    context: LayerContext,
) -> mlx::Result<Array> {
    let layer = delta_attention_layer(spec, rows.qkv.dtype()?, rows.qkv.dim(0)?);
    let GatedDeltaWeights { conv, a_log, dt_bias, norm } = weights;
    let decays = decays(spec, weights, rows.steps)?;
    let steps = decays.as_ref().unwrap_or(rows.steps);
    let rows = Rows { mixed: rows.qkv, steps, writes: rows.write, gates: rows.gate };
    layer.run(&Weights { conv, a_log, dt_bias, skip: a_log, norm }, rows, context)
}

/// Decays of channels, `[T, v_heads · k_dim]` f32; `None` where a head as a whole decays.
fn decays(spec: &DeltaAttention, weights: &GatedDeltaWeights, steps: &Array) -> mlx::Result<Option<Array>> {
    let bound = match spec.decay {
        Decay::PerHead => return Ok(None),
        Decay::PerChannel => None,
        Decay::Bounded(bound) => Some(bound),
    };
    let (x, operand) = operand_of(steps);
    let plan = Decays {
        dtype: steps.dtype()?,
        rows: steps.dim(0)?,
        heads: spec.v_heads as i32,
        key_dim: spec.k_dim as i32,
        bound,
        operand,
    };
    only(plan.plan(), &[&x, &weights.a_log, &weights.dt_bias]).map(Some)
}

/// The convolution of rows `[T, channels]`, without an activation.
pub(super) fn convolve(weights: &ops::CausalConv, x: &Array, context: LayerContext) -> mlx::Result<Array> {
    let [rows, channels] = x.dims()?;
    let sizes = [channels, weights.weight.dim(0)?].map(|size| size as usize);
    advanced(&plain_conv(sizes, weights.bias.is_some(), x.dtype()?, rows), weights, x, context)
}

/// `c ·` the convolution of `b · x`, `[T, channels]`. `projected`: `b`, `c` and `x`.
pub(super) fn short_conv(
    weights: &ops::CausalConv,
    projected: &Array,
    context: LayerContext,
) -> mlx::Result<Array> {
    let [size, channels] = weights.weight.dims()?;
    let sizes = [channels, size].map(|size| size as usize);
    let conv = plain_conv(sizes, weights.bias.is_some(), projected.dtype()?, projected.dim(0)?);
    let gates = Some(ConvGates { inputs: 0, results: channels });
    advanced(&CausalConv { offset: 2 * channels, gates, ..conv }, weights, projected, context)
}

/// The convolution of a layer that has no other state.
fn advanced(
    conv: &CausalConv,
    weights: &ops::CausalConv,
    x: &Array,
    context: LayerContext,
) -> mlx::Result<Array> {
    let runs = device_runs(&context)?;
    let pool = context.cache.pools.get_mut(context.index).ok_or_else(poisoned)?;
    let [last, other] = pool.take()?;
    let (y, last) = convolved(conv, weights, x, runs, &last)?;
    pool.put([last, other]);
    Ok(y)
}

fn plain_conv([channels, kernel_size]: [usize; 2], has_bias: bool, dtype: Dtype, rows: i32) -> CausalConv {
    CausalConv {
        dtype,
        output: dtype,
        rows,
        channels: channels as i32,
        offset: 0,
        kernel_size: kernel_size as i32,
        has_bias,
        activation: ConvActivation::Identity,
        gates: None,
    }
}

fn scan([channels, state_dim]: [i32; 2], dtype: Dtype, rows: i32) -> SelectiveScan {
    SelectiveScan { dtype, rows, channels, state_dim }
}

fn mamba2_layer(spec: &Mamba2, dtype: Dtype, rows: i32) -> Layer {
    let [inner, channels] = [spec.inner(), spec.conv_channels()].map(|size| size as i32);
    let heads = spec.heads as i32;
    Layer {
        conv: mixing_conv([inner, channels, spec.conv_kernel_size as i32], spec.conv_bias, dtype, rows),
        recurrence: Recurrence {
            rows,
            heads,
            key_heads: spec.groups as i32,
            value_dim: spec.head_dim as i32,
            key_dim: spec.state_dim as i32,
            decay: StateDecay::Head { step: inner + channels },
            rule: RecurrenceRule::StateSpace { limits: spec.step_limits },
        },
        gate: GatedHeads {
            dtype,
            rows,
            heads,
            value_dim: spec.head_dim as i32,
            gate: 0,
            function: HeadsGate::Silu,
            norm: None,
        },
    }
}

fn gated_delta_layer(spec: &GatedDelta, dtype: Dtype, rows: i32) -> Layer {
    let [channels, heads, value_dim] =
        [spec.conv_channels(), spec.v_heads, spec.v_dim].map(|size| size as i32);
    let write = channels + heads * value_dim;
    Layer {
        conv: mixing_conv([0, channels, spec.conv_kernel_size as i32], false, dtype, rows),
        recurrence: Recurrence {
            rows,
            heads,
            key_heads: spec.k_heads as i32,
            value_dim,
            key_dim: spec.k_dim as i32,
            decay: StateDecay::Head { step: write + heads },
            rule: RecurrenceRule::Delta { write, scale: 1.0 },
        },
        gate: GatedHeads {
            dtype,
            rows,
            heads,
            value_dim,
            gate: channels,
            function: HeadsGate::Silu,
            norm: Some(spec.norm_eps),
        },
    }
}

fn delta_attention_layer(spec: &DeltaAttention, dtype: Dtype, rows: i32) -> Layer {
    let [channels, heads, value_dim] =
        [2 * spec.keys() + spec.values(), spec.v_heads, spec.v_dim].map(|size| size as i32);
    Layer {
        conv: mixing_conv([0, channels, spec.conv_kernel_size as i32], false, dtype, rows),
        recurrence: Recurrence {
            rows,
            heads,
            key_heads: spec.k_heads as i32,
            value_dim,
            key_dim: spec.k_dim as i32,
            decay: match spec.decay {
                Decay::PerHead => StateDecay::Head { step: 0 },
                Decay::PerChannel | Decay::Bounded(_) => StateDecay::Channels,
            },
            rule: RecurrenceRule::Delta { write: 0, scale: spec.write_scale },
        },
        gate: GatedHeads {
            dtype,
            rows,
            heads,
            value_dim,
            gate: 0,
            function: match spec.gate {
                DeltaGate::Silu => HeadsGate::Silu,
                DeltaGate::Sigmoid => HeadsGate::Sigmoid,
            },
            norm: Some(spec.norm_eps),
        },
    }
}

/// The convolution before a recurrence.
fn mixing_conv(
    [offset, channels, kernel_size]: [i32; 3],
    has_bias: bool,
    dtype: Dtype,
    rows: i32,
) -> CausalConv {
    let (output, activation) = (Dtype::F32, ConvActivation::Silu);
    CausalConv { dtype, output, rows, channels, offset, kernel_size, has_bias, activation, gates: None }
}

impl Layer {
    fn run(&self, weights: &Weights<'_>, rows: Rows<'_>, context: LayerContext) -> mlx::Result<Array> {
        let runs = device_runs(&context)?;
        let pool = context.cache.pools.get_mut(context.index).ok_or_else(poisoned)?;
        let [last, memory] = pool.take()?;
        let (mixed, last) = convolved(&self.conv, weights.conv, rows.mixed, runs, &last)?;
        let Weights { a_log, dt_bias, skip, norm, .. } = *weights;
        let Rows { steps, writes, gates, .. } = rows;
        let inputs = [&mixed, steps, writes, a_log, dt_bias, skip, runs.array(), &memory];
        let y = only(self.recurrence.plan(runs.count()), &inputs)?;
        let (y, memory) = with_pool(&y, &memory)?;
        pool.put([last, memory]);
        only(self.gate.plan(), &[&y, gates, norm])
    }
}

/// The convolution's rows, and the pool after them.
fn convolved(
    conv: &CausalConv,
    weights: &ops::CausalConv,
    x: &Array,
    runs: &DeviceRuns,
    pool: &Array,
) -> mlx::Result<(Array, Array)> {
    let bias = weights.bias.as_ref().unwrap_or(&weights.weight);
    let y = only(conv.plan(runs.count()), &[x, &weights.weight, bias, runs.array(), pool])?;
    with_pool(&y, pool)
}

/// What a kernel gave, and the pool that it wrote to, which is evaluated with it.
fn with_pool(y: &Array, pool: &Array) -> mlx::Result<(Array, Array)> {
    let pool = written_by(&[pool], y)?.into_iter().next().ok_or_else(poisoned)?;
    let y = written_by(&[y], &pool)?.into_iter().next().ok_or_else(poisoned)?;
    Ok((y, pool))
}

fn only(plan: Option<Plan>, inputs: &[&Array]) -> mlx::Result<Array> {
    let plan = plan.ok_or_else(|| mlx::Error::new("a recurrence that has kernels"))?;
    plan.call(inputs)?.pop().ok_or_else(|| mlx::Error::new("a kernel's result"))
}

fn device_runs<'a>(context: &LayerContext<'a>) -> mlx::Result<&'a DeviceRuns> {
    let metadata = context.ctx.state_of(context.cache, context.index)?;
    metadata.device_runs().ok_or_else(poisoned)
}
