//! What the front is told at the end of a turn.

use omnibus_core::Tick;

use super::{Fate, Flight, Loop};
use crate::Stats;
use crate::message::{Report, StepSeen};
use crate::worker::NobodyListens;
use crate::worker::tier::Tier;

/// Nobody is told to come back later than this.
const RETRY_MAX_S: u64 = 600;

impl Loop {
    /// Ends a turn with a report, which is also the sign of life.
    pub(super) fn publish(&mut self) -> Fate {
        match self.report() {
            Ok(()) => Fate::GoesOn,
            Err(NobodyListens) => Fate::Stops,
        }
    }

    /// Sends what is to be told, and the numbers.
    pub(super) fn report(&mut self) -> Result<(), NobodyListens> {
        let books = self.scheduler.stats();
        let stats = &mut self.stats;
        stats.process = std::process::id();
        (stats.queued, stats.running) = (books.queued, books.running);
        stats.kv_blocks_used = books.groups.iter().map(|group| group.used).sum();
        stats.kv_blocks_cached = books.groups.iter().map(|group| group.cached).sum();
        stats.kv_blocks_total = books.groups.iter().map(|group| group.total).sum();
        stats.prefix_misses = books.misses;
        stats.partial_copies_total = books.partial_copies_total;
        stats.checkpoints_total = books.checkpoints_total;
        stats.sessions_kept = books.sessions;
        stats.groups = books.groups;
        stats.preemptions_total = books.preemptions_total;
        stats.swap_preemptions_total = books.swap_preemptions_total;
        stats.cached_tokens_total = books.cached_tokens_total;
        stats.computed_tokens_total = books.computed_tokens_total;
        stats.generated_tokens_total = books.sampled_tokens_total;
        stats.cost_model.clone_from(self.scheduler.cost());
        stats.retry_after_s = seconds(self.scheduler.retry_after());
        stats.handovers_total = books.handoffs_total;
        stats.disk = self.tier.as_ref().map(Tier::disk_stats).unwrap_or_default();
        stats.swap = self.tier.as_ref().map(Tier::swap_stats).unwrap_or_default();
        stats.active_memory_bytes = mlx::memory::active_memory() as u64;
        stats.peak_memory_bytes = mlx::memory::peak_memory() as u64;
        stats.cache_memory_bytes = mlx::memory::cache_memory() as u64;
        let (notes, steps) = (std::mem::take(&mut self.told), std::mem::take(&mut self.steps));
        // Only the report after a look carries what was seen: it may be long, and a report goes out at every step.
        let sessions = std::mem::take(&mut stats.sessions);
        (self.outlet)(Report { notes, stats: Stats { sessions, ..stats.clone() }, steps })
    }

    pub(super) fn observe(&mut self, flight: &Flight) {
        self.stats.steps_total += 1;
        let seconds = flight.started.elapsed().as_secs_f64();
        self.steps.push(StepSeen { seconds, tokens: flight.tokens });
    }
}

/// Microseconds as whole seconds that may be waited for.
pub(super) fn seconds(ticks: Tick) -> u64 {
    ticks.div_ceil(1_000_000).clamp(1, RETRY_MAX_S)
}
