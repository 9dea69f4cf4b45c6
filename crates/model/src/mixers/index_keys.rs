//! Keys by which an indexer chooses what attention reads: what a layer caches beside its keys and values.

use omnibus_kv::{CacheKind, KvCacheSpec, KvFormat};

use super::MixerCache;

/// One key for each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexKeys {
    /// Width of a key; at least 2.
    pub width: usize,
    /// Of the layer's other cache, whose blocks these share.
    pub latent: bool,
}

impl IndexKeys {
    /// A pool has two arrays: a key's halves.
    pub(super) fn halves(self) -> [usize; 2] {
        [self.width - self.width / 2, self.width / 2]
    }
}

impl MixerCache for IndexKeys {
    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec {
        let kind = if self.latent { CacheKind::Latent } else { CacheKind::Full };
        KvCacheSpec { kind, format, elements: self.width }
    }

    fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2] {
        self.halves().map(|width| vec![blocks, block_size, 1, format.width(width)])
    }

    fn has_kernel(&self) -> bool {
        false
    }

    fn kv_head_dims(&self) -> Vec<usize> {
        self.halves().into()
    }
}
