//! Which jobs an engine process gets, and which job is suspected when it crashes.
//!
//! A token depends on its request and its position only, so a resumed job continues exactly.
//!
//! After one crash all jobs resume at once: most crashes have an outside cause. After another crash soon afterwards, the
//! jobs in the crashed process's steps are suspects. They are dispatched to the next process one at a time, each when
//! the one before has passed its probation; all other jobs wait until the last suspect has passed. Only a job that was
//! alone in the process in two crashes, without progress in between, is refused. So no innocent job is refused, and
//! each crash clears some suspects or narrows the search.
//!
//! Invariant: no processes, no sockets, no clock: time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::journaled_job::{JobState, JournaledJob};
use crate::error::Failure;
use crate::event::FinishReason;
use crate::media::{EncoderPixels, MediaKey};
use crate::message::{Job, JobId, JobReport, JobUpdate};

/// Crashes alone after which a job is refused.
const CRASHES_MAX: u32 = 2;
/// The most doublings of a suspect's probation.
const PROBATION_DOUBLINGS_MAX: u32 = 8;

/// The jobs that the engine has not ended, and the order in which they go to processes.
#[derive(Debug, Default)]
pub(super) struct JobJournal {
    jobs: BTreeMap<JobId, JournaledJob>,
    /// Suspects not dispatched since the last crash, in the order of their trials.
    suspects: VecDeque<JobId>,
    /// The suspect on trial.
    on_trial: Option<JobId>,
    /// Crashes since the engine last ran long enough.
    recent_crashes: u32,
}

/// The result of cancelling a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// It waited here and has ended.
    Here,
    /// The process must be sent the command.
    Forward,
    /// It had ended before.
    Unknown,
}

impl JobJournal {
    /// Adds a job, which waits here.
    pub(super) fn insert(&mut self, job: JournaledJob) {
        self.jobs.insert(job.job.id, job);
    }

    /// Takes out the jobs that may resume at another replica: none that is suspected, and none twice.
    pub(super) fn take_movable(&mut self) -> Vec<JournaledJob> {
        let waits = |entry: &JournaledJob| entry.state == JobState::Held && !entry.moved;
        let movable = |(id, entry): &(&JobId, &JournaledJob)| {
            waits(entry) && !self.suspects.contains(id) && self.on_trial != Some(**id)
        };
        let movable: Vec<JobId> = self.jobs.iter().filter(movable).map(|(id, _)| *id).collect();
        let taken = movable.into_iter().filter_map(|id| self.jobs.remove(&id));
        taken.map(|job| JournaledJob { moved: true, ..job }).collect()
    }

    /// The content of a job's media, as long as the job has not ended.
    pub(super) fn pixels(&self, job: JobId, key: MediaKey) -> Option<EncoderPixels> {
        let media = &self.jobs.get(&job)?.job.media;
        media.iter().find(|media| media.key == key)?.pixels.clone()
    }

    /// Ends a job.
    pub(super) fn cancel(&mut self, id: JobId) -> Cancelled {
        let Some(entry) = self.jobs.get_mut(&id) else { return Cancelled::Unknown };
        match entry.state {
            JobState::Held | JobState::Rejected => {
                self.remove(id);
                Cancelled::Here
            }
            JobState::Dispatched | JobState::Started => {
                entry.state = JobState::Cancelling;
                Cancelled::Forward
            }
            JobState::Cancelling => Cancelled::Unknown,
        }
    }

    /// Jobs to send to the process now. While there are suspects, only the next of them.
    pub(super) fn dispatch(&mut self, now: Instant) -> Vec<Job> {
        if self.on_trial.is_some() {
            return Vec::new();
        }
        self.on_trial = self.suspects.pop_front();
        if let Some(id) = self.on_trial {
            return self.dispatch_one(id, now).into_iter().collect();
        }
        let held = self.jobs.values().filter(|entry| entry.state == JobState::Held);
        let held: Vec<JobId> = held.map(|entry| entry.job.id).collect();
        held.into_iter().filter_map(|id| self.dispatch_one(id, now)).collect()
    }

    fn dispatch_one(&mut self, id: JobId, now: Instant) -> Option<Job> {
        let entry = self.jobs.get_mut(&id)?;
        entry.state = JobState::Dispatched;
        let mut job = entry.job.clone();
        let waited_s = now.saturating_duration_since(entry.arrived).as_secs_f64();
        job.timeout_s = job.timeout_s.map(|timeout_s| (timeout_s - waited_s).max(0.0));
        if job.request.prompt.len() > job.prompt {
            // What is reported of the prompt precedes the first token.
            job.prompt_logprobs = None;
            job.alignment = None;
        }
        Some(job)
    }

    /// True while the process has jobs.
    pub(super) fn has_dispatched(&self) -> bool {
        self.jobs.values().any(|entry| !matches!(entry.state, JobState::Held | JobState::Rejected))
    }

    /// True while suspects wait or are on trial.
    pub(super) fn has_suspects(&self) -> bool {
        self.on_trial.is_some() || !self.suspects.is_empty()
    }

    /// Records the process's reports. Returns those that the clients should get.
    pub(super) fn record(&mut self, mut reports: Vec<JobReport>) -> Vec<JobReport> {
        reports.retain(|report| self.record_one(report));
        reports
    }

