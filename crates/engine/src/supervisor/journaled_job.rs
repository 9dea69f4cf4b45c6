//! A job with the tokens reported so far: all that a new engine process needs to resume it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::message::Job;

/// A job that an engine process has or will get.
#[derive(Debug)]
pub(super) struct JournaledJob {
    /// Its prompt ends with the reported tokens.
    pub(super) job: Job,
    pub(super) arrived: Instant,
    pub(super) state: JobState,
    /// Tokens reported by the current process.
    pub(super) tokens_sent: usize,
    /// Crashes in which it was alone, without progress in between.
    pub(super) crashes_alone: u32,
    /// An earlier process had accepted it.
    pub(super) resumed: bool,
    /// It was at another replica before: a job that ends processes ends those of two replicas at most.
    pub(super) moved: bool,
    /// It counts at its replica.
    pub(super) place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobState {
    /// Waits here.
    Held,
    /// Waits here, after the process's queue was full, until another job has ended there.
    Rejected,
    /// In the process's queue.
    Dispatched,
    /// In the process, and in at least one step.
    Started,
    /// Cancelled; the process has been sent the command.
    Cancelling,
}

impl JournaledJob {
    /// A new job.
    pub(super) fn new(job: Job, arrived: Instant, place: Place) -> Self {
        Self {
            job,
            arrived,
            state: JobState::Held,
            tokens_sent: 0,
            crashes_alone: 0,
            resumed: false,
            moved: false,
            place,
        }
    }
}

/// One of the open jobs of a replica, as long as it is there.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Counts one more.
    pub(super) fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
