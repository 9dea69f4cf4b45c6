//! Attention residuals: what a part reads is a weighted mean of the stream and of what the stream was before.

use mlx::{Array, Dtype};

use super::ResidualStream;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The weights by which one part, or the head, reads a stream with a history.
pub(crate) struct HistoryBlock {
    /// `[hidden, 1]` f32: of the norm and of the projection to a logit.
    weight: Param,
    eps: f32,
}

impl HistoryBlock {
    pub(crate) fn load(store: &mut Store, path: &str, eps: f32) -> Result<Self, LoadError> {
        let norm = store.float(&format!("{path}_norm.weight"))?;
        let projection = store.float(&format!("{path}_proj.weight"))?;
        Ok(Self { weight: projection.map(|projection| (projection * &norm).t())?, eps })
    }

    /// `[T, hidden]`
    pub(crate) fn read(&self, x: &mut ResidualStream) -> mlx::Result<Array> {
        let now = x.value()?.clone();
        if x.history().is_empty() {
            return Ok(now);
        }
        let of_time: Vec<&Array> = x.history().iter().chain([&now]).collect();
        let times = mlx::stack(&of_time, 1)?;
        let wide = times.astype(Dtype::F32)?;
        let length = (wide.square()?.mean(&[-1])? + self.eps).rsqrt()?.expand_dims(&[-1])?;
        let weights = (wide.matmul(&self.weight)? * length).softmax(1)?;
        (weights * wide).sum(&[1])?.astype(now.dtype()?)
    }
}
