//! A plan in the making: what its step may still use, and how policies add to it.
//!
//! Invariant: the policy decides the order; what fits is decided here.

use std::collections::VecDeque;

use omnibus_kv::CacheKind;

use super::Scheduler;
use super::free_blocks::FreeBlocks;
use super::prefill_budget::PrefillBudget;
use crate::plan::{Plan, Preempted, ScheduledSequence};
use crate::request::{Class, SequenceId, Tick};
use crate::sequence::{Phase, Sequence};

/// A plan in the making.
pub(super) struct PlanBuilder<'a> {
    pub(super) scheduler: &'a Scheduler,
    plan: Plan,
    free_blocks: FreeBlocks<'a>,
    /// Sequences that wait for blocks of the step in flight. What they need beside those is reserved.
    put_off: Vec<SequenceId>,
    tokens_left: usize,
    sequences_left: usize,
    /// The most tokens that the next sequence may have.
    sequence_most: usize,
    /// Tokens that draft tokens may take: what is left when every running sequence has its next token.
    pub(super) drafts_left: usize,
    /// How much of the step prompts may take. `None`: as much as fits.
    pub(super) prefill_budget: Option<PrefillBudget<'a>>,
}

/// Whether a sequence was scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheduled {
    /// The sequence is in the plan.
    Yes,
    /// There are no blocks for it in this step.
    NoBlocks,
}

/// What must fit before a sequence is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserve {
    /// One token. For those that have the memory to themselves.
    Chunk,
    /// All of it and its next token; in a window group its first piece, as far as the window sees. A sequence
    /// admitted beside running ones reserves this much, so that it does not preempt them soon.
    FullPrompt,
}

/// Running sequences that a plan may preempt, first in line first.
pub(super) trait Victims<'a> {
    /// True when there is none left.
    fn is_empty(&self) -> bool;
    /// Takes the last in line.
    fn pop_last(&mut self) -> Option<&'a Sequence>;
}

impl<'a> Victims<'a> for VecDeque<&'a Sequence> {
    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }

    fn pop_last(&mut self) -> Option<&'a Sequence> {
        self.pop_back()
    }
}

impl<'a> PlanBuilder<'a> {
    /// Ends sequences whose deadline has passed; nothing else is planned.
    pub(super) fn new(scheduler: &'a Scheduler, now: Tick) -> Self {
        let limits = scheduler.limits();
        let mut builder = Self {
            scheduler,
            plan: Plan { id: scheduler.version, at: now, ..Plan::default() },
            free_blocks: FreeBlocks::new(&scheduler.kv_cache),
            put_off: Vec::new(),
            tokens_left: limits.tokens,
            sequences_left: limits.sequences,
            sequence_most: usize::MAX,
            drafts_left: 0,
            prefill_budget: None,
        };
        // Most steps advance the running sequences, and grow no list.
        builder.plan.scheduled.reserve(scheduler.sequences.running_count().min(limits.sequences));
        builder.plan.expire = scheduler.sequences.expired(now);
        for id in &builder.plan.expire {
            release(&mut builder.free_blocks, &scheduler.sequences[*id]);
        }
        builder.drafts_left = builder.tokens_left.saturating_sub(scheduler.sequences.running_count());
        builder
    }

    /// What was planned.
    pub(super) fn into_plan(self) -> Plan {
        self.plan
    }

