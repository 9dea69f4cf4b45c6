//! Attention in MLX's operations: scatter keys and values to blocks, gather sequences, fused attention.

use mlx::device::{Backend, backend};
use mlx::{Array, Dtype, fast};
use omnibus_kv::KvFormat;

use crate::forward::{AttentionReads, Gather, Rows};
use crate::kv_cache::poisoned;
use crate::kv_format;
use crate::mixers::{Attention, AttentionSpan, BlockSparse, NormAt};
use crate::ops::{AttentionCall, GpuFusions, HeadNorm, KeyFilter, LayerContext, ScoreTerm, clipped};
use crate::take_rows::take_rows;

/// `[T, heads · v_head_dim]`, see [`Ops::attend`](crate::ops::Ops::attend).
pub(in crate::ops) fn gather(call: AttentionCall) -> mlx::Result<Array> {
    let (q, new) = prepared(&call)?;
    let AttentionCall { spec, sinks, distances, filter, layer: LayerContext { ctx, index, cache }, .. } =
        call;
    let attention = GatherAttention { spec, sinks, distances, filter };
    let (mut attended, mut order) = (Vec::new(), None);
    for (place, (at, format, metadata)) in ctx.attention_pools(cache, index)?.into_iter().enumerate() {
        let AttentionReads::Gather(metadata) = &metadata.reads else { return Err(poisoned()) };
        let pool = cache.pools.get_mut(at).ok_or_else(poisoned)?;
        let [mut keys, mut values] = pool.take()?;
        if let Some([k, v]) = &new {
            keys = write(keys, &metadata.slots, &kv_format::store(format, k)?)?;
            values = write(values, &metadata.slots, &kv_format::store(format, v)?)?;
        }
        pool.put([keys.clone(), values.clone()]);
        for gather in &metadata.gathers {
            attended.push(attention.attend(&q, [&keys, &values], format, (place, gather))?);
        }
        order = order.or(metadata.order.as_ref());
    }
    in_batch_order(&attended, order)
}

/// What the rows of all gathers saw, `[T, _]`, in the order of the batch. `order`: where they are in another one.
pub(super) fn in_batch_order(of_gathers: &[Array], order: Option<&Array>) -> mlx::Result<Array> {
    let all = match of_gathers {
        [one] => one.clone(),
        several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0)?,
    };
    match order {
        Some(order) => take_rows(&all, order),
        None => Ok(all),
    }
}

/// Queries, `[T, heads, head_dim]`, and the layer's own keys and values, `[T, kv_heads, _]` each, if it has them, normed and
/// rotated.
fn prepared(call: &AttentionCall) -> mlx::Result<(Array, Option<[Array; 2]>)> {
    let [rows, _] = call.qkv.dims()?;
    let (heads, kv_heads, dim) =
        (call.spec.heads as i32, call.spec.kv_heads as i32, call.spec.head_dim as i32);
    let ends = [heads * dim, (heads + kv_heads) * dim];
    let ends = ends.get(..call.projected.parts_of_keys()).unwrap_or(&ends);
    let GpuFusions { clip, norm_at, temperature } = call.gpu_fusions;
    let parts = match clip {
        Some(clip) => clipped(call.qkv, clip)?.split(ends, -1)?,
        None => call.qkv.split(ends, -1)?,
    };
    let turned = |x: &Array, heads: i32, norm: Option<HeadNorm>| -> mlx::Result<Array> {
        let x = x.reshape(&[rows, heads, dim])?;
        let normed = |x: Array, at: NormAt| match norm {
            Some(norm) if norm_at == at => fast::rms_norm(&x, Some(norm.weight), norm.eps),
            _ => Ok(x),
        };
        let x = normed(x, NormAt::BeforeRotation)?;
        let x = call.rotation.map_or(Ok(x.clone()), |rotation| rotation.apply_in(&x, call.layer.ctx))?;
        normed(x, NormAt::AfterRotation)
    };
    let [q_norm, k_norm] = call.head_norms.map_or([None; 2], |norms| norms.map(Some));
    let queries = |q: &Array| -> mlx::Result<Array> {
        let q = turned(q, heads, q_norm)?;
        temperature.map_or(Ok(q.clone()), |temperature| temperature.apply(&q, call.layer.ctx))
    };
    let (q, k, v) = match parts.as_slice() {
        [q] => return Ok((queries(q)?, None)),
        [q, k] => (q, k, k),
        [q, k, v] => (q, k, v),
        _ => return Err(mlx::Error::new("queries, keys and values")),
    };
    let v = v.reshape(&[rows, kv_heads, call.spec.v_head_dim as i32])?;
    let v = match call.value_norm {
        Some(eps) => fast::rms_norm(&v, None, eps)?,
        None => v,
    };
    Ok((queries(q)?, Some([turned(k, kv_heads, k_norm)?, v])))
}

