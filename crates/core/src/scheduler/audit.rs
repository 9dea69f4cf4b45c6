//! Whether the scheduler balance.

use super::{IN_FLIGHT_MAX, Scheduler, fcfs};
use crate::Schedule;
use crate::sequence::{Phase, Sequence};

impl Scheduler {
    /// Panics if the scheduler do not balance. Costs a pass over everything, so only tests call it.
    pub fn audit(&self) {
        let tables = self.sequences.values().map(|sequence| &sequence.cache.tables[..]);
        self.kv_cache.audit(tables, self.sessions.pins());
        let holding = self.running.len() + self.releasing.len();
        let members = self.waiting.len() + holding;
        let waiting = self.sequences.values().filter(|sequence| sequence.phase == Phase::Waiting);
        self.waiting.audit(waiting.map(|sequence| &**sequence), holding);
        let deadlines = self.sequences.iter().filter(|(_, sequence)| sequence.phase != Phase::Ended);
        let deadlines = deadlines.filter_map(|(id, sequence)| Some((sequence.deadline?, *id)));
        assert!(
            deadlines.collect::<std::collections::BTreeSet<_>>() == self.deadlines,
            "a deadline is missed"
        );
        assert_eq!(members, self.sequences.len(), "a sequence is in two queues or in none");
        for (id, sequence) in &self.sequences {
            let is_there = match sequence.phase {
                Phase::Waiting => self.waiting.contains(id),
                Phase::Running => self.running.contains(id),
                Phase::Preempted | Phase::Ended => self.releasing.contains(id),
            };
            assert!(is_there, "{id:?} is in the wrong queue");
            let booked = self.steps.iter().flat_map(|flight| &flight.works);
            let booked = booked.filter(|work| work.sequence == *id).count();
            assert_eq!(booked, sequence.in_flight.len(), "{id:?} is in other steps than it is booked for");
            self.audit_sequence(sequence);
        }
        assert!(self.steps.len() <= IN_FLIGHT_MAX, "too many steps are in flight");
        match self.settings.schedule {
            Schedule::Fcfs | Schedule::Static if self.totals.failed_steps_total == 0 => fcfs::audit(self),
            Schedule::Fair | Schedule::Fcfs | Schedule::Static | Schedule::Split => {}
        }
    }

    fn audit_sequence(&self, sequence: &Sequence) {
        assert!(sequence.tokens.len() <= sequence.max_tokens, "grew past its limit");
        assert!(sequence.reserved() < sequence.max_tokens, "the last token is never computed");
        let verified =
            sequence.in_flight.iter().filter(|tokens_in_flight| tokens_in_flight.samples > 1).count();
        assert!(
            verified == 0 || sequence.in_flight.len() == 1,
            "draft tokens are verified in one step at a time"
        );
        assert!(
            sequence.cache.cached_blocks * self.settings.block_size <= sequence.tokens.len(),
            "unknown tokens are cached"
        );
        assert!(
            sequence.computed < sequence.expected() || sequence.phase == Phase::Ended,
            "has nothing to do"
        );
        let waits = sequence.phase == Phase::Waiting;
        let leaves = matches!(sequence.phase, Phase::Preempted | Phase::Ended);
        assert!(!leaves || sequence.is_in_flight(), "is being released, and in no step");
        assert!(!waits || !sequence.is_in_flight(), "waits and is in a step");
        let block_size = self.settings.block_size;
        for (table, group) in sequence.cache.tables.iter().zip(&self.settings.groups) {
            let first = group.kind().out_of_window_blocks(block_size, sequence.next_start());
            let end = group.kind().blocks_for(block_size, sequence.reserved());
            let end = if group.kind().is_state() { sequence.state_slots() } else { end };
            if waits {
                assert!(table.blocks.is_empty(), "waits but holds blocks");
            } else {
                assert_eq!(table.end(), end, "holds more or less than it has computed");
                assert!(leaves || table.freed_blocks == first, "holds more or less than its window");
            }
        }
    }
}
