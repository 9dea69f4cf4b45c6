//! Numbers for people and for `/metrics`.

use serde::{Deserialize, Serialize};

use crate::CacheMiss;

/// How full a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupStats {
    /// Blocks some sequence holds.
    pub used: usize,
    /// Blocks no sequence holds that can still be found by their content. They are handed out when the rest is
    /// used up.
    pub cached: usize,
    /// Those of `cached` that some session wants kept. They are handed out last.
    pub pinned: usize,
    /// Blocks there are.
    pub total: usize,
}

/// A conversation whose blocks are kept between its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// [`crate::Request::session`].
    pub session: u64,
    /// Leading tokens that its longest continuation would find.
    pub tokens: usize,
    /// Blocks that are kept for it, over all groups. Some are kept for others, too.
    pub blocks: usize,
    /// When one of its requests last came or was computed.
    pub last_used: crate::Tick,
}

/// Prompts that were not found as far as they could have been, by [`crate::CacheMiss`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CacheMisses {
    pub state: u64,
    pub window: u64,
    pub evicted: u64,
    pub history_changed: u64,
    pub salt: u64,
    pub cold: u64,
}

impl CacheMisses {
    pub(crate) fn count(&mut self, miss: CacheMiss) {
        let count = match miss {
            CacheMiss::State => &mut self.state,
            CacheMiss::Window => &mut self.window,
            CacheMiss::Evicted => &mut self.evicted,
            CacheMiss::HistoryChanged { .. } => &mut self.history_changed,
            CacheMiss::Salt => &mut self.salt,
            CacheMiss::Cold => &mut self.cold,
        };
        *count += 1;
    }

    /// Those of two schedulers.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            state: self.state + other.state,
            window: self.window + other.window,
            evicted: self.evicted + other.evicted,
            history_changed: self.history_changed + other.history_changed,
            salt: self.salt + other.salt,
            cold: self.cold + other.cold,
        }
    }

    /// Each reason's name, as metrics spell it, and how often it was the reason.
    pub fn by_reason(&self) -> [(&'static str, u64); 6] {
        [
            ("state", self.state),
            ("window", self.window),
            ("evicted", self.evicted),
            ("history_changed", self.history_changed),
            ("salt", self.salt),
            ("cold", self.cold),
        ]
    }
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
    /// Conversations whose blocks are kept.
    pub sessions: usize,
    /// In the order of [`crate::Settings::groups`].
    pub groups: Vec<GroupStats>,
    /// Tokens found in the prefix index when a sequence was admitted.
    pub cached_tokens_total: u64,
    /// Tokens computed, those computed again included.
    pub computed_tokens_total: u64,
    /// Tokens told to clients.
    pub sampled_tokens_total: u64,
    /// Draft tokens that were verified.
    pub draft_tokens_total: u64,
    /// Draft tokens that were accepted.
    pub accepted_draft_tokens_total: u64,
    /// Prompts that were not found as far as they could have been.
    pub misses: CacheMisses,
    /// Sequences that began in the middle of a block, whose beginning was copied.
    pub partial_copies_total: u64,
    /// Copies of states that were made findable.
    pub checkpoints_total: u64,
    /// Sequences admitted, those admitted again included.
    pub admissions_total: u64,
    /// Sequences sent back to wait because an older one needed their blocks.
    pub preemptions_total: u64,
    /// Of those, sequences whose blocks were to be copied out.
    pub swap_preemptions_total: u64,
    /// Sequences that changed from the pool that reads prompts to the one that is answered.
    pub handoffs_total: u64,
    /// Steps that failed as a whole.
    pub failed_steps_total: u64,
}
