//! From a mixer's spec to the mixer with its weights.

use super::Mixer;
use super::attention::AttentionBlock;
use super::gated_delta::GatedDeltaBlock;
use super::latent::LatentBlock;
use super::mamba1::Mamba1Block;
use super::mamba2::Mamba2Block;
use super::parallel::ParallelBlock;
use super::per_position::PerPositionBlock;
use super::short_conv::ShortConvBlock;
use crate::LoadError;
use crate::blocks::MixerBlock;
use crate::weights::Store;

impl Mixer {
    /// Takes its tensors, below `path`.
    pub(crate) fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MixerBlock>, LoadError> {
        Ok(match self {
            Self::Attention(spec) => Box::new(AttentionBlock::load(spec, store, path)?),
            Self::Latent(spec) => Box::new(LatentBlock::load(spec, store, path)?),
            Self::Mamba1(spec) => Box::new(Mamba1Block::load(spec, store, path)?),
            Self::ShortConv(spec) => Box::new(ShortConvBlock::load(spec, store, path)?),
            Self::Parallel(spec) => Box::new(ParallelBlock::load(spec, store, path)?),
            Self::PerPosition(spec) => Box::new(PerPositionBlock(spec.0.load(store, path)?)),
            Self::Absent(spec) => Box::new(*spec),
            Self::Mamba2(spec) => Box::new(Mamba2Block::load(spec, store, path)?),
            Self::GatedDelta(spec) => Box::new(GatedDeltaBlock::load(spec, store, path)?),
        })
    }
}
