//! The loop's reports to the front: updates of jobs at once, statistics when they are due.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use omnibus_core::{Plan, Tick};

use super::{EngineLoop, LoopEnergy};
use crate::error::Disconnected;
use crate::message::{JobReport, JobUpdate, Report, StatsReport, StepStats};
use crate::stats::{SchedulerStats, Stats};
use crate::worker::kv_events::KvEvents;
use crate::worker::kv_offload::KvOffload;

/// Upper bound of the retry estimate.
const RETRY_MAX_S: u64 = 600;
/// Statistics are sent this often while steps run, and when a request starts or ends.
const STATS_INTERVAL: Duration = Duration::from_millis(100);

/// The loop's own counters, and when statistics were last sent.
#[derive(Default)]
pub(super) struct LoopStats {
    counters: Stats,
    /// Counters of schedulers that were discarded after a panic.
    discarded: SchedulerStats,
    steps: Vec<StepStats>,
    waiting: Duration,
    /// All time that the device spent in dispatching.
    dispatching: Duration,
    sent_at: Option<Instant>,
    /// `None` where they are not published.
    kv_events: Option<KvEvents>,
}

impl LoopStats {
    pub(super) fn add_step(&mut self, step: StepStats) {
        self.counters.steps_total += 1;
        self.steps.push(step);
    }

    pub(super) fn finished(&mut self) {
        self.counters.finished_total += 1;
    }

    /// The scheduler is about to be discarded.
    pub(super) fn scheduler_discarded(&mut self, scheduler: &SchedulerStats) {
        self.discarded = scheduler.plus_totals(&self.discarded);
    }

    pub(super) fn step_failed(&mut self) {
        self.counters.failed_steps_total += 1;
    }

    /// Adds the time of an iteration that launched and read steps. `dispatching`: all time that went to dispatching so far.
    /// What [`Self::add_waiting`] got since the last iteration is part of it.
    pub(super) fn add_times(&mut self, all: Duration, dispatching: Duration) {
        let waiting = std::mem::take(&mut self.waiting);
        let before = std::mem::replace(&mut self.dispatching, dispatching);
        let dispatching = dispatching.saturating_sub(before);
        self.counters.host_seconds_total += all.saturating_sub(dispatching + waiting).as_secs_f64();
        self.counters.dispatch_seconds_total += dispatching.as_secs_f64();
        self.counters.wait_seconds_total += waiting.as_secs_f64();
    }

    /// Adds time in the scheduler.
    pub(super) fn add_planning(&mut self, planning: Duration) {
        self.counters.plan_seconds_total += planning.as_secs_f64();
    }

    /// Adds time in which the loop waited for a result.
    pub(super) fn add_waiting(&mut self, waiting: Duration) {
        self.waiting += waiting;
    }
}

impl EngineLoop {
    /// This loop, which publishes what its prefix cache stores and evicts.
    pub(in crate::worker) fn publishing(mut self, kv_events: Option<KvEvents>) -> Self {
        self.stats.kv_events = kv_events;
        self
    }

    /// Ends an iteration with its KV events, and with a report, if there is anything to report.
    pub(super) fn publish(&mut self) -> ControlFlow<()> {
        if let Some(kv_events) = &mut self.stats.kv_events {
            kv_events.publish(self.scheduler.take_cache_events());
        }
        match self.report() {
            Ok(()) => ControlFlow::Continue(()),
            Err(Disconnected) => ControlFlow::Break(()),
        }
    }

    /// Sends the jobs' updates, and the statistics if they are due. One of both is sent at least once in an interval, so
    /// reports show that the loop makes progress.
    pub(super) fn report(&mut self) -> Result<(), Disconnected> {
        let stats = self.stats_due().then(|| Box::new(self.collect_stats()));
        let nothing = self.reports.is_empty() && self.replies.is_empty() && !self.media.has_requests();
        if stats.is_none() && nothing {
            return Ok(());
        }
        let (mut jobs, replies) = (std::mem::take(&mut self.reports), std::mem::take(&mut self.replies));
        for jobs in split_after_large(&mut jobs) {
            (self.report_tx)(Report { jobs, ..Report::default() })?;
        }
        let requested_pixels = self.media.take_requests();
        (self.report_tx)(Report { jobs, stats, replies, requested_pixels })
    }

