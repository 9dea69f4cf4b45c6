//! Our CPU kernels. Activations are float32.

mod heads;
mod latent;
mod recurrent;
mod route;
mod self_attention;

use mlx::{Array, Dtype, QuantMode, Quantized, cpu};
use omnibus_kv::KvFormat;

use super::mlx_ops::{self, HeadProducts};
use super::operations::KernelSet;
use super::{
    AttentionCall, AttentionNeeds, ByLength, ChosenExperts, ConvolutionCall, ExpertVectors, GroupNormWeights,
    HeadNorm, Joined, LatentCall, LayerContext, LowRankLayout, LowRankStack, Rotation, Term, Weight,
};
use crate::forward::{AttentionPath, AttentionReads, SegmentTables, StatePath};
use crate::kv_cache::{Pool, poisoned};
use crate::mixers::{AttentionSpan, Bidirectional, GatedDelta, Mamba2, Mixer, WkvState};
use crate::mlps::Router;
use crate::ops::{GatedDeltaWeights, Mamba2Weights, WkvRows, WkvWeights};
use crate::{Activation, kv_format};

/// CPU kernels.
pub(super) struct CpuKernels {
    /// What products with quantized weights do with the rows.
    pub(super) activations: cpu::Activations,
    /// What computes products with dense weights.
    pub(super) unit: cpu::Unit,
}

impl CpuKernels {
    /// `x · Wᵀ + bias`.
    fn product(&self, x: &Array, weight: &Weight, bias: Option<&Array>) -> mlx::Result<Array> {
        match weight {
            Weight::Dense(weight) => cpu::matmul_t(x, weight, bias, self.unit),
            Weight::Packed(packed) => cpu::qmm(x, packed, bias, self.activations),
        }
    }
}

/// What a kernel made, if there is one.
type Made<T = Array> = mlx::Result<Option<T>>;

impl KernelSet for CpuKernels {
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

    fn head_products(&self) -> HeadProducts {
        heads::PRODUCTS
    }

    fn attend_each_other(&self, qkv: [&Array; 3], scale: f32) -> Made {
        self_attention::each_other(qkv, scale)
    }

    fn embedding(&self, tokens: &Array, table: &Weight, _dtype: Dtype) -> Made {
        affine(table).map(|packed| cpu::embedding(tokens, packed)).transpose()
    }

    fn linear(&self, x: &Array, weight: &Weight) -> Made {
        self.product(x, weight, None).map(Some)
    }

    fn biased_linear(&self, x: &Array, weight: &Weight, bias: &Array) -> Made {
        self.product(x, weight, Some(bias)).map(Some)
    }

