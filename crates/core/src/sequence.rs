//! The state of one sequence.

use std::collections::{BTreeSet, VecDeque};

use omnibus_kv::BlockTable;

use crate::drafting::SequenceDrafts;
use crate::plan::{PlanId, PreemptionMode, ScheduledSequence, TokenSource};
use crate::prefix::{BlockHash, BlockHashes};
use crate::request::{Class, Goal, LookupContext, Request, SequenceId, Tick, Token};
use crate::settings::Settings;
use crate::spans::Spans;

/// States kept of one prompt: each costs a slot, and a step that ends there.
const CHECKPOINTS_MAX: usize = 4;
/// Forced tokens up to this number are scheduled like one decoded token; more are a chunk of a prompt.
const FORCED_DECODE_MAX: usize = 32;

/// The state of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Holds nothing.
    Waiting,
    /// Holds blocks and advances.
    Running,
    /// Waits again as soon as no step in flight uses its blocks.
    Preempted,
    /// Is removed as soon as no step in flight uses its blocks. Its last event was returned.
    Ended,
}

/// Whether a waiting sequence may be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It was never held.
    Never,
    /// It may not be planned.
    Now,
    /// It may be planned again; younger sequences may have overtaken it.
    Released,
}

/// Why a waiting sequence is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldReason {
    /// Its blocks are being read.
    Transfer,
    /// The content that some of its tokens stand for is not encoded.
    Encoding,
}

impl HoldReason {
    pub(crate) const COUNT: usize = 2;
}

/// The stage of a running sequence, under the `split` schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It computes its prompt.
    Prefill,
    /// It decodes.
    Decode,
}

/// The order of sequences under `fair`, which never changes: class; arrival, moved earlier by priority; then the id. A
/// sequence of lower rank goes first, and may preempt those of higher rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) class: Class,
    /// Arrival in microseconds less the head start; negative for an early one of high priority.
    pub(crate) came: i64,
    pub(crate) id: SequenceId,
}

/// The head start of one priority level, in microseconds.
pub(crate) const PRIORITY_WORTH: i64 = 10_000_000;
/// Priorities beyond this count as this, which bounds how long others can wait.
pub(crate) const PRIORITY_MAX: i32 = 1000;

impl Rank {
    /// The rank of a sequence that arrived at `at`.
    pub(crate) fn new(at: Tick, (class, priority): (Class, i32), id: SequenceId) -> Self {
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        let head_start = i64::from(priority.clamp(-PRIORITY_MAX, PRIORITY_MAX)) * PRIORITY_WORTH;
        Self { class, came: at.saturating_sub(head_start), id }
    }
}

/// A sequence: its tokens, its place among others, and its blocks.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// Prompt, then the sampled tokens.
    pub(crate) tokens: Vec<Token>,
    /// [`crate::Request::goal`].
    pub(crate) goal: Goal,
    /// Limit of `tokens`.
    pub(crate) max_tokens: usize,
    /// Limit of `computed`.
    pub(crate) max_computed: usize,
    /// Length of the prompt.
    pub(crate) prompt: usize,
    /// [`crate::Request::max_cached_tokens`].
    max_cached_tokens: usize,
    /// When it was submitted.
    pub(crate) arrived: Tick,
    /// Prefill or decode, under `split`.
    pub(crate) stage: Stage,
    /// Its place in line.
    pub(crate) rank: Rank,
    /// [`crate::Request::tenant`].
    pub(crate) tenant: u64,
    /// When the step of its newest token ended.
    pub(crate) token_at: Tick,
    pub(crate) deadline: Option<Tick>,
    pub(crate) phase: Phase,
    /// Leading positions whose keys and values are in the blocks, or will be once all steps in flight are done, whatever
    /// becomes of draft tokens.
    pub(crate) computed: usize,
    /// Its blocks.
    pub(crate) cache: SequenceCache,
    /// [`crate::Request::session`].
    pub(crate) session: Option<u128>,
    /// Until it is admitted for the first time.
    pub(crate) lookup: Option<LookupContext>,
    /// It stopped or reached its limit, so its last block can be cached.
    pub(crate) is_complete: bool,
    /// Whether it may be planned while it waits, by reason.
    pub(crate) holds: [Hold; HoldReason::COUNT],
    /// Its blocks outside of the pools.
    pub(crate) offload: OffloadState,
    /// Its draft tokens.
    pub(crate) drafts: SequenceDrafts,
    /// Its parts of steps in flight, oldest first.
    pub(crate) in_flight: VecDeque<InFlightTokens>,
}