/// Attention over gathered keys.
struct GatherAttention<'a> {
    spec: &'a Attention,
    sinks: Option<&'a Array>,
    distances: Option<&'a dyn ScoreTerm>,
    filter: Option<&'a dyn KeyFilter>,
}

impl GatherAttention<'_> {
    /// The rows of one gather, `[n, heads · v_head_dim]`.
    fn attend(
        &self,
        q: &Array,
        [keys, values]: [&Array; 2],
        format: KvFormat,
        (pool, gather): (usize, &Gather),
    ) -> mlx::Result<Array> {
        let heads = self.spec.heads as i32;
        let count = match &gather.rows {
            Rows::Singles(rows) => rows.dim(0)?,
            Rows::Chunk { len, .. } => *len,
        };
        let q = gather.rows.of_heads(q)?;
        let in_order = |pool: &Array, width: usize| -> mlx::Result<Array> {
            let rows = gathered(pool, gather)?;
            kv_format::load(format, &rows, width, q.dtype()?)?.transpose(&[0, 2, 1, 3])
        };
        let (k, v) = (in_order(keys, self.spec.head_dim)?, in_order(values, self.spec.v_head_dim)?);
        let mut seen = self.seen(pool, gather)?;
        if let Some(distances) = self.distances {
            let positions = gather.positions()?;
            let visible = match seen {
                Some(seen) => seen,
                None => gather.visible_in(self.spec.bidirectional, &positions)?,
            };
            seen = Some(distances.mask([&q, &k], &positions, &visible)?);
        }
        let mask = gather.mask_of(self.spec.bidirectional).map_or(fast::Mask::Causal, fast::Mask::Array);
        let y = match (self.spec.softcap, &seen) {
            (None, Some(seen)) => {
                fast::sdpa(&q, &k, &v, self.spec.scale, fast::Mask::Array(seen), self.sinks)?
            }
            (None, None) => fast::sdpa(&q, &k, &v, self.spec.scale, mask, self.sinks)?,
            (Some(cap), _) => self.capped([&q, &k, &v], gather, cap)?,
        };
        let y = if gather.may_be_blind { self.without_blind(&y, gather)? } else { y };
        y.transpose(&[0, 2, 1, 3])?.reshape(&[count, heads * self.spec.v_head_dim as i32])
    }

    /// What heads saw, `[n, heads, rows, _]`, with zeros for rows that see no key.
    fn without_blind(&self, y: &Array, gather: &Gather) -> mlx::Result<Array> {
        let seen = gather.visible_in(self.spec.bidirectional, &gather.positions()?)?;
        let sees = seen.astype(Dtype::I32)?.any_keepdims(&[-1])?;
        mlx::where_(&sees, y, &Array::scalar(0.0, y.dtype()?)?)
    }

    /// `true` where a row attends to a key, `[n, 1 or heads, rows, keys]`, where that is more than the gather's own mask.
    fn seen(&self, pool: usize, gather: &Gather) -> mlx::Result<Option<Array>> {
        let spec = self.spec;
        let chunk = match spec.span {
            AttentionSpan::Chunk(tokens) => Some(tokens as i32),
            AttentionSpan::Full | AttentionSpan::Window(_) | AttentionSpan::Sinks { .. } => None,
        };
        if chunk.is_none() && spec.block_sparse.is_none() && self.filter.is_none() {
            return Ok(None);
        }
        let positions = gather.positions()?;
        let mut seen = gather.visible_in(spec.bidirectional, &positions)?;
        if let Some(tokens) = chunk {
            let [row, key] = block_numbers(&positions, tokens)?;
            seen = seen.logical_and(&row.equal(&key)?)?;
        }
        if let Some(sparse) = spec.block_sparse {
            seen = seen.logical_and(&block_sparse(sparse, spec.heads as i32, &positions)?)?;
        }
        match self.filter {
            Some(filter) => filter.filtered(pool, gather, &positions, &seen).map(Some),
            None => Ok(Some(seen)),
        }
    }

    /// Attention with scores of `cap · tanh(score / cap)`, `[n, heads, queries, v_head_dim]`.
    fn capped(&self, [q, k, v]: [&Array; 3], gather: &Gather, cap: f32) -> mlx::Result<Array> {
        let [count, heads, queries, dim] = q.dims()?;
        let [_, kv_heads, keys, _] = k.dims()?;
        let grouped = (q * self.spec.scale).reshape(&[count, kv_heads, heads / kv_heads, queries, dim])?;
        let scores = grouped.matmul(&k.expand_dims(&[2])?.swapaxes(-1, -2)?)?.astype(Dtype::F32)?;
        let scores = (scores / cap).tanh()? * cap;
        let seen = match gather.mask_of(self.spec.bidirectional) {
            Some(mask) => mask.expand_dims(&[2])?,
            None => Array::ones(&[queries, keys], Dtype::F32)?.tril(keys - queries)?.astype(Dtype::Bool)?,
        };
        let scores = mlx::where_(&seen, &scores, &Array::scalar(f32::NEG_INFINITY, Dtype::F32)?)?;
        let weights = scores.softmax(-1)?.astype(v.dtype()?)?;
        weights.matmul(&v.expand_dims(&[2])?)?.reshape(&[count, heads, queries, -1])
    }
}

