//! First come, first served: continuous batching with chunked prefill, decode first.
//!
//! Invariant: age decides. Every running sequence is older than every waiting one (except for a short time after a
//! bisect), and only the youngest running one can still be in prefill; so a long prompt never delays a decode, and the
//! oldest sequence always advances.

use super::Scheduler;
use super::draft::{Admission, Draft, Move};
use crate::SequenceId;
use crate::sequence::{Hold, Phase};

/// Plans sequences, oldest first: running ones advance, waiting ones are admitted. A sequence without free blocks
/// preempts the youngest running one.
pub(super) fn fill(draft: &mut Draft<'_>) {
    fill_up_to(draft, SequenceId(u64::MAX));
}

/// The same, for queued sequences that are no younger than `last`.
pub(super) fn fill_up_to(draft: &mut Draft<'_>, last: SequenceId) {
    let mut runners = draft.runners();
    let mut queue = draft.queue().take_while(|next| *next <= last).peekable();
    let mut is_open = !is_preempting(draft.books);
    for older in 0.. {
        let next = queue.next_if(|next| is_open && runners.front().is_none_or(|runner| next < runner));
        let moved = match next {
            _ if draft.is_spent() => return,
            Some(next) if older < draft.books.limits().sequences => {
                let admission = if older == 0 { Admission::Piece } else { Admission::Whole };
                draft.admit(next, admission, &mut runners)
            }
            Some(_) => Move::Stuck,
            None => match runners.pop_front() {
                Some(runner) => draft.advance(runner, &mut runners),
                None => return,
            },
        };
        // The next in the queue is younger than sequences that had no blocks or were just preempted.
        is_open &= moved == Move::Made && !draft.preempts();
    }
}

/// True while a preempted sequence has not reached the queue: it is older than those in it.
pub(super) fn is_preempting(books: &Scheduler) -> bool {
    books.leaving.iter().any(|id| books.sequences[id].phase == Phase::Preempted)
}

/// Panics if a sequence is overtaken that was never held. After failed steps this happens.
pub(super) fn audit(books: &Scheduler) {
    let running = books.running.iter().filter(|id| !books.sequences[id].is_finishing());
    let returning = books.leaving.iter().filter(|id| books.sequences[id].phase == Phase::Preempted);
    let waiting = books.waiting.iter().chain(returning);
    let next = waiting.filter(|id| books.sequences[id].hold == Hold::Never).min();
    if let (Some(youngest), Some(next)) = (running.max(), next) {
        assert!(youngest < next, "{next:?} waits for the younger {youngest:?}");
    }
}
