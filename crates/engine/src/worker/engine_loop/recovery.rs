//! Recovery from failed steps and panics: sequences are recomputed from their tokens.

use std::panic::resume_unwind;

use omnibus_core::{Scheduler, SequenceId};
use omnibus_text::Panic;

use super::{ActiveJob, EngineLoop};
use crate::Failure;
use crate::message::{Job, JobReport, JobUpdate};
use crate::sampler::SamplingChanges;
use crate::worker::catch_panic::catch_panic;

/// Consecutive iterations that may panic, without a completed step in between.
const PANICS_MAX: u32 = 3;

impl EngineLoop {
    /// After a failed step the KV cache is not trusted: all sequences are recomputed from their tokens, in smaller steps.
    pub(super) fn recover(&mut self, error: &mlx::Error) {
        tracing::warn!(%error, "a step failed; its sequences are recomputed");
        self.abort_steps();
        for event in self.scheduler.fail_steps() {
            self.handle_event(event);
        }
    }

    /// After a panic of the loop the scheduler's state is not trusted: a new one gets every job with its reported tokens.
    /// Time limits start again. A loop that panics repeatedly ends.
    pub(super) fn rebuild(&mut self, panic: &Panic) {
        tracing::error!(%panic, "the engine's loop panicked; all sequences are recomputed");
        self.panics += 1;
        if self.panics > PANICS_MAX {
            resume_unwind(Box::new(panic.to_string()));
        }
        self.abort_steps();
        if let Some(offload) = &mut self.offload {
            offload.detach();
        }
        let jobs = std::mem::take(&mut self.jobs);
        let jobs: Vec<Job> =
            jobs.into_iter().filter_map(|(sequence, active)| self.with_tokens(sequence, active)).collect();
        self.stats.scheduler_discarded(&self.scheduler.stats());
        self.scheduler = Scheduler::new(self.scheduler.settings().clone());
        jobs.into_iter().for_each(|job| self.submit(job));
    }

    /// The job with its tokens, as far as they were reported. If the scheduler has lost them, the job fails.
    fn with_tokens(&mut self, sequence: SequenceId, active: ActiveJob) -> Option<Job> {
        let ActiveJob { mut job, reported, max_tokens } = active;
        let scheduler = &self.scheduler;
        let Ok(tokens) = catch_panic(|| Ok(scheduler.tokens(sequence).to_vec())) else {
            let message = "its tokens were lost in a failure of the engine's loop".to_owned();
            let update = JobUpdate::Failed(Failure::Engine { message });
            self.reports.push(JobReport { job: job.id, update });
            return None;
        };
        job.request.prompt = tokens;
        job.request.prompt.truncate(reported);
        job.request.max_new_tokens = max_tokens.saturating_sub(reported);
        Some(job)
    }

    /// Drops the steps in flight, clears the KV cache and the runner's sampling state.
    fn abort_steps(&mut self) {
        self.in_flight.clear();
        self.known.clear();
        self.changes = SamplingChanges::default();
        if let Some(offload) = &mut self.offload {
            offload.cancel_all();
        }
        self.stats.step_failed();
        if let Err(error) = self.runner.reset() {
            tracing::error!(%error, "the KV cache cannot be allocated again");
        }
    }
}
