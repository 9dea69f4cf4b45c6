//! From a mixer's spec to the mixer with its weights.

use super::Mixer;
use super::attention::AttentionBlock;
use super::gated_delta::GatedDeltaBlock;
use super::mamba2::Mamba2Block;
use crate::LoadError;
use crate::blocks::MixerBlock;
use crate::weights::Store;

impl Mixer {
    /// Takes its tensors, below `path`.
    pub(crate) fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MixerBlock>, LoadError> {
        Ok(match self {
            Self::Attention(spec) => Box::new(AttentionBlock::load(spec, store, path)?),
            Self::Mamba2(spec) => Box::new(Mamba2Block::load(spec, store, path)?),
            Self::GatedDelta(spec) => Box::new(GatedDeltaBlock::load(spec, store, path)?),
        })
    }
}
