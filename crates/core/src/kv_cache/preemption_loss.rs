//! What a sequence may lose by preemption.

use std::ops::Range;

use omnibus_kv::{BlockId, BlockTable, CacheKind};

use super::KvCacheManager;
use super::group::GroupCache;
use crate::CachedBlock;
use crate::prefix::BlockHash;

/// What a sequence may lose by preemption.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreemptionLoss {
    /// Positions that would have to be computed again.
    pub(crate) positions: Range<usize>,
    /// The blocks that a cache hit of these positions needs and that only this sequence holds.
    pub(crate) blocks: Vec<CachedBlock>,
}

impl KvCacheManager {
    /// What a sequence may lose whose cached blocks have these hashes.
    pub(crate) fn preemption_loss(&self, keys: &[BlockHash]) -> PreemptionLoss {
        let keys = &keys[..self.longest_cache_hit(keys, keys.len())];
        let mut preemption_loss = PreemptionLoss { positions: 0..0, blocks: Vec::new() };
        // Behind the loss of a state or of a window, everything is lost.
        let mut first = keys.len();
        for (group, range) in self.needed(keys, keys.len() * self.block_size) {
            let GroupCache { kind, pool, .. } = &self.groups[group];
            for at in range {
                let Some(block) = pool.find(&keys[at]).filter(|block| pool.ref_count(*block) <= 1) else {
                    continue;
                };
                preemption_loss.blocks.push(CachedBlock { group, block, hash: keys[at].0 });
                let is_beginning = kind.is_full() || matches!(kind, CacheKind::UnquantizedPrefix { .. });
                first = if is_beginning { first.min(at) } else { 0 };
            }
        }
        preemption_loss.positions = first * self.block_size..keys.len() * self.block_size;
        preemption_loss
    }

    /// Caches the states of a sequence that is about to be preempted. All blocks of these hashes are cached, and no
    /// position after them is computed.
    pub(crate) fn cache_states(&mut self, tables: &[BlockTable], keys: &[BlockHash]) {
        let Some(key) = keys.last().filter(|_| self.shares) else { return };
        for (table, group) in tables.iter().zip(&mut self.groups) {
            if let (CacheKind::State, Some(slot)) = (group.kind, table.blocks.first()) {
                group.pool.cache_block(*slot, *key);
            }
        }
    }

    /// True for a block that was not offered for offloading yet.
    pub(crate) fn is_newly_cached(&self, block: &CachedBlock) -> bool {
        self.groups.get(block.group).is_some_and(|group| group.pool.is_newly_cached(block.block))
    }

    /// These blocks are offloaded.
    pub(crate) fn name(&mut self, blocks: &[CachedBlock]) {
        blocks.iter().for_each(|block| self.groups[block.group].pool.mark_offloaded(block.block));
    }

    /// True while the block is cached in this place.
    pub(crate) fn is_cached_at(&self, block: &CachedBlock) -> bool {
        let found: Option<BlockId> =
            self.groups.get(block.group).and_then(|group| group.pool.find(&BlockHash(block.hash)));
        found == Some(block.block)
    }
}
