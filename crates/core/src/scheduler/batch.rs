//! `static`: waits for a full batch, or for a time limit, and runs the batch to its end before the next one.
//!
//! Invariant: every sequence in the batch is older than every other, so within it the rules are those of `fcfs`.

use super::plan_builder::PlanBuilder;
use super::{Scheduler, fcfs};
use crate::request::{SequenceId, Tick};
use crate::sequence::Sequence;

/// Plans the running batch, or opens the next.
pub(super) fn fill(builder: &mut PlanBuilder<'_>, now: Tick) {
    let scheduler = builder.scheduler;
    let last = match last_of_batch(scheduler) {
        Some(last) => last,
        None => match ready(builder, now) {
            Some(last) => {
                builder.open_batch(last);
                last
            }
            None => return,
        },
    };
    fcfs::fill_up_to(builder, last);
}

/// The last sequence of the running batch, if there is one. The batch does not wait for held sequences: it is unknown
/// when they are released.
fn last_of_batch(scheduler: &Scheduler) -> Option<SequenceId> {
    let last = scheduler.policy.batch?;
    let waiting = scheduler.sequences.waiting().ready().next();
    let holding = scheduler.sequences.holding().next().map(Sequence::id);
    waiting.into_iter().chain(holding).min().filter(|oldest| *oldest <= last).map(|_| last)
}

/// The last sequence of the next batch, if it may begin.
fn ready(builder: &PlanBuilder<'_>, now: Tick) -> Option<SequenceId> {
    let scheduler = builder.scheduler;
    let waiting: Vec<_> =
        builder.queue().map(Sequence::id).take(scheduler.settings.tuning.batch.sequences).collect();
    let is_full = waiting.len() == scheduler.settings.tuning.batch.sequences;
    // The given time may have jumped back since.
    let oldest = *waiting.first()?;
    let is_late = due(scheduler, oldest) <= now || scheduler.sequences[oldest].arrived > now;
    waiting.last().copied().filter(|_| is_full || is_late)
}

/// When a batch with this oldest sequence begins, full or not.
fn due(scheduler: &Scheduler, oldest: SequenceId) -> Tick {
    scheduler.sequences[oldest].arrived.saturating_add(scheduler.settings.tuning.batch.wait)
}

/// When the plan changes without an event.
pub(super) fn next_wakeup(scheduler: &Scheduler) -> Option<Tick> {
    let oldest =
        scheduler.sequences.waiting().ready().next().filter(|_| last_of_batch(scheduler).is_none())?;
    Some(due(scheduler, oldest))
}
