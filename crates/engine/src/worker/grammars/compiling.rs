//! Jobs whose grammars are compiled, and how long each may take.
//!
//! Invariant: the time of a grammar does not count while others are compiled before it, as long as those advance.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::message::JobId;

/// Jobs of type `J` that wait for their grammars.
pub(super) struct Compiling<J> {
    limit: Duration,
    jobs: BTreeMap<JobId, Waiting<J>>,
}

struct Waiting<J> {
    job: J,
    requested: Instant,
    /// Since when it waits for nothing but its own grammar; for one that has not begun, since when no other began or ended.
    since: Instant,
    has_begun: bool,
}

impl<J> Compiling<J> {
    /// No jobs. A grammar may take as long as `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, jobs: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// A job's grammar is requested.
    pub(super) fn insert(&mut self, id: JobId, job: J, now: Instant) {
        self.jobs.insert(id, Waiting { job, requested: now, since: now, has_begun: false });
    }

    /// A job's grammar is being compiled from now on.
    pub(super) fn begin(&mut self, id: JobId, now: Instant) {
        if let Some(waiting) = self.jobs.get_mut(&id) {
            (waiting.has_begun, waiting.since) = (true, now);
        }
        self.advance(now);
    }

    /// A job's grammar is compiled, or is not needed any more: the job, and how long it waited.
    pub(super) fn remove(&mut self, id: JobId, now: Instant) -> Option<(J, Duration)> {
        self.advance(now);
        self.jobs.remove(&id).map(|waiting| (waiting.job, now.saturating_duration_since(waiting.requested)))
    }

    /// All begin to wait only now: none could be compiled.
    pub(super) fn hold(&mut self, now: Instant) {
        self.jobs.values_mut().for_each(|waiting| waiting.since = now);
    }

    /// Takes the jobs that have waited too long.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<(JobId, J)> {
        let is_late = |waiting: &Waiting<J>| now.saturating_duration_since(waiting.since) > self.limit;
        let late: Vec<JobId> =
            self.jobs.iter().filter(|(_, waiting)| is_late(waiting)).map(|(id, _)| *id).collect();
        late.into_iter().filter_map(|id| Some((id, self.jobs.remove(&id)?.job))).collect()
    }

    fn advance(&mut self, now: Instant) {
        for waiting in self.jobs.values_mut().filter(|waiting| !waiting.has_begun) {
            waiting.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// Three jobs, and a clock in milliseconds.
    fn three() -> (Compiling<&'static str>, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        let at = move |ms: u64| start + Duration::from_millis(ms);
        let mut jobs = Compiling::new(LIMIT);
        for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
            jobs.insert(JobId(id), name, at(0));
        }
        (jobs, at)
    }

    #[test]
    fn a_job_behind_others_is_not_late_while_they_advance() {
        let (mut jobs, at) = three();
        jobs.begin(JobId(1), at(10));
        assert_eq!(jobs.remove(JobId(1), at(90)), Some(("a", Duration::from_millis(90))));
        jobs.begin(JobId(2), at(91));
        assert!(jobs.take_late(at(180)).is_empty());
        assert_eq!(jobs.remove(JobId(2), at(185)).map(|(job, _)| job), Some("b"));
        jobs.begin(JobId(3), at(186));
        assert!(jobs.take_late(at(280)).is_empty());
        assert_eq!(jobs.take_late(at(287)), [(JobId(3), "c")]);
        assert!(jobs.is_empty());
    }

    #[test]
    fn a_slow_grammar_is_late_and_those_behind_it_when_nothing_advances() {
        let (mut jobs, at) = three();
        jobs.begin(JobId(1), at(0));
        jobs.begin(JobId(2), at(50));
        assert_eq!(jobs.take_late(at(101)), [(JobId(1), "a")]);
        assert_eq!(jobs.take_late(at(151)), [(JobId(2), "b"), (JobId(3), "c")]);
    }

    #[test]
    fn no_time_counts_while_none_can_be_compiled() {
        let (mut jobs, at) = three();
        jobs.hold(at(500));
        assert!(jobs.take_late(at(600)).is_empty());
        assert_eq!(jobs.take_late(at(601)).len(), 3);
    }
}