/// A sequence's blocks, and what the prefix cache knows of them.
#[derive(Debug, Clone)]
pub(crate) struct SequenceCache {
    /// In the order of the groups.
    pub(crate) tables: Vec<BlockTable>,
    /// Hashes of the full blocks of the tokens; empty without prefix caching.
    pub(crate) hashes: BlockHashes,
    /// Positions that one step computes whole.
    pub(crate) spans: Spans,
    /// Positions before which its state is copied to a checkpoint, ascending. No step reaches past one.
    pub(crate) checkpoints: Vec<usize>,
    /// Leading blocks that are cached, since it was last admitted.
    pub(crate) cached_blocks: usize,
}

/// A sequence's blocks outside of the pools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OffloadState {
    /// Swap or recompute, once it was preempted.
    pub(crate) mode: PreemptionMode,
    /// Its offloaded blocks were looked up since it was last preempted.
    pub(crate) is_looked_up: bool,
}

/// A sequence's part of a step in flight.
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
    /// The token at its place is known already, so its sample is dropped.
    pub(crate) is_superseded: bool,
}

impl SequenceCache {
    /// Without blocks. `tables`: one for each group.
    fn new(request: &Request, settings: &Settings, tables: Vec<BlockTable>) -> Self {
        let mut hashes = BlockHashes::new(request, settings.block_size);
        if settings.shares() {
            hashes.extend(&request.prompt);
        }
        let spans = Spans::new(&request.spans, request.prompt.len());
        let checkpoints = match settings.keeps_states() {
            true => checkpoints(request, &spans, settings.block_size),
            false => Vec::new(),
        };
        Self { tables, hashes, spans, checkpoints, cached_blocks: 0 }
    }

    /// The hashes of the leading blocks that are cached.
    pub(crate) fn cached_hashes(&self) -> &[BlockHash] {
        &self.hashes.all()[..self.cached_blocks]
    }
}

impl Sequence {
    /// The sequence of a request, which waits. `tables`: one for each group, without blocks.
    pub(crate) fn new(
        request: Request,
        (rank, arrived): (Rank, Tick),
        settings: &Settings,
        (tables, drafts): (Vec<BlockTable>, SequenceDrafts),
    ) -> Self {
        Self {
            cache: SequenceCache::new(&request, settings, tables),
            session: request.session,
            lookup: Some(LookupContext { salt: request.cache_salt, history: request.history.clone() }),
            goal: request.goal,
            max_tokens: request.max_tokens(),
            max_computed: request.max_computed(),
            prompt: request.prompt.len(),
            max_cached_tokens: request.max_cached_tokens,
            arrived,
            stage: Stage::Prefill,
            rank,
            tenant: request.tenant,
            token_at: 0,
            tokens: request.prompt,
            deadline: request.deadline,
            phase: Phase::Waiting,
            computed: 0,
            is_complete: false,
            holds: [Hold::Never; HoldReason::COUNT],
            offload: OffloadState { mode: PreemptionMode::Recompute, is_looked_up: false },
            drafts,
            in_flight: VecDeque::new(),
        }
    }

    /// It has released its blocks, and begins anew with the tokens that it has.
    pub(crate) fn restart(&mut self) {
        self.offload.is_looked_up = false;
        self.computed = 0;
        self.stage = Stage::Prefill;
    }

    /// Its leading tokens that need not be computed if they are cached. At least one token is left to compute.
    pub(crate) fn reusable_tokens(&self) -> &[Token] {
        &self.tokens[..self.max_cached_tokens.min(self.tokens.len() - 1)]
    }

    /// Its class of service.
    pub(crate) fn class(&self) -> Class {
        self.rank.class
    }

    /// Its id.
    pub(crate) fn id(&self) -> SequenceId {
        self.rank.id
    }

    /// Tokens once all samples in flight have arrived and no draft token was accepted.
    pub(crate) fn expected(&self) -> usize {
        let sampling = |step: &&InFlightTokens| step.samples > 0 && !step.is_superseded;
        self.tokens.len() + self.in_flight.iter().filter(sampling).count()
    }

    /// Sampled tokens, those in flight included.
    pub(crate) fn answered(&self) -> usize {
        self.expected() - self.prompt
    }

    /// True when the steps in flight bring it to its limit.
    pub(crate) fn is_finishing(&self) -> bool {
        match self.goal {
            Goal::Generate { .. } => self.expected() == self.max_tokens,
            Goal::Compute => self.computed == self.max_computed,
        }
    }

    /// Tokens sampled by a step that computes up to `end`: those after its last positions.
    pub(crate) fn samples(&self, end: usize) -> usize {
        match self.goal {
            Goal::Generate { .. } => (end + 1).saturating_sub(self.expected()),
            Goal::Compute => 0,
        }
    }

