//! When something went wrong: everything starts over from its tokens. And failures on order, for tests.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::resume_unwind;

use omnibus_core::{Plan, Scheduler, SequenceId};

use super::Loop;
use crate::fault::{FaultPlan, Kind, Player, Scene, panic_on_order};
use crate::message::Job;
use crate::worker::contained::said;
use crate::worker::launch::Rows;

/// Turns that may panic one after the other, with no good step between them.
const PANICS_MAX: u32 = 3;

impl Loop {
    /// After a step failed as a whole: nothing in memory can be trusted, so everything starts over
    /// from its tokens, in smaller steps.
    pub(super) fn recover(&mut self, error: &mlx::Error) {
        tracing::warn!(%error, "a step failed; its sequences start over");
        self.flight.clear();
        if let Some(tier) = &mut self.tier {
            tier.abandon();
        }
        for event in self.scheduler.fail_steps() {
            self.hear(event);
        }
        self.stats.failed_steps_total += 1;
        if let Err(error) = self.runner.reset() {
            tracing::error!(%error, "the memory for keys and values cannot be made anew");
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
        self.flight.clear();
        if let Some(tier) = &mut self.tier {
            tier.abandon();
            tier.disown();
        }
        self.scheduler = Scheduler::new(self.scheduler.settings().clone());
        self.stats.failed_steps_total += 1;
        if let Err(error) = self.runner.reset() {
            tracing::error!(%error, "the memory for keys and values cannot be made anew");
        }
        self.sequences.clear();
        let jobs = std::mem::take(&mut self.jobs);
        jobs.into_values().for_each(|job| self.submit(job));
    }
}

/// Finds what is to go wrong with a step, and with its rows.
pub(super) fn order_faults(
    faults: &FaultPlan,
    step: u64,
    rows: &mut Rows,
    plan: &Plan,
    jobs: &BTreeMap<SequenceId, Job>,
) -> Option<Kind> {
    let scene = Scene { step, tokens: rows.tokens.len() };
    let player = |sequence: &SequenceId| {
        jobs.get(sequence).map(|job| Player { prompt: &job.prompt, answered: job.generated.len() })
    };
    for row in &mut rows.samples {
        row.fault = player(&row.sequence).and_then(|player| faults.of_row(scene, player));
    }
    faults.of_step(scene, plan.work.iter().filter_map(|work| player(&work.sequence)))
}

/// Does what can be done before a step is built.
pub(super) fn strike(fault: Option<Kind>) -> mlx::Result<()> {
    match fault {
        Some(Kind::Launch) => Err(mlx::Error::new("a launch that fails on order")),
        Some(Kind::Turn) => panic_on_order(),
        Some(Kind::Abort) => std::process::abort(),
        Some(Kind::Hang) => loop {
            std::thread::park();
        },
        Some(
            Kind::LaunchPanic
            | Kind::Draw
            | Kind::Read
            | Kind::NotANumber
            | Kind::Sampler
            | Kind::DiskFull
            | Kind::DiskReader,
        )
        | None => Ok(()),
    }
}

pub(super) fn draw_on_order() -> mlx::Error {
    mlx::Error::new("a sampling that fails on order")
}
