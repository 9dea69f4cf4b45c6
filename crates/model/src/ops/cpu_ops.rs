//! Our CPU kernels, and MLX's operations for what has none. Activations are float32.

mod heads;
mod latent;
mod recurrent;
mod route;
mod self_attention;

use mlx::{Array, Dtype, QuantMode, cpu};
use omnibus_kv::KvFormat;

use super::mlx_ops::{self, MlxOps};
use super::{
    AttentionCall, AttentionNeeds, ByLength, ChosenExperts, ConvolutionCall, ExpertVectors, HeadNorm,
    LatentCall, LayerContext, LowRankLayout, LowRankStack, Ops, Rotation, Term, Weight,
};
use crate::forward::{AttentionPath, AttentionReads, SegmentTables, StatePath};
use crate::kv_cache::{Pool, poisoned};
use crate::ops::{GatedDeltaWeights, Mamba2Weights, WkvRows, WkvWeights};
use crate::{
    Activation, AttentionSpan, Bidirectional, GatedDelta, Mamba2, Mixer, RotaryPairing, Router, WkvState,
    kv_format,
};

/// CPU kernels.
pub(super) struct CpuOps {
    /// What products with quantized weights do with the rows.
    pub(super) activations: cpu::Activations,
}

impl Ops for CpuOps {
    fn activations(&self) -> Option<Dtype> {
        Some(Dtype::F32)
    }

