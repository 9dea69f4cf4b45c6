//! What one forward pass is given: tokens end to end, whatever they are for.

use mlx::Array;

/// Tokens of several sequences, end to end, padded at the end to a size kernels have met before.
pub struct Batch {
    /// `[T]` i32: token ids, every one below the vocabulary's size. Rows past the last segment are
    /// padding: they write to the scratch blocks and nobody reads them.
    pub tokens: Array,
    /// Sequences' shares, in the order of their rows, without gaps.
    pub segments: Vec<Segment>,
    /// Rows whose logits are wanted, ascending.
    pub logits_at: Vec<usize>,
}

/// One sequence's consecutive rows of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its first row.
    pub first: usize,
    /// How many rows.
    pub len: usize,
    /// Tokens of the sequence before this segment, which is the position of its first row.
    pub context: usize,
    /// Length of the prompt, in tokens; rotations that depend on a sequence's length take it from here.
    pub prompt: usize,
    /// The blocks it reads and writes, one table for each state group.
    pub tables: Vec<Table>,
}

impl Segment {
    /// Position after its last row.
    pub fn end(&self) -> usize {
        self.context + self.len
    }
}

/// A sequence's blocks in one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// How many blocks of the sequence are missing because they are behind the window.
    pub first: usize,
    /// Blocks of the pool: those that the window keeps of the sequence's beginning, if any, then those after the
    /// missing ones, through the segment's end.
    pub blocks: Vec<u32>,
}

impl Table {
    /// Where the pool keeps `position`, as a flat slot; `None` behind the window or past the end.
    ///
    /// `kept`: blocks that the window keeps of the beginning.
    pub fn slot(&self, position: usize, block_size: usize, kept: usize) -> Option<usize> {
        let block = position / block_size;
        let index =
            if block < kept { block } else { block.checked_sub(self.first).filter(|at| *at >= kept)? };
        Some(*self.blocks.get(index)? as usize * block_size + position % block_size)
    }
}
