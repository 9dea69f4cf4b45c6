//! Our GPU kernels, and MLX's operations for what has none: rotations that depend on a sequence's length, values of
//! another width than keys, recurrences, odd sizes.

mod activation;
mod attention;
mod experts;
mod latent;
mod linear;
mod norm;
mod recurrent;

use mlx::gpu::{AddTerm, Embed, Gate, GateLayout, Operand, TableFormat, Term as TermKind, parts_of};
use mlx::{Array, Dtype, QuantMode, Quantized};
use omnibus_kv::KvFormat;

use super::mlx_ops::{self, MlxOps};
use super::{
    AttentionCall, AttentionNeeds, ByLength, ChosenExperts, ExpertVectors, GroupNormWeights, LatentCall,
    LayerContext, Ops, Term, Weight,
};
use crate::forward::{AttentionPath, StatePath};
use crate::gpu_switches::{GpuKernel, is_on};
use crate::ops::{CausalConv, DeltaRows, GatedDeltaWeights, Mamba1Rows, Mamba2Weights};
use crate::{
    Activation, DeltaAttention, GatedDelta, HeadGate, LatentAttention, Mamba2, Mixer, Router, kv_format,
};
pub(crate) use attention::has_warpgroups;

/// GPU kernels.
pub(super) struct GpuOps;

impl Ops for GpuOps {
    fn activations(&self) -> Option<Dtype> {
        MlxOps.activations()
    }

    fn reads_dense(&self, dtype: Dtype) -> bool {
        MlxOps.reads_dense(dtype)
    }

    fn attention_path(&self, needs: &AttentionNeeds) -> AttentionPath {
        // Activations have a type of their own, which kernels support where they do this one.
        let format = needs.storage.format;
        let dtype = match format {
            KvFormat::Float(_) => kv_format::dtype_of(format),
            KvFormat::Packed { .. } => Dtype::Bf16,
        };
        let size = needs.block_size as i32;
        let supported = needs.layers.iter().all(|spec| {
            attention::paged(spec, dtype, format, size).is_some_and(|kernels| kernels.is_supported())
        });
        let latents = |spec: &&LatentAttention| {
            latent::paged(spec, dtype, format, size).is_some_and(|kernels| kernels.is_supported())
        };
        // Rows of chunks of latents are computed by one pool.
        let one_pool = needs.storage.unquantized_prefix.is_none() || needs.latents.is_empty();
        let supported = supported && one_pool && needs.latents.iter().all(latents);
        match (needs.by_length, supported && !needs.gathers && is_on(GpuKernel::Attention)) {
            (ByLength::No, true) => AttentionPath::Items,
            (ByLength::Yes, _) | (_, false) => AttentionPath::Gather,
        }
    }

    fn state_path(&self, mixers: &[&Mixer]) -> StatePath {
        let is_supported = |mixer: &&Mixer| recurrent::is_supported(mixer);
        match is_on(GpuKernel::Recurrence) && mixers.iter().all(is_supported) {
            true => StatePath::DeviceRuns,
            false => StatePath::Gather,
        }
    }

    fn embedding(&self, tokens: &Array, table: &Weight, dtype: Dtype) -> mlx::Result<Array> {
        match embedded(tokens, table, dtype)? {
            Some(rows) => Ok(rows),
            None => MlxOps.embedding(tokens, table, dtype),
        }
    }

    fn linear(&self, x: &Array, weight: &Weight) -> mlx::Result<Array> {
        match linear::product(x, weight, None)? {
            Some(product) => Ok(product),
            None => MlxOps.linear(x, weight),
        }
    }

    fn biased_linear(&self, x: &Array, weight: &Weight, bias: &Array) -> mlx::Result<Array> {
        if let Some(product) = linear::product(x, weight, Some(bias))? {
            return Ok(product);
        }
        let product = self.linear(x, weight)?;
        match joined(&product, bias, None, TermKind::Bias)? {
            Some(sum) => Ok(sum),
            None => Ok(product + bias),
        }
    }

