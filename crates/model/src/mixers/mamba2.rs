//! Mamba-2: a convolution, a recurrence whose state decays head by head, a gated norm.
//!
//! Source: arXiv 2405.21060.

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
pub use spec::Mamba2;

impl MixerSpec for Mamba2 {
    fn check(&self, broken: &mut Broken) {
        self.check_rules(broken);
    }

    fn tensors(&self, at: &mut Scope) {
        self.name_tensors(at);
    }

    fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MixerBlock>, LoadError> {
        Ok(Box::new(forward::Mamba2Block::load(self, store, path)?))
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
