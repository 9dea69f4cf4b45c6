//! A step of the engine, decided and not yet done.

use std::ops::Range;

use omnibus_kv::BlockId;

use crate::{Event, SequenceId, Tick};

/// Which plan. Plans are begun and committed in this order; some numbers are never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PlanId(pub u64);

/// One step of the engine, decided and not yet done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Which plan this is. It can be begun only while nothing else has happened since it was made.
    pub id: PlanId,
    /// When it was made.
    pub at: Tick,
    /// Sequences whose deadline has passed.
    pub expire: Vec<SequenceId>,
    /// Sequences that give their blocks back and start over later. Clients notice nothing but the pause.
    pub preempt: Vec<Preempted>,
    /// The last of the batch that begins with this plan, where there are batches.
    pub batch: Option<SequenceId>,
    /// Sequences that change from the pool that reads prompts to the one that is answered, where there are pools. What
    /// their block tables name is handed over with them.
    pub handoff: Vec<SequenceId>,
    /// What to compute, at most one entry for each sequence, in the order the policy chose.
    pub scheduled: Vec<ScheduledSequence>,
}

/// A sequence that gives its blocks back, and what becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preempted {
    /// Whose blocks.
    pub sequence: SequenceId,
    /// What becomes of those that only it holds.
    pub mode: PreemptionMode,
}

/// What becomes of the blocks of a sequence that is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreemptionMode {
    /// They can be found until their memory is needed; then what was in them is computed again.
    #[default]
    Recompute,
    /// They are copied out, too: [`Allocation::swaps`].
    Swap,
}

impl Plan {
    /// Tokens this plan computes.
    pub fn tokens(&self) -> usize {
        self.scheduled.iter().map(|work| work.positions.len()).sum()
    }

    /// True when there is nothing to compute or to change. With a step in flight this means "wait for it".
    pub fn is_empty(&self) -> bool {
        self.expire.is_empty() && self.preempt.is_empty() && self.scheduled.is_empty()
    }
}

/// One sequence's share of a step. Where it reads and writes is [`crate::Scheduler::block_table`], once begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledSequence {
    /// Whose tokens.
    pub sequence: SequenceId,
    /// Positions to compute, within the sequence. Never empty.
    pub positions: Range<usize>,
    /// Where the tokens at those positions come from.
    pub input: TokenSource,
    /// Leading tokens found in the prefix index. Not zero only in the work that admits a sequence, and then
    /// equal to `positions.start`.
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

/// Where a work's tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// All are in [`crate::Scheduler::tokens`], but for draft tokens.
    Known,
    /// There is one position, and its token is a sample of a step still in flight.
    InFlight {
        /// The step.
        plan: PlanId,
        /// Which of its samples, counting only works that sample.
        row: usize,
    },
}

/// What booking a plan asks of the engine before it computes the plan's work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// To be told now. A plan without work is over with this: it is not committed.
    pub events: Vec<Event>,
    /// Blocks to copy after all that was launched so far and before anything of this plan is written, all at once:
    /// no block is both read and written. Growing a sequence never asks for one.
    pub copies: Vec<BlockCopy>,
    /// Blocks to copy out of the pools, unless they are known elsewhere, after all that was launched so far and before
    /// anything of this plan is written, and before [`Self::copies`]. They may not be findable here any more.
    pub swaps: Vec<CachedBlock>,
    /// One for each sequence that is admitted for the first time.
    pub lookups: Vec<PrefixLookup>,
}

/// What the prefix index had for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixLookup {
    /// Whose prompt.
    pub sequence: SequenceId,
    /// Leading tokens that were found.
    pub cached: usize,
    /// Tokens that were not.
    pub computed: usize,
    /// Why not, if at least one full block was not found that could have been.
    pub miss: Option<CacheMiss>,
}

/// Why a full block of a prompt was not found: the first reason of these that applies to the first such block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMiss {
    /// The blocks are there, and no copy of the state that belongs to them.
    State,
    /// The blocks are there, and those of a window or of an opening are not.
    Window,
    /// It was there, and its memory was needed.
    Evicted,
    /// An earlier request of the conversation went on otherwise, within [`crate::Request::history`]: something that
    /// the client or the chat template rewrote.
    HistoryChanged {
        /// The first token that is different.
        position: usize,
    },
    /// Another salt has it. Not for the eyes of whoever asked: it says what others ask.
    Salt,
    /// Nobody asked for it before.
    Cold,
}

/// A block that can be found by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedBlock {
    /// Index into [`crate::Settings::groups`].
    pub group: usize,
    /// Where it is.
    pub block: BlockId,
    /// Names its content within the group, and means the same in every process that serves the same model.
    pub hash: u128,
}

/// One block to copy, in all layers of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// Index into [`crate::Settings::groups`].
    pub group: usize,
    /// Read.
    pub from: BlockId,
    /// Written.
    pub to: BlockId,
}
