//! What the scheduler knows of one sequence.

use std::collections::VecDeque;

use omnibus_kv::BlockTable;

use crate::prefix::BlockHashes;
use crate::request::LookupContext;
use crate::{PlanId, PreemptionMode, ScheduledSequence, SequenceId, Tick, Token, TokenSource};

/// Where a sequence is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Holds nothing.
    Waiting,
    /// Holds blocks and advances.
    Running,
    /// Will wait as soon as no step in flight uses its blocks.
    Preempted,
    /// Will be gone as soon as no step in flight uses its blocks. Its client has had the last event.
    Ended,
}

/// Whether a sequence that waits may be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It always could.
    Never,
    /// It may not.
    Now,
    /// It may; meanwhile younger ones may have overtaken it.
    Released,
}

/// Where a running sequence is, if there are pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// With those that read their prompts.
    Prefill,
    /// With those that are answered.
    Decode,
}

/// A place in line, which never changes: when it came, had it come earlier for its priority; then its number. Lower
/// goes first, and may have the memory of those behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Microseconds, below zero for an early one of high priority.
    pub(crate) came: i64,
    pub(crate) id: SequenceId,
}

/// How much earlier one more of priority counts as having come, in microseconds.
pub(crate) const PRIORITY_WORTH: i64 = 10_000_000;
/// Priorities beyond this count as this: a bound on how long the urgent can keep others waiting.
pub(crate) const PRIORITY_MAX: i32 = 1000;

impl Rank {
    /// Of a sequence that came at a time.
    pub(crate) fn new(at: Tick, priority: i32, id: SequenceId) -> Self {
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        let head_start = i64::from(priority.clamp(-PRIORITY_MAX, PRIORITY_MAX)) * PRIORITY_WORTH;
        Self { came: at.saturating_sub(head_start), id }
    }
}

/// What the scheduler knows of one sequence.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// Prompt, then everything sampled so far.
    pub(crate) tokens: Vec<Token>,
    /// `tokens` never grows past this.
    pub(crate) max_tokens: usize,
    /// Of `tokens`, those the client sent.
    pub(crate) prompt: usize,
    /// When it was submitted, as it was told then.
    pub(crate) arrived: Tick,
    /// Where it is, if there are pools.
    pub(crate) stage: Stage,
    /// Its place in line.
    pub(crate) rank: Rank,
    /// Whose it is.
    pub(crate) tenant: u64,
    /// When its newest token was sampled, as far as is known.
    pub(crate) token_at: Tick,
    pub(crate) deadline: Option<Tick>,
    pub(crate) phase: Phase,
    /// Leading positions whose keys and values are in the blocks, or will be once all steps in flight are done, whatever
    /// becomes of draft tokens.
    pub(crate) computed: usize,
    /// In the order of the groups.
    pub(crate) tables: Vec<BlockTable>,
    /// Keys of the full blocks of `tokens`; empty when nothing is shared.
    pub(crate) hashes: BlockHashes,
    /// Positions before which a copy of its state is made, ascending. No step reaches past one.
    pub(crate) checkpoints: Vec<usize>,
    /// Leading blocks that are shared or have been made cached; since it was last admitted.
    pub(crate) sealed: usize,
    /// The conversation it belongs to.
    pub(crate) session: Option<u128>,
    /// Until it is admitted for the first time.
    pub(crate) asked: Option<LookupContext>,
    /// It stopped by itself or reached its limit: what it has computed is right.
    pub(crate) is_complete: bool,
    /// Whether it may be planned while it waits.
    pub(crate) hold: Hold,
    /// What becomes of its blocks, once it was preempted.
    pub(crate) leaving: PreemptionMode,
    /// What is kept elsewhere of it has been looked for since it last had kv_cache.
    pub(crate) is_looked_up: bool,
    /// Draft tokens that each of its decode steps verifies, where there is room.
    pub(crate) draft_tokens: usize,
    /// Its work in steps in flight, oldest first.
    pub(crate) in_flight: VecDeque<InFlightTokens>,
}

