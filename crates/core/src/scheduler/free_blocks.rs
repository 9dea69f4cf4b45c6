//! The free blocks that are left once a plan in the making is applied.

use std::collections::BTreeMap;

use omnibus_kv::{BlockId, BlockTable, CacheKind};

use crate::kv_cache::{KvCacheManager, PartialBlock};
use crate::prefix::BlockHash;

/// Counts of blocks as the plan so far will leave them.
#[derive(Debug, Clone)]
pub(super) struct FreeBlocks<'a> {
    kv_cache: &'a KvCacheManager,
    /// Blocks of each group without references. Negative when a cache hit needs more, until sequences are preempted.
    available: Vec<i64>,
    /// References that the plan adds to a block, or removes.
    changes: BTreeMap<(usize, BlockId), i64>,
}

impl<'a> FreeBlocks<'a> {
    /// For an empty plan.
    pub(super) fn new(kv_cache: &'a KvCacheManager) -> Self {
        let available = kv_cache.groups().map(|(_, pool)| pool.available() as i64).collect();
        Self { kv_cache, available, changes: BTreeMap::new() }
    }

    /// True when some group has nothing left.
    pub(super) fn is_full(&self) -> bool {
        self.available.iter().any(|available| *available <= 0)
    }

    /// For each group, the position up to which a sequence can compute that holds blocks up to the logical block
    /// in `held`.
    pub(super) fn reaches(
        &self,
        held: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = (CacheKind, usize)> {
        self.kv_cache.groups().zip(held).zip(&self.available).map(|(((kind, _), held), available)| {
            let more = usize::try_from(*available);
            (kind, more.map_or(0, |more| kind.tokens_in(self.kv_cache.block_size(), held + more)))
        })
    }

    /// Adds blocks that will be available when the step in flight is done.
    pub(super) fn add(&mut self, coming: &[usize]) {
        self.available.iter_mut().zip(coming).for_each(|(available, coming)| *available += *coming as i64);
    }

    /// Allocates the blocks that positions up to `end` lack, and a state slot for each sample.
    pub(super) fn take(&mut self, held: impl Iterator<Item = usize>, end: usize, samples: usize) {
        for ((available, (kind, _)), held) in self.available.iter_mut().zip(self.kv_cache.groups()).zip(held)
        {
            let blocks = kind.blocks_for(self.kv_cache.block_size(), end);
            let blocks = if kind.is_state() { blocks.max(samples) } else { blocks };
            let missing = blocks.saturating_sub(held) as i64;
            assert!(missing <= *available, "blocks are counted before they are allocated");
            *available -= missing;
        }
    }

    /// Takes the blocks that positions up to `end` lack, as far as there are any.
    pub(super) fn reserve(&mut self, held: impl Iterator<Item = usize>, end: usize) {
        for ((available, (kind, _)), held) in self.available.iter_mut().zip(self.kv_cache.groups()).zip(held)
        {
            let missing = kind.blocks_for(self.kv_cache.block_size(), end).saturating_sub(held) as i64;
            *available -= missing.min((*available).max(0));
        }
    }

    /// State slots for draft tokens: those without references, of the group with the fewest.
    pub(super) fn free_state_slots(&self) -> usize {
        let groups = self.kv_cache.groups().zip(&self.available).filter(|((kind, _), _)| kind.is_state());
        groups.map(|(_, available)| usize::try_from(*available).unwrap_or(0)).min().unwrap_or(usize::MAX)
    }

    /// True when a sequence with this cache hit has a slot for its own state beside the one it copies.
    pub(super) fn can_checkpoint(&self, hashes: &[BlockHash]) -> bool {
        let start = hashes.len() * self.kv_cache.block_size();
        let blocks = self.kv_cache.prefix_blocks(hashes, start);
        let mut states = blocks.filter(|(group, _)| self.kv_cache.is_state(*group));
        states.all(|(group, slot)| self.available[group] > i64::from(self.ref_count(group, slot) == 0))
    }

    /// References the blocks of a cache hit.
    pub(super) fn attach_prefix(&mut self, hashes: &[BlockHash], start: usize) {
        for (group, block) in self.kv_cache.prefix_blocks(hashes, start) {
            self.hold(group, block);
        }
    }

    /// References the block of a partial cache hit.
    pub(super) fn acquire(&mut self, partial: &PartialBlock) {
        for (group, block) in self.kv_cache.with_hash(partial.hash) {
            self.hold(group, block);
        }
    }

    fn hold(&mut self, group: usize, block: BlockId) {
        if self.ref_count(group, block) == 0 {
            self.available[group] -= 1;
        }
        *self.changes.entry((group, block)).or_default() += 1;
    }

    /// Releases all blocks of a sequence.
    pub(super) fn release(&mut self, tables: &[BlockTable]) {
        for (group, table) in tables.iter().enumerate() {
            for &block in &table.blocks {
                *self.changes.entry((group, block)).or_default() -= 1;
                if self.ref_count(group, block) == 0 {
                    self.available[group] += 1;
                }
            }
        }
    }

    /// How many of these blocks would be free if their sequence released them.
    pub(super) fn releasable(&self, group: usize, blocks: &[BlockId]) -> usize {
        blocks.iter().filter(|&&block| self.ref_count(group, block) == 1).count()
    }

    fn ref_count(&self, group: usize, block: BlockId) -> i64 {
        i64::from(self.kv_cache.ref_count(group, block))
            + self.changes.get(&(group, block)).copied().unwrap_or(0)
    }
}
