//! Statistics.

use serde::{Deserialize, Serialize};

use crate::CacheMiss;

/// Blocks of a pool by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupStats {
    /// Blocks with references.
    pub used: usize,
    /// Cached blocks without references. They are evicted when no free block is left.
    pub cached: usize,
    /// Those of `cached` that a session pins. They are evicted last.
    pub pinned: usize,
    /// All blocks.
    pub total: usize,
}

/// A conversation with pinned blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// [`crate::Request::session`].
    pub session: u128,
    /// Cached leading tokens of its longest branch.
    pub tokens: usize,
    /// Blocks that are pinned for it, over all groups. Some are pinned for other sessions, too.
    pub blocks: usize,
    /// When one of its requests last arrived or was computed.
    pub last_used: crate::Tick,
}

/// Prompts with missing full blocks, by [`crate::CacheMiss`].
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

    /// The sum of two schedulers' counts.
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

    /// Each reason's name in metrics, and its count.
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

/// Statistics of the scheduler. Those named `…_total` are counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Waiting sequences.
    pub queued: usize,
    /// Sequences with blocks, including ended ones in a step in flight.
    pub running: usize,
    /// Sequences of a failed step that were in no good one since. While there are any, only they run.
    pub suspects: usize,
    /// Sessions.
    pub sessions: usize,
    /// In the order of [`crate::Settings::groups`].
    pub groups: Vec<GroupStats>,
    /// Prompt tokens that were cached when a sequence was admitted.
    pub cached_tokens_total: u64,
    /// Computed tokens, including recomputed ones.
    pub computed_tokens_total: u64,
    /// Generated tokens.
    pub sampled_tokens_total: u64,
    /// Draft tokens that were verified.
    pub draft_tokens_total: u64,
    /// Draft tokens that were accepted.
    pub accepted_draft_tokens_total: u64,
    /// Prompts with missing full blocks.
    pub misses: CacheMisses,
    /// Sequences that reused part of a block, by a copy.
    pub partial_copies_total: u64,
    /// Checkpoints of states.
    pub checkpoints_total: u64,
    /// Admitted sequences, including readmitted ones.
    pub admissions_total: u64,
    /// Preempted sequences.
    pub preemptions_total: u64,
    /// Those of them that were swapped.
    pub swap_preemptions_total: u64,
    /// Sequences handed over from prefill to decode.
    pub handoffs_total: u64,
    /// Steps that failed as a whole.
    pub failed_steps_total: u64,
}
