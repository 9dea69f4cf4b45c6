//! The engine's latest statistics, whether it makes progress, and replies to queries.

mod queries;

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use crate::buffer_count::BufferStats;
use crate::error::Failure;
use crate::info::Health;
use crate::live_steps::StepFeed;
use crate::memory_response::Response;
use crate::message::{Answer, QueryId, QueryReply, StatsReport};
use crate::stats::Stats;
use crate::step_record::StepRecord;
use queries::Queries;

/// Hang limit of an engine in this process, which no watchdog restarts.
pub(crate) const IN_PROCESS_HANG_LIMIT: Duration = Duration::from_secs(120);

/// The latest statistics and the state of a model's engine, of each of its replicas: shared by the handle and the threads
/// that receive reports.
pub(crate) struct EngineStatus {
    replicas: Vec<Arc<Mutex<Snapshot>>>,
    queries: Arc<Mutex<Queries>>,
    steps: Arc<StepFeed>,
    memory_response: Mutex<Response>,
    /// An engine with work whose last report is older than this counts as hung. The watchdog's limit, where there is one.
    hang_limit: Duration,
}

/// The part of the status that one replica writes.
pub(crate) struct ReplicaStatus {
    snapshot: Arc<Mutex<Snapshot>>,
    queries: Arc<Mutex<Queries>>,
    steps: Arc<StepFeed>,
}

struct Snapshot {
    /// The running process's latest statistics.
    stats: Stats,
    /// Totals of earlier processes.
    earlier: Stats,
    reported_at: Instant,
    state: EngineState,
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
    fn new() -> Self {
        let (stats, earlier) = Default::default();
        Self { stats, earlier, reported_at: Instant::now(), state: EngineState::Running }
    }

    /// Keeps the totals of a process that has ended.
    fn carry_totals(&mut self) {
        let mut earlier = self.stats.plus_totals(&self.earlier);
        earlier.engine_restarts_total += 1;
        self.stats = Stats { scheduler: self.stats.scheduler.without_blocks(), ..Stats::default() };
        self.earlier = earlier;
    }

    fn totals(&self) -> Stats {
        self.stats.plus_totals(&self.earlier)
    }

    /// Why new requests are refused, while the model cannot be loaded.
    fn refusal(&self) -> Option<Failure> {
        let EngineState::LoadFailed { why, retry_at, requests: RetryState::Refusing } = &self.state else {
            return None;
        };
        let wait_s = retry_at.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
        let message = format!("the engine cannot be loaded: {why}");
        Some(Failure::Unavailable { message, retry_after_s: Some((wait_s as u64).max(1)) })
    }

    fn health(&self, hang_limit: Duration) -> Health {
        let scheduler = &self.stats.scheduler;
        match &self.state {
            EngineState::Stopped => Health { alive: false, detail: "the engine has stopped".to_owned() },
            EngineState::Restarting => Health { alive: false, detail: "the engine restarts".to_owned() },
            EngineState::LoadFailed { why, .. } => {
                Health { alive: false, detail: format!("the engine cannot be loaded: {why}") }
            }
            EngineState::Running if scheduler.queued + scheduler.running == 0 => {
                Health { alive: true, detail: "idle".to_owned() }
            }
            EngineState::Running => {
                let silent = self.reported_at.elapsed();
                let steps = self.stats.steps_total;
                let detail = format!("{steps} steps done, the last {:.1} s ago", silent.as_secs_f64());
                Health { alive: silent < hang_limit, detail }
            }
        }
    }
}

impl EngineStatus {
    /// The status of an engine of so many replicas, each of which counts as hung after `hang_limit` without a report.
    pub(crate) fn new(replicas: usize, hang_limit: Duration) -> Self {
        let replicas = (0..replicas).map(|_| Arc::new(Mutex::new(Snapshot::new()))).collect();
        let (queries, steps) = Default::default();
        Self { replicas, queries, steps, memory_response: Mutex::new(Response::None), hang_limit }
    }

    /// What each replica writes.
    pub(crate) fn replicas(&self) -> Vec<ReplicaStatus> {
        let part = |snapshot| ReplicaStatus {
            snapshot: Arc::clone(snapshot),
            queries: Arc::clone(&self.queries),
            steps: Arc::clone(&self.steps),
        };
        self.replicas.iter().map(part).collect()
    }

