//! Mixers: how positions of a sequence exchange information. A mixer is a folder: its spec and rules, its tensors, what it
//! caches, its scratch memory, and its forward pass.
//!
//! To add one: a folder, a variant of [`Mixer`], a row in [`Mixer::spec`] and in [`Mixer::load`].
//!
//! Invariant: specs are plain data and know neither weights nor operations; only `forward` and `load` do.

mod attention;
mod gated_delta;
mod load;
mod mamba2;

use omnibus_kv::{KvCacheSpec, KvFormat};

use crate::spec::{Footprint, Rules, Tensors};
pub use attention::{Attention, AttentionSpan, QkNorm};
pub use gated_delta::GatedDelta;
pub use mamba2::Mamba2;

/// How positions exchange information.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Mixer {
    Attention(Attention),
    Mamba2(Mamba2),
    GatedDelta(GatedDelta),
}

impl Mixer {
    /// What its kind says of itself.
    pub(crate) fn spec(&self) -> &dyn MixerSpec {
        match self {
            Self::Attention(spec) => spec,
            Self::Mamba2(spec) => spec,
            Self::GatedDelta(spec) => spec,
        }
    }
}

/// What one kind of mixer says of itself.
pub(crate) trait MixerSpec: Rules + Tensors + Footprint + MixerCache {}

impl<T: Rules + Tensors + Footprint + MixerCache> MixerSpec for T {}

/// What one layer caches.
pub(crate) trait MixerCache {
    /// Its spec, keys and values in `format`.
    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec;

    /// Shapes of the layer's pool arrays with `blocks` blocks.
    fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2];

    /// False when a cached key fits only the sequence it was computed for.
    fn shares_prefixes(&self) -> bool {
        true
    }

    /// Width of its heads in the KV cache; `None` without keys and values.
    fn kv_head_dim(&self) -> Option<usize> {
        None
    }
}

/// A mixer that caches one state a sequence: a block is a state slot.
pub(crate) trait Recurrence {
    /// Shapes of the convolution's last rows and of the state in one slot.
    fn slot_shapes(&self) -> [Vec<usize>; 2];
}

impl<T: Recurrence> MixerCache for T {
    fn cache_spec(&self, _format: KvFormat) -> KvCacheSpec {
        KvCacheSpec::state(self.slot_shapes().iter().map(|shape| shape.iter().product::<usize>()).sum())
    }

    fn pool_shapes(&self, slots: usize, _block_size: usize, _format: KvFormat) -> [Vec<usize>; 2] {
        self.slot_shapes().map(|shape| [vec![slots], shape].concat())
    }
}
