//! The choice of how positions exchange information.

use mlx::Array;

use super::Kernels;
use super::attention::AttentionBlock;
use super::gated_delta::GatedDeltaBlock;
use super::mamba2::Mamba2Block;
use crate::decoder::Step;
use crate::weights::Store;
use crate::{KvState, LoadError, Mixer};

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

    /// `[T, hidden]` → `[T, hidden]`. What later rows need of these goes into layer `index` of `state`.
    pub(crate) fn forward(
        &self,
        x: &Array,
        step: &Step,
        index: usize,
        state: &mut KvState,
        kernels: Kernels,
    ) -> mlx::Result<Array> {
        match self {
            Self::Attention(block) => block.forward(x, step, index, state, kernels),
            Self::Mamba2(block) => block.forward(x, step, index, state, kernels),
            Self::GatedDelta(block) => block.forward(x, step, index, state, kernels),
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
