//! Applies a plan to the scheduler's state before its step is launched.
//!
//! Invariant: prefixes are attached before any block is allocated, and sources of copies are referenced until all is
//! allocated; so a plan never overwrites a block that it relies on.

use omnibus_kv::BlockId;

use super::Scheduler;
use crate::cost::StepLoad;
use crate::event::{Event, FinishReason};
use crate::plan::{Allocation, BlockCopy, Plan, PrefixLookup, ScheduledSequence};
use crate::request::{Class, SequenceId};
use crate::sequence::{Phase, Stage};

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
        self.sessions.advance(plan.at, &mut self.kv_cache);
        let mut allocation = Allocation::default();
        for &id in &plan.expire {
            let reason = FinishReason::Deadline;
            allocation.events.extend(self.end(id, Event::Finished { sequence: id, reason }));
        }
        self.policy.open_batch(plan);
        for id in &plan.handoff {
            if let Some(sequence) = self.sequences.get_mut(*id) {
                sequence.stage = Stage::Decode;
            }
        }
        self.totals.handoffs_total += plan.handoff.len() as u64;
        self.swaps.retain_cached(&self.kv_cache);
        for preempted in &plan.preempt {
            self.preempt(preempted.sequence, preempted.mode);
        }
        allocation.swaps = self.swaps.take();
        let mut copies = Vec::new();
        for scheduled in &plan.scheduled {
            allocation.lookups.extend(self.first_lookup(scheduled));
            copies.extend(self.admit(scheduled));
        }
        let mut rows = 0..;
        for scheduled in &plan.scheduled {
            let row = if scheduled.samples > 0 { rows.next() } else { None };
            self.allocate(plan, scheduled, row);
        }
        self.copy(plan, &copies, &mut allocation.copies);
        self.launch(plan);
        self.version.0 += 1;
        allocation
    }

    /// The cache hit of a sequence that is admitted for the first time.
    fn first_lookup(&mut self, scheduled: &ScheduledSequence) -> Option<PrefixLookup> {
        let sequence = self.sequences.get_mut(scheduled.sequence)?;
        let context = sequence.lookup.take()?;
        Some(self.lookups.look_up(&context, sequence, scheduled.cached, &self.kv_cache))
    }

    /// Admits a waiting sequence with its cache hit. Returns the blocks that it must copy.
    fn admit(&mut self, scheduled: &ScheduledSequence) -> Vec<CopyOnWrite> {
        let (id, cached) = (scheduled.sequence, scheduled.cached);
        if self.sequences.get(id).is_none_or(|sequence| sequence.phase != Phase::Waiting) {
            return Vec::new();
        }
        self.sequences.enter(id, Phase::Running);
        let Some(sequence) = self.sequences.get_mut(id) else { return Vec::new() };
        let (found, copied) = (cached / self.settings.block_size, cached % self.settings.block_size);
        let partial = match copied {
            0 => None,
            _ => self.kv_cache.longest_partial_hit(&sequence.cache, sequence.reusable_tokens(), found),
        };
        let is_planned = partial.map_or(0, |partial| partial.tokens) == copied;
        assert!(is_planned, "the planned partial hit is still cached");
        let hashes = &sequence.cache.hashes.all()[..found];
        let mut acquired = self.kv_cache.attach_prefix(&mut sequence.cache.tables, hashes, cached);
        if let Some(partial) = partial {
            acquired.extend(self.kv_cache.acquire(partial.hash));
            self.totals.partial_copies_total += 1;
        }
        sequence.computed = cached;
        sequence.cache.cached_blocks = found;
        self.sessions.touch(sequence.session, &mut self.kv_cache);
        self.totals.admissions_total += 1;
        self.totals.cached_tokens_total += cached as u64;
        let copy = |(group, from)| CopyOnWrite { sequence: id, group, from, next: found };
        acquired.into_iter().map(copy).collect()
    }

    /// Copies acquired blocks for admitted sequences, and states that need a checkpoint before their next change.
    fn copy(&mut self, plan: &Plan, pending: &[CopyOnWrite], copies: &mut Vec<BlockCopy>) {
        let mut kept: Vec<(usize, BlockId)> = Vec::new();
        for scheduled in &plan.scheduled {
            let Some(sequence) = self.sequences.get(scheduled.sequence) else { continue };
            let start = scheduled.positions.start;
            if start == scheduled.cached || sequence.cache.checkpoints.binary_search(&start).is_err() {
                continue;
            }
            let hashes = &sequence.cache.hashes.all()[..start / self.settings.block_size];
            for (group, to) in self.kv_cache.checkpoint(hashes) {
                let from = sequence.cache.tables[group].blocks[0];
                copies.push(BlockCopy { group, from, to });
                kept.push((group, to));
                self.totals.checkpoints_total += 1;
            }
        }
        for &CopyOnWrite { sequence, group, from, next } in pending {
            let table = &self.sequences[sequence].cache.tables[group];
            let next = if self.kv_cache.is_state(group) { 0 } else { next };
            let to = table.blocks[next - table.freed_blocks];
            copies.push(BlockCopy { group, from, to });
            kept.push((group, from));
        }
        kept.into_iter().for_each(|(group, block)| self.kv_cache.release_block(group, block));
    }

    /// Allocates the blocks of one sequence's part of the step. `row`: the index of its sample, if it samples.
    fn allocate(&mut self, plan: &Plan, scheduled: &ScheduledSequence, row: Option<usize>) {
        let sequence = self.sequences.get_mut(scheduled.sequence);
        assert!(sequence.is_some(), "a plan names known sequences");
        let Some(sequence) = sequence else { return };
        assert_eq!(sequence.phase, Phase::Running, "only running sequences advance");
        assert_eq!(sequence.computed, scheduled.positions.start, "a step starts where the last ended");
        self.kv_cache.allocate(&mut sequence.cache.tables, &scheduled.positions, scheduled.samples);
        sequence.launch(scheduled, plan.id, row);
        self.totals.draft_tokens_total += scheduled.draft_tokens() as u64;
        self.totals.computed_tokens_total += scheduled.positions.len() as u64;
    }

    /// How long the step would take without its offline sequences, in microseconds. `None` without either kind.
    fn online_us(&self, plan: &Plan) -> Option<f64> {
        if !self.sequences.waiting().has_offline() {
            return None;
        }
        let is_online = |id| self.sequences.get(id).is_some_and(|of| of.class() == Class::Online);
        let online = plan.scheduled.iter().filter(|part| is_online(part.sequence));
        Some(StepLoad::of_part(online))
            .filter(|load| *load != StepLoad::default())
            .map(|load| self.cost.predict(&load))
    }

    fn launch(&mut self, plan: &Plan) {
        if !plan.scheduled.is_empty() {
            self.policy.launch(plan, &self.sequences);
            let load = StepLoad::of(plan);
            let online_us = self.online_us(plan);
            self.steps.launch(plan, load, (self.cost.predict(&load), online_us));
        }
    }
}
