//! Which blocks a sequence holds.

use serde::{Deserialize, Serialize};

use super::Scheduler;
use crate::request::SequenceId;

/// The blocks that a sequence holds, over all layer groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlocks {
    /// All of them.
    pub blocks: usize,
    /// How many of them other sequences hold, too.
    pub shared: usize,
}

impl Scheduler {
    /// The blocks of a sequence; none of one that is not there. Takes time in proportion to them.
    pub fn held_blocks(&self, id: SequenceId) -> HeldBlocks {
        let Some(sequence) = self.sequences.get(id) else { return HeldBlocks::default() };
        let mut held = HeldBlocks::default();
        for (group, table) in sequence.cache.tables.iter().enumerate() {
            held.blocks += table.blocks.len();
            let shared = |block: &&omnibus_kv::BlockId| self.kv_cache.ref_count(group, **block) > 1;
            held.shared += table.blocks.iter().filter(shared).count();
        }
        held
    }
}
