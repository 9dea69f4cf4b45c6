//! Routers: which experts compute a token, and with which weights.

use mlx::{Array, Dtype};

/// From router logits to experts and their weights: softmax over all experts in float32, the best `top_k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Router {
    /// The probabilities as they are.
    Softmax,
    /// Divided by their sum over the chosen experts.
    SoftmaxRenormalized,
}

impl Router {
    /// The chosen experts of each row, u32, and the weight of each, both `[T, top_k]`. `logits`: `[T, experts]`.
    pub(crate) fn choose(self, logits: &Array, top_k: usize) -> mlx::Result<(Array, Array)> {
        let scores = logits.astype(Dtype::F32)?.softmax(-1)?;
        let [rows, experts] = scores.dims()?;
        let kth = experts - top_k as i32;
        let order = scores.argpartition(kth, -1)?;
        let chosen = order.slice(&[0, kth], &[rows, experts])?.astype(Dtype::U32)?;
        let weights = scores.take_along_axis(&chosen, -1)?;
        let weights = match self {
            Self::Softmax => weights,
            Self::SoftmaxRenormalized => &weights / weights.sum(&[-1])?.expand_dims(&[-1])?,
        };
        Ok((chosen, weights))
    }
}
