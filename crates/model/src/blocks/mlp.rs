//! The MLP of a layer: one gated MLP or a mixture of experts.

use mlx::Array;

use super::gated::GatedBlock;
use super::moe::MoeBlock;
use crate::weights::Store;
use crate::{Kernels, LoadError, Mlp};

/// What transforms each position on its own.
pub(crate) enum MlpBlock {
    Gated(GatedBlock),
    Moe(Box<MoeBlock>),
}

impl MlpBlock {
    pub(crate) fn load(spec: &Mlp, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(match spec {
            Mlp::Gated(spec) => Self::Gated(GatedBlock::load(spec, store, path)?),
            Mlp::Moe(spec) => Self::Moe(Box::new(MoeBlock::load(spec, store, path)?)),
        })
    }

    /// `[T, hidden]` → `[T, hidden]`.
    pub(crate) fn forward(&self, x: &Array, kernels: Kernels) -> mlx::Result<Array> {
        match self {
            Self::Gated(block) => block.forward(x, kernels),
            Self::Moe(block) => block.forward(x, kernels),
        }
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Gated(block) => block.arrays(),
            Self::Moe(block) => block.arrays(),
        }
    }
}
