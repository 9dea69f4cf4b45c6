//! What a latent attention layer caches.

use omnibus_kv::{CacheKind, KvCacheSpec, KvFormat};

use super::{KeyReads, LatentAttention};
use crate::mixers::MixerCache;
use crate::rope::Position;

impl MixerCache for LatentAttention {
    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec {
        KvCacheSpec { kind: CacheKind::Latent, format, elements: self.latent_dim + self.rope_dim }
    }

    /// Latents and rotated keys, `[blocks, block_size, 1, stored width]` each.
    fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2] {
        [self.latent_dim, self.rope_dim].map(|dim| vec![blocks, block_size, 1, format.width(dim)])
    }

    fn beside(&self) -> Option<&dyn MixerCache> {
        self.indexer().map(|indexer| &indexer.keys as &dyn MixerCache)
    }

    fn shares_prefixes(&self) -> bool {
        !matches!(&self.position, Position::Rope(rope) if rope.depends_on_length())
    }

    fn has_kernel(&self) -> bool {
        self.reads == KeyReads::All
    }

    fn kv_head_dims(&self) -> Vec<usize> {
        vec![self.latent_dim, self.rope_dim]
    }
}