    /// False when the clients should not get it.
    fn record_one(&mut self, report: &JobReport) -> bool {
        let (id, probation) = (report.job, self.probation());
        let Some(entry) = self.jobs.get_mut(&id) else { return false };
        match &report.update {
            JobUpdate::Started { .. } => {
                if entry.state == JobState::Dispatched {
                    entry.state = JobState::Started;
                }
            }
            JobUpdate::Progress { .. }
            | JobUpdate::Prompt { .. }
            | JobUpdate::Alignment(_)
            | JobUpdate::Hidden(_)
            | JobUpdate::TokenLogits(_)
            | JobUpdate::Drafted(_)
            | JobUpdate::Energy(_)
            | JobUpdate::Blocks(_) => {}
            JobUpdate::Token(token) => {
                entry.job.request.prompt.push(token.token);
                entry.job.request.goal = entry.job.request.goal.after(1);
                entry.tokens_sent += 1;
                if entry.tokens_sent >= probation {
                    self.clear(id);
                }
            }
            JobUpdate::Failed(Failure::Busy { .. })
                if entry.resumed && entry.state == JobState::Dispatched =>
            {
                // It was accepted once, so it waits.
                entry.state = JobState::Rejected;
                if self.on_trial == Some(id) {
                    self.on_trial = None;
                }
                if !self.has_dispatched() {
                    self.retry_rejected();
                }
                return false;
            }
            JobUpdate::Finished(_) | JobUpdate::Failed(_) => {
                self.remove(id);
                self.retry_rejected();
            }
        }
        true
    }

    /// Tokens after which a suspect is cleared.
    fn probation(&self) -> usize {
        1 << self.recent_crashes.saturating_sub(1).min(PROBATION_DOUBLINGS_MAX)
    }

    /// The job has made progress, so it is no suspect.
    fn clear(&mut self, id: JobId) {
        self.on_trial = self.on_trial.filter(|suspect| *suspect != id);
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.crashes_alone = 0;
        }
    }

    fn remove(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.suspects.retain(|suspect| *suspect != id);
        self.on_trial = self.on_trial.filter(|suspect| *suspect != id);
    }

    fn retry_rejected(&mut self) {
        for entry in self.jobs.values_mut().filter(|entry| entry.state == JobState::Rejected) {
            entry.state = JobState::Held;
        }
    }

    /// Takes all jobs back from a crashed process. Returns reports for the clients: mostly none.
    pub(super) fn crashed(&mut self) -> Vec<JobReport> {
        self.recent_crashes = self.recent_crashes.saturating_add(1);
        let mut reports = Vec::new();
        let in_state = |state| {
            let matching = self.jobs.values().filter(move |entry| entry.state == state);
            matching.map(|entry| entry.job.id).collect::<Vec<JobId>>()
        };
        let (started, dispatched) = (in_state(JobState::Started), in_state(JobState::Dispatched));
        for id in in_state(JobState::Cancelling) {
            self.remove(id);
            reports.push(JobReport { job: id, update: JobUpdate::Finished(FinishReason::Cancelled) });
        }
        // A process that crashes before any job has started crashes because of a job in its queue.
        let suspected = if started.is_empty() { dispatched } else { started };
        if let ([alone], true) = (suspected.as_slice(), reports.is_empty()) {
            reports.extend(self.count_crash_alone(*alone));
        }
        let earlier = self.on_trial.take().into_iter().chain(std::mem::take(&mut self.suspects));
        let suspects = earlier.chain(suspected).filter(|_| self.recent_crashes > 1);
        for id in suspects {
            if self.jobs.get_mut(&id).is_some() && !self.suspects.contains(&id) {
                self.suspects.push_back(id);
            }
        }
        for entry in self.jobs.values_mut() {
            entry.resumed |= entry.state != JobState::Held;
            (entry.state, entry.tokens_sent) = (JobState::Held, 0);
        }
        reports
    }

    /// Takes all jobs back from a process that ended before it computed anything. No job is suspected.
    pub(super) fn take_back(&mut self) {
        if let Some(suspect) = self.on_trial.take() {
            self.suspects.push_front(suspect);
        }
        for entry in self.jobs.values_mut() {
            (entry.state, entry.tokens_sent) = (JobState::Held, 0);
        }
    }

    /// Ends every job.
    pub(super) fn fail_all(&mut self, failure: &Failure) -> Vec<JobReport> {
        self.on_trial = None;
        self.suspects.clear();
        let jobs = std::mem::take(&mut self.jobs).into_keys();
        jobs.map(|job| JobReport { job, update: JobUpdate::Failed(failure.clone()) }).collect()
    }

    fn count_crash_alone(&mut self, id: JobId) -> Option<JobReport> {
        let entry = self.jobs.get_mut(&id)?;
        entry.crashes_alone += 1;
        if entry.crashes_alone < CRASHES_MAX {
            return None;
        }
        self.remove(id);
        let message = "this request ended the engine twice, with nothing else running".to_owned();
        Some(JobReport { job: id, update: JobUpdate::Failed(Failure::Engine { message }) })
    }

    /// The engine has run long enough without a crash.
    pub(super) fn reset_crashes(&mut self) {
        self.recent_crashes = 0;
    }
}

#[cfg(test)]
mod tests;
