//! The computations that have one implementation per backend. [`Kernels`] chooses it once, when a model is loaded; blocks
//! hold [`Ops`] and name no backend.
//!
//! `mlx_ops` is right on every backend; `cpu_ops` and `gpu_ops` add our kernels.

mod convolution;
mod cpu_ops;
mod delta_rule;
mod gpu_fusions;
mod gpu_ops;
mod low_rank;
mod mlx_ops;
mod recurrent;
mod rotary;
mod term;
mod weight;

use std::cell::OnceCell;

use mlx::cpu::{Activations, Projected};
use mlx::{Array, Dtype};

use crate::environment;
use crate::forward::{AttentionPath, AttentionReads, ForwardContext, Gather, Run, StatePath};
use crate::gpu_switches::{GpuKernel, is_on};
use crate::kv_cache::poisoned;
use crate::{
    Activation, Attention, DeltaAttention, GatedDelta, HeadGate, KvCache, KvStorage, LatentAttention, Mamba2,
    Mixer, Router, WkvState,
};
pub(crate) use convolution::ConvolutionCall;
pub(crate) use delta_rule::DeltaRule;
pub(crate) use gpu_fusions::{GpuFusions, clipped};
pub(crate) use gpu_ops::has_warpgroups;
pub(crate) use low_rank::{LowRankLayout, LowRankPart, LowRankStack};
pub(crate) use mlx_ops::{gathered, write};
pub(crate) use recurrent::{
    CausalConv, DeltaRows, GatedDeltaWeights, Mamba1Rows, Mamba2Weights, WkvRows, WkvWeights,
};
pub(crate) use rotary::Rotation;
pub(crate) use term::{Joined, Term};
pub(crate) use weight::Weight;

/// Which kernels compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// MLX's own operations: right on every backend.
    Mlx,
    /// Our CPU primitives, beside MLX's operations. Activations are float32.
    Cpu,
    /// The same, with activations rounded to 8 bits in products with quantized weights.
    CpuInt8,
    /// Our GPU kernels, beside MLX's operations.
    Gpu,
}

impl Kernels {
    /// The fastest that the default device can run. On a GPU, `OMNIBUS_KERNELS=mlx` chooses MLX's operations, and `jit`
    /// leaves compiling our kernels to MLX.
    pub fn fastest() -> Self {
        if mlx::cpu::available() {
            Self::Cpu
        } else if mlx::gpu::available() && environment::kernels().as_deref() != Some("mlx") {
            if environment::kernels().as_deref() == Some("jit") {
                mlx::gpu::compile_with_mlx();
            }
            Self::Gpu
        } else {
            Self::Mlx
        }
    }

    /// Whether a kernel of ours chooses tokens ([`mlx::cpu::choose_tokens`], [`mlx::gpu::choose_tokens`]).
    pub fn choose_tokens(self) -> bool {
        match self {
            Self::Mlx => false,
            Self::Cpu | Self::CpuInt8 => true,
            Self::Gpu => is_on(GpuKernel::Choose),
        }
    }

    /// Whether decode steps become prebuilt graphs. `OMNIBUS_KERNELS=launch` launches their kernels one by one.
    pub fn uses_step_graphs(self) -> bool {
        let is_cuda = mlx::device::backend() == mlx::device::Backend::Cuda;
        self == Self::Gpu && is_cuda && environment::kernels().is_none()
    }

    /// The same with activations in 8 bits, where products exist for that.
    pub fn with_int8_activations(self) -> Self {
        match self {
            Self::Cpu | Self::CpuInt8 => Self::CpuInt8,
            Self::Mlx | Self::Gpu => self,
        }
    }

    /// True of our CPU primitives.
    pub fn on_cpu(self) -> bool {
        match self {
            Self::Cpu | Self::CpuInt8 => true,
            Self::Mlx | Self::Gpu => false,
        }
    }

    /// Their operations.
    pub(crate) fn ops(self) -> &'static dyn Ops {
        match self {
            Self::Mlx => &mlx_ops::MlxOps,
            Self::Cpu => &cpu_ops::CpuOps { activations: Activations::Exact },
            Self::CpuInt8 => &cpu_ops::CpuOps { activations: Activations::Int8 },
            Self::Gpu => &gpu_ops::GpuOps,
        }
    }
}

