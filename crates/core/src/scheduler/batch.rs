//! `static`: waits for a full batch, or for a time limit, and runs the batch to its end before the next one.
//!
//! Invariant: every sequence in the batch is older than every other, so within it the rules are those of `fcfs`.

use super::draft::Draft;
use super::{Scheduler, fcfs};
use crate::{SequenceId, Tick};

/// Plans the running batch, or opens the next.
pub(super) fn fill(draft: &mut Draft<'_>, now: Tick) {
    let books = draft.books;
    let last = match last_of_batch(books) {
        Some(last) => last,
        None => match ready(draft, now) {
            Some(last) => {
                draft.open_batch(last);
                last
            }
            None => return,
        },
    };
    fcfs::fill_up_to(draft, last);
}

/// The last sequence of the running batch, if there is one. The batch does not wait for held sequences: it is unknown
/// when they are released.
fn last_of_batch(books: &Scheduler) -> Option<SequenceId> {
    let last = books.batch?;
    let waiting = books.waiting.iter().filter(|id| !books.sequences[id].is_held());
    let live = waiting.chain(&books.running).chain(&books.leaving);
    live.min().filter(|oldest| **oldest <= last).map(|_| last)
}

/// The last sequence of the next batch, if it may begin.
fn ready(draft: &Draft<'_>, now: Tick) -> Option<SequenceId> {
    let books = draft.books;
    let waiting: Vec<_> = draft.queue().take(books.settings.tuning.batch.sequences).collect();
    let is_full = waiting.len() == books.settings.tuning.batch.sequences;
    // The given time may have jumped back since.
    let oldest = *waiting.first()?;
    let is_late = due(books, oldest) <= now || books.sequences[&oldest].arrived > now;
    waiting.last().copied().filter(|_| is_full || is_late)
}

/// When a batch with this oldest sequence begins, full or not.
fn due(books: &Scheduler, oldest: SequenceId) -> Tick {
    books.sequences[&oldest].arrived.saturating_add(books.settings.tuning.batch.wait)
}

/// When the plan changes without an event.
pub(super) fn next_wakeup(books: &Scheduler) -> Option<Tick> {
    let mut waiting = books.waiting.iter().filter(|id| !books.sequences[id].is_held());
    let oldest = waiting.next().filter(|_| last_of_batch(books).is_none())?;
    Some(due(books, *oldest))
}
