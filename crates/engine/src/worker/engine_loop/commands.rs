//! Commands of the front, and waiting for them while there is nothing to compute.

use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use omnibus_core::{self as core, Rejection, SequenceId, Tick};
use omnibus_grammar::MatchState;
use omnibus_model::span_reach;

use super::report::seconds;
use super::{ActiveJob, EngineLoop, OFFLOAD_PAUSE, PendingOffload};
use crate::error::Failure;
use crate::event::FinishReason;
use crate::media::picture_runs;
use crate::memory_response::Response;
use crate::message::{Answer, Command, Job, JobReport, JobUpdate, QueryId, QueryReply};
use crate::speculation::DraftUsage;
use crate::stats::SessionStats;
use crate::worker::grammars::Prepared;
use crate::worker::kv_offload::KvOffload;

/// How long an idle loop waits at most; then it checks the deadlines of waiting requests.
const IDLE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long it waits while a sequence's blocks are being read, or a grammar is compiled.
const READ_POLL: Duration = Duration::from_millis(1);

impl EngineLoop {
    /// Waits while there is nothing to do, then handles the commands that have come.
    pub(super) fn take_commands(&mut self) -> ControlFlow<()> {
        let idle = self.scheduler.is_idle() && self.in_flight.is_empty() && !self.grammars.is_compiling();
        // The last writes are reported once they are done.
        let writing = self.offload.as_ref().is_some_and(KvOffload::is_writing);
        if self.pending_offload == PendingOffload::Yes {
            // Blocks are copied out for the disk instead of waiting.
        } else if self.media.is_encoding(&self.scheduler, &mut self.device) {
            // Pictures are encoded instead of waiting.
        } else if idle && !writing && self.pending_offload == PendingOffload::No {
            match self.inbox.recv() {
                Ok(command) => {
                    self.end_idle_time();
                    self.handle_command(command)?;
                }
                Err(_) => return ControlFlow::Break(()),
            }
        } else if idle || self.in_flight.is_empty() && self.scheduler.plan(self.now()).is_empty() {
            let timeout = self.idle_timeout();
            let command = self.inbox.recv_timeout(timeout);
            if idle {
                self.end_idle_time();
            }
            match command {
                Ok(command) => self.handle_command(command)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.handle_command(command)?,
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(TryRecvError::Disconnected) => return ControlFlow::Break(()),
            }
        }
    }