/// A layer of a forward pass: what the pass shares, the index of its first pool, and the cache it reads and writes.
pub(crate) struct LayerContext<'a> {
    pub(crate) ctx: &'a ForwardContext,
    pub(crate) index: usize,
    pub(crate) cache: &'a mut KvCache,
}

impl<'a> LayerContext<'a> {
    /// The same from the layer's cache number `part` on.
    pub(crate) fn part(&mut self, part: usize) -> LayerContext<'_> {
        LayerContext { ctx: self.ctx, index: self.index + part, cache: self.cache }
    }

    /// The layer's index in the blueprint, if it caches something.
    pub(crate) fn number(&self) -> mlx::Result<usize> {
        self.cache.pools.get(self.index).map(|pool| pool.layer).ok_or_else(poisoned)
    }

    /// The same with the caches of another layer, by its index in the blueprint.
    pub(crate) fn of_layer(self, layer: usize) -> mlx::Result<LayerContext<'a>> {
        let index = self.cache.pools.iter().position(|pool| pool.layer == layer);
        Ok(LayerContext { index: index.ok_or_else(poisoned)?, ..self })
    }

    /// Computes a recurrence that has no kernel, see [`StateMetadata::advance`](crate::forward::StateMetadata::advance).
    pub(crate) fn advance(
        self,
        compute: impl Fn(&Run, &[Array; 2]) -> mlx::Result<(Array, [Array; 2])>,
    ) -> mlx::Result<Array> {
        let metadata = self.ctx.state_of(self.cache, self.index)?;
        let pool = self.cache.pools.get_mut(self.index).ok_or_else(poisoned)?;
        metadata.advance(self.index, pool, compute)
    }

    /// How the layer's rows find their keys and values; the same for all its pools.
    pub(crate) fn reads(&self) -> mlx::Result<AttentionPath> {
        let pools = self.ctx.attention_pools(self.cache, self.index)?;
        let (_, _, metadata) = pools.first().ok_or_else(poisoned)?;
        Ok(match &metadata.reads {
            AttentionReads::Segments(_) => AttentionPath::Segments,
            AttentionReads::Items(_) => AttentionPath::Items,
            AttentionReads::Gather(_) => AttentionPath::Gather,
        })
    }

    /// Whether the GPU's kernels compute the layer's attention, of rows that have one position each.
    pub(crate) fn has_gpu_kernels(&self, filter: Option<&dyn KeyFilter>) -> bool {
        filter.is_none() && self.ctx.axes.is_none() && matches!(self.reads(), Ok(AttentionPath::Items))
    }

    /// Whether the GPU's kernels find the layer's states on the device.
    pub(crate) fn has_device_runs(&self) -> mlx::Result<bool> {
        Ok(self.ctx.state_of(self.cache, self.index)?.device_runs().is_some())
    }
}

/// What decides how a model's attention finds keys and values.
pub(crate) struct AttentionNeeds<'a> {
    pub(crate) storage: KvStorage,
    pub(crate) by_length: ByLength,
    /// Tokens of a block.
    pub(crate) block_size: usize,
    /// Every attention layer.
    pub(crate) layers: Vec<&'a Attention>,
    /// Every layer of latent attention.
    pub(crate) latents: Vec<&'a LatentAttention>,
    /// Some layer's attention is computed by MLX's operations alone.
    pub(crate) gathers: bool,
}

/// RMS norm of each head of the queries or keys, `weight`: `[head_dim]`.
#[derive(Clone, Copy)]
pub(crate) struct HeadNorm<'a> {
    pub(crate) weight: &'a Array,
    pub(crate) eps: f32,
}

/// Attention of one layer over its pools.
pub(crate) struct AttentionCall<'a> {
    pub(crate) spec: &'a Attention,
    /// `[T, (heads + kv_heads) · head_dim + kv_heads · v_head_dim]`: queries, keys and values as projected, those of them
    /// that there are.
    pub(crate) qkv: &'a Array,
    /// Which of them there are.
    pub(crate) projected: Projected,
    /// Of queries and of keys; without keys the second is not read.
    pub(crate) head_norms: Option<[HeadNorm<'a>; 2]>,
    /// What is added to the mean square of values' norm, which has no weight.
    pub(crate) value_norm: Option<f32>,
    pub(crate) rotation: Option<&'a Rotation>,
    /// Not done by the CPU's kernel.
    pub(crate) gpu_fusions: GpuFusions,
    /// Of the layer's heads, `[heads]`: logits of a key without a value.
    pub(crate) sinks: Option<&'a Array>,
    /// Which of the visible keys a row reads; where there is one, MLX's operations compute the layer.
    pub(crate) filter: Option<&'a dyn KeyFilter>,
    /// Of the layer whose keys and values are read.
    pub(crate) layer: LayerContext<'a>,
}

