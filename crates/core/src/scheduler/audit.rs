//! Whether the scheduler's state contradicts itself.

use super::{Scheduler, fcfs};
use crate::sequence::{Phase, Sequence};
use crate::settings::Schedule;

/// Panics if the state contradicts itself. Costs a pass over everything.
pub(super) fn audit(scheduler: &Scheduler) {
    let tables = scheduler.sequences.iter().map(|sequence| &sequence.cache.tables[..]);
    scheduler.kv_cache.audit(tables, scheduler.sessions.pins());
    scheduler.sessions.audit(scheduler.sequences.iter());
    scheduler.sequences.audit();
    scheduler.steps.audit();
    for sequence in scheduler.sequences.iter() {
        let steps = scheduler.steps.count(sequence.id());
        assert_eq!(steps, sequence.in_flight.len(), "{:?} is in other steps than it knows", sequence.id());
        audit_sequence(scheduler, sequence);
    }
    match scheduler.settings.schedule {
        Schedule::Fcfs | Schedule::Static if scheduler.totals.failed_steps_total == 0 => {
            fcfs::audit(&scheduler.sequences);
        }
        Schedule::Fair | Schedule::Fcfs | Schedule::Static | Schedule::Split => {}
    }
}

fn audit_sequence(scheduler: &Scheduler, sequence: &Sequence) {
    assert!(sequence.tokens.len() <= sequence.max_tokens, "grew past its limit");
    assert!(sequence.reserved() <= sequence.max_computed, "computes more than the request needs");
    let verified = sequence.in_flight.iter().filter(|step| step.samples > 1).count();
    assert!(
        verified == 0 || sequence.in_flight.len() == 1,
        "draft tokens are verified in one step at a time"
    );
    let parts = sequence.in_flight.iter().flat_map(|step| [step.start, step.end]);
    let ends = parts.chain([sequence.computed]);
    let is_whole = ends.into_iter().all(|end| sequence.cache.spans.is_boundary(end));
    assert!(is_whole, "a step starts or ends inside a span");
    let block_size = scheduler.settings.block_size;
    assert!(sequence.cache.cached_blocks * block_size <= sequence.tokens.len(), "unknown tokens are cached");
    let ends = sequence.phase == Phase::Ended || sequence.is_finishing() && sequence.is_in_flight();
    assert!(sequence.computed < sequence.expected() || ends, "has nothing to do");
    let waits = sequence.phase == Phase::Waiting;
    let leaves = matches!(sequence.phase, Phase::Preempted | Phase::Ended);
    assert!(!leaves || sequence.is_in_flight(), "is being released, and in no step");
    assert!(!waits || !sequence.is_in_flight(), "waits and is in a step");
    for (table, group) in sequence.cache.tables.iter().zip(&scheduler.settings.groups) {
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
