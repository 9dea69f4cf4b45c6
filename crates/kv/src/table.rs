//! The blocks a sequence holds in one layer group.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::block::BlockId;
use crate::kind::CacheKind;

/// The blocks a sequence holds in one layer group, in the order of its positions: sink blocks, then those in the
/// window. Of a group of states, the one slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockTable {
    /// Logical blocks, right after the sink blocks, that were freed because the window has passed them.
    pub freed_blocks: usize,
    /// Leading blocks that are never freed: attention sinks.
    pub sink_blocks: usize,
    /// The blocks that are held.
    pub blocks: Vec<BlockId>,
}

impl BlockTable {
    /// A table without blocks, for a group of this kind.
    pub fn new(kind: CacheKind, block_size: usize) -> Self {
        Self { freed_blocks: 0, sink_blocks: kind.sink_blocks(block_size), blocks: Vec::new() }
    }

    /// The logical block after the last one held.
    pub fn end(&self) -> usize {
        self.freed_blocks + self.blocks.len()
    }

    /// Index into [`Self::blocks`] of logical block `at`, if it is held.
    pub fn index_of(&self, at: usize) -> Option<usize> {
        let index = match at {
            sink if sink < self.sink_blocks => sink,
            _ => at.checked_sub(self.freed_blocks).filter(|index| *index >= self.sink_blocks)?,
        };
        (index < self.blocks.len()).then_some(index)
    }

    /// The block of logical block `at`, if it is held.
    pub fn block(&self, at: usize) -> Option<BlockId> {
        self.blocks.get(self.index_of(at)?).copied()
    }

    /// Where the pool keeps `position`, as a flat index over blocks of `block_size` positions. `None` out of the window
    /// or past the end.
    pub fn slot(&self, position: usize, block_size: usize) -> Option<usize> {
        let block = self.block(position / block_size)?;
        Some(block.index() * block_size + position % block_size)
    }

    /// Indices into [`Self::blocks`] of those that no position from `next` on sees.
    pub fn out_of_window(&self, kind: CacheKind, block_size: usize, next: usize) -> Range<usize> {
        let sinks = self.sink_blocks.min(self.blocks.len());
        let passed = kind.out_of_window_blocks(block_size, next).saturating_sub(self.freed_blocks);
        sinks..(sinks + passed).min(self.blocks.len())
    }

    /// Removes the blocks that no position from `next` on sees.
    pub fn free_out_of_window(
        &mut self,
        kind: CacheKind,
        block_size: usize,
        next: usize,
    ) -> impl Iterator<Item = BlockId> + use<'_> {
        let passed = self.out_of_window(kind, block_size, next);
        self.freed_blocks += passed.len();
        self.blocks.drain(passed)
    }

    /// Removes the blocks after the first `tokens` positions, last first.
    pub fn truncate(
        &mut self,
        kind: CacheKind,
        block_size: usize,
        tokens: usize,
    ) -> impl Iterator<Item = BlockId> + use<'_> {
        let held = kind.blocks_for(block_size, tokens).saturating_sub(self.freed_blocks);
        self.blocks.drain(held.min(self.blocks.len())..).rev()
    }

    /// Removes all blocks, last first.
    pub fn clear(&mut self) -> impl Iterator<Item = BlockId> + use<'_> {
        self.freed_blocks = 0;
        self.blocks.drain(..).rev()
    }
}
