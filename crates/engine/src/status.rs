//! The engine's latest statistics, whether it makes progress, and replies to queries.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Failure;
use crate::info::Health;
use crate::memory_response::Response;
use crate::message::{Answer, QueryId, QueryReply, StatsReport};
use crate::stats::Stats;

/// Hang limit of an engine in this process, which no watchdog restarts.
pub(crate) const IN_PROCESS_HANG_LIMIT: Duration = Duration::from_secs(120);

/// The engine's latest statistics and its state, shared by the handle and the thread that receives reports.
pub(crate) struct EngineStatus {
    snapshot: Mutex<Snapshot>,
    /// An engine with work whose last report is older than this counts as hung. The watchdog's limit, where there is one.
    hang_limit: Duration,
}

struct Snapshot {
    /// The running process's latest statistics.
    stats: Stats,
    /// Totals of earlier processes.
    earlier: Stats,
    reported_at: Instant,
    state: EngineState,
    memory_response: Response,
    /// Queries without a reply. Dropping a sender ends the wait for it.
    queries: BTreeMap<QueryId, Sender<Answer>>,
    next_query: QueryId,
}

enum EngineState {
    Running,
    /// Its process has died, and another is being started.
    Restarting,
    /// Its model cannot be loaded.
    LoadFailed {
        why: String,
        retry_at: Instant,
        requests: RetryState,
    },
    Stopped,
}

/// What happens to requests while the model cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryState {
    /// They are held for the next attempt.
    Holding,
    /// They are refused until a load succeeds.
    Refusing,
}

impl Snapshot {
    /// Keeps the totals of a process that has ended.
    fn carry_totals(&mut self) {
        let mut earlier = self.stats.plus_totals(&self.earlier);
        earlier.engine_restarts_total += 1;
        self.queries.clear();
        self.stats = Stats { scheduler: self.stats.scheduler.without_blocks(), ..Stats::default() };
        self.earlier = earlier;
    }
}

impl EngineStatus {
    /// The status of an engine that counts as hung after `hang_limit` without a report.
    pub(crate) fn new(hang_limit: Duration) -> Self {
        let (stats, earlier) = Default::default();
        let snapshot = Snapshot {
            stats,
            earlier,
            reported_at: Instant::now(),
            state: EngineState::Running,
            memory_response: Response::None,
            queries: BTreeMap::new(),
            next_query: QueryId(0),
        };
        Self { snapshot: Mutex::new(snapshot), hang_limit }
    }

    /// Stores a report's statistics, if it has any, and delivers its replies.
    pub(crate) fn update(&self, stats: Option<Box<StatsReport>>, replies: Vec<QueryReply>) {
        let mut snapshot = self.lock();
        snapshot.reported_at = Instant::now();
        for QueryReply { query, answer } in replies {
            if let Some(waiting) = snapshot.queries.remove(&query) {
                let _timed_out = waiting.send(answer);
            }
        }
        let Some(stats) = stats else { return };
        let StatsReport { stats, steps } = *stats;
        snapshot.stats = stats;
        for step in steps {
            metrics::histogram!("omnibus_step_seconds").record(step.seconds);
            metrics::histogram!("omnibus_step_tokens").record(step.tokens as f64);
        }
    }

    /// A new query, and where its answer comes. The channel closes if the engine ends before.
    pub(crate) fn new_query(&self) -> (QueryId, Receiver<Answer>) {
        let (reply, replies) = channel();
        let mut snapshot = self.lock();
        let query = snapshot.next_query;
        snapshot.next_query.0 += 1;
        snapshot.queries.insert(query, reply);
        (query, replies)
    }

    /// Drops a query whose reply is no longer awaited.
    pub(crate) fn end_query(&self, query: QueryId) {
        self.lock().queries.remove(&query);
    }

    /// The process has died. Its requests resume soon, so the queue's limit stays as it was.
    pub(crate) fn set_restarting(&self) {
        let mut snapshot = self.lock();
        snapshot.state = EngineState::Restarting;
        snapshot.carry_totals();
    }

