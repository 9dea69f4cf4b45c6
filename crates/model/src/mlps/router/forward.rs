//! The forward pass of a router.

use mlx::{Array, Dtype};

use super::Router;
use crate::LoadError;
use crate::blocks::Linear;
use crate::weights::Store;

/// A router with its projection to one logit an expert.
pub(crate) struct RouterBlock {
    kind: Router,
    top_k: usize,
    gate: Linear,
}

impl RouterBlock {
    pub(crate) fn load(kind: Router, top_k: usize, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self { kind, top_k, gate: store.linear(&format!("{path}.gate"))? })
    }

    /// The chosen experts of each row of `x`, `[T, hidden]`, u32, and the weight of each in float32, both `[T, top_k]`.
    pub(crate) fn forward(&self, x: &Array) -> mlx::Result<(Array, Array)> {
        let scores = self.gate.forward(x)?.astype(Dtype::F32)?.softmax(-1)?;
        let [rows, experts] = scores.dims()?;
        let kth = experts - self.top_k as i32;
        let order = scores.argpartition(kth, -1)?;
        let chosen = order.slice(&[0, kth], &[rows, experts])?.astype(Dtype::U32)?;
        let weights = scores.take_along_axis(&chosen, -1)?;
        let weights = match self.kind {
            Router::Softmax => weights,
            Router::SoftmaxRenormalized => &weights / weights.sum(&[-1])?.expand_dims(&[-1])?,
        };
        Ok((chosen, weights))
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        self.gate.arrays()
    }
}
