//! The loop's reports to the front.

use std::ops::ControlFlow;

use omnibus_core::Tick;

use super::{EngineLoop, InFlightStep};
use crate::Stats;
use crate::error::Disconnected;
use crate::message::{Report, StepStats};
use crate::worker::kv_offload::KvOffload;

/// Upper bound of the retry estimate.
const RETRY_MAX_S: u64 = 600;

impl EngineLoop {
    /// Ends an iteration with a report, which also shows that the loop makes progress.
    pub(super) fn publish(&mut self) -> ControlFlow<()> {
        match self.report() {
            Ok(()) => ControlFlow::Continue(()),
            Err(Disconnected) => ControlFlow::Break(()),
        }
    }

    /// Sends the jobs' updates and the statistics.
    pub(super) fn report(&mut self) -> Result<(), Disconnected> {
        let scheduler = self.scheduler.stats();
        let stats = &mut self.stats;
        stats.process = std::process::id();
        (stats.queued, stats.running) = (scheduler.queued, scheduler.running);
        stats.kv_blocks_used = scheduler.groups.iter().map(|group| group.used).sum();
        stats.kv_blocks_cached = scheduler.groups.iter().map(|group| group.cached).sum();
        stats.kv_blocks_total = scheduler.groups.iter().map(|group| group.total).sum();
        stats.prefix_misses = scheduler.misses;
        stats.partial_copies_total = scheduler.partial_copies_total;
        stats.checkpoints_total = scheduler.checkpoints_total;
        stats.sessions_kept = scheduler.sessions;
        stats.groups = scheduler.groups;
        stats.preemptions_total = scheduler.preemptions_total;
        stats.swap_preemptions_total = scheduler.swap_preemptions_total;
        stats.cached_tokens_total = scheduler.cached_tokens_total;
        stats.computed_tokens_total = scheduler.computed_tokens_total;
        stats.generated_tokens_total = scheduler.sampled_tokens_total;
        stats.cost_model.clone_from(self.scheduler.cost());
        stats.retry_after_s = seconds(self.scheduler.retry_after());
        stats.handovers_total = scheduler.handoffs_total;
        stats.disk = self.offload.as_ref().map(KvOffload::disk_stats).unwrap_or_default();
        stats.swap = self.offload.as_ref().map(KvOffload::swap_stats).unwrap_or_default();
        stats.active_memory_bytes = mlx::memory::active_memory() as u64;
        stats.peak_memory_bytes = mlx::memory::peak_memory() as u64;
        stats.cache_memory_bytes = mlx::memory::cache_memory() as u64;
        let (jobs, steps) = (std::mem::take(&mut self.reports), std::mem::take(&mut self.steps));
        // Sessions are only in the report after a query: the list may be long.
        let sessions = std::mem::take(&mut stats.sessions);
        (self.report_tx)(Report { jobs, stats: Stats { sessions, ..stats.clone() }, steps })
    }

    pub(super) fn observe(&mut self, in_flight: &InFlightStep) {
        self.stats.steps_total += 1;
        let seconds = in_flight.started.elapsed().as_secs_f64();
        self.steps.push(StepStats { seconds, tokens: in_flight.tokens });
    }
}

/// Microseconds as whole seconds for a retry.
pub(super) fn seconds(ticks: Tick) -> u64 {
    ticks.div_ceil(1_000_000).clamp(1, RETRY_MAX_S)
}
