//! Rows of a [`RowCache`] in the pools that a pass reads, and choices by score.

use mlx::{Array, Dtype};
use omnibus_kv::KvFormat;

use super::RowCache;
use crate::forward::{AttentionReads, Gather, GatheredRows};
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::ops::{LayerContext, gathered, write};
use crate::take_rows::take_rows;

/// The cached rows of a layer, one for each pool that is read.
pub(super) struct WrittenRows<'a> {
    pools: Vec<PoolRows<'a>>,
    halves: [usize; 2],
}

struct PoolRows<'a> {
    arrays: [Array; 2],
    format: KvFormat,
    metadata: &'a GatheredRows,
}

impl<'a> WrittenRows<'a> {
    /// Writes `rows`, `[T, width]`, to the layer's cache number `part`.
    pub(super) fn write(
        spec: RowCache,
        rows: &Array,
        layer: &mut LayerContext<'a>,
        part: usize,
    ) -> mlx::Result<Self> {
        let halves = spec.halves();
        let parts = rows.expand_dims(&[1])?.split(&[halves[0] as i32], -1)?;
        let [first, second] = parts.as_slice() else { return Err(mlx::Error::new("two halves of rows")) };
        Self::reached(spec, layer, layer.index + part, |arrays, format, metadata| {
            let [a, b] = arrays;
            let a = write(a, &metadata.slots, &kv_format::store(format, first)?)?;
            let b = write(b, &metadata.slots, &kv_format::store(format, second)?)?;
            Ok([a, b])
        })
    }

    /// Rows that another layer, by its index in the blueprint, wrote to its cache number `part`.
    pub(super) fn of_layer(
        spec: RowCache,
        layer: &mut LayerContext<'a>,
        (source, part): (usize, usize),
    ) -> mlx::Result<Self> {
        let index = layer.cache.pools.iter().position(|pool| pool.layer == source && pool.part == part);
        Self::reached(spec, layer, index.ok_or_else(poisoned)?, |arrays, _, _| Ok(arrays))
    }

    /// `change`: what becomes of the arrays of each pool.
    fn reached(
        spec: RowCache,
        layer: &mut LayerContext<'a>,
        index: usize,
        change: impl Fn([Array; 2], KvFormat, &GatheredRows) -> mlx::Result<[Array; 2]>,
    ) -> mlx::Result<Self> {
        let (ctx, cache) = (layer.ctx, &mut *layer.cache);
        let mut pools = Vec::new();
        for (at, format, metadata) in ctx.attention_pools(cache, index)? {
            let AttentionReads::Gather(metadata) = &metadata.reads else { return Err(poisoned()) };
            let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
            let arrays = change(pool.take()?, format, metadata)?;
            pool.put(arrays.clone());
            pools.push(PoolRows { arrays, format, metadata });
        }
        Ok(Self { pools, halves: spec.halves() })
    }

    /// The rows of a gather's sequences, `[n, 1, positions, width]` f32.
    pub(super) fn rows(&self, pool: usize, gather: &Gather) -> mlx::Result<Array> {
        let PoolRows { arrays, format, .. } = self.pools.get(pool).ok_or_else(poisoned)?;
        let half = |which: usize| -> mlx::Result<Array> {
            let rows = gathered(&arrays[which], gather)?;
            kv_format::load(*format, &rows, self.halves[which], Dtype::F32)
        };
        mlx::concatenate(&[&half(0)?, &half(1)?], -1)?.transpose(&[0, 2, 1, 3])
    }

    /// Every gather, with its pool. Those of caches of all kinds are of the same rows, in the same order.
    pub(super) fn gathers(&self) -> impl Iterator<Item = (usize, &'a Gather)> + use<'a, '_> {
        let pools = self.pools.iter().enumerate();
        pools.flat_map(|(pool, rows)| rows.metadata.gathers.iter().map(move |gather| (pool, gather)))
    }

    /// Rows of all gathers, `[n, ..]` each, in the batch's order.
    pub(super) fn in_order(&self, of_gathers: &[Array]) -> mlx::Result<Array> {
        let rows = mlx::concatenate(&of_gathers.iter().collect::<Vec<_>>(), 0)?;
        match self.pools.iter().find_map(|rows| rows.metadata.order.as_ref()) {
            Some(order) => take_rows(&rows, order),
            None => Ok(rows),
        }
    }
}

/// Of scores `[.., n]`, `true` at the `count` largest.
pub(super) fn largest(scores: &Array, count: i32) -> mlx::Result<Array> {
    let kth = scores.dim(-1)? - count;
    let mut start = vec![0; scores.ndim()];
    if let Some(last) = start.last_mut() {
        *last = kth;
    }
    let indices = scores.argpartition(kth, -1)?.slice(&start, scores.shape())?;
    let none = Array::zeros(scores.shape(), Dtype::Bool)?;
    let yes = Array::ones(indices.shape(), Dtype::Bool)?;
    none.put_along_axis(&indices, &yes, -1)
}

/// Scores where a row sees a key, else −∞.
pub(super) fn where_seen(seen: &Array, scores: &Array) -> mlx::Result<Array> {
    mlx::where_(seen, scores, &Array::scalar(f32::NEG_INFINITY, Dtype::F32)?)
}

/// Scores `[.., keys]` in blocks of `size` keys, `[.., blocks, size]`, −∞ after the last key.
pub(super) fn in_blocks(scores: &Array, size: i32) -> mlx::Result<Array> {
    let mut shape = scores.shape().to_vec();
    let keys = shape.pop().ok_or_else(|| mlx::Error::new("scores of keys"))?;
    let blocks = (keys + size - 1) / size;
    let of = |last: &[i32]| [&shape[..], last].concat();
    let rest = Array::full(&of(&[blocks * size - keys]), f32::NEG_INFINITY, Dtype::F32)?;
    mlx::concatenate(&[scores, &rest], -1)?.reshape(&of(&[blocks, size]))
}