    fn expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &Weight) -> mlx::Result<Array> {
        match experts::product(x, experts, weight)? {
            Some(product) => Ok(product),
            None => MlxOps.expert_linear(x, experts, weight),
        }
    }

    fn route(
        &self,
        logits: &Array,
        router: &Router,
        vectors: ExpertVectors<'_>,
        top_k: usize,
    ) -> mlx::Result<(ChosenExperts, Array)> {
        match experts::route(logits, router, vectors, top_k)? {
            Some(chosen) => Ok(chosen),
            None => MlxOps.route(logits, router, vectors, top_k),
        }
    }

    fn weighted_sum(&self, parts: &Array, weights: &Array) -> mlx::Result<Array> {
        match experts::weighted_sum(parts, weights)? {
            Some(sum) => Ok(sum),
            None => MlxOps.weighted_sum(parts, weights),
        }
    }

    fn add_term(&self, sum: &Array, term: &Array, gate: Option<&Array>) -> mlx::Result<Array> {
        let kind = if gate.is_some() { TermKind::Gated } else { TermKind::Plain };
        match joined(sum, term, gate, kind)? {
            Some(joined) => Ok(joined),
            None => MlxOps.add_term(sum, term, gate),
        }
    }

    fn add_scaled(&self, sum: &Array, term: &Array, factor: &Array) -> mlx::Result<Array> {
        match joined(sum, term, Some(factor), TermKind::Scaled)? {
            Some(scaled) => Ok(scaled),
            None => MlxOps.add_scaled(sum, term, factor),
        }
    }

    fn rms_norm(&self, x: &Array, weight: &Array, eps: f32) -> mlx::Result<Array> {
        match norm::rms(x, weight, 1, eps)? {
            Some(normed) => Ok(normed),
            None => MlxOps.rms_norm(x, weight, eps),
        }
    }

    fn grouped_rms_norm(&self, x: &Array, weights: &GroupNormWeights, eps: f32) -> mlx::Result<Array> {
        match norm::rms(x, &weights.weight, weights.groups, eps)? {
            Some(normed) => Ok(normed),
            None => MlxOps.grouped_rms_norm(x, weights, eps),
        }
    }

    fn add_rms_norm(
        &self,
        sum: &Array,
        term: &Term,
        weight: &Array,
        eps: f32,
    ) -> mlx::Result<(Array, Array)> {
        match norm::add(sum, term, weight, eps)? {
            Some([sum, normed]) => Ok((sum, normed)),
            None => MlxOps.add_rms_norm(sum, term, weight, eps),
        }
    }

    fn add(&self, sum: &Array, term: &Term) -> mlx::Result<Array> {
        match norm::add_normed(sum, term)? {
            Some(sum) => Ok(sum),
            None => self.add_term(sum, &self.joined(term)?, None),
        }
    }

    fn layer_norm(&self, x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> mlx::Result<Array> {
        match norm::layer(x, weight, bias, eps)? {
            Some(normed) => Ok(normed),
            None => MlxOps.layer_norm(x, weight, bias, eps),
        }
    }

    fn norm_columns(&self, x: &Array, weights: [&Array; 2], eps: f32) -> mlx::Result<Array> {
        match norm::columns(x, weights, eps)? {
            Some(normed) => Ok(normed),
            None => MlxOps.norm_columns(x, weights, eps),
        }
    }

    fn add_expert_bias(&self, x: &Array, bias: &Array, experts: &ChosenExperts) -> mlx::Result<Array> {
        match experts::add_bias(x, bias, experts)? {
            Some(sum) => Ok(sum),
            None => MlxOps.add_expert_bias(x, bias, experts),
        }
    }

    fn scaled(&self, x: &Array, factor: f32) -> mlx::Result<Array> {
        match activation::gated([x, x], Some(Gate::Scaled { factor }), GateLayout::Alone)? {
            Some(scaled) => Ok(scaled),
            None => MlxOps.scaled(x, factor),
        }
    }

    fn act(&self, x: &Array, act: Activation) -> mlx::Result<Array> {
        match activation::gated([x, x], activation::of_one(act), GateLayout::Alone)? {
            Some(y) => Ok(y),
            None => MlxOps.act(x, act),
        }
    }

    fn xielu(&self, x: &Array, learned: [&Array; 4]) -> mlx::Result<Array> {
        match activation::xielu(x, learned)? {
            Some(y) => Ok(y),
            None => MlxOps.xielu(x, learned),
        }
    }

    fn head_gate(&self, gate: &Array, x: &Array, function: HeadGate) -> mlx::Result<Array> {
        match activation::head_gate(gate, x, function)? {
            Some(product) => Ok(product),
            None => MlxOps.head_gate(gate, x, function),
        }
    }

    fn gated_act(&self, gate_up: &Array, act: Activation) -> mlx::Result<Array> {
        match activation::gated([gate_up, gate_up], activation::of_gate(act), GateLayout::Joined)? {
            Some(product) => Ok(product),
            None => MlxOps.gated_act(gate_up, act),
        }
    }

    fn gated_act_pair(&self, gate: &Array, up: &Array, act: Activation) -> mlx::Result<Array> {
        match activation::gated([gate, up], activation::of_gate(act), GateLayout::Apart)? {
            Some(product) => Ok(product),
            None => MlxOps.gated_act_pair(gate, up, act),
        }
    }

    fn sigmoid_gate(&self, gate: &Array, x: &Array) -> mlx::Result<Array> {
        match activation::gated([gate, x], Some(Gate::Sigmoid), GateLayout::Apart)? {
            Some(product) => Ok(product),
            None => MlxOps.sigmoid_gate(gate, x),
        }
    }

    fn attend(&self, call: AttentionCall) -> mlx::Result<Array> {
        match call.layer.reads()? {
            AttentionPath::Items => attention::attend(call),
            AttentionPath::Segments | AttentionPath::Gather => mlx_ops::gather(call),
        }
    }

    fn attend_latent(&self, call: LatentCall) -> mlx::Result<Array> {
        match call.layer.reads()? {
            AttentionPath::Items => latent::attend(call),
            AttentionPath::Segments | AttentionPath::Gather => mlx_ops::latent(call, latent::PRODUCTS),
        }
    }

    fn mamba1(
        &self,
        channels: &Array,
        conv: &CausalConv,
        select: &dyn Fn(&Array) -> mlx::Result<[Array; 3]>,
        weights: Mamba1Rows,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        match layer.has_device_runs()? {
            true => recurrent::mamba1(channels, conv, select, weights, layer),
            false => mlx_ops::mamba1(channels, conv, select, weights, layer),
        }
    }

    fn mamba2(
        &self,
        spec: &Mamba2,
        weights: &Mamba2Weights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        match layer.has_device_runs()? {
            true => recurrent::mamba2(spec, weights, projected, layer),
            false => MlxOps.mamba2(spec, weights, projected, layer),
        }
    }

    fn gated_delta(
        &self,
        spec: &GatedDelta,
        weights: &GatedDeltaWeights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        match layer.has_device_runs()? {
            true => recurrent::gated_delta(spec, weights, projected, layer),
            false => MlxOps.gated_delta(spec, weights, projected, layer),
        }
    }

    fn delta_attention(
        &self,
        spec: &DeltaAttention,
        weights: &GatedDeltaWeights,
        rows: &DeltaRows,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        match layer.has_device_runs()? {
            true => recurrent::delta_attention(spec, weights, rows, layer),
            false => mlx_ops::delta_attention(spec, weights, rows, layer),
        }
    }

    fn convolve(&self, conv: &CausalConv, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        match layer.has_device_runs()? {
            true => recurrent::convolve(conv, x, layer),
            false => MlxOps.convolve(conv, x, layer),
        }
    }

    fn short_conv(&self, conv: &CausalConv, projected: &Array, layer: LayerContext) -> mlx::Result<Array> {
        match layer.has_device_runs()? {
            true => recurrent::short_conv(conv, projected, layer),
            false => MlxOps.short_conv(conv, projected, layer),
        }
    }
}

