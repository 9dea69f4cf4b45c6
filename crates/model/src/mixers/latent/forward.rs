//! The forward pass of a latent attention layer.

use mlx::Array;

use super::choice::{IndexerBlock, SharedChoice};
use super::{KeyReads, LatentAttention};
use crate::blocks::{Linear, MixerBlock, NormBlock};
use crate::forward::ForwardContext;
use crate::mixers::attention::GateBlock;
use crate::norm::Norm;
use crate::ops::{KeyFilter, LatentCall, LatentWeights, LayerContext, Ops, Rotation, Weight};
use crate::params::Param;
use crate::rope::Position;
use crate::weights::{LoadError, Store};

/// One layer of latent attention.
pub(crate) struct LatentBlock {
    spec: LatentAttention,
    ops: Ops,
    queries: QueryBlock,
    latent: Linear,
    /// `[latent_dim]`
    latent_norm: Param,
    embed_q: Param<Weight>,
    unembed_out: Param<Weight>,
    rotation: Option<Rotation>,
    gate: Option<GateBlock>,
    out: Linear,
    indexer: Option<IndexerBlock>,
}

/// The projection to queries, perhaps through a narrow vector.
enum QueryBlock {
    Direct(Box<Linear>),
    Narrow(Box<NarrowQueries>),
}

/// Down to a narrow vector, a norm, and up to all heads.
struct NarrowQueries {
    down: Linear,
    norm: NormBlock,
    up: Linear,
}

impl LatentBlock {
    pub(crate) fn load(spec: &LatentAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let norm = Norm::Rms { eps: spec.norm_eps };
        let at = |name: &str| format!("{path}.{name}");
        let queries = match spec.query_dim {
            None => QueryBlock::Direct(Box::new(store.linear(&at("q_proj"))?)),
            Some(width) => QueryBlock::Narrow(Box::new(NarrowQueries {
                down: store.linear(&at("q_a_proj"))?,
                norm: store.norm(&at("q_a_layernorm"), norm, width)?,
                up: store.linear(&at("q_b_proj"))?,
            })),
        };
        let rotation = match &spec.position {
            Position::Rope(rope) => Some(Rotation::new(rope, store.params())?),
            Position::None => None,
        };
        Ok(Self {
            spec: spec.clone(),
            ops: store.ops(),
            queries,
            latent: store.linear(&at("kv_a_proj_with_mqa"))?,
            latent_norm: store.vector(&at("kv_a_layernorm.weight"))?,
            embed_q: store.head_linear(&at("embed_q"))?,
            unembed_out: store.head_linear(&at("unembed_out"))?,
            rotation,
            gate: spec.out_gate.map(|kind| GateBlock::projected(kind, store, path)).transpose()?,
            out: store.linear(&at("o_proj"))?,
            indexer: match spec.indexer() {
                Some(indexer) => Some(IndexerBlock::load(indexer, store, &at("indexer"))?),
                None => None,
            },
        })
    }

    /// What queries are projected from: the stream, or a narrow vector.
    fn narrow(&self, x: &Array) -> mlx::Result<Array> {
        match &self.queries {
            QueryBlock::Direct(_) => Ok(x.clone()),
            QueryBlock::Narrow(narrow) => narrow.norm.forward(&narrow.down.forward(x)?),
        }
    }

    /// Queries, `[T, heads, nope_dim + rope_dim]`.
    fn queries(&self, narrow: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        let [_, scale] = self.spec.latent_scales;
        let queries = match &self.queries {
            QueryBlock::Direct(direct) => direct.forward(narrow)?,
            QueryBlock::Narrow(projection) => projection.up.forward(&scaled(narrow.clone(), scale))?,
        };
        let [rows, _] = queries.dims()?;
        let heads = queries.reshape(&[rows, self.spec.heads as i32, -1])?;
        match self.spec.temperature {
            Some(temperature) => temperature.apply(&heads, ctx),
            None => Ok(heads),
        }
    }
}

fn scaled(x: Array, scale: f32) -> Array {
    if scale == 1.0 { x } else { x * scale }
}

impl MixerBlock for LatentBlock {
    fn forward(&self, x: &Array, mut layer: LayerContext) -> mlx::Result<Array> {
        let narrow = self.narrow(x)?;
        let queries = self.queries(&narrow, layer.ctx)?;
        let choice = match &self.indexer {
            Some(indexer) => Some(indexer.choose(x, &narrow, &mut layer)?),
            None => None,
        };
        let shared = match self.spec.reads {
            KeyReads::AsLayer(source) => Some(SharedChoice::of(layer.ctx, source)?),
            KeyReads::All | KeyReads::Chosen(_) => None,
        };
        let filter = choice.as_ref().map(|choice| choice as &dyn KeyFilter);
        let filter = filter.or(shared.as_ref().map(|shared| shared as &dyn KeyFilter));
        let (ctx, number) = (layer.ctx, layer.number()?);
        let attended = self.ops.attend_latent(LatentCall {
            spec: &self.spec,
            queries: &queries,
            projected: &self.latent.forward(x)?,
            latent_norm: &self.latent_norm,
            rotation: self.rotation.as_ref(),
            weights: LatentWeights { embed_q: &self.embed_q, unembed_out: &self.unembed_out },
            filter,
            layer,
        })?;
        if let Some(choice) = choice {
            choice.share(ctx, number);
        }
        match &self.gate {
            Some(gate) => self.out.forward(&gate.forward(&self.ops, x, &attended)?),
            None => self.out.forward(&attended),
        }
    }
}
