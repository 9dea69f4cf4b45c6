//! Counts the blocks of one layer group. The memory itself belongs to the engine.

use serde::{Deserialize, Serialize};

/// One block of a group's pool, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId(pub u32);