/// A choice of keys that depends on more than positions.
pub(crate) trait KeyFilter {
    /// Of the keys that the rows of a gather see, `[n, _, rows, keys]`, those that they read, `[n, 1 or heads, rows,
    /// keys]`. `pool`: which of the layer's pools that are read; `positions`: of rows and keys.
    fn filtered(
        &self,
        pool: usize,
        gather: &Gather,
        positions: &[Array; 2],
        seen: &Array,
    ) -> mlx::Result<Array>;
}

/// Latent attention of one layer over its pools.
pub(crate) struct LatentCall<'a> {
    pub(crate) spec: &'a LatentAttention,
    /// As projected, `[T, heads, nope_dim + rope_dim]`.
    pub(crate) queries: &'a Array,
    /// Latents and keys as projected, `[T, latent_dim + rope_dim]`.
    pub(crate) projected: &'a Array,
    /// Weight of the RMS norm of latents, `[latent_dim]`.
    pub(crate) latent_norm: &'a Array,
    /// Of the last `rope_dim` elements of queries, and of keys.
    pub(crate) rotation: Option<&'a Rotation>,
    pub(crate) weights: LatentWeights<'a>,
    /// Which of the visible keys a row reads.
    pub(crate) filter: Option<&'a dyn KeyFilter>,
    pub(crate) layer: LayerContext<'a>,
}

/// The weights of latent attention's heads.
#[derive(Clone, Copy)]
pub(crate) struct LatentWeights<'a> {
    /// From queries to latents, `[heads, latent_dim, nope_dim]`.
    pub(crate) embed_q: &'a Weight,
    /// From latents to values, `[heads, v_head_dim, latent_dim]`.
    pub(crate) unembed_out: &'a Weight,
}

/// The experts of each row.
pub(crate) struct ChosenExperts {
    /// `[T, top_k]` u32, all below the number of experts.
    pub(crate) indices: Array,
    /// The pairs of a row and an expert sorted by expert, made by the first product that needs them.
    pub(crate) sorted: OnceCell<Option<[Array; 2]>>,
    row_order: OnceCell<RowOrder>,
}

/// Rows of experts' products in the order of their experts; `[T · top_k]` each.
pub(crate) struct RowOrder {
    /// The row, a pair of a token and an expert, that comes at each place.
    pub(crate) order: Array,
    /// Its expert.
    pub(crate) experts: Array,
    /// Its token.
    pub(crate) tokens_of: Array,
    /// The place of each row.
    pub(crate) back: Array,
}

impl ChosenExperts {
    pub(crate) fn new(indices: Array) -> Self {
        Self { indices, sorted: OnceCell::new(), row_order: OnceCell::new() }
    }

    /// Made by the first product that needs it.
    pub(crate) fn row_order(&self) -> mlx::Result<&RowOrder> {
        if let Some(made) = self.row_order.get() {
            return Ok(made);
        }
        let [tokens, chosen] = self.indices.dims()?;
        let flat = self.indices.reshape(&[tokens * chosen])?;
        let order = flat.argsort(0)?;
        let experts = flat.take(&order, 0)?;
        let tokens_of = order.floor_divide(&Array::from_slice(&[chosen as u32], &[1])?)?;
        let back = order.argsort(0)?;
        Ok(self.row_order.get_or_init(|| RowOrder { order, experts, tokens_of, back }))
    }
}

/// A number of each expert of a router, `[experts]` floats.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExpertVectors<'a> {
    /// Added to the scores that choose.
    pub(crate) correction: Option<&'a Array>,
    /// The weights of chosen experts are multiplied by theirs.
    pub(crate) factors: Option<&'a Array>,
}

impl ExpertVectors<'_> {
    /// The weights `[T, top_k]` of chosen experts, times their factors.
    fn scaled(&self, experts: &ChosenExperts, weights: Array) -> mlx::Result<Array> {
        match self.factors {
            Some(factors) => Ok(weights * factors.take(&experts.indices, 0)?),
            None => Ok(weights),
        }
    }
}

