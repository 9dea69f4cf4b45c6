//! From a mixer's spec to the mixer with its weights.

use super::Mixer;
use super::attention::AttentionBlock;
use super::compressed::CompressedBlock;
use super::conv_attention::ConvAttentionBlock;
use super::conv_gate::ConvGateBlock;
use super::cross_attention::CrossAttentionBlock;
use super::delta_attention::DeltaAttentionBlock;
use super::gated_delta::GatedDeltaBlock;
use super::indexed_attention::IndexedAttentionBlock;
use super::latent::LatentBlock;
use super::lightning::LightningBlock;
use super::loop_attention::LoopAttentionBlock;
use super::mamba1::Mamba1Block;
use super::mamba2::Mamba2Block;
use super::ngram::NgramBlock;
use super::parallel::ParallelBlock;
use super::per_position::PerPositionBlock;
use super::rg_lru::RgLruBlock;
use super::rwkv7::{ChannelMixBlock, TimeMixBlock};
use super::selective_mamba2::SelectiveMamba2Block;
use super::short_conv::ShortConvBlock;
use crate::blocks::MixerBlock;
use crate::weights::{LoadError, Store};

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
            Self::SelectiveMamba2(spec) => Box::new(SelectiveMamba2Block::load(spec, store, path)?),
            Self::GatedDelta(spec) => Box::new(GatedDeltaBlock::load(spec, store, path)?),
            Self::DeltaAttention(spec) => Box::new(DeltaAttentionBlock::load(spec, store, path)?),
            Self::Lightning(spec) => Box::new(LightningBlock::load(spec, store, path)?),
            Self::RgLru(spec) => Box::new(RgLruBlock::load(spec, store, path)?),
            Self::ConvGate(spec) => Box::new(ConvGateBlock::load(spec, store, path)?),
            Self::ConvAttention(spec) => Box::new(ConvAttentionBlock::load(spec, store, path)?),
            Self::LoopAttention(spec) => Box::new(LoopAttentionBlock::load(spec, store, path)?),
            Self::IndexedAttention(spec) => Box::new(IndexedAttentionBlock::load(spec, store, path)?),
            Self::NgramEmbedding(spec) => Box::new(NgramBlock::load(spec, store, path)?),
            Self::TimeMix(spec) => Box::new(TimeMixBlock::load(spec, store, path)?),
            Self::CrossAttention(spec) => Box::new(CrossAttentionBlock::load(spec, store, path)?),
            Self::Compressed(spec) => Box::new(CompressedBlock::load(spec, store, path)?),
            Self::ChannelMix(_) => Box::new(ChannelMixBlock::load(store, path)?),
        })
    }
}
