//! What an indexer chooses.

use std::cell::{Cell, RefCell};

use mlx::{Array, Dtype};

use super::Indexer;
use super::indexer::NORM;
use crate::blocks::{Linear, NormBlock};
use crate::forward::{ForwardContext, Gather, KeyChoice};
use crate::mixers::written_rows::{WrittenRows, largest, where_seen};
use crate::ops::{KeyFilter, LayerContext, Rotation};
use crate::weights::{LoadError, Store};

/// The indexer with its weights.
pub(super) struct IndexerBlock {
    spec: Indexer,
    queries: Linear,
    key: Linear,
    key_norm: NormBlock,
    weights: Linear,
    rotation: Rotation,
}

impl IndexerBlock {
    pub(super) fn load(spec: &Indexer, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        Ok(Self {
            spec: spec.clone(),
            queries: store.linear(&at("wq_b"))?,
            key: store.linear(&at("wk"))?,
            key_norm: store.norm(&at("k_norm"), NORM, spec.keys.width)?,
            weights: store.linear(&at("weights_proj"))?,
            rotation: Rotation::new(&spec.rope, store.params())?,
        })
    }

    /// Caches the keys of `x` in the layer's second cache; `narrow` is the vector that queries come from.
    pub(super) fn choose<'a>(
        &self,
        x: &Array,
        narrow: &Array,
        layer: &mut LayerContext<'a>,
    ) -> mlx::Result<IndexChoice<'a>> {
        let (rows, heads, width) = (x.dim(0)?, self.spec.heads as i32, self.spec.keys.width as i32);
        let (positions, lengths) = (layer.ctx.positions()?, &layer.ctx.lengths);
        let turned = |x: &Array| self.rotation.apply(x, positions, lengths);
        let queries = turned(&self.queries.forward(narrow)?.reshape(&[rows, heads, width])?)?;
        let key = turned(&self.key_norm.forward(&self.key.forward(x)?)?.expand_dims(&[1])?)?;
        let scale = (heads as f32 * width as f32).powf(-0.5);
        let weights = self.weights.forward(x)?.astype(Dtype::F32)? * scale;
        Ok(IndexChoice {
            queries: queries.astype(Dtype::F32)?,
            weights: weights.expand_dims(&[-1])?,
            cached: WrittenRows::write(self.spec.keys, &key.squeeze(&[1])?, layer, 1)?,
            kept: self.spec.kept as i32,
            chosen: RefCell::default(),
        })
    }
}

/// What an indexer chooses for the rows of a pass.
pub(super) struct IndexChoice<'a> {
    /// `[T, heads, width]` f32
    queries: Array,
    /// `[T, heads, 1]` f32
    weights: Array,
    cached: WrittenRows<'a>,
    kept: i32,
    /// What it chose so far, by gathers.
    chosen: RefCell<Vec<KeyChoice>>,
}

impl IndexChoice<'_> {
    /// Lets later layers read the same keys. `layer`: its index in the blueprint.
    pub(super) fn share(self, ctx: &ForwardContext, layer: usize) {
        ctx.choices.borrow_mut().insert(layer, self.chosen.take());
    }

    fn choice(&self, pool: usize, gather: &Gather, seen: &Array) -> mlx::Result<Array> {
        if gather.keys <= self.kept {
            return Ok(seen.clone());
        }
        let keys = self.cached.rows(pool, gather)?;
        let (queries, weights) = (gather.rows.of_heads(&self.queries)?, gather.rows.of_heads(&self.weights)?);
        let scores = queries.matmul(&keys.swapaxes(-1, -2)?)?.relu()? * weights;
        let scores = scores.sum(&[1])?.expand_dims(&[1])?;
        largest(&where_seen(seen, &scores)?, self.kept)?.logical_and(seen)
    }
}

impl KeyFilter for IndexChoice<'_> {
    fn filtered(
        &self,
        pool: usize,
        gather: &Gather,
        _positions: &[Array; 2],
        seen: &Array,
    ) -> mlx::Result<Array> {
        let chosen = self.choice(pool, gather, seen)?;
        self.chosen.borrow_mut().push(KeyChoice { chosen: chosen.clone(), candidates: None });
        Ok(chosen)
    }
}

/// What the indexer of an earlier layer chose.
pub(super) struct SharedChoice {
    choices: Vec<KeyChoice>,
    /// The gather that comes next.
    next: Cell<usize>,
}

impl SharedChoice {
    /// `layer`: its index in the blueprint.
    pub(super) fn of(ctx: &ForwardContext, layer: usize) -> mlx::Result<Self> {
        Ok(Self { choices: ctx.choices_of(layer)?, next: Cell::new(0) })
    }
}

impl KeyFilter for SharedChoice {
    fn filtered(&self, _: usize, _: &Gather, _: &[Array; 2], _: &Array) -> mlx::Result<Array> {
        let choice = self.choices.get(self.next.replace(self.next.get() + 1));
        choice.map(|choice| choice.chosen.clone()).ok_or_else(|| mlx::Error::new("a choice for each gather"))
    }
}
