//! Recovery from failed steps and panics: sequences are recomputed from their tokens.

use std::panic::resume_unwind;

use omnibus_core::{self as core, Goal, Scheduler, SequenceId, Settings};
use omnibus_text::Panic;

use super::{ActiveJob, EngineLoop};
use crate::error::Failure;
use crate::message::{Job, JobReport, JobUpdate};
use crate::sampler::SamplingChanges;
use crate::worker::capacity::PoolSize;
use crate::worker::catch_panic::catch_panic;

/// Consecutive iterations that may panic, without a completed step in between.
const PANICS_MAX: u32 = 3;

impl EngineLoop {
    /// After a failed step the KV cache is not trusted: all sequences are recomputed from their tokens, in smaller steps.
    /// If the smallest step runs out of memory, or the KV cache cannot be allocated again, the KV cache gets smaller.
    pub(super) fn recover(&mut self, error: &mlx::Error) {
        tracing::warn!(%error, "a step failed; its sequences are recomputed");
        let is_smallest = self.is_smallest_step();
        let allocated = self.abort_steps();
        let is_too_large = allocated.is_err() || (is_smallest && is_out_of_memory(error));
        if is_too_large && self.shrink_pools() {
            return;
        }
        for event in self.scheduler.fail_steps() {
            match event {
                core::Event::Failed { sequence, failure: core::Failure::Step } => {
                    self.end_job(sequence, step_failed(error));
                }
                event => self.handle_event(event),
            }
        }
        // Features are gone, too.
        self.media.hold_all(&mut self.scheduler);
    }

    /// After a panic of the loop the scheduler's state is not trusted: a new one gets every job with its reported tokens.
    /// Time limits start again. A loop that panics repeatedly ends.
    pub(super) fn rebuild(&mut self, panic: &Panic) {
        tracing::error!(%panic, "the engine's loop panicked; all sequences are recomputed");
        self.panics += 1;
        if self.panics > PANICS_MAX {
            resume_unwind(Box::new(panic.to_string()));
        }
        if self.abort_steps().is_err() && self.shrink_pools() {
            return;
        }
        self.resubmit(self.scheduler.settings().clone());
    }

    /// Whether the last step was as small as steps get.
    fn is_smallest_step(&self) -> bool {
        let limits = self.scheduler.limits();
        limits.sequences == 1 && limits.tokens <= self.scheduler.settings().block_size
    }

    /// Allocates a smaller KV cache, and computes all sequences again in it. One that is too long for it fails. False if
    /// there is none that can be allocated; then nothing happens to sequences.
    fn shrink_pools(&mut self) -> bool {
        while let Some(PoolSize { blocks, max_context }) = self.smaller_pools.pop_front() {
            self.device.set_blocks(blocks.clone());
            if let Err(error) = self.device.reset() {
                tracing::error!(%error, "a smaller KV cache cannot be allocated");
                continue;
            }
            tracing::warn!(?blocks, max_context, "out of memory: the KV cache has fewer blocks now");
            let mut settings = self.scheduler.settings().clone();
            settings.max_context = settings.max_context.min(max_context);
            for (group, blocks) in settings.groups.iter_mut().zip(&blocks) {
                group.blocks = *blocks as u32;
            }
            self.resubmit(settings);
            return true;
        }
        // Blocks are allocated before the next step, as many as the scheduler counts on.
        let groups = &self.scheduler.settings().groups;
        self.device.set_blocks(groups.iter().map(|group| group.blocks as usize).collect());
        false
    }

    /// A new scheduler gets every job with its reported tokens.
    fn resubmit(&mut self, settings: Settings) {
        if let Some(offload) = &mut self.offload {
            offload.detach();
        }
        self.grammars.clear();
        let jobs = std::mem::take(&mut self.jobs);
        let jobs: Vec<Job> =
            jobs.into_iter().filter_map(|(sequence, active)| self.with_tokens(sequence, active)).collect();
        self.stats.scheduler_discarded(&self.scheduler.stats());
        self.scheduler = Scheduler::new(settings);
        jobs.into_iter().for_each(|job| self.submit(job));
    }

    /// The job with its tokens, as far as they were reported. If the scheduler has lost them, the job fails.
    fn with_tokens(&mut self, sequence: SequenceId, active: ActiveJob) -> Option<Job> {
        let ActiveJob { mut job, reported, max_tokens, .. } = active;
        job.media = self.media.remove(sequence);
        let scheduler = &self.scheduler;
        let Ok(tokens) = catch_panic(|| Ok(scheduler.tokens(sequence).to_vec())) else {
            let message = "its tokens were lost in a failure of the engine's loop".to_owned();
            let update = JobUpdate::Failed(Failure::Engine { message });
            self.reports.push(JobReport { job: job.id, update });
            return None;
        };
        job.request.prompt = tokens;
        job.request.prompt.truncate(reported);
        if let Goal::Generate { max_new_tokens } = &mut job.request.goal {
            *max_new_tokens = max_tokens.saturating_sub(reported);
        }
        Some(job)
    }

    /// Drops the steps in flight, clears the KV cache and the device's sampling state. Fails if the KV cache cannot be
    /// allocated again.
    fn abort_steps(&mut self) -> mlx::Result<()> {
        self.in_flight.clear();
        self.known.clear();
        self.changes = SamplingChanges::default();
        if let Some(drafts) = &mut self.drafts {
            drafts.clear();
        }
        if let Some(offload) = &mut self.offload {
            offload.cancel_all();
        }
        self.stats.step_failed();
        let allocated = self.device.reset();
        if let Err(error) = &allocated {
            tracing::error!(%error, "the KV cache cannot be allocated again");
        }
        allocated
    }
}

pub(super) fn failed(failure: core::Failure) -> JobUpdate {
    let message = match failure {
        core::Failure::Sampling => "the model's numbers for this request were not finite",
        core::Failure::Step => "this request cannot be computed even on its own",
        core::Failure::Engine => "the engine could not continue this request",
    };
    JobUpdate::Failed(Failure::Engine { message: message.to_owned() })
}

/// With the error of the last step.
fn step_failed(error: &mlx::Error) -> JobUpdate {
    let message = format!("this request cannot be computed even on its own: {error}");
    JobUpdate::Failed(Failure::Engine { message })
}

/// Whether an error says that memory ran out: in MLX's words, in CUDA's or in Metal's.
fn is_out_of_memory(error: &mlx::Error) -> bool {
    let text = error.to_string().to_lowercase();
    ["out of memory", "outofmemory", "insufficient memory", "unable to allocate"]
        .iter()
        .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_every_backend_say_that_memory_ran_out() {
        let says = |text: &str| is_out_of_memory(&mlx::Error::new(text));
        assert!(says("[malloc] Unable to allocate 1024 bytes."));
        assert!(says("cudaMallocAsync(&p, n, s) failed: out of memory"));
        assert!(says("Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"));
        assert!(!says("[matmul] Last dimension of first input must match"));
    }
}
