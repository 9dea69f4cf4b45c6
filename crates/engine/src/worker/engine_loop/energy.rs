//! Which sequences used the energy of a step.
//!
//! Invariant: the loop never waits for a sensor: the meter's thread reads it.

use omnibus_core::{Plan, SequenceId};
use omnibus_power::{Attribution, Device, Meter, Phase, Row};

use super::{ActiveJob, EngineLoop};
use crate::energy::{EnergyStats, EnergyUsage};
use crate::message::{JobReport, JobUpdate};

/// A meter, and which sequences used what it counted.
pub(in crate::worker) struct LoopEnergy {
    meter: Meter,
    attribution: Attribution,
}

impl LoopEnergy {
    /// Counts the energy of a device from now on, or estimates it from a stated power. `None` where there is no sensor.
    pub(in crate::worker) fn start(device: mlx::device::Device, model_watts: Option<f64>) -> Option<Self> {
        let device = match device {
            mlx::device::Device::Cpu => Device::Cpu,
            mlx::device::Device::Gpu => Device::Gpu,
        };
        let meter = Meter::start(move || omnibus_power::open(device, model_watts));
        let meter = meter.inspect_err(|error| tracing::debug!("no energy is counted: {error}")).ok()?;
        let attribution = Attribution::new(meter.microjoules());
        Some(Self { meter, attribution })
    }

    pub(super) fn stats(&self) -> EnergyStats {
        let totals = self.attribution.totals();
        EnergyStats {
            source: Some(self.meter.source()),
            watts: self.meter.watts(),
            prompt_millijoules_total: totals.prompt / 1000,
            completion_millijoules_total: totals.completion / 1000,
            idle_millijoules_total: totals.idle / 1000,
        }
    }
}

impl EngineLoop {
    /// Nothing was computed until now.
    pub(super) fn end_idle_time(&mut self) {
        if let Some(energy) = &mut self.energy {
            energy.attribution.idle(energy.meter.microjoules());
        }
    }

    /// The rows that share a step's energy; none where it is not counted.
    pub(super) fn energy_rows(&self, plan: &Plan) -> Vec<Row<SequenceId>> {
        if self.energy.is_none() {
            return Vec::new();
        }
        let row = |work: &omnibus_core::ScheduledSequence| {
            let job = &self.jobs.get(&work.sequence)?.job;
            let phase = match work.positions.start < job.prompt {
                true => Phase::Prompt,
                false => Phase::Completion,
            };
            Some(Row { key: work.sequence, phase, tokens: work.positions.len() })
        };
        plan.scheduled.iter().filter_map(row).collect()
    }

    /// Shares the energy of a step that was just read.
    pub(super) fn share_energy(&mut self, rows: &[Row<SequenceId>]) {
        let Some(energy) = &mut self.energy else { return };
        let parts = energy.attribution.step(energy.meter.microjoules(), rows);
        let source = energy.meter.source();
        for (row, part) in rows.iter().zip(parts) {
            // One that was cancelled meanwhile gets no report; the totals have its part.
            let Some(active) = self.jobs.get_mut(&row.key) else { continue };
            let usage = active.energy.get_or_insert(EnergyUsage::none(source));
            match row.phase {
                Phase::Prompt => usage.prompt_microjoules += part,
                Phase::Completion => usage.completion_microjoules += part,
            }
        }
    }

    /// Reports a job's energy, if it is counted.
    pub(super) fn report_energy(&mut self, active: &ActiveJob) {
        if let Some(energy) = active.energy {
            self.reports.push(JobReport { job: active.job.id, update: JobUpdate::Energy(energy) });
        }
    }
}