    /// Positions that can be planned, draft tokens not counted. None once its limit is in flight, nor while draft tokens
    /// are verified, or wait for the token in flight that they follow.
    pub(crate) fn pending(&self) -> usize {
        if self.is_finishing() || self.awaits_verification() { 0 } else { self.expected() - self.computed }
    }

    /// True while it is not known how many tokens it will have, or which drafts would follow.
    pub(crate) fn awaits_verification(&self) -> bool {
        let verifies =
            |step: &InFlightTokens| step.samples > 1 || (step.samples > 0 && self.drafts.tokens > 0);
        self.in_flight.iter().any(verifies)
    }

    /// True when its newest tokens are all there is to compute: the one sampled last, and a few that were forced.
    pub(crate) fn is_decoding(&self) -> bool {
        let pending = self.pending();
        let is_forced = || self.phase == Phase::Running && self.computed >= self.prompt;
        pending == 1 || (2..=FORCED_DECODE_MAX).contains(&pending) && is_forced()
    }

    /// Draft tokens that its next step may verify.
    pub(crate) fn drafts(&self) -> usize {
        let decodes = self.phase == Phase::Running && self.pending() == 1 && !self.is_in_flight();
        // At least one token is sampled after those that are accepted.
        if decodes { self.drafts.tokens.min(self.max_computed.saturating_sub(self.tokens.len())) } else { 0 }
    }

    /// Positions that it holds blocks for.
    pub(crate) fn reserved(&self) -> usize {
        self.in_flight.back().map_or(self.computed, |step| step.end)
    }

    /// State slots that it holds in each group of states, once it was admitted.
    pub(crate) fn state_slots(&self) -> usize {
        self.in_flight.iter().map(|step| step.samples).max().unwrap_or(0).max(1)
    }

    /// Where the tokens of the next positions up to `end` come from, draft tokens aside.
    pub(crate) fn input(&self, end: usize) -> TokenSource {
        if end <= self.tokens.len() {
            return TokenSource::Known;
        }
        let sample = self.in_flight.iter().rev().find_map(|step| step.source);
        assert!(sample.is_some(), "a token that is not known is being sampled");
        sample.unwrap_or(TokenSource::Known)
    }

    /// How far a step may go that starts at `start` and could go to `end`, both boundaries of spans.
    pub(crate) fn cut(&self, start: usize, end: usize) -> usize {
        self.cache.checkpoints.iter().copied().find(|at| *at > start).map_or(end, |at| at.min(end))
    }

    /// The first position still to be computed when the oldest steps are done: what is after it in windows is free.
    pub(crate) fn next_start(&self) -> usize {
        self.in_flight.front().map_or(self.computed, |step| step.start)
    }

    /// The first end that its next step can have: after the next position, or after the span that begins there.
    pub(crate) fn least_end(&self, start: usize) -> usize {
        self.cache.spans.least_end(start)
    }

    /// True while it may not be planned.
    pub(crate) fn is_held(&self) -> bool {
        self.holds.contains(&Hold::Now)
    }

    /// Whether it is held for a reason.
    pub(crate) fn hold(&self, reason: HoldReason) -> Hold {
        match (reason, self.holds) {
            (HoldReason::Transfer, [hold, _]) | (HoldReason::Encoding, [_, hold]) => hold,
        }
    }

    pub(crate) fn hold_mut(&mut self, reason: HoldReason) -> &mut Hold {
        match (reason, &mut self.holds) {
            (HoldReason::Transfer, [hold, _]) | (HoldReason::Encoding, [_, hold]) => hold,
        }
    }

    /// True while a step in flight uses its blocks.
    pub(crate) fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// A step computes a part of it. What it computes of draft tokens counts once they are accepted.
    pub(crate) fn launch(&mut self, scheduled: &ScheduledSequence, plan: PlanId, row: Option<usize>) {
        let source = row.map(|row| TokenSource::InFlight { plan, row });
        let (start, end) = (self.computed, scheduled.positions.end);
        let samples = scheduled.samples;
        self.in_flight.push_back(InFlightTokens { start, end, samples, source, is_superseded: false });
        self.computed = end - scheduled.draft_tokens();
    }
}

/// Where a prompt's state is kept: the ends of the blocks before its last messages end, and before it ends itself, but not
/// inside a span. A token is always left to compute.
fn checkpoints(request: &Request, spans: &Spans, block_size: usize) -> Vec<usize> {
    let last = request.prompt.len() - 1;
    let ends = request.boundaries.iter().copied().chain([last]);
    let ends: BTreeSet<usize> = ends.map(|end| spans.floor_to_block(end.min(last), block_size)).collect();
    let ends: Vec<usize> = ends.into_iter().filter(|end| *end > 0).collect();
    ends[ends.len().saturating_sub(CHECKPOINTS_MAX)..].to_vec()
}
