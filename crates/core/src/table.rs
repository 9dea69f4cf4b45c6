//! The blocks a sequence holds in one layer group.

use crate::{BlockId, GroupKind};

/// The blocks a sequence holds in one layer group, in the order of their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table<'a> {
    /// Which block of the sequence `blocks[0]` is: position `p` is in `blocks[p / block_size - first]`.
    /// Above zero when a window has moved on.
    pub first: usize,
    /// Of a state group: the one slot.
    pub blocks: &'a [BlockId],
}

/// What a sequence holds in one group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holding {
    pub(crate) first: usize,
    pub(crate) blocks: Vec<BlockId>,
}

impl Holding {
    /// The logical block after the last one held.
    pub(crate) fn end(&self) -> usize {
        self.first + self.blocks.len()
    }

    /// Held blocks that nothing reads once `next` is the first position still to compute.
    pub(crate) fn behind(&self, kind: GroupKind, block_size: usize, next: usize) -> usize {
        kind.first_block(block_size, next).saturating_sub(self.first).min(self.blocks.len())
    }
}

impl GroupKind {
    /// The first logical block that is read when `next` is the first position to compute.
    pub(crate) fn first_block(self, block_size: usize, next: usize) -> usize {
        match self {
            Self::Window { tokens } => next.saturating_sub(tokens - 1) / block_size,
            Self::Full | Self::State => 0,
        }
    }

    /// Of `blocks` leading blocks, the first that must be found to take up after them.
    pub(crate) fn first_needed(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::Full | Self::Window { .. } => self.first_block(block_size, blocks * block_size).min(blocks),
            Self::State => blocks.saturating_sub(1),
        }
    }

    /// The logical block up to which a sequence holds blocks that has taken up after `blocks` of them. Of a state it
    /// has its own copy, once it computes.
    pub(crate) fn shared_until(self, blocks: usize) -> usize {
        match self {
            Self::Full | Self::Window { .. } => blocks,
            Self::State => 0,
        }
    }

    /// The logical blocks that `end` positions reach.
    pub(crate) fn last_block(self, block_size: usize, end: usize) -> usize {
        match self {
            Self::Full | Self::Window { .. } => end.div_ceil(block_size),
            Self::State => 1,
        }
    }

    /// The positions that a reach of `blocks` logical blocks has room for.
    pub(crate) fn positions(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::Full | Self::Window { .. } => blocks * block_size,
            Self::State if blocks == 0 => 0,
            Self::State => usize::MAX,
        }
    }

    /// The longest sequence that a whole pool of `blocks` can advance to its end. The last token of a sequence is
    /// sampled and never computed.
    pub(crate) fn longest(self, block_size: usize, blocks: usize) -> usize {
        match self {
            Self::Window { tokens } if (tokens - 1).div_ceil(block_size) < blocks => usize::MAX,
            Self::Full | Self::Window { .. } | Self::State => {
                self.positions(block_size, blocks).saturating_add(1)
            }
        }
    }
}