    /// Half-width weights stay so, which halves what a step reads.
    fn reads_dense(&self, dtype: Dtype) -> bool {
        matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16)
    }

    fn attention_path(&self, needs: &AttentionNeeds) -> AttentionPath {
        match (needs.by_length, needs.gathers) {
            (ByLength::No, false) => AttentionPath::Segments,
            // The paged kernel cannot compute such a rotation.
            (ByLength::Yes, _) | (_, true) => AttentionPath::Gather,
        }
    }

    fn state_path(&self, mixers: &[&Mixer]) -> StatePath {
        let mut caches = mixers.iter().flat_map(|mixer| mixer.spec().caches());
        if caches.all(|cache| cache.has_kernel()) { StatePath::Runs } else { StatePath::Gather }
    }

    fn embedding(&self, tokens: &Array, table: &Weight, dtype: Dtype) -> mlx::Result<Array> {
        match table {
            Weight::Packed(packed) if packed.mode == QuantMode::Affine => cpu::embedding(tokens, packed),
            Weight::Packed(_) | Weight::Dense(_) => MlxOps.embedding(tokens, table, dtype),
        }
    }

    fn linear(&self, x: &Array, weight: &Weight) -> mlx::Result<Array> {
        match weight {
            Weight::Dense(weight) => cpu::matmul_t(x, weight),
            Weight::Packed(packed) => cpu::qmm(x, packed, self.activations),
        }
    }

    fn expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &Weight) -> mlx::Result<Array> {
        match weight {
            Weight::Dense(weight) => cpu::gather_mm(x, &experts.indices, weight),
            Weight::Packed(packed) if packed.mode == QuantMode::Affine => {
                cpu::gather_qmm(x, &experts.indices, packed, self.activations)
            }
            Weight::Packed(_) => MlxOps.expert_linear(x, experts, weight),
        }
    }

    fn skips_unknown_experts(&self) -> bool {
        true
    }

    fn low_rank_layout(&self) -> LowRankLayout {
        LowRankLayout::InputsFirst
    }

    fn add_low_rank(
        &self,
        product: Array,
        x: &Array,
        chosen: &ChosenExperts,
        stack: &LowRankStack,
    ) -> mlx::Result<Array> {
        let parts: Vec<_> = stack.parts.iter().map(|part| (part.outputs, part.up.as_ref())).collect();
        let stack = cpu::LowRank { down: &stack.down, parts: &parts, gain: stack.gain.as_ref() };
        stack.add_to(product, x, &chosen.indices)
    }

    fn route(
        &self,
        logits: &Array,
        router: &Router,
        vectors: ExpertVectors<'_>,
        top_k: usize,
    ) -> mlx::Result<(ChosenExperts, Array)> {
        match route::route(logits, router, vectors.correction, top_k)? {
            Some((experts, weights)) => {
                let weights = vectors.scaled(&experts, weights)?;
                Ok((experts, weights))
            }
            None => MlxOps.route(logits, router, vectors, top_k),
        }
    }

    fn add_term(&self, sum: &Array, term: &Array, gate: Option<&Array>) -> mlx::Result<Array> {
        MlxOps.add_term(sum, term, gate)
    }

    fn weighted_sum(&self, parts: &Array, weights: &Array) -> mlx::Result<Array> {
        cpu::weighted_sum(parts, weights)
    }

    fn rms_norm(&self, x: &Array, weight: &Array, eps: f32) -> mlx::Result<Array> {
        cpu::rms_norm(x, weight, eps)
    }

    fn add_rms_norm(
        &self,
        sum: &Array,
        term: &Term,
        weight: &Array,
        eps: f32,
    ) -> mlx::Result<(Array, Array)> {
        cpu::add_rms_norm(sum, &self.joined(term)?, weight, eps)
    }

    fn layer_norm(&self, x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> mlx::Result<Array> {
        match bias {
            Some(bias) => cpu::layer_norm(x, weight, bias, eps),
            None => MlxOps.layer_norm(x, weight, bias, eps),
        }
    }

    fn act(&self, x: &Array, act: Activation) -> mlx::Result<Array> {
        match (act, act_of(act)) {
            (Activation::Relu2, _) => cpu::gated2(x, x, cpu::Act::Relu),
            (_, Some(act)) => cpu::gated2(x, &Array::ones(x.shape(), x.dtype()?)?, act),
            (_, None) => MlxOps.act(x, act),
        }
    }

    fn gated_act(&self, gate_up: &Array, act: Activation) -> mlx::Result<Array> {
        match act_of(act) {
            Some(act) => cpu::gated(gate_up, act),
            None => MlxOps.gated_act(gate_up, act),
        }
    }

    fn gated_act_pair(&self, gate: &Array, up: &Array, act: Activation) -> mlx::Result<Array> {
        match act_of(act) {
            Some(act) => cpu::gated2(gate, up, act),
            None => MlxOps.gated_act_pair(gate, up, act),
        }
    }

    fn sigmoid_gate(&self, gate: &Array, x: &Array) -> mlx::Result<Array> {
        cpu::gated2(gate, x, cpu::Act::Sigmoid)
    }

    fn attend(&self, call: AttentionCall) -> mlx::Result<Array> {
        match call.layer.reads()? {
            AttentionPath::Segments => paged(call),
            AttentionPath::Items | AttentionPath::Gather => mlx_ops::gather(call),
        }
    }

    fn attend_each_other(&self, qkv: [&Array; 3], scale: f32) -> mlx::Result<Option<Array>> {
        self_attention::each_other(qkv, scale)
    }

    /// Each head of each entry is an expert of the products: MLX's own call a reference BLAS.
    fn attend_all(&self, [q, k, v]: [&Array; 3], scale: f32) -> mlx::Result<Array> {
        let ([count, heads, queries, width], [_, _, keys, _]) = (q.dims()?, k.dims()?);
        let entries = count * heads;
        let of_row: Vec<i32> = (0..entries).flat_map(|entry| (0..queries).map(move |_| entry)).collect();
        let of_row = Array::from_slice(&of_row, &[entries * queries, 1])?;
        let rows = (q * scale).reshape(&[entries * queries, width])?;
        let scores = cpu::gather_mm(&rows, &of_row, &k.reshape(&[entries, keys, width])?.contiguous()?)?;
        let weights = scores.reshape(&[entries * queries, keys])?.softmax(-1)?;
        let values = v.reshape(&[entries, keys, width])?.swapaxes(-1, -2)?.contiguous()?;
        cpu::gather_mm(&weights, &of_row, &values)?.reshape(&[count, heads, queries, width])
    }

    /// The second product reads its columns.
    fn lay_out_values(&self, values: &Array) -> mlx::Result<Array> {
        values.swapaxes(-1, -2)?.contiguous()?.swapaxes(-1, -2)
    }

    fn convolve_map(&self, call: ConvolutionCall) -> mlx::Result<Array> {
        match call.groups {
            // MLX's product of large convolutions is slow on CPUs.
            1 => call.by_products(self),
            _ => call.whole(),
        }
    }

    fn attend_latent(&self, call: LatentCall) -> mlx::Result<Array> {
        match call.layer.reads()? {
            AttentionPath::Segments => latent::paged(call),
            AttentionPath::Items | AttentionPath::Gather => mlx_ops::latent(call, heads::PRODUCTS),
        }
    }

    fn mamba2(
        &self,
        spec: &Mamba2,
        weights: &Mamba2Weights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        recurrent::mamba2(spec, weights, projected, layer)
    }

    fn gated_delta(
        &self,
        spec: &GatedDelta,
        weights: &GatedDeltaWeights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        recurrent::gated_delta(spec, weights, projected, layer)
    }

    fn token_shift(&self, x: &Array, shares: &Array, layer: LayerContext) -> mlx::Result<Vec<Array>> {
        recurrent::token_shift(x, shares, layer)
    }

    fn wkv(
        &self,
        _spec: WkvState,
        rows: WkvRows,
        weights: &WkvWeights,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        recurrent::wkv(&rows, weights, layer)
    }
}

