//! Numbers for people and for `/metrics`.

use serde::{Deserialize, Serialize};

/// How full a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupStats {
    /// Blocks some sequence holds.
    pub used: usize,
    /// Blocks no sequence holds that can still be found by their content. They are handed out when the rest is
    /// used up.
    pub cached: usize,
    /// Blocks there are.
    pub total: usize,
}

/// A look at the scheduler. Those named `…_total` only ever grow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Sequences that hold nothing and wait.
    pub queued: usize,
    /// Sequences that hold blocks, those included that have ended and are still in a step in flight.
    pub running: usize,
    /// Sequences of a failed step that were in no good one since. While there are any, only they are computed.
    pub suspects: usize,
    /// In the order of [`crate::Settings::groups`].
    pub groups: Vec<GroupStats>,
    /// Tokens found in the prefix index when a sequence was admitted.
    pub cached_tokens_total: u64,
    /// Tokens computed, those computed again included.
    pub computed_tokens_total: u64,
    /// Tokens told to clients.
    pub sampled_tokens_total: u64,
    /// Sequences that began in the middle of a block, whose beginning was copied.
    pub partial_copies_total: u64,
    /// Copies of states that were made findable.
    pub checkpoints_total: u64,
    /// Sequences admitted, those admitted again included.
    pub admissions_total: u64,
    /// Sequences sent back to wait because an older one needed their blocks.
    pub preemptions_total: u64,
    /// Steps that failed as a whole.
    pub failed_steps_total: u64,
}