/// Weights of a norm over the groups of a row, each on its own.
pub(crate) struct GroupNormWeights {
    /// Of each row.
    pub(crate) groups: i32,
    /// Of all groups, `[groups · width]`.
    pub(crate) weight: Array,
    /// `[width]`: what kernels without weights for each group multiply with.
    pub(crate) ones: Array,
}

/// One backend's operations. Rows are the first axis, `[T, …]`.
pub(crate) trait Ops: Sync {
    /// The dtype that activations need, if any.
    fn activations(&self) -> Option<Dtype>;

    /// True when dense weights of this dtype can stay as they are stored.
    fn reads_dense(&self, dtype: Dtype) -> bool;

    /// How attention finds keys and values, the same for all layers of a model.
    fn attention_path(&self, needs: &AttentionNeeds) -> AttentionPath;

    /// How recurrences find their states, the same for all layers of a model. `mixers`: those that have a state.
    fn state_path(&self, mixers: &[&Mixer]) -> StatePath;

    /// Rows of an embedding table, in `dtype`. `tokens`: `[T]` i32, all within the table.
    fn embedding(&self, tokens: &Array, table: &Weight, dtype: Dtype) -> mlx::Result<Array>;

    /// `x · Wᵀ`, `[.., in]` → `[.., out]`.
    fn linear(&self, x: &Array, weight: &Weight) -> mlx::Result<Array>;

    /// `x · Wᵀ + bias`, `[out]`.
    fn biased_linear(&self, x: &Array, weight: &Weight, bias: &Array) -> mlx::Result<Array> {
        Ok(self.linear(x, weight)? + bias)
    }