    /// A process could not load its model. The next attempt is at `retry_at`.
    pub(crate) fn set_load_failed(&self, why: &str, retry_at: Instant, requests: RetryState) {
        let mut snapshot = self.lock();
        snapshot.carry_totals();
        snapshot.earlier.engine_load_failures_total += 1;
        if requests == RetryState::Refusing {
            (snapshot.stats.scheduler.queued, snapshot.stats.scheduler.running) = (0, 0);
        }
        snapshot.state = EngineState::LoadFailed { why: why.to_owned(), retry_at, requests };
    }

    /// The process has loaded its model.
    pub(crate) fn set_running(&self) {
        let mut snapshot = self.lock();
        (snapshot.state, snapshot.reported_at) = (EngineState::Running, Instant::now());
    }

    /// The engine has stopped for good.
    pub(crate) fn set_stopped(&self) {
        let mut snapshot = self.lock();
        snapshot.state = EngineState::Stopped;
        snapshot.queries.clear();
    }

    pub(crate) fn stats(&self) -> Stats {
        let snapshot = self.lock();
        snapshot.stats.plus_totals(&snapshot.earlier)
    }

    pub(crate) fn running(&self) -> usize {
        self.lock().stats.scheduler.running
    }

    pub(crate) fn retry_after_s(&self) -> u64 {
        self.lock().stats.retry_after_s.max(1)
    }

    /// Why new requests are refused, while the model cannot be loaded.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        let EngineState::LoadFailed { why, retry_at, requests: RetryState::Refusing } = &self.lock().state
        else {
            return None;
        };
        let wait_s = retry_at.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
        let message = format!("the engine cannot be loaded: {why}");
        Some(Failure::Unavailable { message, retry_after_s: Some((wait_s as u64).max(1)) })
    }

    /// Memory pressure has this response.
    pub(crate) fn set_memory_response(&self, response: Response) {
        self.lock().memory_response = response;
    }

    /// Whether there is memory for new requests.
    pub(crate) fn admits(&self) -> bool {
        self.lock().memory_response != Response::RefuseRequests
    }

    pub(crate) fn health(&self) -> Health {
        let health = self.progress();
        match self.lock().memory_response.detail() {
            "" => health,
            pressure => Health { detail: format!("{}; {pressure}", health.detail), ..health },
        }
    }

    fn progress(&self) -> Health {
        let snapshot = self.lock();
        match &snapshot.state {
            EngineState::Stopped => Health { alive: false, detail: "the engine has stopped".to_owned() },
            EngineState::Restarting => Health { alive: false, detail: "the engine restarts".to_owned() },
            EngineState::LoadFailed { why, .. } => {
                Health { alive: false, detail: format!("the engine cannot be loaded: {why}") }
            }
            EngineState::Running
                if snapshot.stats.scheduler.queued + snapshot.stats.scheduler.running == 0 =>
            {
                Health { alive: true, detail: "idle".to_owned() }
            }
            EngineState::Running => {
                let silent = snapshot.reported_at.elapsed();
                let steps = snapshot.stats.steps_total;
                let detail = format!("{steps} steps done, the last {:.1} s ago", silent.as_secs_f64());
                Health { alive: silent < self.hang_limit, detail }
            }
        }
    }

    /// A panic cannot leave the statistics half-written.
    fn lock(&self) -> MutexGuard<'_, Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an engine with work is healthy `silent` seconds after its last report.
    fn is_alive(hang_limit_s: u64, silent_s: u64) -> bool {
        let status = EngineStatus::new(Duration::from_secs(hang_limit_s));
        {
            let mut snapshot = status.lock();
            snapshot.stats.scheduler.running = 1;
            snapshot.reported_at -= Duration::from_secs(silent_s);
        }
        status.health().alive
    }

    #[test]
    fn an_engine_hangs_after_the_watchdogs_limit() {
        assert!(is_alive(120, 90));
        assert!(!is_alive(60, 90));
    }
}
