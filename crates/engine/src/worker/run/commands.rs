//! What the front wants: commands are taken, and slept for while there is nothing to do.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use omnibus_core::{self as core, Rejection, SequenceId, Tick};

use super::report::seconds;
use super::{Chores, Fate, Loop};
use crate::message::{Command, Job, News, Note};
use crate::worker::tier::Tier;
use crate::{Failure, SessionSeen};

/// How long an idle loop sleeps at most; deadlines of waiting requests are looked at then.
const NAP: Duration = Duration::from_millis(200);
/// How long it sleeps while blocks are read that somebody waits for.
const READ_NAP: Duration = Duration::from_millis(1);

impl Loop {
    /// Sleeps while there is nothing to do, else takes what has come.
    pub(super) fn take_commands(&mut self) -> Fate {
        let idle = self.scheduler.is_idle() && self.flight.is_empty();
        // What the disk's own thread has done since is told a little later, when it is done.
        let writing = self.tier.as_ref().is_some_and(Tier::is_writing);
        if self.chores == Chores::Left {
            // Nobody waits for anything, and there is something to do all the same.
        } else if idle && !writing {
            match self.inbox.recv() {
                Ok(command) => {
                    if let Fate::Stops = self.obey(command) {
                        return Fate::Stops;
                    }
                }
                Err(_) => return Fate::Stops,
            }
        } else if idle || self.flight.is_empty() && self.scheduler.plan(self.now()).is_empty() {
            match self.inbox.recv_timeout(self.nap()) {
                Ok(command) => {
                    if let Fate::Stops = self.obey(command) {
                        return Fate::Stops;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Fate::Stops,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(command) => {
                    if let Fate::Stops = self.obey(command) {
                        return Fate::Stops;
                    }
                }
                Err(TryRecvError::Empty) => return Fate::GoesOn,
                Err(TryRecvError::Disconnected) => return Fate::Stops,
            }
        }
    }

    pub(super) fn obey(&mut self, command: Command) -> Fate {
        match command {
            Command::Submit(job) => self.submit(*job),
            Command::Cancel(job) => {
                let event = self.sequences.get(&job).and_then(|sequence| self.scheduler.cancel(*sequence));
                if let Some(event) = event {
                    self.hear(event);
                }
            }
            Command::LookAtSessions => self.look_at_sessions(),
            Command::DropSession(session) => {
                self.scheduler.drop_session(session);
            }
            Command::Stop => return Fate::Stops,
        }
        Fate::GoesOn
    }

    fn look_at_sessions(&mut self) {
        let now = self.now();
        let sessions = self.scheduler.sessions(now).into_iter().map(|session| SessionSeen {
            session: session.session,
            tokens: session.tokens,
            blocks: session.blocks,
            idle_s: now.saturating_sub(session.last_used) as f64 / 1e6,
        });
        self.stats.sessions = sessions.collect();
        self.stats.session_looks_total += 1;
    }

    pub(super) fn submit(&mut self, job: Job) {
        let now = self.now();
        let deadline = job.timeout_s.map(|seconds| now.saturating_add((seconds * 1e6) as Tick));
        let request = core::Request {
            priority: job.priority,
            deadline,
            cache_salt: job.cache_salt,
            tenant: job.tenant,
            session: job.session,
            boundaries: job.boundaries.clone(),
            history: job.history.clone(),
            ..core::Request::new(self.prompt_of(&job), job.max_new_tokens.saturating_sub(job.generated.len()))
        };
        match self.scheduler.submit(now, request) {
            Ok(sequence) => {
                self.sequences.insert(job.id, sequence);
                self.jobs.insert(sequence, job);
                if let Some(tier) = &mut self.tier {
                    tier.fetch(&mut self.scheduler, sequence, now);
                }
                self.begin_prompt_file(sequence);
            }
            Err(rejection) => {
                let failure = match rejection {
                    Rejection::Empty => Failure::bad_request("prompt", rejection.to_string()),
                    Rejection::TooLong { .. } => Failure::TooLong { message: rejection.to_string() },
                    Rejection::QueueFull { .. } => {
                        Failure::Busy { retry_after_s: seconds(self.scheduler.retry_after()) }
                    }
                };
                self.told.push(Note { job: job.id, news: News::Failed(failure) });
            }
        }
    }

    /// The tokens that a job starts from.
    fn prompt_of(&self, job: &Job) -> Vec<u32> {
        let tokens = [job.prompt.as_slice(), &job.generated].concat();
        match &self.prompt_file {
            Some(file) => file.prompt(tokens),
            None => tokens,
        }
    }

    fn begin_prompt_file(&mut self, sequence: SequenceId) {
        let Some(file) = &mut self.prompt_file else { return };
        if let Err(error) = file.begin(&mut self.scheduler, &mut self.runner, sequence) {
            self.recover(&error);
        }
    }

    /// How long to sleep when there is nothing to compute.
    fn nap(&self) -> Duration {
        let change = self.scheduler.next_wakeup().unwrap_or(Tick::MAX);
        let longest = if self.tier.as_ref().is_some_and(Tier::is_reading) { READ_NAP } else { NAP };
        longest.min(Duration::from_micros(change.saturating_sub(self.now()).max(1)))
    }
}
