//! Mixers: how positions of a sequence exchange information. A mixer is a folder: its spec and rules, its tensors, what it
//! caches, its scratch memory, and its forward pass.
//!
//! To add one: a folder, a variant of [`Mixer`], a row in [`Mixer::spec`] and in [`Mixer::load`].
//!
//! Invariant: specs are plain data and know neither weights nor operations; only `forward` and `load` do.

mod absent;
mod attention;
mod compressed;
mod conv_attention;
mod conv_gate;
mod cross_attention;
mod delta_attention;
mod gated_delta;
mod indexed_attention;
mod latent;
mod lightning;
mod load;
mod loop_attention;
mod mamba1;
mod mamba2;
mod ngram;
mod parallel;
mod per_position;
mod rg_lru;
mod row_cache;
mod rwkv7;
mod selective_mamba2;
mod short_conv;
mod token_shift;
mod written_rows;

use omnibus_kv::{FloatType, KvCacheSpec, KvFormat};

use crate::spec::{Footprint, Rules, Tensors};
pub use absent::Absent;
pub use attention::{
    Attention, AttentionSpan, Bidirectional, BlockSparse, DistanceBuckets, DistanceScores, DistanceTerm,
    HeadGate, KeySource, NormAt, NormOver, OutNorm, OutputGate, QkNorm, Temperature,
};
pub use compressed::{Candidates, CompressedAttention, Compressor, EntryIndexer, EntryReads, OpenGroup};
pub use conv_attention::{ConvAttention, KeyConv};
pub use conv_gate::ConvGate;
pub use cross_attention::CrossAttention;
pub use delta_attention::{Decay, DeltaAttention, DeltaGate};
pub use gated_delta::GatedDelta;
pub use indexed_attention::IndexedAttention;
pub use latent::{Indexer, KeyReads, LatentAttention};
pub use lightning::Lightning;
pub use loop_attention::LoopAttention;
pub use mamba1::{Mamba1, StepNorms};
pub use mamba2::Mamba2;
pub use ngram::{NgramEmbedding, TokenHistory};
pub use parallel::Parallel;
pub use per_position::PerPosition;
pub use rg_lru::RgLru;
pub use row_cache::RowCache;
pub use rwkv7::{ChannelMix, TimeMix, WkvState};
pub use selective_mamba2::SelectiveMamba2;
pub use short_conv::{ConvReach, ShortConv};
pub use token_shift::TokenShift;

/// How positions exchange information.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Mixer {
    Attention(Attention),
    Latent(LatentAttention),
    Mamba1(Mamba1),
    Mamba2(Mamba2),
    SelectiveMamba2(SelectiveMamba2),
    GatedDelta(GatedDelta),
    DeltaAttention(DeltaAttention),
    Lightning(Lightning),
    RgLru(RgLru),
    ShortConv(ShortConv),
    ConvGate(ConvGate),
    ConvAttention(ConvAttention),
    LoopAttention(LoopAttention),
    IndexedAttention(IndexedAttention),
    NgramEmbedding(NgramEmbedding),
    TimeMix(TimeMix),
    ChannelMix(ChannelMix),
    Compressed(CompressedAttention),
    CrossAttention(CrossAttention),
    Parallel(Parallel),
    PerPosition(PerPosition),
    Absent(Absent),
}

macro_rules! from_specs {
    ($($spec:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$spec> for Mixer {
            fn from(spec: $spec) -> Self {
                Self::$variant(spec)
            }
        }
    )+};
}

from_specs! {
    Attention => Attention,
    LatentAttention => Latent,
    Mamba1 => Mamba1,
    Mamba2 => Mamba2,
    SelectiveMamba2 => SelectiveMamba2,
    GatedDelta => GatedDelta,
    DeltaAttention => DeltaAttention,
    Lightning => Lightning,
    RgLru => RgLru,
    ShortConv => ShortConv,
    ConvGate => ConvGate,
    ConvAttention => ConvAttention,
    LoopAttention => LoopAttention,
    IndexedAttention => IndexedAttention,
    NgramEmbedding => NgramEmbedding,
    TimeMix => TimeMix,
    ChannelMix => ChannelMix,
    CompressedAttention => Compressed,
    CrossAttention => CrossAttention,
    Parallel => Parallel,
    PerPosition => PerPosition,
    Absent => Absent,
}

impl Mixer {
    /// Softmax attention in it.
    pub(crate) fn attentions(&self) -> Vec<&Attention> {
        match self {
            Self::Attention(spec)
            | Self::ConvAttention(ConvAttention { attention: spec, .. })
            | Self::IndexedAttention(IndexedAttention { attention: spec, .. })
            | Self::LoopAttention(LoopAttention { attention: spec, .. }) => vec![spec],
            Self::Parallel(Parallel(parts)) => parts.iter().flat_map(|(_, part)| part.attentions()).collect(),
            _ => Vec::new(),
        }
    }

