//! Mixers: how positions of a sequence exchange information. A mixer is a folder: its spec and rules, its tensors, what it
//! caches, its scratch memory, and its forward pass.
//!
//! To add one: a folder, a variant of [`Mixer`], a row in [`Mixer::spec`].

mod attention;
mod gated_delta;
mod mamba2;

use mlx::Array;
use omnibus_kv::{KvCacheSpec, KvFormat};

use crate::LoadError;
use crate::manifest::Scope;
use crate::ops::LayerContext;
use crate::validate::Broken;
use crate::weights::Store;
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
    /// The only place that matches on the kinds.
    pub(crate) fn spec(&self) -> &dyn MixerSpec {
        match self {
            Self::Attention(spec) => spec,
            Self::Mamba2(spec) => spec,
            Self::GatedDelta(spec) => spec,
        }
    }
}

/// What one kind of mixer says of itself.
pub(crate) trait MixerSpec {
    /// Checks its rules.
    fn check(&self, broken: &mut Broken);

    /// Names its tensors.
    fn tensors(&self, at: &mut Scope);

    /// Takes its tensors, below `path`.
    fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MixerBlock>, LoadError>;

    /// What one layer caches, keys and values in `format`.
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

    /// Elements of a row's intermediate results: the projections, and the input of the output projection.
    fn row_elements(&self) -> usize;
}

/// One layer's mixer with its weights.
pub(crate) trait MixerBlock {
    /// `[T, hidden]` → `[T, hidden]`. Keys and values, or states, are written to the layer's cache.
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array>;

    fn arrays(&self) -> Vec<&Array>;

    /// Changes which earlier positions a query attends to.
    fn set_span(&mut self, _span: AttentionSpan) {}
}

/// Shapes of a pool of state slots.
fn slot_pool_shapes(slots: usize, shapes: [Vec<usize>; 2]) -> [Vec<usize>; 2] {
    shapes.map(|shape| [vec![slots], shape].concat())
}

/// The spec of one layer's state slots.
fn slot_spec(shapes: [Vec<usize>; 2]) -> KvCacheSpec {
    KvCacheSpec::state(shapes.iter().map(|shape| shape.iter().product::<usize>()).sum())
}