    fn stats_due(&self) -> bool {
        let counts = |report: &JobReport| match report.update {
            JobUpdate::Started { .. } | JobUpdate::Finished(_) | JobUpdate::Failed(_) => true,
            JobUpdate::Progress { .. }
            | JobUpdate::Prompt { .. }
            | JobUpdate::Alignment(_)
            | JobUpdate::Hidden(_)
            | JobUpdate::TokenLogits(_)
            | JobUpdate::Drafted(_)
            | JobUpdate::Energy(_)
            | JobUpdate::Blocks(_)
            | JobUpdate::Token(_) => false,
        };
        let idle = self.in_flight.is_empty() && self.scheduler.is_idle();
        idle || self.stats.sent_at.is_none_or(|at| at.elapsed() >= STATS_INTERVAL)
            || self.reports.iter().any(counts)
    }

    fn collect_stats(&mut self) -> StatsReport {
        let device = self.device.stats();
        self.stats.sent_at = Some(Instant::now());
        let stats = Stats {
            process: std::process::id(),
            scheduler: self.scheduler.stats().plus_totals(&self.stats.discarded),
            cost_model: self.scheduler.cost().clone(),
            retry_after_s: seconds(self.scheduler.retry_after()),
            kv_transfer: self.offload.as_ref().map(KvOffload::kv_transfer_stats).unwrap_or_default(),
            kv_events: self.stats.kv_events.as_ref().map(KvEvents::stats).unwrap_or_default(),
            disk: self.offload.as_ref().map(KvOffload::disk_stats).unwrap_or_default(),
            swap: self.offload.as_ref().map(KvOffload::swap_stats).unwrap_or_default(),
            launches: device.launches,
            experts: device.experts,
            grammar: self.grammars.stats(),
            media: device.media,
            energy: self.energy.as_ref().map(LoopEnergy::stats).unwrap_or_default(),
            active_memory_bytes: mlx::memory::active_memory() as u64,
            peak_memory_bytes: mlx::memory::peak_memory() as u64,
            cache_memory_bytes: mlx::memory::cache_memory() as u64,
            buffers: self.buffer_cache.count(),
            ..self.stats.counters.clone()
        };
        let (steps, watched) = (std::mem::take(&mut self.stats.steps), self.recorder.take());
        StatsReport { stats, steps, watched }
    }
}

/// Logs what a step is about to compute, and how long that should take.
pub(super) fn trace(plan: &Plan, cost: &omnibus_core::CostModel) {
    if tracing::enabled!(tracing::Level::TRACE) {
        let load = omnibus_core::StepLoad::of(plan);
        let expected_us = cost.predict(&load) as Tick;
        tracing::trace!(step = plan.id.0, ?load, expected_us, "step launched");
    }
}

/// Microseconds as whole seconds for a retry.
pub(super) fn seconds(ticks: Tick) -> u64 {
    ticks.div_ceil(1_000_000).clamp(1, RETRY_MAX_S)
}

/// Takes the updates up to each large one off `jobs`, which keeps those after the last: a message has a limit, which the
/// large updates of one step may exceed together.
fn split_after_large(jobs: &mut Vec<JobReport>) -> Vec<Vec<JobReport>> {
    let is_large = |report: &JobReport| {
        matches!(report.update, JobUpdate::Alignment(_) | JobUpdate::Hidden(_) | JobUpdate::TokenLogits(_))
    };
    let mut parts = Vec::new();
    while let Some(large) = jobs.iter().position(is_large) {
        let rest = jobs.split_off(large + 1);
        parts.push(std::mem::replace(jobs, rest));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alignment::AlignedTokens;
    use crate::event::FinishReason;
    use crate::message::JobId;

    #[test]
    fn a_large_update_ends_its_message_and_the_order_stays() {
        let report = |job, update| JobReport { job: JobId(job), update };
        let large = || JobUpdate::Alignment(AlignedTokens { first: 0, weights: vec![0.5] });
        let small = || JobUpdate::Finished(FinishReason::Stop);
        let mut jobs = vec![report(1, small()), report(2, large()), report(3, large()), report(2, small())];
        let all = jobs.clone();
        let mut parts = split_after_large(&mut jobs);
        parts.push(jobs);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!(parts.concat(), all);
        assert!(split_after_large(&mut vec![report(1, small())]).is_empty());
    }
}
