//! Enters a plan into the books when its step is about to be launched.
//!
//! Invariant: found blocks are shared before any block is taken, so nothing that a plan counts on is overwritten by
//! the plan itself.

use super::{FLIGHTS_MAX, Flight, FlightWork, Scheduler};
use crate::sequence::Phase;
use crate::{Begun, Event, FinishReason, Plan, Work};

impl Scheduler {
    /// Books a plan: blocks are claimed, sequences admitted, preempted and expired. At most two plans with work
    /// are in flight. Panics if anything has happened since the plan was made.
    pub fn begin(&mut self, plan: &Plan) -> Begun {
        assert_eq!(plan.id, self.now_at, "a plan is begun before anything else happens");
        let mut begun = Begun::default();
        for &id in &plan.expire {
            let reason = FinishReason::Deadline;
            begun.events.extend(self.end(id, Event::Finished { sequence: id, reason }));
        }
        for &id in &plan.preempt {
            self.preempt(id);
        }
        for work in &plan.work {
            self.admit(work);
        }
        let mut rows = 0..;
        for work in &plan.work {
            let row = if work.sample { rows.next() } else { None };
            self.book(plan, work, row);
        }
        self.launch(plan);
        self.now_at.0 += 1;
        begun
    }

    /// Starts a waiting sequence on what was found of it.
    fn admit(&mut self, work: &Work) {
        let Some(sequence) = self.sequences.get_mut(&work.sequence) else { return };
        if sequence.phase != Phase::Waiting {
            return;
        }
        let found = work.cached / self.settings.block_size;
        self.memory.adopt(&mut sequence.holdings, &sequence.chain.keys()[..found]);
        sequence.computed = work.cached;
        sequence.sealed = found;
        self.enter(work.sequence, Phase::Running);
        self.totals.admissions_total += 1;
        self.totals.cached_tokens_total += work.cached as u64;
    }

    fn book(&mut self, plan: &Plan, work: &Work, row: Option<usize>) {
        let sequence = self.sequences.get_mut(&work.sequence);
        assert!(sequence.is_some(), "a plan names sequences that are there");
        let Some(sequence) = sequence else { return };
        assert_eq!(sequence.phase, Phase::Running, "only running sequences advance");
        assert_eq!(sequence.computed, work.positions.start, "work starts where the last ended");
        self.memory.grow(&mut sequence.holdings, work.positions.start, work.positions.end);
        sequence.book(work.positions.end, plan.id, row);
        self.totals.computed_tokens_total += work.positions.len() as u64;
    }

    fn launch(&mut self, plan: &Plan) {
        if plan.work.is_empty() {
            return;
        }
        assert!(self.flights.len() < FLIGHTS_MAX, "at most {FLIGHTS_MAX} steps are in flight");
        let flown = |work: &Work| FlightWork {
            sequence: work.sequence,
            end: work.positions.end,
            sample: work.sample,
        };
        let works = plan.work.iter().map(flown).collect();
        self.flights.push_back(Flight { id: plan.id, tokens: plan.tokens(), works });
    }
}
