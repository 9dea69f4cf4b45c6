//! Enters a plan into the books when its step is about to be launched.
//!
//! Invariant: found blocks are shared before any block is taken, and what is copied is kept until all is booked; so
//! nothing that a plan counts on is overwritten by the plan itself.

use omnibus_kv::BlockId;

use super::{FLIGHTS_MAX, Flight, FlightWork, Scheduler};
use crate::sequence::{Phase, Pool};
use crate::{
    Allocation, BlockCopy, Event, FinishReason, Plan, PrefixLookup, ScheduledSequence, SequenceId, StepLoad,
};

/// A block that a sequence copies before its first work.
struct Loan {
    sequence: SequenceId,
    group: usize,
    from: BlockId,
    /// The logical block it begins with, unless the group is one of states.
    next: usize,
}

impl Scheduler {
    /// Books a plan: blocks are claimed, sequences admitted, preempted and expired. At most two plans with work
    /// are in flight. Panics if anything has happened since the plan was made.
    pub fn apply(&mut self, plan: &Plan) -> Allocation {
        assert_eq!(plan.id, self.now_at, "a plan is begun before anything else happens");
        self.latest = self.latest.max(plan.at);
        self.expire_sessions();
        let mut begun = Allocation::default();
        for &id in &plan.expire {
            let reason = FinishReason::Deadline;
            begun.events.extend(self.end(id, Event::Finished { sequence: id, reason }));
        }
        self.batch = plan.batch.or(self.batch);
        for id in &plan.handoff {
            if let Some(sequence) = self.sequences.get_mut(id) {
                sequence.pool = Pool::Decode;
            }
        }
        self.totals.handoffs_total += plan.handoff.len() as u64;
        self.forget_gone_swaps();
        for preempted in &plan.preempt {
            self.preempt(preempted.sequence, preempted.mode);
        }
        begun.swaps = std::mem::take(&mut self.swaps);
        let mut loans = Vec::new();
        for work in &plan.scheduled {
            begun.lookups.extend(self.first_lookup(work));
            loans.extend(self.admit(work));
        }
        let mut rows = 0..;
        for work in &plan.scheduled {
            let row = if work.samples > 0 { rows.next() } else { None };
            self.book(plan, work, row);
        }
        self.copy(plan, &loans, &mut begun.copies);
        self.launch(plan);
        self.now_at.0 += 1;
        begun
    }

    /// What was found of a sequence that is admitted for the first time.
    fn first_lookup(&mut self, work: &ScheduledSequence) -> Option<PrefixLookup> {
        let asked = self.sequences.get_mut(&work.sequence)?.asked.take()?;
        self.look_up(&asked, work.sequence, work.cached)
    }

    /// Starts a waiting sequence on what was found of it. Says what it must copy.
    fn admit(&mut self, work: &ScheduledSequence) -> Vec<Loan> {
        let Some(sequence) = self.sequences.get_mut(&work.sequence) else { return Vec::new() };
        if sequence.phase != Phase::Waiting {
            return Vec::new();
        }
        let (found, beginning) =
            (work.cached / self.settings.block_size, work.cached % self.settings.block_size);
        let partial = match beginning {
            0 => None,
            _ => self.memory.partial(&sequence.chain, &sequence.tokens, found),
        };
        assert_eq!(partial.map_or(0, |partial| partial.tokens), beginning, "what was planned is still there");
        let mut lent = self.memory.adopt(&mut sequence.tables, &sequence.chain.keys()[..found], work.cached);
        if let Some(partial) = partial {
            lent.extend(self.memory.lend(partial.key));
            self.totals.partial_copies_total += 1;
        }
        let session = sequence.session;
        sequence.computed = work.cached;
        sequence.sealed = found;
        self.enter(work.sequence, Phase::Running);
        self.use_session(session);
        self.totals.admissions_total += 1;
        self.totals.cached_tokens_total += work.cached as u64;
        let loan = |(group, from)| Loan { sequence: work.sequence, group, from, next: found };
        lent.into_iter().map(loan).collect()
    }

    /// Copies what was lent to who borrowed it, and the states of those whose next work would change a state that
    /// shall be kept.
    fn copy(&mut self, plan: &Plan, loans: &[Loan], copies: &mut Vec<BlockCopy>) {
        let mut kept: Vec<(usize, BlockId)> = Vec::new();
        for work in &plan.scheduled {
            let Some(sequence) = self.sequences.get(&work.sequence) else { continue };
            let start = work.positions.start;
            if start == work.cached || sequence.checkpoints.binary_search(&start).is_err() {
                continue;
            }
            let keys = &sequence.chain.keys()[..start / self.settings.block_size];
            for (group, to) in self.memory.checkpoint(keys) {
                let from = sequence.tables[group].blocks[0];
                copies.push(BlockCopy { group, from, to });
                kept.push((group, to));
                self.totals.checkpoints_total += 1;
            }
        }
        for &Loan { sequence, group, from, next } in loans {
            let table = &self.sequence(sequence).tables[group];
            let next = if self.memory.is_state(group) { 0 } else { next };
            let to = table.blocks[next - table.freed_blocks];
            copies.push(BlockCopy { group, from, to });
            kept.push((group, from));
        }
        kept.into_iter().for_each(|(group, block)| self.memory.give_back(group, block));
    }

    fn book(&mut self, plan: &Plan, work: &ScheduledSequence, row: Option<usize>) {
        let sequence = self.sequences.get_mut(&work.sequence);
        assert!(sequence.is_some(), "a plan names sequences that are there");
        let Some(sequence) = sequence else { return };
        assert_eq!(sequence.phase, Phase::Running, "only running sequences advance");
        assert_eq!(sequence.computed, work.positions.start, "work starts where the last ended");
        self.memory.grow(&mut sequence.tables, &work.positions, work.samples);
        sequence.book(work, plan.id, row);
        self.totals.draft_tokens_total += work.draft_tokens() as u64;
        self.totals.computed_tokens_total += work.positions.len() as u64;
    }

    fn launch(&mut self, plan: &Plan) {
        if plan.scheduled.is_empty() {
            return;
        }
        assert!(self.flights.len() < FLIGHTS_MAX, "at most {FLIGHTS_MAX} steps are in flight");
        let flown = |work: &ScheduledSequence| FlightWork {
            sequence: work.sequence,
            end: work.positions.end,
            samples: work.samples,
        };
        let works = plan.scheduled.iter().map(flown).collect();
        self.next_pool = self.pool_after(plan);
        let load = StepLoad::of(plan);
        let times = self.clock.launch(plan.at, self.cost.predict(&load));
        self.flights.push_back(Flight { id: plan.id, tokens: plan.tokens(), load, times, works });
    }
}