    /// A new query to all replicas, and where their answer comes. The channel closes if one ends before.
    pub(crate) fn new_query(&self) -> (QueryId, Receiver<Answer>) {
        lock(&self.queries).begin(self.replicas.len())
    }

    /// Drops a query whose reply is no longer awaited.
    pub(crate) fn end_query(&self, query: QueryId) {
        lock(&self.queries).end(query);
    }

    /// The steps of all replicas from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<StepRecord> {
        self.steps.subscribe()
    }

    /// The engine has stopped for good.
    pub(crate) fn set_stopped(&self) {
        self.steps.close();
        for replica in &self.replicas {
            lock(replica).state = EngineState::Stopped;
        }
        lock(&self.queries).end_all();
    }

    /// The statistics of all replicas together.
    pub(crate) fn stats(&self) -> Stats {
        let each = self.replica_stats().into_iter();
        each.reduce(|sum, replica| sum.beside(&replica)).unwrap_or_default()
    }

    /// The statistics of each replica.
    pub(crate) fn replica_stats(&self) -> Vec<Stats> {
        self.replicas.iter().map(|replica| lock(replica).totals()).collect()
    }

    /// Which replicas have a process that computes.
    pub(crate) fn running_replicas(&self) -> Vec<bool> {
        let runs = |replica: &Arc<Mutex<Snapshot>>| matches!(lock(replica).state, EngineState::Running);
        self.replicas.iter().map(runs).collect()
    }

    pub(crate) fn running(&self) -> usize {
        self.replicas.iter().map(|replica| lock(replica).stats.scheduler.running).sum()
    }

    pub(crate) fn retry_after_s(&self) -> u64 {
        let each = self.replicas.iter().map(|replica| lock(replica).stats.retry_after_s);
        each.min().unwrap_or_default().max(1)
    }

    /// Why new requests are refused, while no replica can load the model.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        let each: Option<Vec<Failure>> =
            self.replicas.iter().map(|replica| lock(replica).refusal()).collect();
        each?.into_iter().next()
    }

    /// Memory pressure has this response.
    pub(crate) fn set_memory_response(&self, response: Response) {
        *lock(&self.memory_response) = response;
    }

    /// Whether there is memory for new requests.
    pub(crate) fn admits(&self) -> bool {
        let has_memory = *lock(&self.memory_response) != Response::RefuseRequests;
        has_memory && !self.buffers().refuses_requests()
    }

    /// Whether one replica or more makes progress. What is not well is named.
    pub(crate) fn health(&self) -> Health {
        let health = self.progress();
        let (pressure, buffers) = (lock(&self.memory_response).detail(), self.buffers().detail());
        let parts = [health.detail.as_str(), pressure, &buffers].into_iter().filter(|part| !part.is_empty());
        let detail = parts.collect::<Vec<_>>().join("; ");
        Health { detail, ..health }
    }

    /// Of the replica whose process has the most.
    fn buffers(&self) -> BufferStats {
        let each = self.replicas.iter().map(|replica| lock(replica).stats.buffers);
        each.max_by_key(|buffers| buffers.count).unwrap_or_default()
    }

    fn progress(&self) -> Health {
        let health = |replica: &Arc<Mutex<Snapshot>>| lock(replica).health(self.hang_limit);
        let mut each: Vec<Health> = self.replicas.iter().map(health).collect();
        if each.len() == 1 {
            return each.remove(0);
        }
        let alive = each.iter().any(|health| health.alive);
        let details = each.iter().enumerate();
        let details = details.map(|(replica, health)| format!("replica {replica}: {}", health.detail));
        Health { alive, detail: details.collect::<Vec<_>>().join("; ") }
    }
}

impl ReplicaStatus {
    /// Stores a report's statistics, if it has any, and delivers its replies.
    pub(crate) fn update(&self, stats: Option<Box<StatsReport>>, replies: Vec<QueryReply>) {
        if !replies.is_empty() {
            lock(&self.queries).answer(replies);
        }
        let mut snapshot = lock(&self.snapshot);
        snapshot.reported_at = Instant::now();
        let Some(stats) = stats else { return };
        let StatsReport { stats, steps, watched } = *stats;
        snapshot.stats = stats;
        drop(snapshot);
        self.steps.send(watched);
        for step in steps {
            metrics::histogram!("omnibus_step_seconds").record(step.seconds);
            metrics::histogram!("omnibus_step_tokens").record(step.tokens as f64);
        }
    }

