//! Statistics of the scheduler, and the table of its metrics.

use serde::{Deserialize, Serialize};

use crate::drafting::DRAFT_POSITIONS;
use crate::plan::CacheMiss;
use crate::statistic::Total::Count;
use crate::statistic::{Statistic, add_totals};

/// Blocks of a pool by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupStats {
    /// Blocks with references.
    pub used: usize,
    /// Cached blocks without references. They are evicted when no free block is left.
    pub cached: usize,
    /// Blocks among `cached` that a session pins. They are evicted last.
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
    pub last_used: crate::request::Tick,
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

/// Draft tokens of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DraftPosition {
    /// Verified, in steps that did not fail.
    pub verified: u64,
    /// Accepted, with all before them.
    pub accepted: u64,
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
    pub generated_tokens_total: u64,
    /// Drafts that were verified: one or more tokens of a sequence in a step.
    pub drafts_total: u64,
    /// Draft tokens that were verified.
    pub draft_tokens_total: u64,
    /// Draft tokens that were accepted.
    pub accepted_draft_tokens_total: u64,
    /// Draft tokens by their position in their draft; the last one counts all later ones, too.
    pub draft_positions: [DraftPosition; DRAFT_POSITIONS],
    /// Generated tokens that were not sampled, because a grammar allows no other.
    pub forced_tokens_total: u64,
    /// Prompts with missing full blocks.
    pub prefix_misses: CacheMisses,
    /// Sequences that reused part of a block, by a copy.
    pub partial_copies_total: u64,
    /// Checkpoints of states.
    pub checkpoints_total: u64,
    /// Admitted sequences, including readmitted ones.
    pub admissions_total: u64,
    /// Preempted sequences.
    pub preemptions_total: u64,
    /// Preempted sequences that were swapped.
    pub swap_preemptions_total: u64,
    /// Sequences that changed from prefill to decode.
    pub handoffs_total: u64,
    /// Steps that failed as a whole.
    pub failed_steps_total: u64,
}

