//! Embeddings of the last tokens together, n by n (LongCat): a mixer of tokens rather than of the stream.

use mlx::{Array, Dtype};

use super::{MixerCache, MixerSpec, Recurrence};
use crate::blocks::{Embedding, Linear, MixerBlock};
use crate::manifest::Scope;
use crate::ops::LayerContext;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// Embeddings of the last two tokens, the last three, and so on, several of each: tables of hashed ids, narrow, projected
/// to the stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NgramEmbedding {
    /// The tokens before.
    pub history: TokenHistory,
    /// Tables for each number of tokens.
    pub tables: usize,
    /// Rows of the first table, less one; each further one has two more.
    pub rows: usize,
    /// Rows of the tokens' own table.
    pub vocab: usize,
    /// Width of the stream.
    pub hidden: usize,
    /// Their sum is multiplied by this.
    pub scale: f32,
}

/// The tokens before each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenHistory {
    /// How many.
    pub tokens: usize,
}

impl Recurrence for TokenHistory {
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.tokens, 1], vec![1]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

/// One table: its rows, and what the id of the token so many before is multiplied by, the nearest first.
struct Table {
    rows: i64,
    factors: Vec<i64>,
}

impl NgramEmbedding {
    fn tables(&self) -> Vec<Table> {
        let of_index = |index: usize| {
            let rows = (self.rows + 2 * index + 1) as u128;
            let mut factor = 1u128;
            let factors = (0..=index / self.tables.max(1)).map(|_| {
                factor = factor * self.vocab as u128 % rows;
                factor as i64
            });
            Table { factors: factors.collect(), rows: rows as i64 }
        };
        (0..self.tables * self.history.tokens).map(of_index).collect()
    }

    fn width(&self) -> usize {
        self.hidden / (self.tables * self.history.tokens).max(1)
    }
}

impl Rules for NgramEmbedding {
    fn check_rules(&self, broken: &mut Broken) {
        let (tables, tokens) = (("emb_split_num", self.tables), ("emb_neighbor_num", self.history.tokens));
        broken.size(&[tables, tokens]);
        broken.size(&[("the width of an n-gram's embedding", self.width())]);
        let rows = self.rows.saturating_add(2 * self.tables * self.history.tokens);
        broken.check(rows < 1 << 31, || format!("tables of n-grams have less than 2^31 rows, not {rows}"));
    }
}

impl Tensors for NgramEmbedding {
    fn name_tensors(&self, at: &mut Scope) {
        for (index, table) in self.tables().iter().enumerate() {
            at.replicated(&format!("embedders.{index}"), self.width(), table.rows as usize, false);
            at.replicated(&format!("post_projs.{index}"), self.width(), self.hidden, false);
        }
    }
}

impl Footprint for NgramEmbedding {
    fn row_elements(&self, hidden: usize) -> usize {
        2 * hidden + 4 * self.tables * self.history.tokens
    }
}

impl MixerSpec for NgramEmbedding {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        vec![&self.history]
    }
}

/// The tables and their projections.
pub(super) struct NgramBlock {
    spec: NgramEmbedding,
    tables: Vec<(Table, Embedding, Linear)>,
}

impl NgramBlock {
    pub(super) fn load(spec: &NgramEmbedding, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let load = |(index, table): (usize, Table)| {
            let rows = store.embedding(&format!("{path}.embedders.{index}"))?;
            Ok((table, rows, store.linear(&format!("{path}.post_projs.{index}"))?))
        };
        let tables = spec.tables().into_iter().enumerate().map(load).collect::<Result<_, LoadError>>()?;
        Ok(Self { spec: *spec, tables })
    }

    /// The tokens before each row, the nearest first, `[T, tokens]` i64; zeros before the first.
    fn history(&self, tokens: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let wide = tokens.astype(Dtype::F32)?.expand_dims(&[-1])?;
        let length = self.spec.history.tokens as i32;
        let history = layer.advance(|run, [last, other]| {
            let rows = run.rows(&wide)?;
            let [count, len, _] = rows.dims()?;
            let joined = mlx::concatenate(&[last, &rows], 1)?;
            let before = |back: i32| joined.slice(&[0, length - back, 0], &[count, length - back + len, 1]);
            let columns = (1..=length).map(before).collect::<mlx::Result<Vec<_>>>()?;
            let last = joined.slice(&[0, len, 0], &[count, len + length, 1])?;
            Ok((mlx::concatenate(&columns.iter().collect::<Vec<_>>(), -1)?, [last, other.clone()]))
        })?;
        history.astype(Dtype::I64)
    }
}

impl MixerBlock for NgramBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let tokens = layer.ctx.tokens.clone();
        let history = self.history(&tokens, layer)?;
        let tokens = tokens.astype(Dtype::I64)?;
        let mut sum: Option<Array> = None;
        for (table, rows, projection) in &self.tables {
            let count = table.factors.len() as i32;
            let near = history.slice(&[0, 0], &[history.dim(0)?, count])?;
            let ids = &tokens + (near * Array::from_slice(&table.factors, &[count])?).sum(&[-1])?;
            let ids = ids.remainder(&Array::from_slice(&[table.rows], &[1])?)?.astype(Dtype::I32)?;
            let term = projection.forward(&rows.forward(&ids, x.dtype()?)?)?;
            sum = Some(sum.map_or(term.clone(), |sum| sum + term));
        }
        Ok(sum.ok_or_else(|| mlx::Error::new("at least one table"))? * self.spec.scale)
    }
}
