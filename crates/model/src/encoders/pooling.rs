//! Features that attend to pools of rows.
//!
//! Source: transformers `models/molmo2/modeling_molmo2.py`.

use mlx::{Array, Dtype};

use super::grid::Layout;
use super::manifest::{ATTENTION, POOL};
use crate::blocks::Linear;
use crate::weights::{LoadError, Store};

/// Each feature attends from the mean of its rows to all of them.
pub(super) struct AttentionPool {
    heads: i32,
    /// Of queries, keys, values and outputs.
    linears: [Linear; 4],
}

impl AttentionPool {
    /// Below a connector at `path`.
    pub(super) fn load(heads: usize, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let [q, k, v, o] = ATTENTION.map(|name| store.linear(&format!("{path}.{POOL}.{name}")));
        Ok(Self { heads: heads as i32, linears: [q?, k?, v?, o?] })
    }

    /// `rows`: `[rows, width]` → `[features, out]`.
    pub(super) fn forward(&self, rows: &Array, layout: &Layout) -> mlx::Result<Array> {
        let Layout::Pools { count, rows: numbers } = layout else {
            return Err(mlx::Error::new("a picture whose features are pools of rows"));
        };
        let [all, width] = rows.dims()?;
        let count = (*count).max(1);
        let is_within = |number: &i32| *number < all;
        if numbers.is_empty() || !numbers.len().is_multiple_of(count) || !numbers.iter().all(is_within) {
            return Err(mlx::Error::new(format!("pools of {count} of {all} rows")));
        }
        let [features, count] = [(numbers.len() / count) as i32, count as i32];
        let taken: Vec<i32> = numbers.iter().map(|number| (*number).max(0)).collect();
        let is_row: Vec<f32> = numbers.iter().map(|number| f32::from(u8::from(*number >= 0))).collect();
        let is_row = Array::from_slice(&is_row, &[features, count, 1])?;
        let taken = rows.take(&Array::from_slice(&taken, &[features * count])?, 0)?;
        let pooled = taken.reshape(&[features, count, width])? * is_row.astype(rows.dtype()?)?;
        let present = is_row.sum(&[1])?.maximum(&Array::scalar(1.0, Dtype::F32)?)?;
        let mean = pooled.sum(&[1])? / present.astype(rows.dtype()?)?;
        let [q, k, v, o] = &self.linears;
        let by_head = |x: Array, rows: i32| {
            let x = x.astype(Dtype::F32)?.reshape(&[features, rows, self.heads, -1])?;
            x.transpose(&[0, 2, 1, 3])
        };
        let (queries, keys) = (by_head(q.forward(&mean)?, 1)?, by_head(k.forward(&pooled)?, count)?);
        let values = by_head(v.forward(&pooled)?, count)?;
        let scale = (queries.dim(-1)? as f32).powf(-0.5);
        let absent = (is_row - 1.0).reshape(&[features, 1, 1, count])? * 1e9;
        let scores = (queries * scale).matmul(&keys.swapaxes(-1, -2)?)? + absent;
        let seen = scores.softmax(-1)?.matmul(&values)?.reshape(&[features, -1])?;
        o.forward(&seen.astype(rows.dtype()?)?)
    }
}