    /// Each row through the experts chosen for it. `x`: `[T, in]` or one row for each choice, `[T, top_k, in]`;
    /// weight `[experts, out, in]` → `[T, top_k, out]`.
    fn expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &Weight) -> mlx::Result<Array>;

    /// Whether [`Self::expert_linear`] gives zeros for experts that do not exist, without computing them.
    fn skips_unknown_experts(&self) -> bool {
        false
    }

    /// How [`Self::add_low_rank`] has the matrices.
    fn low_rank_layout(&self) -> LowRankLayout {
        LowRankLayout::OutputsFirst
    }

    /// `product` of rows with a weight, and the low-rank products of `x` with the matrices that each row chose. `chosen`:
    /// `[T, 1]`, or for a product with experts `[T, top_k]`; one behind the stack's changes nothing.
    fn add_low_rank(
        &self,
        product: Array,
        x: &Array,
        chosen: &ChosenExperts,
        stack: &LowRankStack,
    ) -> mlx::Result<Array> {
        stack.add_by(|x, weight| self.expert_linear(x, chosen, weight), &product, x, chosen)
    }

    /// The best `top_k` experts of each row by its logits `[T, experts]`, and their weights `[T, top_k]` in float32.
    fn route(
        &self,
        logits: &Array,
        router: &Router,
        vectors: ExpertVectors<'_>,
        top_k: usize,
    ) -> mlx::Result<(ChosenExperts, Array)>;

    /// The sum of what a row's experts computed, each times its weight: `[T, top_k, out]`, `[T, top_k]` → `[T, out]`.
    fn weighted_sum(&self, parts: &Array, weights: &Array) -> mlx::Result<Array>;

    /// `x / √(mean(x²) + eps) · weight` over the last axis.
    fn rms_norm(&self, x: &Array, weight: &Array, eps: f32) -> mlx::Result<Array>;

    /// The RMS norm of each group of a row, `[T, groups · width]`.
    fn grouped_rms_norm(&self, x: &Array, weights: &GroupNormWeights, eps: f32) -> mlx::Result<Array> {
        let [rows, _] = x.dims()?;
        match weights.groups {
            1 => self.rms_norm(x, &weights.weight, eps),
            groups => {
                let normed = self.rms_norm(&x.reshape(&[rows * groups, -1])?, &weights.ones, eps)?;
                Ok(normed.reshape(x.shape())? * &weights.weight)
            }
        }
    }

    /// `sum + term`, and its RMS norm.
    fn add_rms_norm(&self, sum: &Array, term: &Term, weight: &Array, eps: f32)
    -> mlx::Result<(Array, Array)>;

    /// `sum + term`, `[T, hidden]`.
    fn add(&self, sum: &Array, term: &Term) -> mlx::Result<Array> {
        self.add_term(sum, &self.joined(term)?, None)
    }

    /// What a term adds, `[T, hidden]`.
    fn joined(&self, term: &Term) -> mlx::Result<Array> {
        match &term.joined {
            Joined::Plain => Ok(term.rows.clone()),
            Joined::Scaled(factor) => self.scaled(&term.rows, *factor),
            Joined::Normed { weight, eps } => self.rms_norm(&term.rows, weight, *eps),
        }
    }

    /// `sum + term`, or `sum + sigmoid(gate) · term` with one logit for each row, `[T, 1]`; all others `[T, hidden]`.
    fn add_term(&self, sum: &Array, term: &Array, gate: Option<&Array>) -> mlx::Result<Array>;

    /// `(sum + term) · factor`, `[T, hidden]` and `[1]`.
    fn add_scaled(&self, sum: &Array, term: &Array, factor: &Array) -> mlx::Result<Array> {
        Ok((sum + term) * factor)
    }

    /// `(x − mean) / √(variance + eps) · weight + bias` over the last axis.
    fn layer_norm(&self, x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> mlx::Result<Array>;

    /// `x · factor`
    fn scaled(&self, x: &Array, factor: f32) -> mlx::Result<Array> {
        Ok(x * factor)
    }

    /// The RMS norms of the first columns of rows, and of those behind them, each with its weights; the rest as it is.
    fn norm_columns(&self, x: &Array, weights: [&Array; 2], eps: f32) -> mlx::Result<Array> {
        let [first, second] = [weights[0].dim(0)?, weights[1].dim(0)?];
        let parts = x.split(&[first, first + second], -1)?;
        let [a, b, rest] = parts.as_slice() else { return Err(mlx::Error::new("three parts of a row")) };
        let [a, b] = [self.rms_norm(a, weights[0], eps)?, self.rms_norm(b, weights[1], eps)?];
        mlx::concatenate(&[&a, &b, rest], -1)
    }

    /// What experts computed, `[T, top_k, out]`, and the bias of each, `[experts, out]`.
    fn add_expert_bias(&self, x: &Array, bias: &Array, experts: &ChosenExperts) -> mlx::Result<Array> {
        Ok(x + bias.take(&experts.indices, 0)?)
    }

    /// `act(x)`
    fn act(&self, x: &Array, act: Activation) -> mlx::Result<Array>;

    /// `act(gate) · up` of rows `[.., 2 · width]` that hold the gate, then up.
    fn gated_act(&self, gate_up: &Array, act: Activation) -> mlx::Result<Array>;

    /// `act(gate) · up`, of equal shapes.
    fn gated_act_pair(&self, gate: &Array, up: &Array, act: Activation) -> mlx::Result<Array>;

    /// `sigmoid(gate) · x`, of equal shapes.
    fn sigmoid_gate(&self, gate: &Array, x: &Array) -> mlx::Result<Array>;

    /// Each head of `x`, `[T, heads · head_dim]`, times the gate's function of its logit, `[T, heads]`.
    fn head_gate(&self, gate: &Array, x: &Array, function: HeadGate) -> mlx::Result<Array> {
        let wide = gate.astype(Dtype::F32)?;
        let gate = match function {
            HeadGate::Sigmoid => wide.sigmoid()?,
            HeadGate::Softplus => wide.softplus()?,
        };
        let ([rows, width], [_, heads]) = (x.dims()?, gate.dims()?);
        let by_head = x.reshape(&[rows, heads, -1])?;
        (by_head * gate.astype(x.dtype()?)?.expand_dims(&[-1])?).reshape(&[rows, width])
    }

    /// xIELU with its learned numbers αₚ, αₙ, β and ε, `[1]` f32 each. Source: arXiv 2411.13010 §3.
    fn xielu(&self, x: &Array, [alpha_p, alpha_n, beta, eps]: [&Array; 4]) -> mlx::Result<Array> {
        let (dtype, x) = (x.dtype()?, x.astype(Dtype::F32)?);
        let alpha_p = alpha_p.softplus()?;
        let alpha_n = beta + alpha_n.softplus()?;
        let above = &alpha_p * x.square()? + beta * &x;
        // Close to zero the difference of the exponential and one would lose its digits.
        let below = (x.minimum(eps)?.expm1()? - &x) * &alpha_n + beta * &x;
        let is_above = x.greater(&Array::scalar(0.0, Dtype::F32)?)?;
        mlx::where_(&is_above, &above, &below)?.astype(dtype)
    }

    /// Attention of all queries to all keys of the same entry, `[count, heads, len, head_dim]` each and together.
    fn attend_all(&self, [q, k, v]: [&Array; 3], scale: f32) -> mlx::Result<Array> {
        mlx::fast::sdpa(q, k, v, scale, mlx::fast::Mask::None, None)
    }

    /// The same values, as [`attend_all`](Self::attend_all) reads them fastest in pass after pass.
    fn lay_out_values(&self, values: &Array) -> mlx::Result<Array> {
        values.contiguous()
    }

    /// Attention of rows to all rows of their entry, `[count, heads, len, head_dim]` each and together, without scores in
    /// memory; `None` where there is no kernel for it.
    fn attend_each_other(&self, _qkv: [&Array; 3], _scale: f32) -> mlx::Result<Option<Array>> {
        Ok(None)
    }

    /// A convolution over maps, `[count, height, width, out]`.
    fn convolve_map(&self, call: ConvolutionCall) -> mlx::Result<Array> {
        call.whole()
    }

    /// Norms and rotates queries and keys, norms values, writes keys and values, if there are any, to the layer's pools, and
    /// attends: `[T, heads · v_head_dim]`.
    fn attend(&self, call: AttentionCall) -> mlx::Result<Array>;

    /// Norms latents, rotates queries and keys, writes latents and keys to the layer's pools, and attends: `[T, heads ·
    /// v_head_dim]`.
    fn attend_latent(&self, call: LatentCall) -> mlx::Result<Array> {
        mlx_ops::latent(call, mlx_ops::HeadProducts::MLX)
    }

    /// The convolution of rows `[T, channels]`, without an activation.
    fn convolve(&self, conv: &CausalConv, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        mlx_ops::convolve(conv, x, layer)
    }

    /// `c ·` the convolution of `b · x`, `[T, channels]`. `projected`: `b`, `c` and `x`.
    fn short_conv(&self, conv: &CausalConv, projected: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let width = projected.dim(-1)? / 3;
        let parts = projected.split(&[width, 2 * width], -1)?;
        let [b, c, x] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        Ok(c * self.convolve(conv, &(b * x), layer)?)
    }

    /// Convolution and recurrence of a Mamba layer, `[T, inner]`. `select`: from convolved rows to steps, writes and reads.
    fn mamba1(
        &self,
        channels: &Array,
        conv: &CausalConv,
        select: &dyn Fn(&Array) -> mlx::Result<[Array; 3]>,
        weights: Mamba1Rows,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        mlx_ops::mamba1(channels, conv, select, weights, layer)
    }

    /// Convolution and recurrence of a Mamba-2 layer. `projected`: gate, channels, steps → `silu(gate) · y`,
    /// `[T, inner]`.
    fn mamba2(
        &self,
        spec: &Mamba2,
        weights: &Mamba2Weights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array>;

    /// Convolution, recurrence, norm and gate of a gated delta rule. `projected`: channels, gate, beta, steps →
    /// `[T, values]`.
    fn gated_delta(
        &self,
        spec: &GatedDelta,
        weights: &GatedDeltaWeights,
        projected: &Array,
        layer: LayerContext,
    ) -> mlx::Result<Array>;

    /// Convolution and recurrence of delta attention, the norm of its heads and their gate: `[T, values]`.
    fn delta_attention(
        &self,
        spec: &DeltaAttention,
        weights: &GatedDeltaWeights,
        rows: &DeltaRows,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        mlx_ops::delta_attention(spec, weights, rows, layer)
    }

    /// Mixes of each row of `x`, `[T, width]`, with the row before it, zeros before the first: `x + (before − x) · share`,
    /// one for each of the shares, `[mixes, width]`.
    fn token_shift(&self, x: &Array, shares: &Array, layer: LayerContext) -> mlx::Result<Vec<Array>> {
        mlx_ops::token_shift(x, shares, layer)
    }

    /// RWKV-7's recurrence, the norm of its heads, their bonus and gate: `[T, heads · head_dim]`.
    fn wkv(
        &self,
        spec: WkvState,
        rows: WkvRows,
        weights: &WkvWeights,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        mlx_ops::wkv(spec, &rows, weights, layer)
    }
}

/// Whether a rotation depends on the sequence's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByLength {
    Yes,
    No,
}
