//! First come, first served: continuous batching with chunked prefill, decode first.
//!
//! Invariant: age decides. Every running sequence is older than every waiting one (except for a short time after a
//! bisect), and only the youngest running one can still be in prefill; so a long prompt never delays a decode, and the
//! oldest sequence always advances.

use super::plan_builder::{PlanBuilder, Reserve, Scheduled};
use super::sequences::Sequences;
use crate::request::SequenceId;
use crate::sequence::{Hold, HoldReason, Phase, Sequence};

/// Plans sequences, oldest first: running ones advance, waiting ones are admitted. A sequence without free blocks
/// preempts the youngest running one.
pub(super) fn fill(builder: &mut PlanBuilder<'_>) {
    fill_up_to(builder, SequenceId(u64::MAX));
}

/// Plans sequences, oldest first, as [`fill`] does; only queued ones that are no younger than `last` are admitted.
pub(super) fn fill_up_to(builder: &mut PlanBuilder<'_>, last: SequenceId) {
    let mut runners = builder.runners();
    let mut queue = builder.queue().take_while(|next| next.id() <= last).peekable();
    let mut is_open = !builder.scheduler.sequences.is_preempting();
    for older in 0.. {
        let next =
            queue.next_if(|next| is_open && runners.front().is_none_or(|runner| next.id() < runner.id()));
        let scheduled = match next {
            _ if builder.is_spent() => return,
            Some(next) if older < builder.scheduler.limits().sequences => {
                let reserve = if older == 0 { Reserve::Chunk } else { Reserve::FullPrompt };
                builder.admit(next, reserve, &mut runners)
            }
            Some(_) => Scheduled::NoBlocks,
            None => match runners.pop_front() {
                Some(runner) => builder.advance(runner, &mut runners),
                None => return,
            },
        };
        // The next in the queue is younger than sequences that had no blocks or were just preempted.
        is_open &= scheduled == Scheduled::Yes && !builder.preempts();
    }
}

/// Panics if a sequence is overtaken that was never held. After failed steps this happens.
pub(super) fn audit(sequences: &Sequences) {
    let running = sequences.running().filter(|sequence| !sequence.is_finishing());
    let returning = sequences.releasing().filter(|sequence| sequence.phase == Phase::Preempted);
    let waiting = sequences.waiting().iter().map(|id| &sequences[*id]).chain(returning);
    let next =
        waiting.filter(|sequence| sequence.holds == [Hold::Never; HoldReason::COUNT]).map(Sequence::id).min();
    if let (Some(youngest), Some(next)) = (running.map(Sequence::id).max(), next) {
        assert!(youngest < next, "{next:?} waits for the younger {youngest:?}");
    }
}