/// In which blocks of so many positions rows and keys are.
fn block_numbers([rows, keys]: &[Array; 2], size: i32) -> mlx::Result<[Array; 2]> {
    let size = Array::from_slice(&[size.max(1)], &[1])?;
    Ok([rows.floor_divide(&size)?, keys.floor_divide(&size)?])
}

/// `true` where a head's row sees the block of a key, `[n, heads, rows, keys]`.
fn block_sparse(sparse: BlockSparse, heads: i32, positions: &[Array; 2]) -> mlx::Result<Array> {
    let [row, key] = block_numbers(positions, sparse.size as i32)?;
    let number = |number: usize| Array::from_slice(&[number as i32], &[1]);
    let is_local = (&row - &key).less(&number(sparse.local)?)?;
    let head = Array::arange(1..heads + 1, Dtype::I32)?.reshape(&[1, heads, 1, 1])?;
    let is_strided = (key + head).remainder(&number(sparse.stride)?)?.equal(&number(0)?)?;
    is_local.logical_or(&is_strided)
}

/// The cached rows of a gather's sequences, as they are stored: `[n, keys, kv_heads, _]`.
pub(crate) fn gathered(pool: &Array, gather: &Gather) -> mlx::Result<Array> {
    let found = take_rows(pool, &gather.tables)?;
    let [segments, blocks, size, kv_heads, stored] = found.dims()?;
    let rows = found.reshape(&[segments, blocks * size, kv_heads, stored])?;
    let rows = rows.slice(&[0, 0, 0, 0], &[segments, gather.keys, kv_heads, stored])?;
    match (&gather.rows, &gather.mask) {
        // Past the end of a sequence its last block holds stale values, and a weight of zero does not take away a NaN.
        (Rows::Singles(_), Some(mask)) => {
            let seen = mask.reshape(&[segments, gather.keys, 1, 1])?;
            mlx::where_(&seen, &rows, &Array::scalar(0.0, rows.dtype()?)?)
        }
        _ => Ok(rows),
    }
}

/// Slots of a pool that is written by [`chosen_rows`] on CUDA, where MLX compiles a scatter of each type for four seconds:
/// the checks at load have such pools.
const SMALL_POOL_SLOTS: i32 = 1 << 14;

/// Writes rows `[T, kv_heads, _]`, as they are stored, to flat slots of a pool: in place, but for small pools on CUDA.
pub(crate) fn write(pool: Array, slots: &Array, rows: &Array) -> mlx::Result<Array> {
    let shape = pool.shape().to_vec();
    let [blocks, size, kv_heads, dim] = pool.dims()?;
    let flat = pool.reshape(&[blocks * size, kv_heads, dim])?;
    drop(pool);
    let written = match blocks * size <= SMALL_POOL_SLOTS && backend() == Backend::Cuda {
        true => chosen_rows(&flat, slots, rows)?,
        false => flat.scatter_rows(slots, rows)?,
    };
    written.reshape(&shape)
}

/// A copy of a pool `[slots, kv_heads, _]` with rows `[T, kv_heads, _]` in the place of those at `slots`, `[T]` i32. Of rows
/// with one slot it has the first.
fn chosen_rows(flat: &Array, slots: &Array, rows: &Array) -> mlx::Result<Array> {
    let all = Array::arange(0..flat.dim(0)?, Dtype::I32)?.expand_dims(&[1])?;
    let is_row = all.equal(&slots.expand_dims(&[0])?)?.astype(Dtype::I32)?;
    let is_written = is_row.any_keepdims(&[1])?.expand_dims(&[2])?;
    let row = is_row.argmax(1)?.astype(Dtype::I32)?;
    mlx::where_(&is_written, &take_rows(rows, &row)?, flat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_as_a_scatter_writes_them() {
        let flat = Array::arange(0..24, Dtype::I32).unwrap().reshape(&[6, 2, 2]).unwrap();
        let rows = Array::arange(100..112, Dtype::I32).unwrap().reshape(&[3, 2, 2]).unwrap();
        let slots = Array::from_slice(&[4, 0, 3], &[3]).unwrap();
        let chosen = chosen_rows(&flat, &slots, &rows).unwrap().to_vec::<i32>().unwrap();
        let scattered = flat.scatter_rows(&slots, &rows).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(chosen, scattered);
        assert_eq!(chosen[..8], [104, 105, 106, 107, 4, 5, 6, 7]);
    }
}
