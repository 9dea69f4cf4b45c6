//! Rows that a layer caches, one for each position, for what no kernel reads: keys of an indexer, compressed keys.

use omnibus_kv::{CacheKind, KvCacheSpec, KvFormat};

use super::MixerCache;

/// One row for each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCache {
    /// Width of a row; at least 2.
    pub width: usize,
    /// Which positions are kept. Rows share the blocks of the layer's other cache of this kind.
    pub kind: CacheKind,
}

impl RowCache {
    /// A pool has two arrays: a row's halves.
    pub(super) fn halves(self) -> [usize; 2] {
        [self.width - self.width / 2, self.width / 2]
    }
}

impl MixerCache for RowCache {
    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec {
        KvCacheSpec { kind: self.kind, format, elements: self.width }
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
