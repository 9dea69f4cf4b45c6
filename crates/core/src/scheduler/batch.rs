//! `static`: waits until there are enough, or for long enough, and runs these to the end before anybody else begins.
//!
//! Invariant: everyone in a batch is older than everyone who is not, so within it the rules are those of `fcfs`.

use super::draft::Draft;
use super::{Scheduler, fcfs};
use crate::{SequenceId, Tick};

/// Plans the batch that runs, or opens the next.
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

/// The last of the batch that runs, if one does. Of those that are held it is not known when they go on, so nobody
/// waits for them.
fn last_of_batch(books: &Scheduler) -> Option<SequenceId> {
    let last = books.batch?;
    let waiting = books.waiting.iter().filter(|id| !books.sequences[id].is_held());
    let live = waiting.chain(&books.running).chain(&books.leaving);
    live.min().filter(|oldest| **oldest <= last).map(|_| last)
}

/// The last of the next batch, if it may begin.
fn ready(draft: &Draft<'_>, now: Tick) -> Option<SequenceId> {
    let books = draft.books;
    let waiting: Vec<_> = draft.queue().take(books.settings.tuning.batch.sequences).collect();
    let is_full = waiting.len() == books.settings.tuning.batch.sequences;
    // Time that was told may have jumped back since.
    let oldest = *waiting.first()?;
    let is_late = due(books, oldest) <= now || books.sequences[&oldest].arrived > now;
    waiting.last().copied().filter(|_| is_full || is_late)
}

/// When a batch begins that this one is the oldest of, full or not.
fn due(books: &Scheduler, oldest: SequenceId) -> Tick {
    books.sequences[&oldest].arrived.saturating_add(books.settings.tuning.batch.wait)
}

/// When the plan changes though nothing happens.
pub(super) fn next_wakeup(books: &Scheduler) -> Option<Tick> {
    let mut waiting = books.waiting.iter().filter(|id| !books.sequences[id].is_held());
    let oldest = waiting.next().filter(|_| last_of_batch(books).is_none())?;
    Some(due(books, *oldest))
}