impl Stats {
    /// These statistics with the numbers of another scheduler added that rise and fall: both serve the same model.
    pub fn plus_gauges(mut self, other: &Self) -> Self {
        self.queued += other.queued;
        self.running += other.running;
        self.suspects += other.suspects;
        self.sessions += other.sessions;
        let more = other.groups.iter().skip(self.groups.len()).copied();
        for (group, of_other) in self.groups.iter_mut().zip(&other.groups) {
            group.used += of_other.used;
            group.cached += of_other.cached;
            group.pinned += of_other.pinned;
            group.total += of_other.total;
        }
        self.groups.extend(more.collect::<Vec<_>>());
        self
    }

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
        let mut sum = self.clone();
        add_totals(STATISTICS, &mut sum, before);
        sum
    }

    /// A draft of so many tokens was verified.
    pub(crate) fn count_draft(&mut self, tokens: usize, accepted: usize) {
        self.drafts_total += 1;
        self.accepted_draft_tokens_total += accepted as u64;
        for at in 0..tokens {
            if let Some(position) = self.draft_positions.get_mut(at.min(DRAFT_POSITIONS - 1)) {
                position.verified += 1;
                position.accepted += u64::from(at < accepted);
            }
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

const PREEMPTIONS: (&str, &str) =
    ("omnibus_preemptions_total", "preempted sequences, by kind: swap or recompute");
const MISSES: (&str, &str) =
    ("omnibus_prefix_misses_total", "prompts with full blocks that were not in the prefix cache, by reason");

const VERIFIED_AT: (&str, &str) =
    ("omnibus_draft_tokens_per_position_total", "draft tokens verified, by their position in their draft");
const ACCEPTED_AT: (&str, &str) = (
    "omnibus_accepted_draft_tokens_per_position_total",
    "draft tokens accepted, by their position in their draft; the last one counts all later ones, too",
);

/// The series of draft tokens verified at a position.
macro_rules! verified_at {
    ($at:literal) => {
        Statistic::series(VERIFIED_AT, ("position", stringify!($at)), |stats: &mut Stats| {
            Count(&mut stats.draft_positions[$at].verified)
        })
    };
}

/// The series of draft tokens accepted at a position.
macro_rules! accepted_at {
    ($at:literal) => {
        Statistic::series(ACCEPTED_AT, ("position", stringify!($at)), |stats: &mut Stats| {
            Count(&mut stats.draft_positions[$at].accepted)
        })
    };
}

/// The scheduler's numbers.
pub const STATISTICS: &[Statistic<Stats>] = &[
    Statistic::gauge("omnibus_requests_queued", "requests in the queue", |stats| stats.queued as f64),
    Statistic::gauge("omnibus_requests_running", "requests running", |stats| stats.running as f64),
    Statistic::gauge("omnibus_sessions", "sessions whose blocks are pinned", |stats| stats.sessions as f64),
    Statistic::gauge("omnibus_kv_blocks_used", "KV blocks in use", |stats| stats.blocks().used as f64),
    Statistic::gauge(
        "omnibus_kv_blocks_cached",
        "KV blocks that hold cached prefixes and can be evicted",
        |stats| stats.blocks().cached as f64,
    ),
    Statistic::gauge("omnibus_kv_blocks_total", "KV blocks in total", |stats| stats.blocks().total as f64),
    Statistic::total(
        "omnibus_prefix_hit_tokens_total",
        "prompt tokens found in the prefix cache, counted by the scheduler",
        |stats| Count(&mut stats.cached_tokens_total),
    ),
    Statistic::series(MISSES, ("reason", "state"), |stats| Count(&mut stats.prefix_misses.state)),
    Statistic::series(MISSES, ("reason", "window"), |stats| Count(&mut stats.prefix_misses.window)),
    Statistic::series(MISSES, ("reason", "span"), |stats| Count(&mut stats.prefix_misses.span)),
    Statistic::series(MISSES, ("reason", "evicted"), |stats| Count(&mut stats.prefix_misses.evicted)),
    Statistic::series(MISSES, ("reason", "history_changed"), |stats| {
        Count(&mut stats.prefix_misses.history_changed)
    }),
    Statistic::series(MISSES, ("reason", "salt"), |stats| Count(&mut stats.prefix_misses.salt)),
    Statistic::series(MISSES, ("reason", "cold"), |stats| Count(&mut stats.prefix_misses.cold)),
    Statistic::total(
        "omnibus_computed_tokens_total",
        "tokens computed, including recomputed ones",
        |stats| Count(&mut stats.computed_tokens_total),
    ),
    Statistic::total(
        "omnibus_drafts_total",
        "drafts verified: draft tokens of a request in a step",
        |stats| Count(&mut stats.drafts_total),
    ),
    Statistic::total("omnibus_draft_tokens_total", "draft tokens verified", |stats| {
        Count(&mut stats.draft_tokens_total)
    }),
    Statistic::total("omnibus_accepted_draft_tokens_total", "draft tokens accepted", |stats| {
        Count(&mut stats.accepted_draft_tokens_total)
    }),
    verified_at!(0),
    verified_at!(1),
    verified_at!(2),
    verified_at!(3),
    verified_at!(4),
    verified_at!(5),
    verified_at!(6),
    verified_at!(7),
    accepted_at!(0),
    accepted_at!(1),
    accepted_at!(2),
    accepted_at!(3),
    accepted_at!(4),
    accepted_at!(5),
    accepted_at!(6),
    accepted_at!(7),
    Statistic::total(
        "omnibus_forced_tokens_total",
        "generated tokens that were not sampled, because a grammar allows no other",
        |stats| Count(&mut stats.forced_tokens_total),
    ),
    Statistic::series(PREEMPTIONS, ("kind", "swap"), |stats| Count(&mut stats.swap_preemptions_total)),
    Statistic::derived_series(PREEMPTIONS, ("kind", "recompute"), |stats| {
        stats.preemptions_total.saturating_sub(stats.swap_preemptions_total)
    }),
    Statistic::total(
        "omnibus_handoffs_total",
        "sequences handed from the prefill pool to the decode pool (schedule `split`)",
        |stats| Count(&mut stats.handoffs_total),
    ),
    Statistic::sum(|stats| Count(&mut stats.generated_tokens_total)),
    Statistic::sum(|stats| Count(&mut stats.partial_copies_total)),
    Statistic::sum(|stats| Count(&mut stats.checkpoints_total)),
    Statistic::sum(|stats| Count(&mut stats.admissions_total)),
    Statistic::sum(|stats| Count(&mut stats.preemptions_total)),
    Statistic::sum(|stats| Count(&mut stats.failed_steps_total)),
];
