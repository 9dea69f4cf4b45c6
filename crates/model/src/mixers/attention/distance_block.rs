//! The tensors of scores by distance, and what they add.

use mlx::{Array, Dtype};

use super::{Attention, DistanceBuckets, DistanceTerm};
use crate::blocks::Linear;
use crate::ops::ScoreTerm;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// What the distance of a row and a key adds to their score.
pub(crate) struct DistanceBlock {
    term: Term,
    /// The bucket of each distance from `−longest` to `longest`, `[2 · longest + 1]` i32.
    buckets: Param,
    longest: i32,
    scale: f32,
}

enum Term {
    /// `[heads, buckets]`
    Bias(Param),
    /// Embeddings as keys and as queries, `[1, heads, buckets, head_dim]`.
    Products([Param; 2]),
}

impl DistanceBlock {
    /// That of a layer with these projections of queries and keys.
    pub(super) fn load(
        spec: &Attention,
        [queries, keys]: [&Linear; 2],
        store: &mut Store,
        path: &str,
    ) -> Result<Option<Self>, LoadError> {
        let Some(scores) = spec.distances else { return Ok(None) };
        let term = match scores.term {
            DistanceTerm::Bias => Term::Bias(store.vector(&format!("{path}.distance_bias"))?),
            DistanceTerm::Products { norm } => {
                let table = store.table(&format!("{path}.distance_embeddings"))?;
                let norm = store.norm(&format!("{path}.distance_norm"), norm, store.hidden())?;
                let of = |projection: &Linear, heads: usize| -> Result<Param, LoadError> {
                    let shape = [scores.buckets.count() as i32, heads as i32, spec.head_dim as i32];
                    Ok(table.map(|table| {
                        let rows = projection.forward(&norm.forward(table)?)?.reshape(&shape)?;
                        rows.transpose(&[1, 0, 2])?.expand_dims(&[0])?.contiguous()
                    })?)
                };
                Term::Products([of(keys, spec.kv_heads)?, of(queries, spec.heads)?])
            }
        };
        let buckets = store.params().hold(table_of(scores.buckets)?);
        let longest = scores.buckets.longest() as i32;
        Ok(Some(Self { term, buckets, longest, scale: spec.scale }))
    }

    /// What is added to scores, `[n, heads, rows, keys]`. `q`, `k`: `[n, heads, _, head_dim]`; `positions`: of rows and keys,
    /// as a gather has them.
    fn scores(&self, [q, k]: [&Array; 2], [rows, keys]: &[Array; 2]) -> mlx::Result<Array> {
        let bound = |number: i32| Array::from_slice(&[number], &[1]);
        let distance = (rows - keys).clip(Some(&bound(-self.longest)?), Some(&bound(self.longest)?))?;
        // `[n, 1, rows, keys]`
        let buckets = self.buckets.take(&(distance + bound(self.longest)?), 0)?;
        match &self.term {
            Term::Bias(bias) => {
                let of_heads = bias.take(&buckets.squeeze(&[1])?, 1)?;
                of_heads.transpose(&[1, 0, 2, 3])
            }
            Term::Products([of_keys, of_queries]) => {
                let [count, heads, rows, _] = q.dims()?;
                let keys = k.dim(2)?;
                let buckets = buckets.broadcast_to(&[count, heads, rows, keys])?;
                let content = q.matmul(&of_keys.swapaxes(-1, -2)?)?.take_along_axis(&buckets, -1)?;
                let position = k.matmul(&of_queries.swapaxes(-1, -2)?)?;
                let position = position.take_along_axis(&buckets.swapaxes(-1, -2)?, -1)?;
                Ok((content + position.swapaxes(-1, -2)?) * self.scale)
            }
        }
    }
}

impl ScoreTerm for DistanceBlock {
    fn mask(
        &self,
        queries_and_keys: [&Array; 2],
        positions: &[Array; 2],
        seen: &Array,
    ) -> mlx::Result<Array> {
        let dtype = queries_and_keys[0].dtype()?;
        let scores = self.scores(queries_and_keys, positions)?.astype(Dtype::F32)?;
        let hidden = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        mlx::where_(seen, &scores, &hidden)?.astype(dtype)
    }
}

fn table_of(buckets: DistanceBuckets) -> mlx::Result<Array> {
    let longest = buckets.longest() as i32;
    let of: Vec<i32> = (-longest..=longest).map(|distance| buckets.of(distance)).collect();
    // A sum of MLX's, so that a GPU has them in its own memory.
    Ok(Array::from_slice(&of, &[of.len() as i32])? + Array::from_slice(&[0], &[1])?)
}
