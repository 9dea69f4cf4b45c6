//! Injected faults of steps, for tests.

use std::collections::BTreeMap;

use omnibus_core::{Plan, SequenceId};

use crate::fault::{FaultContext, FaultPlan, FaultTarget, Kind, injected_panic};
use crate::message::Job;
use crate::worker::step_input::Rows;

/// Finds what is to go wrong with a step, and with its rows.
pub(super) fn inject_faults(
    faults: &FaultPlan,
    step: u64,
    rows: &mut Rows,
    plan: &Plan,
    jobs: &BTreeMap<SequenceId, Job>,
) -> Option<Kind> {
    let context = FaultContext { step, tokens: rows.tokens.len() };
    let target = |sequence: &SequenceId| {
        jobs.get(sequence).map(|job| FaultTarget { prompt: &job.prompt, answered: job.generated.len() })
    };
    for row in &mut rows.samples {
        row.fault = target(&row.sequence).and_then(|target| faults.of_row(context, target));
    }
    faults.of_step(context, plan.scheduled.iter().filter_map(|work| target(&work.sequence)))
}

/// Does what can be done before a step is built.
pub(super) fn inject_before_launch(fault: Option<Kind>) -> mlx::Result<()> {
    match fault {
        Some(Kind::Launch) => Err(mlx::Error::new("a launch that fails on order")),
        Some(Kind::Turn) => injected_panic(),
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

pub(super) fn injected_sample_error() -> mlx::Error {
    mlx::Error::new("a sampling that fails on order")
}
