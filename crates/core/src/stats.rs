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
    pub span: u64,
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
            CacheMiss::Span => &mut self.span,
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
            span: self.span + other.span,
            evicted: self.evicted + other.evicted,
            history_changed: self.history_changed + other.history_changed,
            salt: self.salt + other.salt,
            cold: self.cold + other.cold,
        }
    }

    /// Each reason's name in metrics, and its count.
    pub fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("state", self.state),
            ("window", self.window),
            ("span", self.span),
            ("evicted", self.evicted),
            ("history_changed", self.history_changed),
            ("salt", self.salt),
            ("cold", self.cold),
        ]
    }
}

/// Statistics of the scheduler. Those named `…_total` are counters. Serialized under the names that the server's clients
/// know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Waiting sequences.
    pub queued: usize,
    /// Sequences with blocks, including ended ones in a step in flight.
    pub running: usize,
    /// Sequences of a failed step that were in no good one since. While there are any, only they run.
    pub suspects: usize,
    /// Sessions.
    #[serde(rename = "sessions_kept")]
    pub sessions: usize,
    /// In the order of [`crate::Settings::groups`].
    pub groups: Vec<GroupStats>,
    /// Prompt tokens that were cached when a sequence was admitted.
    pub cached_tokens_total: u64,
    /// Computed tokens, including recomputed ones.
    pub computed_tokens_total: u64,
    /// Generated tokens.
    #[serde(rename = "generated_tokens_total")]
    pub sampled_tokens_total: u64,
    /// Draft tokens that were verified.
    pub draft_tokens_total: u64,
    /// Draft tokens that were accepted.
    pub accepted_draft_tokens_total: u64,
    /// Generated tokens that were not sampled, because a grammar allows no other.
    pub forced_tokens_total: u64,
    /// Prompts with missing full blocks.
    #[serde(rename = "prefix_misses")]
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
    /// Sequences that changed from prefill to decode.
    #[serde(rename = "handovers_total")]
    pub handoffs_total: u64,
    /// Steps that failed as a whole.
    pub failed_steps_total: u64,
}

impl Stats {
    /// The blocks of all groups, added up.
    pub fn blocks(&self) -> GroupStats {
        self.groups.iter().fold(GroupStats::default(), |sum, group| GroupStats {
            used: sum.used + group.used,
            cached: sum.cached + group.cached,
            pinned: sum.pinned + group.pinned,
            total: sum.total + group.total,
        })
    }

    /// These statistics with an earlier scheduler's counters added.
    #[must_use]
    pub fn plus_totals(&self, before: &Self) -> Self {
        Self {
            cached_tokens_total: self.cached_tokens_total + before.cached_tokens_total,
            computed_tokens_total: self.computed_tokens_total + before.computed_tokens_total,
            sampled_tokens_total: self.sampled_tokens_total + before.sampled_tokens_total,
            draft_tokens_total: self.draft_tokens_total + before.draft_tokens_total,
            accepted_draft_tokens_total: self.accepted_draft_tokens_total
                + before.accepted_draft_tokens_total,
            forced_tokens_total: self.forced_tokens_total + before.forced_tokens_total,
            misses: self.misses.plus(before.misses),
            partial_copies_total: self.partial_copies_total + before.partial_copies_total,
            checkpoints_total: self.checkpoints_total + before.checkpoints_total,
            admissions_total: self.admissions_total + before.admissions_total,
            preemptions_total: self.preemptions_total + before.preemptions_total,
            swap_preemptions_total: self.swap_preemptions_total + before.swap_preemptions_total,
            handoffs_total: self.handoffs_total + before.handoffs_total,
            failed_steps_total: self.failed_steps_total + before.failed_steps_total,
            ..self.clone()
        }
    }

    /// The state of a scheduler that has lost its blocks: sequences and the size of its pools.
    #[must_use]
    pub fn without_blocks(&self) -> Self {
        let groups =
            self.groups.iter().map(|group| GroupStats { total: group.total, ..GroupStats::default() });
        Self { queued: self.queued, running: self.running, groups: groups.collect(), ..Self::default() }
    }
}