/// A sequence's work in a step in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightTokens {
    /// The first position it computes, and reads from.
    pub(crate) start: usize,
    /// One past the last position it has blocks for.
    pub(crate) end: usize,
    /// Tokens that it samples.
    pub(crate) samples: usize,
    /// Where the first of them will be.
    pub(crate) source: Option<TokenSource>,
}

impl Sequence {
    /// Its id.
    pub(crate) fn id(&self) -> SequenceId {
        self.rank.id
    }

    /// Tokens once all samples in flight have arrived and no draft token was accepted.
    pub(crate) fn expected(&self) -> usize {
        self.tokens.len()
            + self.in_flight.iter().filter(|tokens_in_flight| tokens_in_flight.samples > 0).count()
    }

    /// Tokens told and in flight beyond the prompt.
    pub(crate) fn answered(&self) -> usize {
        self.expected() - self.prompt
    }

    /// True when the samples in flight bring it to its limit.
    pub(crate) fn is_finishing(&self) -> bool {
        self.expected() == self.max_tokens
    }

    /// Positions that can be planned, draft tokens not counted. None once its limit is in flight, nor while draft tokens
    /// are verified, or wait for the token in flight that they follow.
    pub(crate) fn pending(&self) -> usize {
        if self.is_finishing() || self.awaits_verification() { 0 } else { self.expected() - self.computed }
    }

    /// True while it is not known how many tokens it will have, or which drafts would follow.
    pub(crate) fn awaits_verification(&self) -> bool {
        let verifies = |tokens_in_flight: &InFlightTokens| {
            tokens_in_flight.samples > 1 || (tokens_in_flight.samples > 0 && self.draft_tokens > 0)
        };
        self.in_flight.iter().any(verifies)
    }

    /// True when its newest token is all there is to compute.
    pub(crate) fn is_decoding(&self) -> bool {
        self.pending() == 1
    }

    /// Draft tokens that its next step may verify.
    pub(crate) fn drafts(&self) -> usize {
        let decodes = self.phase == Phase::Running && self.is_decoding() && !self.is_in_flight();
        // At least one token is sampled after those that are accepted.
        if decodes { self.draft_tokens.min(self.max_tokens - self.tokens.len() - 1) } else { 0 }
    }

    /// Positions that it holds blocks for.
    pub(crate) fn reserved(&self) -> usize {
        self.in_flight.back().map_or(self.computed, |tokens_in_flight| tokens_in_flight.end)
    }

    /// State slots that it holds in each group of states, once it was admitted.
    pub(crate) fn state_slots(&self) -> usize {
        self.in_flight.iter().map(|tokens_in_flight| tokens_in_flight.samples).max().unwrap_or(0).max(1)
    }

    /// Where the tokens of the next positions up to `end` come from, draft tokens aside.
    pub(crate) fn input(&self, end: usize) -> TokenSource {
        if end <= self.tokens.len() {
            return TokenSource::Known;
        }
        let sample = self.in_flight.iter().rev().find_map(|tokens_in_flight| tokens_in_flight.source);
        assert!(sample.is_some(), "a token that is not known is being sampled");
        sample.unwrap_or(TokenSource::Known)
    }

    /// How far a step may go that starts at `start` and could go to `end`.
    pub(crate) fn cut(&self, start: usize, end: usize) -> usize {
        self.checkpoints.iter().copied().find(|at| *at > start).map_or(end, |at| at.min(end))
    }

    /// The first position still to be computed when the oldest steps are done: what is behind it in windows is free.
    pub(crate) fn next_start(&self) -> usize {
        self.in_flight.front().map_or(self.computed, |tokens_in_flight| tokens_in_flight.start)
    }

    /// True while it may not be planned.
    pub(crate) fn is_held(&self) -> bool {
        self.hold == Hold::Now
    }

    /// True while a step in flight uses its blocks.
    pub(crate) fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Books work in a step. What it computes of draft tokens counts once they are accepted.
    pub(crate) fn book(&mut self, work: &ScheduledSequence, plan: PlanId, row: Option<usize>) {
        let source = row.map(|row| TokenSource::InFlight { plan, row });
        let (start, end) = (self.computed, work.positions.end);
        self.in_flight.push_back(InFlightTokens { start, end, samples: work.samples, source });
        self.computed = end - work.draft_tokens();
    }
}