/// Rows of an embedding by our kernel.
fn embedded(tokens: &Array, table: &Weight, dtype: Dtype) -> mlx::Result<Option<Array>> {
    let (format, [table, scales, biases], width) = match table {
        Weight::Dense(table) => (TableFormat::Float, [table, table, table], table.dim(-1)?),
        Weight::Packed(packed) => match (packed.mode, &packed.biases) {
            (QuantMode::Affine, Some(biases)) => {
                let Quantized { weight, scales, group, bits, .. } = packed;
                let width = scales.dim(-1)? * group;
                (TableFormat::Packed { bits: *bits, group: *group }, [weight, scales, biases], width)
            }
            _ => return Ok(None),
        },
    };
    let rows = tokens.size() as i32;
    let plan = Embed { dtype, rows, width, format }.plan();
    let Some(plan) = plan.filter(|_| tokens.ndim() == 1 && rows > 0 && is_on(GpuKernel::Embed)) else {
        return Ok(None);
    };
    let made = plan.call(&[&tokens.view(Dtype::I32)?, table, scales, biases])?.pop();
    made.map(Some).ok_or_else(|| mlx::Error::new("rows of an embedding"))
}

/// An array as a kernel reads it that adds up the parts of a product.
fn operand_of(x: &Array) -> (Array, Operand) {
    match parts_of(x) {
        Some(parts) => (parts, Operand::Parts),
        None => (x.clone(), Operand::Whole),
    }
}

/// The sum of rows and a term by our kernel.
fn joined(sum: &Array, term: &Array, gate: Option<&Array>, kind: TermKind) -> mlx::Result<Option<Array>> {
    let (dtype, width) = (sum.dtype()?, sum.dim(-1)?);
    let rows = sum.size() as i32 / width.max(1);
    let is_alike = term.dtype()? == dtype && gate.map_or(Ok(dtype), Array::dtype)? == dtype;
    let plan = AddTerm { dtype, rows, width, term: kind }.plan();
    let Some(plan) = plan.filter(|_| is_alike && rows > 0 && is_on(GpuKernel::Gated)) else {
        return Ok(None);
    };
    let y = plan.call(&[sum, term, gate.unwrap_or(term)])?.pop().ok_or_else(|| mlx::Error::new("a sum"))?;
    if sum.ndim() == 2 { Ok(Some(y)) } else { y.reshape(sum.shape()).map(Some) }
}
