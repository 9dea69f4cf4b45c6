//! Index keys in their cache, and choices by score.

use mlx::{Array, Dtype};
use omnibus_kv::KvFormat;

use super::IndexKeys;
use crate::forward::{AttentionReads, Gather};
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::ops::{LayerContext, gathered, write};

/// The cached keys of a pass, one for each pool that is read.
pub(super) struct CachedIndex {
    pools: Vec<([Array; 2], KvFormat)>,
    halves: [usize; 2],
}

impl CachedIndex {
    /// Writes `keys`, `[T, width]`, to the layer's index cache. `layer`: from that cache on.
    pub(super) fn write(spec: IndexKeys, keys: &Array, layer: LayerContext) -> mlx::Result<Self> {
        let LayerContext { ctx, index, cache } = layer;
        let halves = spec.halves();
        let parts = keys.expand_dims(&[1])?.split(&[halves[0] as i32], -1)?;
        let [first, second] = parts.as_slice() else { return Err(mlx::Error::new("two halves of keys")) };
        let mut pools = Vec::new();
        for (at, format, metadata) in ctx.attention_pools(cache, index)? {
            let AttentionReads::Gather(metadata) = &metadata.reads else { return Err(poisoned()) };
            let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
            let [a, b] = pool.take()?;
            let a = write(a, &metadata.slots, &kv_format::store(format, first)?)?;
            let b = write(b, &metadata.slots, &kv_format::store(format, second)?)?;
            pool.put([a.clone(), b.clone()]);
            pools.push(([a, b], format));
        }
        Ok(Self { pools, halves })
    }

    /// The keys of a gather's sequences, `[n, 1, keys, width]` f32.
    pub(super) fn keys(&self, pool: usize, gather: &Gather) -> mlx::Result<Array> {
        let (arrays, format) = self.pools.get(pool).ok_or_else(poisoned)?;
        let half = |which: usize| -> mlx::Result<Array> {
            let rows = gathered(&arrays[which], gather)?;
            kv_format::load(*format, &rows, self.halves[which], Dtype::F32)
        };
        mlx::concatenate(&[&half(0)?, &half(1)?], -1)?.transpose(&[0, 2, 1, 3])
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
