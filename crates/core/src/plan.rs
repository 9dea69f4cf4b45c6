//! One planned step.

use std::ops::Range;

use omnibus_kv::BlockId;
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::request::{SequenceId, Tick};

/// The number of a plan. Plans are applied and committed in this order; some numbers are never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PlanId(pub u64);

/// One planned step of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The plan's number. It can be applied only while the scheduler's state is unchanged since it was made.
    pub id: PlanId,
    /// When it was made.
    pub at: Tick,
    /// Sequences whose deadline has passed.
    pub expire: Vec<SequenceId>,
    /// Preempted sequences: their blocks are freed and they resume later. Clients only see a pause.
    pub preempt: Vec<Preempted>,
    /// The last sequence of the batch that begins with this plan, for `static`.
    pub batch: Option<SequenceId>,
    /// Sequences that change from prefill to decode, for `split`. Their block tables are handed over with them.
    pub handoff: Vec<SequenceId>,
    /// What to compute, at most one entry for each sequence, in the order the policy chose.
    pub scheduled: Vec<ScheduledSequence>,
}

/// A preempted sequence, and what happens to its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preempted {
    /// The sequence.
    pub sequence: SequenceId,
    /// What happens to the blocks that only it holds.
    pub mode: PreemptionMode,
}

/// What happens to the blocks of a preempted sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreemptionMode {
    /// They stay cached until they are evicted; then their content is computed again.
    #[default]
    Recompute,
    /// They are offloaded, too: [`Allocation::swaps`].
    Swap,
}

impl Plan {
    /// Tokens this plan computes.
    pub fn tokens(&self) -> usize {
        self.scheduled.iter().map(|scheduled| scheduled.positions.len()).sum()
    }

    /// True when there is nothing to compute or to change. With a step in flight this means "wait for it".
    pub fn is_empty(&self) -> bool {
        self.expire.is_empty() && self.preempt.is_empty() && self.scheduled.is_empty()
    }
}

/// One sequence's share of a step. Where it reads and writes is [`crate::Scheduler::block_table`], once applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledSequence {
    /// The sequence.
    pub sequence: SequenceId,
    /// Positions to compute, within the sequence. Never empty.
    pub positions: Range<usize>,
    /// Where the tokens at those positions come from.
    pub input: TokenSource,
    /// Leading tokens found in the prefix cache. Nonzero only when the sequence is admitted, and then equal to
    /// `positions.start`.
    pub cached: usize,
    /// Tokens to sample: one after each of the last `samples` positions. Zero while a prompt is computed in chunks. More
    /// than one: the last `samples − 1` positions are draft tokens, which the engine proposes and verifies.
    pub samples: usize,
}

impl ScheduledSequence {
    /// Draft tokens among the positions. They come last, and the scheduler does not know them.
    pub fn draft_tokens(&self) -> usize {
        self.samples.saturating_sub(1)
    }

    /// True for a decode step, with or without draft tokens; a chunk of one token costs as much.
    pub fn is_decode(&self) -> bool {
        self.positions.len() == self.samples.max(1)
    }
}

/// Where the input tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// All are in [`crate::Scheduler::tokens`], but for draft tokens.
    Known,
    /// There is one position, and its token is a sample of a step still in flight.
    InFlight {
        /// The step.
        plan: PlanId,
        /// Index of its sample, counting only sequences that sample.
        row: usize,
    },
}

/// What the engine must do before it computes a plan that was applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Events to send now. A plan without sequences ends with this: it is not committed.
    pub events: Vec<Event>,
    /// Blocks to copy after all launched steps and before anything of this plan is written, all at once: no block is
    /// both read and written. Growing a sequence never needs one.
    pub copies: Vec<BlockCopy>,
    /// Blocks to offload, unless they are offloaded already, after all launched steps and before anything of this plan
    /// is written, and before [`Self::copies`]. They may be evicted here already.
    pub swaps: Vec<CachedBlock>,
    /// One for each sequence that is admitted for the first time.
    pub lookups: Vec<PrefixLookup>,
}

/// The cache hit of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixLookup {
    /// The sequence.
    pub sequence: SequenceId,
    /// Leading tokens that were cached.
    pub cached: usize,
    /// Tokens that were not cached.
    pub computed: usize,
    /// The reason, if at least one full block was missing.
    pub miss: Option<CacheMiss>,
}

/// Why a full block of a prompt was not cached: the first of these reasons that applies to the first such block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMiss {
    /// The blocks are cached, but no checkpoint of the state.
    State,
    /// The blocks are cached, but not those of a window or of an unquantized prefix.
    Window,
    /// The blocks are cached, but they end inside tokens that attend to each other.
    Span,
    /// It was evicted.
    Evicted,
    /// An earlier request of the conversation differs within [`crate::Request::history`]: the client or the chat
    /// template rewrote something.
    HistoryChanged {
        /// The first token that is different.
        position: usize,
    },
    /// It is cached under another salt. Do not report this to the client: it reveals another tenant's prompts.
    Salt,
    /// It was never cached.
    Cold,
}

/// A block that is cached under the hash of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedBlock {
    /// Index into [`crate::Settings::groups`].
    pub group: usize,
    /// Where it is.
    pub block: BlockId,
    /// Hash of its content within the group, equal in every process that serves the same model.
    pub hash: u128,
}

/// One block to copy, in all layers of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockCopy {
    /// Index into [`crate::Settings::groups`].
    pub group: usize,
    /// Read.
    pub from: BlockId,
    /// Written.
    pub to: BlockId,
}