    /// Latent attention in it.
    pub(crate) fn latents(&self) -> Vec<&LatentAttention> {
        match self {
            Self::Latent(spec) => vec![spec],
            Self::Parallel(Parallel(parts)) => parts.iter().flat_map(|(_, part)| part.latents()).collect(),
            _ => Vec::new(),
        }
    }

    /// Mixers in it that cache a state.
    pub(crate) fn recurrences(&self) -> Vec<&Mixer> {
        let format = KvFormat::Float(FloatType::F32);
        match self {
            Self::Parallel(Parallel(parts)) => {
                parts.iter().flat_map(|(_, part)| part.recurrences()).collect()
            }
            _ if self.spec().caches().iter().any(|cache| cache.cache_spec(format).kind.is_state()) => {
                vec![self]
            }
            _ => Vec::new(),
        }
    }

    /// Attentions in it, to be changed.
    pub(crate) fn attentions_mut(&mut self) -> Vec<&mut Attention> {
        match self {
            Self::Attention(spec)
            | Self::ConvAttention(ConvAttention { attention: spec, .. })
            | Self::IndexedAttention(IndexedAttention { attention: spec, .. })
            | Self::LoopAttention(LoopAttention { attention: spec, .. }) => vec![spec],
            Self::Parallel(Parallel(parts)) => {
                parts.iter_mut().flat_map(|(_, part)| part.attentions_mut()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What its kind says of itself.
    pub(crate) fn spec(&self) -> &dyn MixerSpec {
        match self {
            Self::Attention(spec) => spec,
            Self::Latent(spec) => spec,
            Self::Mamba1(spec) => spec,
            Self::Mamba2(spec) => spec,
            Self::SelectiveMamba2(spec) => spec,
            Self::GatedDelta(spec) => spec,
            Self::DeltaAttention(spec) => spec,
            Self::Lightning(spec) => spec,
            Self::RgLru(spec) => spec,
            Self::ShortConv(spec) => spec,
            Self::ConvGate(spec) => spec,
            Self::ConvAttention(spec) => spec,
            Self::LoopAttention(spec) => spec,
            Self::IndexedAttention(spec) => spec,
            Self::NgramEmbedding(spec) => spec,
            Self::TimeMix(spec) => spec,
            Self::ChannelMix(spec) => spec,
            Self::Compressed(spec) => spec,
            Self::CrossAttention(spec) => spec,
            Self::Parallel(spec) => spec,
            Self::PerPosition(spec) => spec,
            Self::Absent(spec) => spec,
        }
    }
}

/// What one kind of mixer says of itself.
pub(crate) trait MixerSpec: Rules + Tensors + Footprint {
    /// What it caches, in the order of its pools; one that caches nothing has none.
    fn caches(&self) -> Vec<&dyn MixerCache>;
}

impl<T: Rules + Tensors + Footprint + MixerCache> MixerSpec for T {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        let own = self.is_own().then_some(self as &dyn MixerCache);
        own.into_iter().chain(self.beside()).collect()
    }
}

/// One thing that a layer caches.
pub(crate) trait MixerCache {
    /// False of a layer that reads another layer's cache.
    fn is_own(&self) -> bool {
        true
    }

    /// Something else that the layer caches.
    fn beside(&self) -> Option<&dyn MixerCache> {
        None
    }

    /// Its spec, keys and values in `format`.
    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec;

    /// Shapes of the pool's arrays with `blocks` blocks.
    fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2];

    /// False when a cached key fits only the sequence it was computed for.
    fn shares_prefixes(&self) -> bool {
        true
    }

    /// False where MLX's operations alone reach it, whatever the backend.
    fn has_kernel(&self) -> bool {
        true
    }

    /// Widths of its heads in the KV cache; none without keys and values.
    fn kv_head_dims(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// A mixer that caches one state a sequence: a block is a state slot.
pub(crate) trait Recurrence {
    /// Shapes of the convolution's last rows and of the state in one slot.
    fn slot_shapes(&self) -> [Vec<usize>; 2];

    /// False where MLX's operations alone compute it, whatever the backend.
    fn has_kernel(&self) -> bool {
        true
    }
}

impl<T: Recurrence> MixerCache for T {
    fn cache_spec(&self, _format: KvFormat) -> KvCacheSpec {
        KvCacheSpec::state(self.slot_shapes().iter().map(|shape| shape.iter().product::<usize>()).sum())
    }

    fn pool_shapes(&self, slots: usize, _block_size: usize, _format: KvFormat) -> [Vec<usize>; 2] {
        self.slot_shapes().map(|shape| [vec![slots], shape].concat())
    }

    fn has_kernel(&self) -> bool {
        Recurrence::has_kernel(self)
    }
}
