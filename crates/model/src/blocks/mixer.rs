//! The choice of how positions exchange information.

use mlx::Array;

use super::attention::AttentionBlock;
use super::gated_delta::GatedDeltaBlock;
use super::mamba2::Mamba2Block;
use crate::forward::ForwardContext;
use crate::weights::Store;
use crate::{Kernels, KvCache, LoadError, Mixer};

/// What mixes positions in one layer.
pub(crate) enum MixerBlock {
    Attention(Box<AttentionBlock>),
    Mamba2(Box<Mamba2Block>),
    GatedDelta(Box<GatedDeltaBlock>),
}

impl MixerBlock {
    pub(crate) fn load(spec: &Mixer, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(match spec {
            Mixer::Attention(spec) => Self::Attention(Box::new(AttentionBlock::load(spec, store, path)?)),
            Mixer::Mamba2(spec) => Self::Mamba2(Box::new(Mamba2Block::load(spec, store, path)?)),
            Mixer::GatedDelta(spec) => Self::GatedDelta(Box::new(GatedDeltaBlock::load(spec, store, path)?)),
        })
    }

    /// `[T, hidden]` → `[T, hidden]`. Keys and values, or states, are written to layer `index` of `cache`.
    pub(crate) fn forward(
        &self,
        x: &Array,
        ctx: &ForwardContext,
        index: usize,
        cache: &mut KvCache,
        kernels: Kernels,
    ) -> mlx::Result<Array> {
        match self {
            Self::Attention(block) => block.forward(x, ctx, index, cache, kernels),
            Self::Mamba2(block) => block.forward(x, ctx, index, cache, kernels),
            Self::GatedDelta(block) => block.forward(x, ctx, index, cache, kernels),
        }
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Attention(block) => block.arrays(),
            Self::Mamba2(block) => block.arrays(),
            Self::GatedDelta(block) => block.arrays(),
        }
    }
}
