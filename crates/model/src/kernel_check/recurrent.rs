//! Checks of layers with a state: prompts, and the rows that decode after them.

use mlx::{Array, Dtype};
use omnibus_kv::{BlockId, BlockTable, FloatType};

use super::{KernelCheck, KernelTimes, Measure, distance, normal, time};
use crate::batch::{Batch, Segment};
use crate::blueprint::{Blueprint, LayerSpec};
use crate::forward::{AttentionPath, ForwardContext};
use crate::kv_cache::KvCache;
use crate::mixers::{DeltaAttention, GatedDelta, Mamba1, Mamba2, Mixer, ShortConv};
use crate::ops::{
    CausalConv, DeltaRows, GatedDeltaWeights, Kernels, LayerContext, Mamba1Rows, Mamba2Weights, Ops,
};
use crate::params::Param;
use crate::rope::RotaryAxes;

/// Sequences of a pass: tokens before it and rows in it.
type Pass<'a> = &'a [(usize, usize)];

/// A layer with random weights.
struct Probe<'a> {
    layer: Weighted<'a>,
    /// The network with this layer alone.
    blueprint: Blueprint,
    dtype: Dtype,
    /// Of a projected row.
    width: usize,
}

enum Weighted<'a> {
    Mamba1(&'a Mamba1, Mamba1Weights),
    Mamba2(&'a Mamba2, Mamba2Weights),
    GatedDelta(&'a GatedDelta, GatedDeltaWeights),
    DeltaAttention(&'a DeltaAttention, GatedDeltaWeights),
    ShortConv(CausalConv),
}

/// Weights of a Mamba layer's convolution and recurrence.
struct Mamba1Weights {
    conv: CausalConv,
    rate: Param,
    skip: Param,
}

/// Nothing for mixers without kernels.
pub(super) fn checks(
    blueprint: &Blueprint,
    mixer: &Mixer,
    dtype: Dtype,
    measure: Measure,
) -> Vec<KernelCheck> {
    let (name, shape) = match mixer {
        Mixer::Mamba1(Mamba1 { inner, state_dim, .. }) => {
            ("mamba", format!("{inner} channels of {state_dim}"))
        }
        Mixer::Mamba2(Mamba2 { heads, head_dim, state_dim, .. }) => {
            ("mamba 2", format!("{heads} heads of {head_dim} x {state_dim}"))
        }
        Mixer::GatedDelta(GatedDelta { v_heads, v_dim, k_dim, .. }) => {
            ("gated delta", format!("{v_heads} heads of {v_dim} x {k_dim}"))
        }
        Mixer::DeltaAttention(DeltaAttention { v_heads, v_dim, k_dim, .. }) => {
            ("delta attention", format!("{v_heads} heads of {v_dim} x {k_dim}"))
        }
        Mixer::ShortConv(ShortConv { hidden, conv_kernel_size, .. }) => {
            ("short convolution", format!("{hidden} channels, {conv_kernel_size} rows"))
        }
        _ => return Vec::new(),
    };
    let probe = || Probe::new(blueprint, mixer, dtype);
    let mut checks = vec![KernelCheck::new(name, shape.clone(), dtype, || Ok((probe()?.error()?, None)))];
    let passes: &[(&str, (usize, usize), usize)] = match measure {
        Measure::Load => &[("decode 16", (9, 1), 16)],
        Measure::Table => {
            &[("decode 1", (9, 1), 1), ("decode 16", (9, 1), 16), ("prompt 2048", (0, 2048), 1)]
        }
    };
    for (pass, row, count) in passes {
        let run = || probe()?.times(&vec![*row; *count], measure).map(|times| (0.0, Some(times)));
        checks.push(KernelCheck::new(name, format!("{shape}, {pass}"), dtype, run));
    }
    checks
}

impl<'a> Probe<'a> {
    fn new(blueprint: &Blueprint, mixer: &'a Mixer, dtype: Dtype) -> mlx::Result<Self> {
        let float = |shape: &[usize], seed| normal(shape, Dtype::F32, seed).map(Param::unlisted);
        let conv = |size: usize, channels: usize| -> mlx::Result<CausalConv> {
            Ok(CausalConv { weight: float(&[size, channels], 1)?, bias: Some(float(&[channels], 2)?) })
        };
        let (layer, width) = match mixer {
            Mixer::Mamba1(spec) => {
                let Mamba1 { inner, state_dim, conv_kernel_size, conv_bias, .. } = *spec;
                let conv = conv(conv_kernel_size, inner)?;
                let weights = Mamba1Weights {
                    conv: CausalConv { bias: conv.bias.filter(|_| conv_bias), ..conv },
                    rate: float(&[inner, state_dim], 3)?.map(|rate| rate.exp()?.negative())?,
                    skip: float(&[inner], 4)?,
                };
                (Weighted::Mamba1(spec, weights), inner)
            }
            Mixer::Mamba2(spec) => {
                let weights = Mamba2Weights {
                    conv: conv(spec.conv_kernel_size, spec.conv_channels())?,
                    a_log: float(&[spec.heads], 3)?,
                    dt_bias: float(&[spec.heads], 4)?,
                    skip: float(&[spec.heads], 5)?,
                };
                (Weighted::Mamba2(spec, weights), spec.inner() + spec.conv_channels() + spec.heads)
            }
            Mixer::GatedDelta(spec) => {
                let weights = GatedDeltaWeights {
                    conv: CausalConv { bias: None, ..conv(spec.conv_kernel_size, spec.conv_channels())? },
                    a_log: float(&[spec.v_heads], 3)?,
                    dt_bias: float(&[spec.v_heads], 4)?,
                    norm: Param::unlisted(normal(&[spec.v_dim], dtype, 5)?),
                };
                let width = spec.conv_channels() + spec.values() + 2 * spec.v_heads;
                (Weighted::GatedDelta(spec, weights), width)
            }
            Mixer::DeltaAttention(spec) => {
                let channels = 2 * spec.keys() + spec.values();
                let weights = GatedDeltaWeights {
                    conv: CausalConv { bias: None, ..conv(spec.conv_kernel_size, channels)? },
                    a_log: float(&[spec.v_heads], 3)?,
                    dt_bias: float(&[spec.decays()], 4)?,
                    norm: float(&[spec.v_dim], 5)?,
                };
                let width = channels + spec.decays() + spec.v_heads + spec.values();
                (Weighted::DeltaAttention(spec, weights), width)
            }
            Mixer::ShortConv(ShortConv { hidden, conv_kernel_size, .. }) => {
                (Weighted::ShortConv(conv(*conv_kernel_size, *hidden)?), 3 * hidden)
            }
            _ => return Err(mlx::Error::new("a mixer with a state")),
        };
        let spec = blueprint.layers.first().ok_or_else(|| mlx::Error::new("a layer"))?;
        let alone = LayerSpec { mixer: mixer.clone(), ..spec.clone() };
        Ok(Self { layer, blueprint: Blueprint { layers: vec![alone], ..blueprint.clone() }, dtype, width })
    }

    /// The largest error of prompts and of the rows after them.
    fn error(&self) -> mlx::Result<f64> {
        let passes: [Pass; 3] = [&[(0, 37), (0, 5)], &[(37, 1), (5, 40)], &[(38, 1), (45, 1)]];
        let (ours, mlx) = (self.outputs(&passes, Kernels::Gpu)?, self.outputs(&passes, Kernels::Mlx)?);
        let errors = ours.iter().zip(&mlx).map(|(ours, mlx)| distance(ours, mlx));
        errors.collect::<mlx::Result<Vec<f64>>>().map(|errors| errors.into_iter().fold(0.0, f64::max))
    }

    fn outputs(&self, passes: &[Pass], kernels: Kernels) -> mlx::Result<Vec<Array>> {
        let (ops, mut cache) = (kernels.ops(), self.cache(2)?);
        let mut outputs = Vec::new();
        for (seed, pass) in passes.iter().enumerate() {
            let batch = batch(pass)?;
            let ctx = self.context(&batch, &cache, &ops)?;
            let projected = normal(&[batch.tokens.size(), self.width], self.dtype, 20 + seed as u64)?;
            let y = self.compute(&ops, &ctx, &mut cache, &projected)?;
            mlx::eval([&y].into_iter().chain(cache.arrays()))?;
            outputs.push(y);
        }
        Ok(outputs)
    }

    /// How long one pass takes.
    fn times(&self, pass: Pass, measure: Measure) -> mlx::Result<KernelTimes> {
        let us = |kernels: Kernels| {
            let (ops, cache) = (kernels.ops(), self.cache(pass.len())?);
            let batch = batch(pass)?;
            let ctx = self.context(&batch, &cache, &ops)?;
            let projected = normal(&[batch.tokens.size(), self.width], self.dtype, 9)?;
            let cache = std::cell::RefCell::new(cache);
            time(measure, || {
                let y = self.compute(&ops, &ctx, &mut cache.borrow_mut(), &projected)?;
                // MLX's operations copy a pool that is still read.
                if kernels == Kernels::Mlx {
                    mlx::eval([&y].into_iter().chain(cache.borrow().arrays()))?;
                }
                Ok(vec![y])
            })
        };
        let rows: usize = pass.iter().map(|(_, rows)| rows).sum();
        let states: usize = self.cache(pass.len())?.arrays().map(Array::nbytes).sum();
        let bytes = 2 * states + 2 * rows * self.width * self.dtype.size_of();
        let times =
            KernelTimes { ours_us: us(Kernels::Gpu)?, mlx_us: us(Kernels::Mlx)?, bytes: bytes as f64 };
        mlx::memory::clear_cache();
        Ok(times)
    }

    /// A cache of one slot for each sequence.
    fn cache(&self, sequences: usize) -> mlx::Result<KvCache> {
        KvCache::new(&self.blueprint, &[sequences], 16, FloatType::F32)
    }

    fn context(&self, batch: &Batch, cache: &KvCache, ops: &Ops) -> mlx::Result<ForwardContext> {
        let mixers: Vec<&Mixer> = self.blueprint.layers.iter().map(|layer| &layer.mixer).collect();
        ForwardContext::new(batch, cache, RotaryAxes::One, (AttentionPath::Gather, ops.state_path(&mixers)))
    }

    fn compute(
        &self,
        ops: &Ops,
        ctx: &ForwardContext,
        cache: &mut KvCache,
        projected: &Array,
    ) -> mlx::Result<Array> {
        let layer = LayerContext { ctx, index: 0, cache };
        match &self.layer {
            Weighted::Mamba1(spec, Mamba1Weights { conv, rate, skip }) => {
                // In a network these are products of the convolved rows.
                let size = spec.state_dim as i32;
                let select = |mixed: &Array| -> mlx::Result<[Array; 3]> {
                    let rows = mixed.dim(0)?;
                    let part = |from: i32| mixed.slice(&[0, from], &[rows, from + size]);
                    Ok([mixed.astype(Dtype::F32)?.softplus()?, part(0)?, part(size)?])
                };
                ops.mamba1(projected, conv, &select, Mamba1Rows { rate, skip }, layer)
            }
            Weighted::Mamba2(spec, weights) => ops.mamba2(spec, weights, projected, layer),
            Weighted::GatedDelta(spec, weights) => ops.gated_delta(spec, weights, projected, layer),
            Weighted::DeltaAttention(spec, weights) => {
                let channels = 2 * spec.keys() + spec.values();
                let ends = [channels, channels + spec.decays(), channels + spec.decays() + spec.v_heads];
                let parts = projected.split(&ends.map(|end| end as i32), -1)?;
                let [qkv, steps, write, gate] = parts.as_slice() else {
                    return Err(mlx::Error::new("four parts"));
                };
                ops.delta_attention(spec, weights, &DeltaRows { qkv, steps, write, gate }, layer)
            }
            Weighted::ShortConv(conv) => ops.short_conv(conv, projected, layer),
        }
    }
}

/// Sequence `n` has slot `n`.
fn batch(pass: Pass) -> mlx::Result<Batch> {
    let mut first = 0;
    let mut segments = Vec::new();
    for (slot, (context, len)) in pass.iter().enumerate() {
        let table = BlockTable { freed_blocks: 0, sink_blocks: 0, blocks: vec![BlockId(slot as u32)] };
        let (len, context, prompt) = (*len, *context, context + len);
        segments.push(Segment {
            first,
            len,
            context,
            prompt,
            samples: 0,
            adapter: None,
            tables: vec![table],
        });
        first += len;
    }
    let tokens = Array::from_slice(&vec![0i32; first], &[first as i32])?;
    Ok(Batch { tokens, segments, logits_at: Vec::new(), multimodal: None, hidden: None })
}
