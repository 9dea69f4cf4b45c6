//! Gated DeltaNet: a convolution, a recurrence that overwrites what its key stored, a norm, a gate.
//!
//! Source: arXiv 2412.06464 §3.

mod cache;
mod footprint;
mod forward;
mod spec;
mod tensors;

use omnibus_kv::{KvCacheSpec, KvFormat};

use super::{MixerBlock, MixerSpec, slot_pool_shapes, slot_spec};
use crate::LoadError;
use crate::manifest::Scope;
use crate::validate::Broken;
use crate::weights::Store;
pub use spec::GatedDelta;

impl MixerSpec for GatedDelta {
    fn check(&self, broken: &mut Broken) {
        self.check_rules(broken);
    }

    fn tensors(&self, at: &mut Scope) {
        self.name_tensors(at);
    }

    fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MixerBlock>, LoadError> {
        Ok(Box::new(forward::GatedDeltaBlock::load(self, store, path)?))
    }

    fn cache_spec(&self, _format: KvFormat) -> KvCacheSpec {
        slot_spec(cache::slot_shapes(self))
    }

    fn pool_shapes(&self, blocks: usize, _block_size: usize, _format: KvFormat) -> [Vec<usize>; 2] {
        slot_pool_shapes(blocks, cache::slot_shapes(self))
    }

    fn row_elements(&self) -> usize {
        footprint::row_elements(self)
    }
}
