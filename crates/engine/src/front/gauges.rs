//! The engine's numbers as everybody may read them, and whether it gets on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::info::{Health, Stats};
use super::loads::Hope;
use crate::Failure;
use crate::message::StepSeen;

/// A turn that takes longer than this with work to do is taken for a hang.
const HANG: Duration = Duration::from_secs(60);

/// The engine's numbers as everybody may read them.
pub(crate) struct Gauges(Mutex<Shown>);

struct Shown {
    /// What the engine that runs said last.
    stats: Stats,
    /// The totals of engines that ran before it.
    before: Stats,
    heard: Instant,
    life: Life,
}

enum Life {
    Runs,
    /// Its process has died, and another is being started.
    Restarts,
    /// Its model cannot be loaded.
    Fails {
        why: String,
        next: Instant,
        hope: Hope,
    },
    Over,
}

impl Shown {
    /// The numbers of a process that is gone: its totals stay.
    fn bury(&mut self) {
        let mut before = self.stats.after(&self.before);
        before.engine_restarts_total += 1;
        let Stats { queued, running, kv_blocks_total, .. } = self.stats;
        self.stats = Stats { queued, running, kv_blocks_total, ..Stats::default() };
        self.before = before;
    }
}

impl Default for Gauges {
    fn default() -> Self {
        let (stats, before) = Default::default();
        Self(Mutex::new(Shown { stats, before, heard: Instant::now(), life: Life::Runs }))
    }
}

impl Gauges {
    /// Takes in what the engine says of itself.
    pub(super) fn hear(&self, mut stats: Stats, steps: &[StepSeen]) {
        for step in steps {
            metrics::histogram!("omnibus_step_seconds").record(step.seconds);
            metrics::histogram!("omnibus_step_tokens").record(step.tokens as f64);
        }
        let mut shown = self.lock();
        if stats.session_looks_total == shown.stats.session_looks_total {
            // It says what sessions there are only when it has looked.
            stats.sessions = std::mem::take(&mut shown.stats.sessions);
        }
        (shown.stats, shown.heard) = (stats, Instant::now());
    }

    /// Its process has died. Those that ran run on soon: the queue that may stand is as long as before.
    pub(super) fn restart(&self) {
        let mut shown = self.lock();
        shown.life = Life::Restarts;
        shown.bury();
    }

    /// A process could not load its model. The next tries at `next`.
    pub(super) fn load_failed(&self, why: &str, next: Instant, hope: Hope) {
        let mut shown = self.lock();
        shown.bury();
        shown.before.engine_load_failures_total += 1;
        if hope == Hope::Lost {
            (shown.stats.queued, shown.stats.running) = (0, 0);
        }
        shown.life = Life::Fails { why: why.to_owned(), next, hope };
    }

    /// Its process has loaded.
    pub(super) fn run(&self) {
        let mut shown = self.lock();
        (shown.life, shown.heard) = (Life::Runs, Instant::now());
    }

    /// The engine has ended, for good.
    pub(super) fn end(&self) {
        self.lock().life = Life::Over;
    }

    pub(crate) fn stats(&self) -> Stats {
        let shown = self.lock();
        shown.stats.after(&shown.before)
    }

    pub(crate) fn running(&self) -> usize {
        self.lock().stats.running
    }

    pub(crate) fn retry_after_s(&self) -> u64 {
        self.lock().stats.retry_after_s.max(1)
    }

    /// What becomes of a request that comes now, if nobody can say when it would be computed.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        let Life::Fails { why, next, hope: Hope::Lost } = &self.lock().life else { return None };
        let wait_s = next.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
        let message = format!("the engine cannot be loaded: {why}");
        Some(Failure::Unavailable { message, retry_after_s: Some((wait_s as u64).max(1)) })
    }

    pub(crate) fn health(&self) -> Health {
        let shown = self.lock();
        match &shown.life {
            Life::Over => Health { alive: false, detail: "the engine has stopped".to_owned() },
            Life::Restarts => Health { alive: false, detail: "the engine restarts".to_owned() },
            Life::Fails { why, .. } => {
                Health { alive: false, detail: format!("the engine cannot be loaded: {why}") }
            }
            Life::Runs if shown.stats.queued + shown.stats.running == 0 => {
                Health { alive: true, detail: "idle".to_owned() }
            }
            Life::Runs => {
                let silent = shown.heard.elapsed();
                let steps = shown.stats.steps_total;
                let detail = format!("{steps} steps done, the last {:.1} s ago", silent.as_secs_f64());
                Health { alive: silent < HANG, detail }
            }
        }
    }

    /// Numbers cannot be left half-changed and wrong.
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
