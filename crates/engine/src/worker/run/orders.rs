//! Failures on order, for tests: where the loop asks for them.

use std::collections::BTreeMap;

use omnibus_core::{Plan, SequenceId};

use crate::fault::{FaultPlan, Kind, Player, Scene, panic_on_order};
use crate::message::Job;
use crate::worker::launch::Rows;

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
    faults.of_step(scene, plan.scheduled.iter().filter_map(|work| player(&work.sequence)))
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