    /// Drops a query that the replica cannot answer.
    pub(crate) fn end_query(&self, query: QueryId) {
        lock(&self.queries).end(query);
    }

    /// The process has died. Its requests resume soon, so the queue's limit stays as it was.
    pub(crate) fn set_restarting(&self) {
        let mut snapshot = lock(&self.snapshot);
        snapshot.state = EngineState::Restarting;
        snapshot.carry_totals();
        lock(&self.queries).end_all();
    }

    /// A process could not load its model. The next attempt is at `retry_at`.
    pub(crate) fn set_load_failed(&self, why: &str, retry_at: Instant, requests: RetryState) {
        let mut snapshot = lock(&self.snapshot);
        snapshot.carry_totals();
        snapshot.earlier.engine_load_failures_total += 1;
        if requests == RetryState::Refusing {
            (snapshot.stats.scheduler.queued, snapshot.stats.scheduler.running) = (0, 0);
        }
        snapshot.state = EngineState::LoadFailed { why: why.to_owned(), retry_at, requests };
        lock(&self.queries).end_all();
    }

    /// The process has loaded its model.
    pub(crate) fn set_running(&self) {
        let mut snapshot = lock(&self.snapshot);
        (snapshot.state, snapshot.reported_at) = (EngineState::Running, Instant::now());
    }

    /// Why new requests are refused, while the model cannot be loaded.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        lock(&self.snapshot).refusal()
    }
}

/// A panic cannot leave the statistics half-written.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an engine with work is healthy `silent` seconds after its last report.
    fn is_alive(hang_limit_s: u64, silent_s: u64) -> bool {
        let status = EngineStatus::new(1, Duration::from_secs(hang_limit_s));
        {
            let mut snapshot = lock(&status.replicas[0]);
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

    #[test]
    fn too_many_metal_buffers_end_admission_until_they_are_fewer() {
        let status = EngineStatus::new(1, Duration::from_secs(60));
        let report = |count| {
            let buffers = BufferStats { count, limit: 499_000, cache_clears_total: 0 };
            let stats = Stats { buffers, ..Stats::default() };
            status.replicas()[0].update(
                Some(Box::new(StatsReport { stats, steps: Vec::new(), watched: Vec::new() })),
                Vec::new(),
            );
            (status.admits(), status.health().detail)
        };
        assert_eq!(report(200_000), (true, "idle".to_owned()));
        let refusing = "idle; 300000 of 499000 Metal buffers are in use: new requests are refused";
        assert_eq!(report(300_000), (false, refusing.to_owned()));
        assert!(report(1_000).0);
    }

    #[test]
    fn an_engine_is_well_while_one_replica_runs_and_counts_for_all() {
        let status = EngineStatus::new(2, Duration::from_secs(60));
        let [first, second] = &status.replicas()[..] else { panic!("two replicas") };
        let stats = Stats { process: 7, steps_total: 3, ..Stats::default() };
        first.update(Some(Box::new(StatsReport { stats, ..StatsReport::default() })), Vec::new());
        first.set_restarting();
        let stats = Stats { process: 8, steps_total: 4, retry_after_s: 5, ..Stats::default() };
        second.update(Some(Box::new(StatsReport { stats, ..StatsReport::default() })), Vec::new());
        assert_eq!(
            status.health(),
            Health { alive: true, detail: "replica 0: the engine restarts; replica 1: idle".to_owned() }
        );
        assert_eq!((status.running_replicas(), status.refusal()), (vec![false, true], None));
        let stats = status.stats();
        assert_eq!((stats.steps_total, stats.engine_restarts_total), (7, 1));
        first.set_load_failed("no file", Instant::now(), RetryState::Refusing);
        assert!(first.refusal().is_some() && status.refusal().is_none(), "the other one takes them");
        second.set_load_failed("no file", Instant::now(), RetryState::Refusing);
        assert!(status.refusal().is_some() && !status.health().alive);
    }
}
