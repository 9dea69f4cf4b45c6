//! The input of one forward pass: tokens of several sequences end to end.

use mlx::Array;

/// Tokens of several sequences, end to end, padded at the end to one of a few sizes, for compiled kernels.
pub struct Batch {
    /// `[T]` i32: token ids, every one below the vocabulary's size. Rows past the last segment are
    /// padding: they write to the scratch blocks, which are never read.
    pub tokens: Array,
    /// The sequences, in the order of their rows, without gaps.
    pub segments: Vec<Segment>,
    /// Rows that need logits, ascending.
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
    /// Blocks of the sequence that were freed because they are out of the window.
    pub first: usize,
    /// Blocks of the pool: those with sink tokens, if any, then those after the freed ones, through the segment's end.
    pub blocks: Vec<u32>,
}

impl Table {
    /// The flat slot of `position` in the pool; `None` out of the window or past the end. `kept`: blocks with sink
    /// tokens.
    pub fn slot(&self, position: usize, block_size: usize, kept: usize) -> Option<usize> {
        let block = position / block_size;
        let index =
            if block < kept { block } else { block.checked_sub(self.first).filter(|at| *at >= kept)? };
        Some(*self.blocks.get(index)? as usize * block_size + position % block_size)
    }
}