    /// Sequences that hold blocks and will have more to compute, oldest first. Those that verify draft tokens, or wait for
    /// the token in flight that those follow, keep their place though they cannot be planned.
    pub(super) fn runners(&self) -> VecDeque<&'a Sequence> {
        let sequences = &self.scheduler.sequences;
        let mut runners = VecDeque::with_capacity(sequences.running_count());
        let runs = |sequence: &&Sequence| !self.is_expired(sequence.id()) && !sequence.is_finishing();
        runners.extend(sequences.running().filter(runs));
        runners
    }

    /// Sequences that wait and are not held, oldest first.
    pub(super) fn queue(&self) -> impl Iterator<Item = &'a Sequence> + use<'a> {
        let (scheduler, expired) = (self.scheduler, self.plan.expire.clone());
        let waiting = scheduler.sequences.waiting().ready();
        waiting.filter(move |id| expired.binary_search(id).is_err()).map(|id| &scheduler.sequences[id])
    }

    /// Sequences that wait and are not held, by rank.
    pub(super) fn queue_by_rank(&self) -> impl Iterator<Item = &'a Sequence> + use<'a> {
        let (scheduler, expired) = (self.scheduler, self.plan.expire.clone());
        let waiting = scheduler.sequences.waiting().by_rank().map(|rank| rank.id);
        waiting.filter(move |id| expired.binary_search(id).is_err()).map(|id| &scheduler.sequences[id])
    }

    /// True when the step can take no more.
    pub(super) fn is_spent(&self) -> bool {
        self.tokens_left == 0 || self.sequences_left == 0
    }

    /// Tokens that the step can still take.
    pub(super) fn tokens_left(&self) -> usize {
        self.tokens_left
    }

    /// True when the plan computes a chunk of a prompt of this class.
    pub(super) fn prefills(&self, class: Class) -> bool {
        let sequences = &self.scheduler.sequences;
        let mut chunks = self.plan.scheduled.iter().filter(|scheduled| !scheduled.is_decode());
        chunks.any(|scheduled| sequences[scheduled.sequence].class() == class)
    }

    /// True when nothing is to be computed yet.
    pub(super) fn is_empty(&self) -> bool {
        self.plan.scheduled.is_empty()
    }

    /// Begins a batch with those up to `last`.
    pub(super) fn open_batch(&mut self, last: SequenceId) {
        self.plan.batch = Some(last);
    }

    /// Moves a running sequence to the decode stage.
    pub(super) fn handoff(&mut self, id: SequenceId) {
        self.plan.handoff.push(id);
    }

    /// True when the plan moves the sequence there.
    pub(super) fn hands_off(&self, id: SequenceId) -> bool {
        self.plan.handoff.binary_search(&id).is_ok()
    }

    /// Lets no sequence planned in here have more than so many tokens.
    pub(super) fn within<T>(&mut self, most: usize, plan: impl FnOnce(&mut Self) -> T) -> T {
        self.sequence_most = most;
        let planned = plan(self);
        self.sequence_most = usize::MAX;
        planned
    }

    /// Sends a running sequence back to wait.
    pub(super) fn preempt(&mut self, victim: &Sequence) {
        let Scheduler { swaps, kv_cache, cost, .. } = self.scheduler;
        let mode = swaps.mode(victim, kv_cache, cost);
        self.plan.preempt.push(Preempted { sequence: victim.id(), mode });
        release(&mut self.free_blocks, victim);
    }

    /// True when the plan preempts a sequence.
    pub(super) fn preempts(&self) -> bool {
        !self.plan.preempt.is_empty()
    }

    /// Plans as much of a running sequence as fits: nothing while it verifies draft tokens. If nothing does, preempts `victims`, the last first.
    pub(super) fn advance(&mut self, sequence: &Sequence, victims: &mut impl Victims<'a>) -> Scheduled {
        if sequence.awaits_verification() {
            return Scheduled::Yes;
        }
        let least_end = sequence.least_end(sequence.computed);
        let held = || sequence.cache.tables.iter().map(|table| table.end());
        while self.reach(held()) < least_end {
            if self.make_room(held, least_end, victims) == Scheduled::NoBlocks {
                self.put_off(sequence.id(), held(), least_end);
                return Scheduled::NoBlocks;
            }
        }
        self.schedule(sequence, sequence.computed, held);
        Scheduled::Yes
    }

    /// Plans the beginning of a waiting sequence, on top of its cache hit. If it does not
    /// fit, preempts `victims`, the last first.
    pub(super) fn admit(
        &mut self,
        sequence: &Sequence,
        reserve: Reserve,
        victims: &mut impl Victims<'a>,
    ) -> Scheduled {
        if self.free_blocks.is_full() && victims.is_empty() {
            return Scheduled::NoBlocks;
        }
        let kv_cache = &self.scheduler.kv_cache;
        let hashes = sequence.cache.hashes.all();
        let most = sequence.reusable_tokens().len() / kv_cache.block_size();
        let found = kv_cache.longest_usable_hit(&sequence.cache, most);
        let found = if self.free_blocks.can_checkpoint(&hashes[..found]) { found } else { 0 };
        let start = found * kv_cache.block_size();
        let held = || kv_cache.groups().map(|(kind, _)| kind.shared_blocks(found));
        let before = self.free_blocks.clone();
        let reusable = sequence.reusable_tokens();
        if let Some(partial) = kv_cache.longest_partial_hit(&sequence.cache, reusable, found) {
            let start = start + partial.tokens;
            self.free_blocks.attach_prefix(&hashes[..found], start);
            self.free_blocks.acquire(&partial);
            // No sequence is preempted for a copy.
            if self.fits(&self.free_blocks, (sequence, start), held(), reserve) {
                self.schedule(sequence, start, held);
                return Scheduled::Yes;
            }
            self.free_blocks = before.clone();
        }
        self.free_blocks.attach_prefix(&hashes[..found], start);
        while !self.fits(&self.free_blocks, (sequence, start), held(), reserve) {
            if self.make_room(held, sequence.least_end(start), victims) == Scheduled::NoBlocks {
                self.free_blocks = before;
                if reserve == Reserve::Chunk {
                    self.put_off(sequence.id(), held(), sequence.least_end(start));
                }
                return Scheduled::NoBlocks;
            }
        }
        self.schedule(sequence, start, held);
        Scheduled::Yes
    }

    /// Keeps what a sequence needs to compute the positions up to `end`, as far as it is there, from those after it. Or
    /// else they would take a block of one group in each step in which a block of another group becomes free.
    fn put_off(&mut self, id: SequenceId, held: impl Iterator<Item = usize>, end: usize) {
        if !self.put_off.contains(&id) {
            self.put_off.push(id);
            self.free_blocks.reserve(held, end);
        }
    }

    /// Frees memory for one that cannot compute the positions up to `end`. `NoBlocks`: no victim is left, or enough becomes
    /// free when the step in flight is done.
    fn make_room<H: Iterator<Item = usize>>(
        &mut self,
        held: impl Fn() -> H,
        end: usize,
        victims: &mut impl Victims<'a>,
    ) -> Scheduled {
        let mut later = self.free_blocks.clone();
        later.add(&self.coming());
        if reach(&later, held()) >= end {
            return Scheduled::NoBlocks;
        }
        let Some(victim) = victims.pop_last() else { return Scheduled::NoBlocks };
        self.preempt(victim);
        Scheduled::Yes
    }

    fn schedule<H: Iterator<Item = usize>>(
        &mut self,
        sequence: &Sequence,
        start: usize,
        held: impl Fn() -> H,
    ) {
        let expected = sequence.expected();
        let drafts = self.drafts(sequence);
        let wanted = self.most(start, expected + drafts, drafts);
        let end = (start + wanted).min(self.reach(held()));
        // A span may exceed what is left, which leaves nothing.
        let end = sequence.cache.spans.clip(start, end);
        // What is put off for the sake of a checkpoint is not given to younger ones, who would be in the way later.
        self.tokens_left = self.tokens_left.saturating_sub(end - start);
        let end = sequence.cut(start, end);
        let samples = sequence.samples(end);
        let scheduled = ScheduledSequence {
            sequence: sequence.id(),
            positions: start..end,
            input: sequence.input(end - samples.saturating_sub(1)),
            cached: start - sequence.computed,
            samples,
        };
        self.free_blocks.take(held(), end, samples);
        self.drafts_left -= scheduled.draft_tokens();
        if let Some(prefill_budget) =
            self.prefill_budget.as_mut().filter(|_| end - start > 1 && !scheduled.is_decode())
        {
            prefill_budget.take(start, end - start);
        }
        self.sequences_left -= 1;
        self.plan.scheduled.push(scheduled);
    }

    /// Draft tokens that the sequence's next step may verify: from what no other sequence needs for its next token.
    fn drafts(&self, sequence: &Sequence) -> usize {
        let wanted = sequence.drafts().min(self.drafts_left);
        if wanted > 0 { wanted.min(self.free_blocks.free_state_slots()) } else { 0 }
    }

    /// The most tokens from `start` on that a sequence may have in this step.
    fn most(&self, start: usize, end: usize, drafts: usize) -> usize {
        let most = self.tokens_left.min(self.sequence_most).min(end - start);
        let prompt = self.prefill_budget.as_ref().filter(|_| most > 1 && drafts == 0);
        prompt.map_or(most, |prefill_budget| prefill_budget.tokens(start, most).max(1))
    }

    /// The fewest of these running sequences, but at least `least`, without which a waiting one fits as a whole, once no step
    /// is in flight and without a cache hit. `None` if it does not fit without all of them, or if it will fit without that.
    pub(super) fn fewest_victims(
        &self,
        sequence: &Sequence,
        candidates: impl Iterator<Item = &'a Sequence>,
        least: usize,
    ) -> Option<Vec<&'a Sequence>> {
        let held = || std::iter::repeat_n(0, self.scheduler.settings.groups.len());
        let fits = |free: &FreeBlocks<'a>| self.fits(free, (sequence, 0), held(), Reserve::FullPrompt);
        let mut later = self.free_blocks.clone();
        later.add(&self.coming());
        if least == 0 && fits(&later) {
            return None;
        }
        later = self.free_blocks.clone();
        let mut victims = Vec::new();
        for candidate in candidates {
            if victims.len() >= least && fits(&later) {
                break;
            }
            later.release(&candidate.cache.tables);
            victims.push(candidate);
        }
        (victims.len() >= least && fits(&later)).then_some(victims)
    }

    /// Whether what must fit of a sequence that begins at `start` fits into some free blocks.
    fn fits(
        &self,
        free_blocks: &FreeBlocks<'_>,
        (sequence, start): (&Sequence, usize),
        held: impl Iterator<Item = usize>,
        reserve: Reserve,
    ) -> bool {
        let len = sequence.tokens.len();
        let whole = (len + 1).min(sequence.max_computed);
        let least = sequence.least_end(start);
        let needed = |kind| match (reserve, kind) {
            (Reserve::Chunk, _) => least,
            (Reserve::FullPrompt, CacheKind::SlidingWindow { tokens, .. }) => {
                len.min(start + self.tokens_left.min(tokens)).max(least)
            }
            (Reserve::FullPrompt, CacheKind::UnquantizedPrefix { tokens }) => whole.min(tokens.max(least)),
            (Reserve::FullPrompt, CacheKind::Full | CacheKind::Latent | CacheKind::State) => whole,
        };
        free_blocks.reaches(held).all(|(kind, reach)| reach >= needed(kind))
    }

    fn reach(&self, held: impl Iterator<Item = usize>) -> usize {
        reach(&self.free_blocks, held)
    }

    /// Blocks of each group that become available when the step in flight is done, whatever comes of it.
    fn coming(&self) -> Vec<usize> {
        let groups = &self.scheduler.settings.groups;
        let mut coming = vec![0; groups.len()];
        for sequence in self.scheduler.sequences.holding() {
            if !sequence.is_in_flight() {
                continue;
            }
            let leaves = sequence.phase != Phase::Running
                || sequence.is_finishing()
                || self.is_expired(sequence.id())
                || self.plan.preempt.iter().any(|preempted| preempted.sequence == sequence.id());
            for (at, table) in sequence.cache.tables.iter().enumerate() {
                let behind = table.out_of_window(
                    groups[at].kind(),
                    self.scheduler.settings.block_size,
                    sequence.computed,
                );
                let gone = if leaves { 0..table.blocks.len() } else { behind };
                coming[at] += self.free_blocks.releasable(at, &table.blocks[gone]);
            }
        }
        coming
    }

    pub(super) fn is_expired(&self, id: SequenceId) -> bool {
        self.plan.expire.binary_search(&id).is_ok()
    }
}

/// Counts on what a sequence holds, unless a step in flight uses it.
fn release(free_blocks: &mut FreeBlocks<'_>, sequence: &Sequence) {
    if !sequence.is_in_flight() {
        free_blocks.release(&sequence.cache.tables);
    }
}

fn reach(free_blocks: &FreeBlocks<'_>, held: impl Iterator<Item = usize>) -> usize {
    free_blocks.reaches(held).map(|(_, reach)| reach).min().unwrap_or(0)
}
