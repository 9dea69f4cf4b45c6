//! Applies a plan to the scheduler's state before its step is launched.
//!
//! Invariant: prefixes are attached before any block is allocated, and sources of copies are referenced until all is
//! allocated; so a plan never overwrites a block that it relies on.

use omnibus_kv::BlockId;

use super::{IN_FLIGHT_MAX, InFlightSequence, InFlightStep, Scheduler};
use crate::sequence::{Phase, Stage};
use crate::{
    Allocation, BlockCopy, Event, FinishReason, Plan, PrefixLookup, ScheduledSequence, SequenceId, StepLoad,
};

/// A block that a sequence copies before its first step.
struct CopyOnWrite {
    sequence: SequenceId,
    group: usize,
    from: BlockId,
    /// The logical block it begins with, unless the group is one of states.
    next: usize,
}

impl Scheduler {
    /// Applies a plan: allocates blocks; admits, preempts and expires sequences. At most two plans with scheduled
    /// sequences are in flight. Panics if the state has changed since the plan was made.
    pub fn apply(&mut self, plan: &Plan) -> Allocation {
        assert_eq!(plan.id, self.version, "a plan is applied before the state changes");
        self.latest = self.latest.max(plan.at);
        self.expire_sessions();
        let mut allocation = Allocation::default();
        for &id in &plan.expire {
            let reason = FinishReason::Deadline;
            allocation.events.extend(self.end(id, Event::Finished { sequence: id, reason }));
        }
        self.batch = plan.batch.or(self.batch);
        for id in &plan.handoff {
            if let Some(sequence) = self.sequences.get_mut(id) {
                sequence.stage = Stage::Decode;
            }
        }
        self.totals.handoffs_total += plan.handoff.len() as u64;
        self.forget_gone_swaps();
        for preempted in &plan.preempt {
            self.preempt(preempted.sequence, preempted.mode);
        }
        allocation.swaps = std::mem::take(&mut self.swaps);
        let mut copies = Vec::new();
        for work in &plan.scheduled {
            allocation.lookups.extend(self.first_lookup(work));
            copies.extend(self.admit(work));
        }
        let mut rows = 0..;
        for work in &plan.scheduled {
            let row = if work.samples > 0 { rows.next() } else { None };
            self.book(plan, work, row);
        }
        self.copy(plan, &copies, &mut allocation.copies);
        self.launch(plan);
        self.version.0 += 1;
        allocation
    }

    /// The cache hit of a sequence that is admitted for the first time.
    fn first_lookup(&mut self, work: &ScheduledSequence) -> Option<PrefixLookup> {
        let asked = self.sequences.get_mut(&work.sequence)?.lookup.take()?;
        self.look_up(&asked, work.sequence, work.cached)
    }

    /// Admits a waiting sequence with its cache hit. Returns the blocks that it must copy.
    fn admit(&mut self, work: &ScheduledSequence) -> Vec<CopyOnWrite> {
        let Some(sequence) = self.sequences.get_mut(&work.sequence) else { return Vec::new() };
        if sequence.phase != Phase::Waiting {
            return Vec::new();
        }
        let (found, beginning) =
            (work.cached / self.settings.block_size, work.cached % self.settings.block_size);
        let partial = match beginning {
            0 => None,
            _ => self.kv_cache.longest_partial_hit(&sequence.cache.hashes, &sequence.tokens, found),
        };
        assert_eq!(
            partial.map_or(0, |partial| partial.tokens),
            beginning,
            "the planned partial hit is still cached"
        );
        let mut acquired = self.kv_cache.attach_prefix(
            &mut sequence.cache.tables,
            &sequence.cache.hashes.all()[..found],
            work.cached,
        );
        if let Some(partial) = partial {
            acquired.extend(self.kv_cache.acquire(partial.key));
            self.totals.partial_copies_total += 1;
        }
        let session = sequence.session;
        sequence.computed = work.cached;
        sequence.cache.cached_blocks = found;
        self.enter(work.sequence, Phase::Running);
        self.use_session(session);
        self.totals.admissions_total += 1;
        self.totals.cached_tokens_total += work.cached as u64;
        let copy = |(group, from)| CopyOnWrite { sequence: work.sequence, group, from, next: found };
        acquired.into_iter().map(copy).collect()
    }

    /// Copies acquired blocks for admitted sequences, and states that need a checkpoint before their next change.
    fn copy(&mut self, plan: &Plan, pending: &[CopyOnWrite], copies: &mut Vec<BlockCopy>) {
        let mut kept: Vec<(usize, BlockId)> = Vec::new();
        for work in &plan.scheduled {
            let Some(sequence) = self.sequences.get(&work.sequence) else { continue };
            let start = work.positions.start;
            if start == work.cached || sequence.cache.checkpoints.binary_search(&start).is_err() {
                continue;
            }
            let keys = &sequence.cache.hashes.all()[..start / self.settings.block_size];
            for (group, to) in self.kv_cache.checkpoint(keys) {
                let from = sequence.cache.tables[group].blocks[0];
                copies.push(BlockCopy { group, from, to });
                kept.push((group, to));
                self.totals.checkpoints_total += 1;
            }
        }
        for &CopyOnWrite { sequence, group, from, next } in pending {
            let table = &self.sequence(sequence).cache.tables[group];
            let next = if self.kv_cache.is_state(group) { 0 } else { next };
            let to = table.blocks[next - table.freed_blocks];
            copies.push(BlockCopy { group, from, to });
            kept.push((group, from));
        }
        kept.into_iter().for_each(|(group, block)| self.kv_cache.release_block(group, block));
    }

    fn book(&mut self, plan: &Plan, work: &ScheduledSequence, row: Option<usize>) {
        let sequence = self.sequences.get_mut(&work.sequence);
        assert!(sequence.is_some(), "a plan names known sequences");
        let Some(sequence) = sequence else { return };
        assert_eq!(sequence.phase, Phase::Running, "only running sequences advance");
        assert_eq!(sequence.computed, work.positions.start, "work starts where the last ended");
        self.kv_cache.allocate(&mut sequence.cache.tables, &work.positions, work.samples);
        sequence.book(work, plan.id, row);
        self.totals.draft_tokens_total += work.draft_tokens() as u64;
        self.totals.computed_tokens_total += work.positions.len() as u64;
    }

    fn launch(&mut self, plan: &Plan) {
        if plan.scheduled.is_empty() {
            return;
        }
        assert!(self.steps.len() < IN_FLIGHT_MAX, "at most {IN_FLIGHT_MAX} steps are in flight");
        let flown = |work: &ScheduledSequence| InFlightSequence {
            sequence: work.sequence,
            end: work.positions.end,
            samples: work.samples,
        };
        let works = plan.scheduled.iter().map(flown).collect();
        self.next_stage = self.stage_after(plan);
        let load = StepLoad::of(plan);
        let times = self.clock.launch(plan.at, self.cost.predict(&load));
        self.steps.push_back(InFlightStep { id: plan.id, tokens: plan.tokens(), load, times, works });
    }
}
