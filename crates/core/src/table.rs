//! The blocks a sequence holds in one layer group.

use std::ops::Range;

use crate::{BlockId, GroupKind};

/// The blocks a sequence holds in one layer group, in the order of their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table<'a> {
    /// Blocks of the sequence that are missing because a window has moved on.
    pub first: usize,
    /// Blocks before those that are missing: what a window keeps of the sequence's beginning.
    pub kept: usize,
    /// Of a state group: the one slot.
    pub blocks: &'a [BlockId],
}

impl Table<'_> {
    /// The block of logical block `at`, if it is held.
    pub fn block(&self, at: usize) -> Option<BlockId> {
        let at =
            if at < self.kept { at } else { at.checked_sub(self.first).filter(|at| *at >= self.kept)? };
        self.blocks.get(at).copied()
    }
}

/// What a sequence holds in one group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holding {
    /// Blocks that are missing behind those that the group keeps.
    pub(crate) first: usize,
    pub(crate) blocks: Vec<BlockId>,
}

impl Holding {
    /// The logical block after the last one held.
    pub(crate) fn end(&self) -> usize {
        self.first + self.blocks.len()
    }

    /// Which of `blocks` nothing reads once `next` is the first position still to compute.
    pub(crate) fn behind(&self, kind: GroupKind, block_size: usize, next: usize) -> Range<usize> {
        let kept = kind.kept_blocks(block_size).min(self.blocks.len());
        let passed = kind.passed(block_size, next).saturating_sub(self.first);
        kept..(kept + passed).min(self.blocks.len())
    }
}

impl GroupKind {
    /// Leading blocks that a window keeps.
    pub(crate) fn kept_blocks(self, block_size: usize) -> usize {
        match self {
            Self::Window { keep, .. } => keep.div_ceil(block_size),
            Self::Full | Self::Opening { .. } | Self::State => 0,
        }
    }

    /// Logical blocks behind the kept ones that nothing reads when `next` is the first position to compute.
    pub(crate) fn passed(self, block_size: usize, next: usize) -> usize {
        self.first_block(block_size, next).saturating_sub(self.kept_blocks(block_size))
    }

    /// The first logical block, the kept ones aside, that is read when `next` is the first position to compute.
    pub(crate) fn first_block(self, block_size: usize, next: usize) -> usize {
        match self {
            Self::Window { tokens, .. } => next.saturating_sub(tokens - 1) / block_size,
            Self::Opening { tokens } if next >= tokens => {
                (next / block_size).min(tokens.div_ceil(block_size))
            }
            Self::Full | Self::Opening { .. } | Self::State => 0,
        }
    }

    /// Of `blocks` leading blocks, the first that must be found to take up after them.
    pub(crate) fn first_needed(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::Opening { tokens } if blocks * block_size >= tokens => blocks,
            Self::Full | Self::Window { .. } | Self::Opening { .. } => {
                self.first_block(block_size, blocks * block_size).min(blocks)
            }
            Self::State => blocks.saturating_sub(1),
        }
    }

    /// False for a logical block that no sequence ever has.
    pub(crate) fn has_block(self, block_size: usize, at: usize) -> bool {
        match self {
            Self::Opening { tokens } => at * block_size < tokens,
            Self::Full | Self::Window { .. } | Self::State => true,
        }
    }

    /// The logical block up to which a sequence holds blocks that has taken up after `blocks` of them. Of a state it
    /// has its own copy, once it computes.
    pub(crate) fn shared_until(self, blocks: usize) -> usize {
        match self {
            Self::Full | Self::Window { .. } | Self::Opening { .. } => blocks,
            Self::State => 0,
        }
    }

    /// The logical blocks that `end` positions reach.
    pub(crate) fn last_block(self, block_size: usize, end: usize) -> usize {
        match self {
            Self::Full | Self::Window { .. } => end.div_ceil(block_size),
            Self::Opening { tokens } => end.min(tokens).div_ceil(block_size),
            Self::State => 1,
        }
    }

    /// The positions that a reach of `blocks` logical blocks has room for.
    pub(crate) fn positions(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::Opening { tokens } if blocks * block_size >= tokens => usize::MAX,
            Self::Full | Self::Window { .. } | Self::Opening { .. } => blocks * block_size,
            Self::State if blocks == 0 => 0,
            Self::State => usize::MAX,
        }
    }

    /// The longest sequence that a whole pool of `blocks` can advance to its end. The last token of a sequence is
    /// sampled and never computed.
    pub(crate) fn longest(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::Window { tokens, .. }
                if (tokens - 1).div_ceil(block_size) + self.kept_blocks(block_size) < blocks =>
            {
                usize::MAX
            }
            Self::Full | Self::Window { .. } | Self::Opening { .. } | Self::State => {
                self.positions(block_size, blocks).saturating_add(1)
            }
        }
    }
}