    fn handle_command(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Submit(job) => self.submit(*job),
            Command::Cancel(id) if self.grammars.cancel(id).is_some() => {
                let update = JobUpdate::Finished(FinishReason::Cancelled);
                self.reports.push(JobReport { job: id, update });
            }
            Command::Cancel(job) => {
                let found = self.jobs.iter().find(|(_, active)| active.job.id == job);
                let event = found.map(|(sequence, _)| *sequence).and_then(|id| self.scheduler.cancel(id));
                if let Some(event) = event {
                    self.handle_event(event);
                }
            }
            Command::Pixels(job, key, pixels) => self.media.take_pixels(job, key, &pixels),
            Command::ListSessions(query) => self.list_sessions(query),
            Command::FindBlocks(query, blocks) => self.find_blocks(query, &blocks),
            Command::ReadBlocks(query, blocks) => self.read_blocks(query, &blocks),
            Command::LoadAdapter(query, adapter) => self.load_adapter(query, &adapter),
            Command::UnloadAdapter(adapter) => {
                self.retired_adapters.insert(adapter);
            }
            Command::DropSession(session) => {
                self.scheduler.drop_session(session);
            }
            Command::MemoryPressure(Response::None) => self.buffer_cache.restore(),
            Command::MemoryPressure(Response::ShrinkCaches | Response::RefuseRequests) => {
                self.buffer_cache.shrink();
            }
            Command::WatchSteps => self.watch_steps(),
            Command::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn list_sessions(&mut self, query: QueryId) {
        let now = self.now();
        let sessions = self.scheduler.sessions(now).into_iter().map(|session| SessionStats {
            session: session.session,
            tokens: session.tokens,
            blocks: session.blocks,
            idle_s: now.saturating_sub(session.last_used) as f64 / 1e6,
        });
        self.replies.push(QueryReply { query, answer: Answer::Sessions(sessions.collect()) });
    }

    /// Queues a job, once its grammar is compiled.
    pub(super) fn submit(&mut self, job: Job) {
        match &job.grammar {
            Some(_) => self.grammars.compile(job),
            None => self.queue(job, None),
        }
    }

    /// Queues the jobs whose grammars are compiled.
    pub(super) fn submit_compiled(&mut self) {
        for (job, result) in self.grammars.take_compiled() {
            let update = match result {
                Ok(prepared) if prepared.state == MatchState::Open => {
                    self.queue(job, Some(prepared));
                    continue;
                }
                // It ended with the last token that an earlier process reported.
                Ok(_) => JobUpdate::Finished(FinishReason::Stop),
                Err(failure) => JobUpdate::Failed(failure),
            };
            self.reports.push(JobReport { job: job.id, update });
        }
    }

    fn queue(&mut self, mut job: Job, grammar: Option<Prepared>) {
        if let Some(failure) = self.missing_adapter(&job) {
            self.reports.push(JobReport { job: job.id, update: JobUpdate::Failed(failure) });
            return;
        }
        let positions = match self.positions(&job) {
            Ok(positions) => positions,
            Err(failure) => {
                self.reports.push(JobReport { job: job.id, update: JobUpdate::Failed(failure) });
                return;
            }
        };
        let now = self.now();
        let deadline = job.timeout_s.map(|seconds| now.saturating_add((seconds * 1e6) as Tick));
        let prompt = job.request.prompt.get(..job.prompt).unwrap_or_default();
        let spans = self.device.traits().spans.spans(prompt, &picture_runs(&job.media));
        job.request.spans = spans.iter().map(|span| span_reach(span)).collect();
        let mut tokens = std::mem::take(&mut job.request.prompt);
        let reported = tokens.len();
        let max_tokens = reported + job.request.goal.max_new_tokens();
        if let Some(file) = &self.prompt_file {
            tokens = file.prompt(tokens);
        }
        let request = core::Request { prompt: tokens, deadline, ..job.request.clone() };
        match self.scheduler.submit(now, request) {
            Ok(sequence) => {
                let media = (job.id, std::mem::take(&mut job.media));
                self.jobs.insert(
                    sequence,
                    ActiveJob {
                        job,
                        reported,
                        max_tokens,
                        spans,
                        drafts: DraftUsage::default(),
                        energy: None,
                    },
                );
                self.media.insert(sequence, media, positions, (&mut self.scheduler, &mut self.device));
                if let Some(grammar) = grammar {
                    self.grammars.insert(sequence, grammar);
                }
                if let Some(offload) = &mut self.offload {
                    offload.fetch(&mut self.scheduler, sequence, now);
                }
                self.start_prompt_file(sequence);
            }
            Err(rejection) => {
                let failure = match rejection {
                    Rejection::Empty => Failure::bad_request("prompt", rejection.to_string()),
                    Rejection::TooLong { needed, total } => Failure::TooLong {
                        prompt_tokens: job.prompt,
                        completion_tokens: needed.saturating_sub(job.prompt),
                        limit: total,
                    },
                    Rejection::SpanTooLong { .. } => Failure::bad_request("messages", rejection.to_string()),
                    Rejection::QueueFull { .. } => {
                        Failure::Busy { retry_after_s: seconds(self.scheduler.retry_after()) }
                    }
                };
                self.reports.push(JobReport { job: job.id, update: JobUpdate::Failed(failure) });
            }
        }
    }

    fn start_prompt_file(&mut self, sequence: SequenceId) {
        let Some(file) = &mut self.prompt_file else { return };
        if let Err(error) = file.begin(&mut self.scheduler, &mut self.device, sequence) {
            self.recover(&error);
        }
    }

    /// How long to wait when there is nothing to compute.
    fn idle_timeout(&mut self) -> Duration {
        let change = self.scheduler.next_wakeup().unwrap_or(Tick::MAX);
        let is_polling = self.offload.as_ref().is_some_and(KvOffload::is_reading)
            || self.grammars.is_compiling()
            || self.device.awaits_features();
        let longest = match self.pending_offload {
            _ if is_polling => READ_POLL,
            PendingOffload::Paused => OFFLOAD_PAUSE,
            PendingOffload::Yes | PendingOffload::No => IDLE_TIMEOUT,
        };
        longest.min(Duration::from_micros(change.saturating_sub(self.now()).max(1)))
    }
}
