//! Numbers that everybody may read while the loop runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::front::{Health, Stats};

/// A step that takes longer than this with work to do is taken for a hang.
const HANG: Duration = Duration::from_secs(60);

/// Numbers that everybody may read while the loop runs.
pub(crate) struct Gauges {
    born: Instant,
    /// Milliseconds from birth to the last sign of progress.
    progress_ms: AtomicU64,
    /// The loop has ended.
    over: AtomicU64,
    stats: Mutex<Stats>,
}

impl Default for Gauges {
    fn default() -> Self {
        let (progress_ms, over, stats) = Default::default();
        Self { born: Instant::now(), progress_ms, over, stats }
    }
}

impl Gauges {
    /// The loop is awake and gets on.
    pub(super) fn progress(&self) {
        self.progress_ms.store(self.born.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// The loop has ended.
    pub(super) fn end(&self) {
        self.over.store(1, Ordering::Relaxed);
    }

    /// Changes the numbers.
    pub(super) fn update(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stats.active_memory_bytes = mlx::memory::active_memory() as u64;
        stats.peak_memory_bytes = mlx::memory::peak_memory() as u64;
        stats.cache_memory_bytes = mlx::memory::cache_memory() as u64;
        stats
    }

    pub(crate) fn running(&self) -> usize {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).running
    }

    pub(crate) fn health(&self) -> Health {
        if self.over.load(Ordering::Relaxed) != 0 {
            return Health { alive: false, detail: "the engine has stopped".to_owned() };
        }
        let stats = self.stats();
        let since = Duration::from_millis(self.progress_ms.load(Ordering::Relaxed));
        let silent = self.born.elapsed().saturating_sub(since);
        if stats.queued + stats.running == 0 {
            return Health { alive: true, detail: "idle".to_owned() };
        }
        let alive = silent < HANG;
        let detail = format!("{} steps done, the last {:.1} s ago", stats.steps_total, silent.as_secs_f64());
        Health { alive, detail }
    }

    /// Seconds in which the queue that stands is likely to have moved: what waits, at the rate at which
    /// sequences have been finished so far.
    pub(crate) fn retry_after_s(&self) -> u64 {
        let stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = stats.finished_total.max(1) as f64;
        let busy = stats.host_seconds_total + stats.dispatch_seconds_total + stats.wait_seconds_total;
        ((stats.queued as f64 / 2.0) * busy / finished).clamp(1.0, 60.0).ceil() as u64
    }
}
