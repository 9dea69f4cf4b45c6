//! What steps compute and which KV blocks jobs hold, for clients that look.
//!
//! Invariant: nothing is recorded unless it was requested within [`WATCH_TIME`].

use std::time::{Duration, Instant};

use omnibus_core::Plan;

use super::EngineLoop;
use crate::message::{JobReport, JobUpdate};
use crate::step_record::{StepRecord, WATCH_TIME};

/// The blocks of jobs are reported at most this often, however many clients look.
const BLOCKS_INTERVAL: Duration = Duration::from_millis(500);

/// Steps that were recorded since the last statistics.
#[derive(Default)]
pub(super) struct StepRecorder {
    /// `None` while no client looks.
    until: Option<Instant>,
    steps: Vec<StepRecord>,
    /// Runs of encoders up to the last recorded step.
    encoder_runs: u64,
    blocks_reported_at: Option<Instant>,
}

impl StepRecorder {
    /// The recorded steps.
    pub(super) fn take(&mut self) -> Vec<StepRecord> {
        std::mem::take(&mut self.steps)
    }

    fn is_on(&mut self) -> bool {
        self.until = self.until.filter(|until| Instant::now() < *until);
        self.until.is_some()
    }
}

impl EngineLoop {
    /// A client looks.
    pub(super) fn watch_steps(&mut self) {
        if !self.recorder.is_on() {
            self.recorder.encoder_runs = self.device.stats().media.encoder_runs_total;
        }
        let now = Instant::now();
        self.recorder.until = Some(now + WATCH_TIME);
        if self.recorder.blocks_reported_at.is_none_or(|at| now - at >= BLOCKS_INTERVAL) {
            self.recorder.blocks_reported_at = Some(now);
            self.report_blocks();
        }
    }

    /// What a plan computes, where a client looks.
    pub(super) fn recorded(&mut self, plan: &Plan) -> Option<StepRecord> {
        if !self.recorder.is_on() {
            return None;
        }
        let mut record = StepRecord { budget: self.scheduler.limits().tokens, ..StepRecord::default() };
        for work in &plan.scheduled {
            let (tokens, drafts) = (work.positions.len(), work.draft_tokens());
            record.drafts += drafts;
            match work.is_decode() {
                true => record.decodes += tokens.saturating_sub(drafts),
                false => record.prefill += tokens.saturating_sub(drafts),
            }
        }
        Some(record)
    }

    /// A recorded step was read.
    pub(super) fn add_record(&mut self, record: StepRecord, seconds: f64) {
        let runs = self.device.stats().media.encoder_runs_total;
        let encodes = runs.saturating_sub(std::mem::replace(&mut self.recorder.encoder_runs, runs));
        self.recorder.steps.push(StepRecord { seconds, encodes, ..record });
    }

    /// Reports the KV blocks of the jobs that have any.
    pub(super) fn report_blocks(&mut self) {
        for (sequence, active) in &self.jobs {
            let held = self.scheduler.held_blocks(*sequence);
            if held.blocks > 0 {
                self.reports.push(JobReport { job: active.job.id, update: JobUpdate::Blocks(held) });
            }
        }
    }
}
