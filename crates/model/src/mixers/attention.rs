//! Softmax attention over grouped heads, with keys and values in blocks.

mod cache;
mod footprint;
mod forward;
mod spec;
mod tensors;

use mlx::Array;
use omnibus_kv::{KvCacheSpec, KvFormat};

use super::{MixerBlock, MixerSpec};
use crate::manifest::Scope;
use crate::validate::Broken;
use crate::weights::Store;
use crate::{LoadError, Position};
pub use spec::{Attention, AttentionSpan, QkNorm};

impl MixerSpec for Attention {
    fn check(&self, broken: &mut Broken) {
        self.check_rules(broken);
    }

    fn tensors(&self, at: &mut Scope) {
        self.name_tensors(at);
    }

    fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MixerBlock>, LoadError> {
        Ok(Box::new(forward::AttentionBlock::load(self, store, path)?))
    }

    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec {
        cache::spec(self, format)
    }

    fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2] {
        cache::pool_shapes(self, blocks, block_size, format)
    }

    fn shares_prefixes(&self) -> bool {
        !matches!(&self.position, Position::Rope(rope) if rope.depends_on_length())
    }

    fn kv_head_dim(&self) -> Option<usize> {
        Some(self.head_dim)
    }

    fn row_elements(&self) -> usize {
        footprint::row_elements(self)
    }
}

/// Queries, keys and values of a projection, apart.
fn split_qkv(spec: &Attention, qkv: &Array) -> mlx::Result<Vec<Array>> {
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    qkv.split(&[q as i32, (q + kv) as i32], -1)
}
