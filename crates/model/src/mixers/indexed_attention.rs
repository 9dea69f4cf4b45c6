//! Attention that reads the blocks of keys which an indexer scores best (MiniMax M3).

use mlx::{Array, Dtype};

use super::attention::{AttentionBlock, CallSpec};
use super::written_rows::{WrittenRows, in_blocks, largest, where_seen};
use super::{Attention, AttentionSpan, MixerCache, MixerSpec, RowCache};
use crate::blocks::{Linear, MixerBlock, NormBlock};
use crate::forward::Gather;
use crate::manifest::Scope;
use crate::norm::Norm;
use crate::ops::{KeyFilter, LayerContext, Rotation};
use crate::rope::Rope;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// Attention, and the indexer with a head for each key head: a block is as good as its best key.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedAttention {
    /// What is computed of the chosen blocks.
    pub attention: Attention,
    /// Heads of the indexer; divides those of the attention.
    pub heads: usize,
    /// What is cached beside keys and values.
    pub keys: RowCache,
    /// Rotates the first part of the indexer's queries and keys.
    pub rope: Rope,
    /// Of the indexer's queries and keys.
    pub norm: Norm,
    /// Positions of a block.
    pub block_size: usize,
    /// A row reads this many blocks.
    pub kept: usize,
    /// The last blocks that a row always reads, its own included.
    pub local: usize,
}

impl Rules for IndexedAttention {
    fn check_rules(&self, broken: &mut Broken) {
        self.attention.check_rules(broken);
        broken.divides(("index_n_heads", self.heads), ("num_attention_heads", self.attention.heads));
        broken.size(&[("index_block_size", self.block_size), ("index_topk_blocks", self.kept)]);
        broken.size(&[("index_head_dim", self.keys.width / 2)]);
        broken.position(&crate::rope::Position::Rope(self.rope.clone()), self.keys.width);
    }
}

impl Tensors for IndexedAttention {
    fn name_tensors(&self, at: &mut Scope) {
        self.attention.name_tensors(at);
        at.replicated("index_q_proj", at.hidden, self.heads * self.keys.width, false);
        at.replicated("index_k_proj", at.hidden, self.keys.width, false);
        at.norm("index_q_norm", self.norm, self.keys.width);
        at.norm("index_k_norm", self.norm, self.keys.width);
    }
}

impl Footprint for IndexedAttention {
    fn row_elements(&self, hidden: usize) -> usize {
        2 * (self.heads + 1) * self.keys.width + self.attention.row_elements(hidden)
    }
}

impl MixerSpec for IndexedAttention {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        vec![&self.attention, &self.keys]
    }
}

/// The attention and the indexer with their weights.
pub(super) struct IndexedAttentionBlock {
    spec: IndexedAttention,
    call: CallSpec,
    attention: AttentionBlock,
    query: Linear,
    key: Linear,
    norms: [NormBlock; 2],
    rotation: Rotation,
}

impl IndexedAttentionBlock {
    pub(super) fn load(spec: &IndexedAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let width = spec.keys.width;
        Ok(Self {
            spec: spec.clone(),
            call: CallSpec::new(&spec.attention),
            attention: AttentionBlock::load(&spec.attention, store, path)?,
            query: store.linear(&at("index_q_proj"))?,
            key: store.linear(&at("index_k_proj"))?,
            norms: [
                store.norm(&at("index_q_norm"), spec.norm, width)?,
                store.norm(&at("index_k_norm"), spec.norm, width)?,
            ],
            rotation: Rotation::new(&spec.rope, store.params())?,
        })
    }

    /// Caches the index keys of `x`.
    fn choose<'a, 'b>(&'a self, x: &Array, layer: &mut LayerContext<'b>) -> mlx::Result<BlockChoice<'a, 'b>> {
        let (rows, heads, width) = (x.dim(0)?, self.spec.heads as i32, self.spec.keys.width as i32);
        let (ctx, [q_norm, k_norm]) = (layer.ctx, &self.norms);
        let turned = |x: Array, norm: &NormBlock| {
            self.rotation.apply(&norm.forward(&x)?, ctx.positions()?, &ctx.lengths)?.astype(Dtype::F32)
        };
        let queries = turned(self.query.forward(x)?.reshape(&[rows, heads, width])?, q_norm)?;
        let key = turned(self.key.forward(x)?.reshape(&[rows, 1, width])?, k_norm)?;
        let cached = WrittenRows::write(self.spec.keys, &key.squeeze(&[1])?, layer, 1)?;
        Ok(BlockChoice { spec: &self.spec, queries, cached })
    }
}

impl MixerBlock for IndexedAttentionBlock {
    fn forward(&self, x: &Array, mut layer: LayerContext) -> mlx::Result<Array> {
        let choice = self.choose(x, &mut layer)?;
        let qkv = self.attention.project(x)?;
        let attended = self.attention.attended(&self.call, qkv, Some(&choice), layer)?;
        self.attention.output(x, attended)
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.spec.attention.span = span;
        self.call.set_span(span);
    }
}

/// Which blocks the rows of a pass read.
struct BlockChoice<'a, 'b> {
    spec: &'a IndexedAttention,
    /// `[T, heads, width]` f32
    queries: Array,
    cached: WrittenRows<'b>,
}

impl KeyFilter for BlockChoice<'_, '_> {
    fn filtered(
        &self,
        pool: usize,
        gather: &Gather,
        [rows, _]: &[Array; 2],
        seen: &Array,
    ) -> mlx::Result<Array> {
        let (size, kept) = (self.spec.block_size as i32, self.spec.kept as i32);
        let blocks = (gather.keys + size - 1) / size;
        if blocks <= kept {
            return Ok(seen.clone());
        }
        let keys = self.cached.rows(pool, gather)?;
        let scores = gather.rows.of_heads(&self.queries)?.matmul(&keys.swapaxes(-1, -2)?)?;
        let scores = where_seen(seen, &scores)?;
        let [count, heads, queries, _] = scores.dims()?;
        let best = in_blocks(&scores, size)?.max(&[-1])?;
        let block = Array::arange(0..blocks, Dtype::I32)?;
        let own = rows.floor_divide(&Array::from_slice(&[size], &[1])?)?;
        let age = own - block;
        let number = |number: usize| Array::from_slice(&[number as i32], &[1]);
        let is_local = age.greater_equal(&number(0)?)?.logical_and(&age.less(&number(self.spec.local)?)?)?;
        let best = mlx::where_(&is_local, &Array::scalar(f32::INFINITY, Dtype::F32)?, &best)?;
        let chosen = largest(&best, kept)?.repeat(size, -1)?;
        let chosen = chosen.slice(&[0, 0, 0, 0], &[count, heads, queries, gather.keys])?.logical_and(seen)?;
        chosen.repeat(self.spec.attention.heads as i32 / heads, 1)
    }
}
