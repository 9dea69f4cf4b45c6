//! A job with the tokens reported so far: all that a new engine process needs to resume it.

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
    pub(super) fn new(job: Job, now: Instant) -> Self {
        let (tokens_sent, crashes_alone) = (0, 0);
        Self { job, arrived: now, state: JobState::Held, tokens_sent, crashes_alone, resumed: false }
    }
}
