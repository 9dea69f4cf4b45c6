//! When something went wrong: everything starts over from its tokens.

use std::any::Any;
use std::panic::resume_unwind;

use omnibus_core::Scheduler;

use super::Loop;
use crate::worker::contained::said;

/// Turns that may panic one after the other, with no good step between them.
const PANICS_MAX: u32 = 3;

impl Loop {
    /// After a step failed as a whole: nothing in memory can be trusted, so everything starts over
    /// from its tokens, in smaller steps.
    pub(super) fn recover(&mut self, error: &mlx::Error) {
        tracing::warn!(%error, "a step failed; its sequences start over");
        self.give_up_steps();
        for event in self.scheduler.fail_steps() {
            self.hear(event);
        }
    }

    /// After a panic of the loop itself: the books may be wrong, so they are opened anew, and every job goes on from
    /// its tokens. Time limits begin again. A loop that panics whatever it is given ends, and says so by that.
    pub(super) fn rebuild(&mut self, panic: Box<dyn Any + Send>) {
        tracing::error!(panic = said(panic.as_ref()), "the engine's loop panicked; everything starts over");
        self.panics += 1;
        if self.panics > PANICS_MAX {
            resume_unwind(panic);
        }
        self.give_up_steps();
        if let Some(tier) = &mut self.tier {
            tier.disown();
        }
        self.scheduler = Scheduler::new(self.scheduler.settings().clone());
        self.sequences.clear();
        let jobs = std::mem::take(&mut self.jobs);
        jobs.into_values().for_each(|job| self.submit(job));
    }

    /// Forgets the steps in flight and all that was remembered of any.
    fn give_up_steps(&mut self) {
        self.flight.clear();
        if let Some(tier) = &mut self.tier {
            tier.abandon();
        }
        self.stats.failed_steps_total += 1;
        if let Err(error) = self.runner.reset() {
            tracing::error!(%error, "the memory for keys and values cannot be made anew");
        }
    }
}
