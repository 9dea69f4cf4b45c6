//! The forward pass of cross attention.

use mlx::Array;

use super::{CrossAttention, NORMS, weights};
use crate::batch::CrossRows;
use crate::blocks::{Linear, MixerBlock, NormBlock};
use crate::ops::{LayerContext, Ops};
use crate::weights::{LoadError, Store};

/// Rows that attend in one call, so that scores of a large picture need not all be in memory.
const ROWS_MAX: i32 = 256;

/// One layer's attention to rows outside the sequence.
pub(crate) struct CrossAttentionBlock {
    spec: CrossAttention,
    ops: Ops,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    /// Of queries and keys.
    norms: Option<[NormBlock; 2]>,
}

impl CrossAttentionBlock {
    pub(crate) fn load(spec: &CrossAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let [q, k, v, out] = ["q_proj", "k_proj", "v_proj", "o_proj"].map(&mut linear);
        let norms = spec.norm.map(|norm| -> Result<_, LoadError> {
            let [q, k] = NORMS.map(|name| store.norm(&format!("{path}.{name}"), norm, spec.head_dim));
            Ok([q?, k?])
        });
        Ok(Self { spec: *spec, ops: store.ops(), q: q?, k: k?, v: v?, out: out?, norms: norms.transpose()? })
    }

    /// Queries `[rows, heads, head_dim]` → `[rows, heads · head_dim]`. Keys and values `[1, kv_heads, n, head_dim]`.
    fn seen(&self, queries: &Array, [keys, values]: [&Array; 2]) -> mlx::Result<Array> {
        let [rows, heads, width] = queries.dims()?;
        let (groups, shared) = (self.spec.kv_heads as i32, heads / self.spec.kv_heads.max(1) as i32);
        let scale = (width as f32).powf(-0.5);
        let part = |first: i32| -> mlx::Result<Array> {
            let last = (first + ROWS_MAX).min(rows);
            let part = queries.slice(&[first, 0, 0], &[last, heads, width])?;
            // Heads that share keys are rows of one.
            let part = part.reshape(&[last - first, groups, shared, width])?.transpose(&[1, 2, 0, 3])?;
            let part = part.reshape(&[1, groups, shared * (last - first), width])?;
            let seen = self.ops.attend_all([&part, keys, values], scale)?;
            let seen = seen.reshape(&[groups, shared, last - first, width])?.transpose(&[2, 0, 1, 3])?;
            seen.reshape(&[last - first, heads * width])
        };
        let parts = (0..rows).step_by(ROWS_MAX as usize).map(part).collect::<mlx::Result<Vec<_>>>()?;
        mlx::concatenate(&parts.iter().collect::<Vec<_>>(), 0)
    }
}

impl MixerBlock for CrossAttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let cross = layer.ctx.cross.as_ref().ok_or_else(|| mlx::Error::new("rows to attend to"))?;
        let (rows, width) = (x.dim(0)?, (self.spec.heads * self.spec.head_dim) as i32);
        let queries = self.q.forward(x)?;
        let queries = queries.reshape(&[rows, self.spec.heads as i32, self.spec.head_dim as i32])?;
        let queries = match &self.norms {
            Some([norm, _]) => norm.forward(&queries)?,
            None => queries,
        };
        let nothing = |from: i32, to: i32| Array::zeros(&[to - from, width], queries.dtype()?);
        let (mut parts, mut next) = (Vec::new(), 0);
        for CrossRows { rows, states, weights: collected } in &cross.spans {
            let (start, end) = (rows.start as i32, rows.end as i32);
            if start > next {
                parts.push(nothing(next, start)?);
            }
            let part =
                queries.slice(&[start, 0, 0], &[end, self.spec.heads as i32, self.spec.head_dim as i32])?;
            let [keys, values] = states.of_layer(self.spec.number)?;
            if let Some(collected) = collected {
                let of_head = |head| weights::of_head(&self.ops, [&part, keys], head, collected.keys);
                collected.collect(self.spec.number, of_head)?;
            }
            parts.push(self.seen(&part, [keys, values])?.astype(queries.dtype()?)?);
            next = end;
        }
        if next < rows {
            parts.push(nothing(next, rows)?);
        }
        self.out.forward(&mlx::concatenate(&parts.iter().collect::<Vec<_>>(), 0)?)
    }

    fn cross_keys(&self, rows: &Array) -> mlx::Result<Option<[Array; 2]>> {
        let count = rows.dim(0)?;
        let by_head = |x: Array| x.reshape(&[count, self.spec.kv_heads as i32, self.spec.head_dim as i32]);
        let keys = by_head(self.k.forward(rows)?)?;
        let keys = match &self.norms {
            Some([_, norm]) => norm.forward(&keys)?,
            None => keys,
        };
        let values = by_head(self.v.forward(rows)?)?;
        let in_front = |x: Array| x.transpose(&[1, 0, 2])?.expand_dims(&[0]);
        Ok(Some([in_front(keys)?.contiguous()?, self.ops.lay_out_values(&in_front(values)?)?]))
    }

    fn attends_to_pictures(&self) -> bool {
        true
    }
}