/// `None` where no kernel has it.
fn act_of(act: Activation) -> Option<cpu::Act> {
    match act {
        Activation::Silu => Some(cpu::Act::Silu),
        Activation::Gelu => Some(cpu::Act::Gelu),
        Activation::GeluTanh => Some(cpu::Act::GeluTanh),
        Activation::Relu => Some(cpu::Act::Relu),
        Activation::QuickGelu
        | Activation::Relu2
        | Activation::ClippedSwiglu { .. }
        | Activation::LimitedSilu { .. }
        | Activation::ClampedSilu { .. }
        | Activation::Situ { .. }
        | Activation::SparseGelu { .. }
        | Activation::Xielu => None,
    }
}

/// One kernel over each pool of the layer.
fn paged(mut call: AttentionCall) -> mlx::Result<Array> {
    let (ctx, index) = (call.layer.ctx, call.layer.index);
    let mut attended: Option<Array> = None;
    for (at, format, metadata) in ctx.attention_pools(call.layer.cache, index)? {
        // A row that reads nothing of a pool has zeros there.
        let AttentionReads::Segments(metadata) = &metadata.reads else { return Err(poisoned()) };
        let part = paged_in(&mut call, at, format, metadata)?;
        attended = Some(attended.map_or(part.clone(), |others| others + part));
    }
    attended.ok_or_else(poisoned)
}

/// The rows that read one pool. The kernel gives the pools back even where it only reads them, so that the next step's
/// writes come after it.
fn paged_in(
    call: &mut AttentionCall,
    at: usize,
    format: KvFormat,
    metadata: &SegmentTables,
) -> mlx::Result<Array> {
    let spec = call.spec;
    let (window, sink_tokens) = match spec.span {
        AttentionSpan::Full => (None, 0),
        AttentionSpan::Window(tokens) | AttentionSpan::Chunk(tokens) => (Some(tokens as i32), 0),
        AttentionSpan::Sinks { tokens, sink_tokens } => (Some(tokens as i32), sink_tokens as i32),
    };
    let [q_norm, k_norm] = match call.head_norms {
        Some(norms) => norms.map(|norm| Some(head_norm(norm))),
        None => [None, None],
    };
    let positions = rotary_positions(call)?;
    let pool: &mut Pool = call.layer.cache.pools.get_mut(at).ok_or_else(poisoned)?;
    let [k_pool, v_pool] = pool.take()?;
    let cpu::AttentionOutput { out, k_pool, v_pool } = cpu::PagedAttention {
        qkv: call.qkv,
        projected: call.projected,
        heads: spec.heads as i32,
        kv_heads: spec.kv_heads as i32,
        head_dim: spec.head_dim as i32,
        q_norm,
        k_norm: k_norm.filter(|_| call.projected != cpu::Projected::Queries),
        v_norm: call.value_norm,
        positions,
        rope: call.rotation.and_then(rope_of),
        scale: spec.scale,
        softcap: spec.softcap,
        window,
        sink_tokens,
        sinks: call.sinks,
        k_pool,
        v_pool,
        packing: kv_format::packing_of(format),
        metadata: cpu::AttentionMetadata {
            slots: &metadata.slots,
            segments: &metadata.segments,
            tables: &metadata.tables,
            ends: metadata.ends.as_ref().filter(|_| spec.bidirectional != Bidirectional::No),
        },
    }
    .run()?;
    pool.put([k_pool, v_pool]);
    Ok(out)
}

/// By which the layer's rows rotate: `[T]`, or `[3, T]`.
fn rotary_positions<'a>(call: &AttentionCall<'a>) -> mlx::Result<&'a Array> {
    let ctx = call.layer.ctx;
    match (call.rotation.and_then(|rotation| rotation.axes.as_ref()), &ctx.axes) {
        (None, _) => ctx.positions(),
        (Some(_), Some(axes)) => axes.array(),
        (Some(_), None) => Err(mlx::Error::new("positions in time, height and width")),
    }
}

fn head_norm(norm: HeadNorm<'_>) -> cpu::HeadNorm<'_> {
    cpu::HeadNorm { weight: norm.weight, eps: norm.eps }
}

fn rope_of(rotation: &Rotation) -> Option<cpu::Rope<'_>> {
    Some(cpu::Rope {
        freqs: rotation.radians.as_ref()?,
        dims: rotation.rope.dims as i32,
        pairs: match rotation.rope.pairs {
            RotaryPairing::Halves => cpu::RotaryPairing::Halves,
            RotaryPairing::Interleaved => cpu::RotaryPairing::Interleaved,
        },
        magnitude: rotation.magnitude,
        axes: rotation.axes.as_ref(),
    })
}
