//! A learned augmented residual: a narrow projection of what the mixer reads joins its output.
//!
//! Source: arXiv 2411.07501.

use mlx::Array;

use super::{Linear, NormBlock};
use crate::norm::Norm;
use crate::weights::{LoadError, Store};

/// `x + norm(right(left(x)))`
pub(crate) struct LaurelBlock {
    left: Linear,
    right: Linear,
    norm: NormBlock,
}

impl LaurelBlock {
    pub(crate) fn load(store: &mut Store, path: &str, norm: Norm) -> Result<Self, LoadError> {
        let hidden = store.hidden();
        Ok(Self {
            left: store.linear(&format!("{path}.laurel.linear_left"))?,
            right: store.linear(&format!("{path}.laurel.linear_right"))?,
            norm: store.norm(&format!("{path}.laurel.post_laurel_norm"), norm, hidden)?,
        })
    }

    pub(crate) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        Ok(x + self.norm.forward(&self.right.forward(&self.left.forward(x)?)?)?)
    }
}
