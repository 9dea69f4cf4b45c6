//! Recovery from failed steps and panics: sequences are recomputed from their tokens.

use std::any::Any;
use std::panic::resume_unwind;

use omnibus_core::Scheduler;

use super::EngineLoop;
use crate::worker::catch_panic::panic_message;

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

    /// After a panic of the loop the scheduler's state is not trusted: a new one gets every job with its tokens so far. Time
    /// limits start again. A loop that panics repeatedly ends.
    pub(super) fn rebuild(&mut self, panic: Box<dyn Any + Send>) {
        tracing::error!(
            panic = panic_message(panic.as_ref()),
            "the engine's loop panicked; all sequences are recomputed"
        );
        self.panics += 1;
        if self.panics > PANICS_MAX {
            resume_unwind(panic);
        }
        self.abort_steps();
        if let Some(offload) = &mut self.offload {
            offload.detach();
        }
        self.scheduler = Scheduler::new(self.scheduler.settings().clone());
        self.sequences.clear();
        let jobs = std::mem::take(&mut self.jobs);
        jobs.into_values().for_each(|job| self.submit(job));
    }

    /// Drops the steps in flight and clears the KV cache.
    fn abort_steps(&mut self) {
        self.in_flight.clear();
        if let Some(offload) = &mut self.offload {
            offload.cancel_all();
        }
        self.stats.failed_steps_total += 1;
        if let Err(error) = self.runner.reset() {
            tracing::error!(%error, "the KV cache cannot be allocated again");
        }
    }
}
