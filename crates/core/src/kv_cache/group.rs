//! The cache of one layer group: its pool, and what its kind means for the blocks of a sequence.
//!
//! Invariant: a group knows nothing of the others. What depends on all of them, the coordinator decides
//! ([`super::KvCacheManager`]).

use std::ops::Range;

use omnibus_kv::{BlockId, BlockTable, CacheKind, RequiredBlocks};

use crate::block_pool::BlockPool;
use crate::prefix::BlockHash;

/// The search for a cache hit in one group, block by block.
#[derive(Debug, Clone, Copy)]
pub(super) struct HitRun {
    /// Blocks that were found in a row, up to the last.
    found: usize,
    /// Whether all blocks of sink tokens so far were found.
    has_sinks: bool,
}

impl Default for HitRun {
    fn default() -> Self {
        Self { found: 0, has_sinks: true }
    }
}

/// What a group says of a hit that ends with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HitState {
    /// It has all blocks that the hit needs.
    Usable,
    /// It lacks some, and a longer hit may not need them.
    NotHere,
    /// It lacks some, which every longer hit needs.
    Over,
}

/// The cache of one layer group.
#[derive(Debug, Clone)]
pub(crate) struct GroupCache {
    pub(super) kind: CacheKind,
    block_size: usize,
    pub(super) pool: BlockPool,
}

impl GroupCache {
    /// `blocks` free blocks.
    pub(super) fn new(kind: CacheKind, block_size: usize, blocks: u32) -> Self {
        Self { kind, block_size, pool: BlockPool::new(blocks) }
    }

    /// Frees and evicts everything.
    pub(super) fn reset(&mut self) {
        self.pool = BlockPool::new(self.pool.total() as u32);
    }

    /// The longest sequence that can run alone.
    pub(super) fn max_sequence_tokens(&self) -> usize {
        self.kind.max_sequence_tokens(self.block_size, self.pool.total())
    }

    /// Goes on to logical block `at`. Whether a hit may end there.
    pub(super) fn extend_hit(&self, run: &mut HitRun, at: usize, is_found: bool) -> HitState {
        let blocks = at + 1;
        run.found = if is_found { run.found + 1 } else { 0 };
        if self.kind.is_full() && run.found < blocks {
            return HitState::Over;
        }
        run.has_sinks &= run.found == blocks || at >= self.kind.sink_blocks(self.block_size);
        let needed = blocks - self.kind.first_required_block(self.block_size, blocks);
        if run.has_sinks && run.found >= needed { HitState::Usable } else { HitState::NotHere }
    }

    /// The logical blocks that a hit of `blocks` blocks needs, for a sequence that resumes at `start`.
    pub(super) fn required(&self, blocks: usize, start: usize) -> RequiredBlocks {
        self.kind.required_blocks(self.block_size, blocks, start)
    }

    /// Takes references to the blocks of these hashes for a sequence that resumes at `start`, and puts them into its table.
    /// A state does not go there: its slot comes back, to be copied and released.
    pub(super) fn attach(
        &mut self,
        table: &mut BlockTable,
        hashes: &[BlockHash],
        start: usize,
    ) -> Option<BlockId> {
        let required = self.required(hashes.len(), start);
        let count = required.clone().count();
        let found: Vec<BlockId> = required.filter_map(|at| self.pool.find(&hashes[at])).collect();
        assert_eq!(found.len(), count, "the cache hit is still cached");
        found.iter().for_each(|&block| self.pool.incref(block));
        if self.kind.is_state() {
            return found.first().copied();
        }
        let end = self.kind.blocks_for(self.block_size, hashes.len() * self.block_size);
        (table.freed_blocks, table.blocks) = (end - count, found);
        None
    }

    /// Allocates the blocks that these positions lack, and a state slot for each sample. Never moves a held block.
    pub(super) fn allocate(
        &mut self,
        table: &mut BlockTable,
        positions: &Range<usize>,
        samples: usize,
        mut evicted: impl FnMut(BlockHash),
    ) {
        let end = self.kind.blocks_for(self.block_size, positions.end);
        let end = if self.kind.is_state() { end.max(samples) } else { end };
        while table.end() < end {
            let (block, hash) = self.pool.allocate();
            hash.into_iter().for_each(&mut evicted);
            table.blocks.push(block);
        }
        if !self.kind.is_state() {
            let first = (positions.start / self.block_size).min(end);
            let written = first - table.freed_blocks..end - table.freed_blocks;
            let exclusive = table.blocks[written].iter().all(|&block| self.pool.is_exclusive(block));
            assert!(exclusive, "a shared or cached block is never written");
        }
    }

    /// Caches the logical `blocks`, all of them full. Which of them the group has.
    pub(super) fn cache_blocks(
        &mut self,
        table: &BlockTable,
        hashes: &[BlockHash],
        blocks: Range<usize>,
    ) -> Range<usize> {
        if self.kind.is_state() {
            return blocks.start..blocks.start;
        }
        // Blocks of a window were cached before the window moved on.
        let sinks = self.kind.sink_blocks(self.block_size);
        let freed = if table.freed_blocks > 0 { table.freed_blocks + sinks } else { 0 };
        let start = blocks.start.max(freed).min(blocks.end);
        let has = |at: &usize| self.kind.has_block(self.block_size, *at);
        let end = start + (start..blocks.end).take_while(has).count();
        for (at, hash) in (start..end).zip(&hashes[start..end]) {
            self.pool.cache_block(table.blocks[at - table.freed_blocks], *hash);
        }
        start..end
    }

    /// True if a table has the logical block, or no sequence has it in this group.
    pub(super) fn holds(&self, table: &BlockTable, at: usize) -> bool {
        !self.has_block(at) || (table.freed_blocks..table.end()).contains(&at)
    }

    /// False for a logical block that no sequence has in this group.
    pub(super) fn has_block(&self, at: usize) -> bool {
        self.kind.has_block(self.block_size, at)
    }

    /// Releases the blocks after the first `tokens` positions, and all state slots but the one that holds the state after
    /// the last accepted of several samples.
    pub(super) fn truncate(&mut self, table: &mut BlockTable, tokens: usize, accepted: usize) {
        if self.kind.is_state() {
            table.blocks.swap(0, accepted - 1);
            table.blocks.drain(1..).rev().for_each(|slot| self.pool.decref(slot));
        } else {
            let pool = &mut self.pool;
            table.truncate(self.kind, self.block_size, tokens).for_each(|block| pool.decref(block));
        }
    }

    /// Releases blocks out of the window once `next` is the first position still to compute.
    pub(super) fn free_out_of_window(&mut self, table: &mut BlockTable, next: usize) {
        let pool = &mut self.pool;
        table.free_out_of_window(self.kind, self.block_size, next).for_each(|block| pool.decref(block));
    }

    /// Releases all blocks of a table, last first: the end of a sequence is evicted before its beginning, which more may
    /// share.
    pub(super) fn release(&mut self, table: &mut BlockTable) {
        table.clear().for_each(|block| self.pool.decref(block));
    }
}