    fn expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &Weight) -> Made {
        match weight {
            Weight::Dense(weight) => cpu::gather_mm(x, &experts.indices, weight).map(Some),
            Weight::Packed(_) => {
                let product = |packed| cpu::gather_qmm(x, &experts.indices, packed, self.activations);
                affine(weight).map(product).transpose()
            }
        }
    }

    fn stored_expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &cpu::StoredExperts) -> Made {
        cpu::gather_stored(x, &experts.indices, weight, self.activations).map(Some)
    }

    fn route(
        &self,
        logits: &Array,
        router: &Router,
        vectors: ExpertVectors<'_>,
        top_k: usize,
    ) -> Made<(ChosenExperts, Array)> {
        let Some((experts, weights)) = route::route(logits, router, vectors.correction, top_k)? else {
            return Ok(None);
        };
        let weights = vectors.scaled(&experts, weights)?;
        Ok(Some((experts, weights)))
    }

    fn weighted_sum(&self, parts: &Array, weights: &Array) -> Made {
        cpu::weighted_sum(parts, weights).map(Some)
    }

    fn rms_norm(&self, x: &Array, weight: &Array, eps: f32) -> Made {
        cpu::rms_norm(x, weight, eps).map(Some)
    }

    fn grouped_rms_norm(&self, x: &Array, weights: &GroupNormWeights, eps: f32) -> Made {
        mlx_ops::norm_groups(x, weights, |x, weight| cpu::rms_norm(x, weight, eps)).map(Some)
    }

    fn norm_columns(&self, x: &Array, weights: [&Array; 2], eps: f32) -> Made {
        mlx_ops::norm_columns(x, weights, |x, weight| cpu::rms_norm(x, weight, eps)).map(Some)
    }

    fn add_rms_norm(&self, sum: &Array, term: &Term, weight: &Array, eps: f32) -> Made<(Array, Array)> {
        cpu::add_rms_norm(sum, &joined(term)?, weight, eps).map(Some)
    }

    fn layer_norm(&self, x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> Made {
        cpu::layer_norm(x, weight, bias, eps).map(Some)
    }

    fn add_layer_norm(
        &self,
        sum: &Array,
        term: &Term,
        weight: &Array,
        bias: Option<&Array>,
        eps: f32,
    ) -> Made<(Array, Array)> {
        cpu::add_layer_norm(sum, &joined(term)?, weight, bias, eps).map(Some)
    }

    fn act(&self, x: &Array, act: Activation) -> Made {
        match (act, act_of(act)) {
            (Activation::Relu2, _) => cpu::gated2(x, x, cpu::Act::Relu).map(Some),
            (_, Some(act)) => cpu::activated(x, act).map(Some),
            (_, None) => Ok(None),
        }
    }

    fn gated_act(&self, gate_up: &Array, act: Activation) -> Made {
        act_of(act).map(|act| cpu::gated(gate_up, act)).transpose()
    }

    fn gated_act_pair(&self, gate: &Array, up: &Array, act: Activation) -> Made {
        act_of(act).map(|act| cpu::gated2(gate, up, act)).transpose()
    }

    fn sigmoid_gate(&self, gate: &Array, x: &Array) -> Made {
        cpu::gated2(gate, x, cpu::Act::Sigmoid).map(Some)
    }

    /// Each head of each entry is an expert of the products: MLX's own call a reference BLAS.
    fn attend_all(&self, [q, k, v]: [&Array; 3], scale: f32) -> Made {
        let ([count, heads, queries, width], [_, _, keys, _]) = (q.dims()?, k.dims()?);
        let entries = count * heads;
        let of_row: Vec<i32> = (0..entries).flat_map(|entry| (0..queries).map(move |_| entry)).collect();
        let of_row = Array::from_slice(&of_row, &[entries * queries, 1])?;
        let rows = (q * scale).reshape(&[entries * queries, width])?;
        let scores = cpu::gather_mm(&rows, &of_row, &k.reshape(&[entries, keys, width])?.contiguous()?)?;
        let weights = scores.reshape(&[entries * queries, keys])?.softmax(-1)?;
        let values = v.reshape(&[entries, keys, width])?.swapaxes(-1, -2)?.contiguous()?;
        let attended = cpu::gather_mm(&weights, &of_row, &values)?;
        attended.reshape(&[count, heads, queries, width]).map(Some)
    }

    /// The second product reads its columns.
    fn lay_out_values(&self, values: &Array) -> Made {
        values.swapaxes(-1, -2)?.contiguous()?.swapaxes(-1, -2).map(Some)
    }

    fn convolve_map(&self, call: &ConvolutionCall) -> Made {
        match call.groups {
            // MLX's product of large convolutions is slow on CPUs.
            1 => call.by_products(|x, weight| cpu::matmul_t(x, weight, None, self.unit)).map(Some),
            _ => Ok(None),
        }
    }

    fn attend(&self, call: &mut AttentionCall) -> Made {
        match call.layer.reads()? {
            AttentionPath::Segments => paged(call).map(Some),
            AttentionPath::Items | AttentionPath::Gather => Ok(None),
        }
    }

    fn attend_latent(&self, call: &mut LatentCall) -> Made {
        match call.layer.reads()? {
            AttentionPath::Segments => latent::paged(call).map(Some),
            AttentionPath::Items | AttentionPath::Gather => Ok(None),
        }
    }

    fn mamba2(
        &self,
        spec: &Mamba2,
        weights: &Mamba2Weights,
        projected: &Array,
        layer: &mut LayerContext,
    ) -> Made {
        recurrent::mamba2(spec, weights, projected, layer).map(Some)
    }

    fn gated_delta(
        &self,
        spec: &GatedDelta,
        weights: &GatedDeltaWeights,
        projected: &Array,
        layer: &mut LayerContext,
    ) -> Made {
        recurrent::gated_delta(spec, weights, projected, layer).map(Some)
    }

    fn token_shift(&self, x: &Array, shares: &Array, layer: &mut LayerContext) -> Made<Vec<Array>> {
        recurrent::token_shift(x, shares, layer).map(Some)
    }

    fn wkv(
        &self,
        _spec: WkvState,
        rows: &WkvRows<'_>,
        weights: &WkvWeights,
        layer: &mut LayerContext,
    ) -> Made {
        recurrent::wkv(rows, weights, layer).map(Some)
    }
}

/// What joins a sum, `[T, hidden]`.
fn joined(term: &Term) -> mlx::Result<Array> {
    match &term.joined {
        Joined::Normed { weight, eps } => cpu::rms_norm(&term.rows, weight, *eps),
        Joined::Plain | Joined::Scaled(_) => mlx_ops::joined(term),
    }
}

/// Packed weights that kernels beside the plain product read.
fn affine(weight: &Weight) -> Option<&Quantized> {
    match weight {
        Weight::Packed(packed) if packed.mode == QuantMode::Affine => Some(packed),
        Weight::Packed(_) | Weight::Dense(_) => None,
    }
}

/// `None` where no kernel has it.
fn act_of(act: Activation) -> Option<cpu::Act> {
    match act {
        Activation::Silu => Some(cpu::Act::Silu),
        Activation::Gelu => Some(cpu::Act::Gelu),
        Activation::GeluTanh => Some(cpu::Act::GeluTanh),
        Activation::Relu => Some(cpu::Act::Relu),
        Activation::Sigmoid => Some(cpu::Act::Sigmoid),
        Activation::QuickGelu
        | Activation::Scaled { .. }
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
fn paged(call: &mut AttentionCall) -> mlx::Result<Array> {
    let (ctx, index) = (call.layer.ctx, call.layer.index);
    let mut attended: Option<Array> = None;
    for (at, format, metadata) in ctx.attention_pools(call.layer.cache, index)? {
        // A row that reads nothing of a pool has zeros there.
        let AttentionReads::Segments(metadata) = &metadata.reads else { return Err(poisoned()) };
        let part = paged_in(call, at, format, metadata)?;
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
            ends: metadata.ends.as_ref().and_then(|ends| Some((ends, reach(spec.bidirectional)?))),
        },
    }
    .run()?;
    pool.put([k_pool, v_pool]);
    Ok(out)
}

/// Which of the later keys rows see.
fn reach(directions: Bidirectional) -> Option<cpu::Ends> {
    match directions {
        Bidirectional::No => None,
        Bidirectional::Pictures | Bidirectional::AllPictures | Bidirectional::Prompts => {
            Some(cpu::Ends::Whole)
        }
        Bidirectional::Symmetric => Some(cpu::Ends::Windowed),
    }
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
        pairs: rotation.rope.pairs,
        magnitude: rotation.magnitude,
        axes: rotation.axes.as_deref(),
    })
}
