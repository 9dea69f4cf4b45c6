//! The computations that a backend may have kernels for. [`Kernels`] chooses the backend once, when a model is loaded; blocks
//! hold [`Ops`] and name no backend.
//!
//! `mlx_ops` is right on every backend; `cpu_ops` and `gpu_ops` are our kernels, and `operations` chooses between both.

mod convolution;
mod cpu_ops;
mod delta_rule;
mod gpu_fusions;
mod gpu_ops;
mod low_rank;
mod mlx_ops;
mod operations;
mod recurrent;
mod rotary;
mod term;
mod weight;

use std::cell::OnceCell;

use mlx::Array;
use mlx::cpu::{Activations, Projected, Unit};

use crate::environment;
use crate::forward::{AttentionPath, AttentionReads, ForwardContext, Gather, Run};
use crate::kv_cache::{KvCache, poisoned};
use crate::kv_format::KvStorage;
use crate::mixers::{Attention, LatentAttention};
use crate::params::Param;
pub(crate) use convolution::ConvolutionCall;
pub(crate) use delta_rule::DeltaRule;
pub(crate) use gpu_fusions::{GpuFusions, clipped};
use gpu_ops::ManyRows;
pub(crate) use low_rank::{LowRankLayout, LowRankPart, LowRankStack};
pub(crate) use mlx_ops::{gathered, write};
pub(crate) use operations::Ops;
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
    /// Our CPU primitives, with activations rounded to 8 bits in products with quantized weights.
    CpuInt8,
    /// Our GPU kernels, beside MLX's operations.
    Gpu,
}

impl Kernels {
    /// The fastest that the default device can run. On a GPU, `OMNIBUS_KERNELS=mlx` chooses MLX's operations.
    pub fn fastest() -> Self {
        if mlx::cpu::available() {
            Self::Cpu
        } else if mlx::gpu::available() && environment::kernels().as_deref() != Some("mlx") {
            Self::Gpu
        } else {
            Self::Mlx
        }
    }

    /// Whether decode steps become prebuilt graphs. `OMNIBUS_KERNELS=launch` launches their kernels one by one.
    pub fn uses_step_graphs(self) -> bool {
        let is_cuda = mlx::device::backend() == mlx::device::Backend::Cuda;
        self == Self::Gpu && is_cuda && environment::kernels().is_none()
    }

    /// These kernels with activations in 8 bits, where products exist for that.
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

    /// Their operations, with a choice of kernels of their own: all.
    pub(crate) fn ops(self) -> Ops {
        self.ops_by(Unit::Vector, ManyRows::Fastest)
    }

    /// Their operations on one of several ranks.
    pub(crate) fn rank_ops(self) -> Ops {
        self.ops_by(Unit::Vector, ManyRows::InGraphs)
    }

    /// Their operations where an input is computed whole: no other pass has to give its rows the same bits, and few have so
    /// few rows that a matrix unit is slower.
    pub(crate) fn encoder_ops(self) -> Ops {
        self.ops_by(Unit::Matrix, ManyRows::Fastest)
    }

    fn ops_by(self, unit: Unit, many_rows: ManyRows) -> Ops {
        let on_cpu = |activations| Ops::new(|_| cpu_ops::CpuKernels { activations, unit });
        match self {
            Self::Mlx => Ops::new(|_| operations::NoKernels),
            Self::Cpu => on_cpu(Activations::Exact),
            Self::CpuInt8 => on_cpu(Activations::Int8),
            Self::Gpu => Ops::new(|choice| gpu_ops::GpuKernels { choice, many_rows }),
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
    /// This layer from its cache number `part` on.
    pub(crate) fn part(&mut self, part: usize) -> LayerContext<'_> {
        LayerContext { ctx: self.ctx, index: self.index + part, cache: self.cache }
    }

    /// The layer's index in the blueprint, if it caches something.
    pub(crate) fn number(&self) -> mlx::Result<usize> {
        self.cache.pools.get(self.index).map(|pool| pool.layer).ok_or_else(poisoned)
    }

    /// This pass with the caches of another layer, by its index in the blueprint.
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
    /// What distances add to scores; where there is one, MLX's operations compute the layer.
    pub(crate) distances: Option<&'a dyn ScoreTerm>,
    /// Which of the visible keys a row reads; where there is one, MLX's operations compute the layer.
    pub(crate) filter: Option<&'a dyn KeyFilter>,
    /// Of the layer whose keys and values are read.
    pub(crate) layer: LayerContext<'a>,
}

/// What is added to scores of rows and keys.
pub(crate) trait ScoreTerm {
    /// The mask that adds it to the scores of the keys that a row sees, `[n, heads, rows, keys]`. `q`, `k`: `[n, heads, _,
    /// head_dim]`; `positions`: of rows and keys; `seen`: `[n, _, rows, keys]`.
    fn mask(&self, queries_and_keys: [&Array; 2], positions: &[Array; 2], seen: &Array)
    -> mlx::Result<Array>;
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
    pub(crate) sorted: OnceCell<[Array; 2]>,
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
    pub(crate) weight: Param,
    /// `[width]`: what kernels without weights for each group multiply with.
    pub(crate) ones: Param,
}

/// Whether a rotation depends on the sequence's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByLength {
    Yes,
    No,
}
