//! The blocks a sequence holds in one layer group.

use crate::BlockId;

/// The blocks a sequence holds in one layer group, in the order of their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table<'a> {
    /// Which block of the sequence `blocks[0]` is: position `p` is in `blocks[p / block_size - first]`.
    /// Above zero when a window has moved on.
    pub first: usize,
    /// Of a state group: the one slot.
    pub blocks: &'a [BlockId],
}
