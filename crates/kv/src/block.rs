//! One block of a layer group's pool.

use serde::{Deserialize, Serialize};

/// One block of a layer group's pool, as an index into it. In a group of states, a block is one state slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The index as a `usize`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
