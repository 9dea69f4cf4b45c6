//! Keeps an engine process running: starts it, sends it commands, passes its reports on, and when it crashes or hangs
//! starts another, which resumes its jobs.
//!
//! One thread does this. It is also the parent whose death ends the process.
//!
//! Invariant: every job ends with a report, whatever happens to the process, and this thread blocks no longer than the
//! watchdog's limit. Jobs are not held for a model that cannot be loaded.

mod adapters;
mod input;
mod job_journal;
mod journaled_job;
mod load_retry;
mod memory_left;
mod replicas;
mod start;
mod termination;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::available_memory::available_bytes;
use crate::error::StartError;
use crate::event::FinishReason;
use crate::load_progress::LoadWatch;
use crate::log_span::in_this;
use crate::media::MediaKey;
use crate::memory_plan::gigabytes;
use crate::message::{Command, JobId, JobReport, JobUpdate, Ready, Report};
use crate::process::wire::{self, FromEngine, Start, ToEngine};
use crate::status::ReplicaStatus;
use adapters::LoadingAdapters;
use input::Input;
use job_journal::{Cancelled, JobJournal};
use journaled_job::JournaledJob;
use load_retry::LoadRetry;
use memory_left::MemoryLeft;
use replicas::Replicas;
pub(crate) use start::{Outputs, Supervised, start};
use termination::terminate;

/// How the engine process is started and watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// A program that calls [`crate::run_engine`].
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Added to this process's environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The model's name for log lines; `None` in a server of one model.
    pub label: Option<String>,
    /// A process that has work and sends no report for this long is terminated. Loading a model does not count.
    pub watchdog: Duration,
}

/// Before the first restart.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Upper bound of the pause before a restart.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A process that has run for this many times the last pause counts as stable.
const STABLE_PAUSES: u32 = 10;
/// How long a stop waits for the process, which may be in a long step, before it kills it.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

struct Supervisor {
    isolation: Isolation,
    start: Start,
    /// Its number among the replicas of the model.
    replica: usize,
    replicas: Arc<Replicas>,
    /// For the threads that read processes' sockets.
    to_self: Sender<Input>,
    inbox: Receiver<Input>,
    /// Closed when the engine has stopped.
    reports: Sender<Vec<JobReport>>,
    status: ReplicaStatus,
    progress: LoadWatch,
    journal: JobJournal,
    /// Jobs that were sent to other replicas. Their cancellation may come here first.
    moved: BTreeSet<JobId>,
    process: Option<EngineProcess>,
    /// Of the last process.
    number: u64,
    /// Before the restart after the next crash.
    pause: Duration,
    load_retry: LoadRetry,
    restart_at: Option<Instant>,
    adapters: LoadingAdapters,
    memory_left: MemoryLeft,
}

struct EngineProcess {
    child: Child,
    socket: UnixStream,
    state: ProcessState,
    /// When its last report came, or when it was first sent a job.
    last_report: Instant,
    listener: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    Loading,
    Running { since: Instant },
}

impl Supervisor {
    /// Loads, reports the result, and runs until stopped.
    fn run(mut self, ready_tx: &Sender<Result<Ready, StartError>>) {
        match self.start_first() {
            Ok(ready) => {
                // A later process must hold what this one holds, or accepted requests would not fit.
                self.start.settings.max_model_len = Some(ready.max_model_len);
                self.start.settings.adapters = ready.adapters.clone();
                let _starter_gone = ready_tx.send(Ok(ready));
                while self.iterate().is_continue() {}
            }
            Err(error) => {
                let _starter_gone = ready_tx.send(Err(error));
            }
        }
        self.stop();
    }

    /// Starts the first process. Its failure is the engine's.
    fn start_first(&mut self) -> Result<Ready, StartError> {
        self.spawn().map_err(StartError::new)?;
        loop {
            match self.inbox.recv() {
                Ok(Input::Message(_, FromEngine::Ready(ready))) => {
                    self.set_running();
                    return Ok(*ready);
                }
                Ok(Input::Message(_, FromEngine::Loading(progress))) => {
                    self.progress.set(self.replica, progress);
                }
                Ok(Input::Message(_, FromEngine::Refused(why))) => return Err(StartError::new(why)),
                Ok(Input::Command(Command::Stop)) => {
                    return Err(StartError::new("another replica of the model could not be loaded"));
                }
                // The front sends nothing else before all replicas are loaded.
                Ok(Input::Message(_, FromEngine::Report(_)) | Input::Command(_) | Input::Job(_)) => {}
                Ok(Input::HungUp(_)) | Err(_) => {
                    let status = self.end_process();
                    return Err(StartError::crashed(format!(
                        "the engine's process ended while it loaded the model ({status})"
                    )));
                }
            }
        }
    }

    fn iterate(&mut self) -> ControlFlow<()> {
        let input = match self.next_timer() {
            None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => self.inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match input {
            Ok(Input::Command(Command::Stop)) => return ControlFlow::Break(()),
            Ok(Input::Command(command)) => self.handle_command(command),
            Ok(Input::Job(job)) => self.handle_job(*job),
            Ok(Input::Message(number, message)) if self.is_current(number) => self.handle_message(message),
            Ok(Input::HungUp(number)) if self.is_current(number) => self.handle_hang_up(),
            // From an earlier process.
            Ok(Input::Message(..) | Input::HungUp(_)) => {}
            Err(RecvTimeoutError::Timeout) => self.handle_timers(),
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        }
        self.dispatch();
        ControlFlow::Continue(())
    }

    fn is_current(&self, number: u64) -> bool {
        self.process.is_some() && self.number == number
    }

    /// The next time at which to act without an input.
    fn next_timer(&self) -> Option<Instant> {
        let dispatched = self.journal.has_dispatched();
        let watched =
            self.process.as_ref().filter(|process| process.state != ProcessState::Loading && dispatched);
        let hang = watched.map(|process| process.last_report + self.isolation.watchdog);
        [hang, self.restart_at, self.stable_at()].into_iter().flatten().min()
    }

    /// When earlier crashes stop counting, unless another comes first.
    fn stable_at(&self) -> Option<Instant> {
        let crashed = self.pause > PAUSE_MIN && !self.journal.has_suspects();
        let process = self.process.as_ref().filter(|_| crashed)?;
        match process.state {
            ProcessState::Loading => None,
            ProcessState::Running { since } => Some(since + self.pause * STABLE_PAUSES),
        }
    }

    fn handle_timers(&mut self) {
        let now = Instant::now();
        if self.stable_at().is_some_and(|at| at <= now) {
            self.pause = PAUSE_MIN;
            self.journal.reset_crashes();
        }
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            if let Err(error) = self.spawn() {
                self.load_failed(&format!("its process cannot be started: {error}"));
            }
        }
        let hangs = |process: &EngineProcess| {
            process.state != ProcessState::Loading && process.last_report + self.isolation.watchdog <= now
        };
        if self.process.as_ref().is_some_and(hangs) && self.journal.has_dispatched() {
            tracing::error!(after_s = self.isolation.watchdog.as_secs_f64(), "the engine's process hangs");
            self.crashed();
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Cancel(job) => self.cancel(job),
            Command::ListSessions(query)
            | Command::FindBlocks(query, _)
            | Command::ReadBlocks(query, _)
            | Command::LoadAdapter(query, _)
                if self.process.is_none() =>
            {
                self.status.end_query(query);
            }
            command @ (Command::ListSessions(_)
            | Command::FindBlocks(..)
            | Command::ReadBlocks(..)
            | Command::DropSession(_)
            | Command::LoadAdapter(..)
            | Command::UnloadAdapter(_)
            | Command::MemoryPressure(_)
            | Command::WatchSteps
            | Command::Pixels(..)) => {
                self.adapters.requested(&command, &mut self.start.settings.adapters);
                self.send(&[ToEngine::Command(command)]);
            }
            // A job comes with its place at this replica.
            Command::Submit(_) | Command::Stop => {}
        }
    }

    fn handle_job(&mut self, job: JournaledJob) {
        match self.status.refusal() {
            Some(failure) => {
                let update = JobUpdate::Failed(failure);
                self.report(vec![JobReport { job: job.job.id, update }]);
            }
            None => self.journal.insert(job),
        }
    }

    /// Sends jobs that wait for a process to replicas that have one.
    fn move_jobs(&mut self) {
        let jobs = self.journal.take_movable();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.job.id).collect();
        self.moved.extend(ids);
        for job in self.replicas.move_jobs(self.replica, jobs) {
            self.moved.remove(&job.job.id);
            self.journal.insert(JournaledJob { moved: false, ..job });
        }
    }

    fn cancel(&mut self, job: JobId) {
        match self.journal.cancel(job) {
            Cancelled::Here => {
                let update = JobUpdate::Finished(FinishReason::Cancelled);
                self.report(vec![JobReport { job, update }]);
            }
            Cancelled::Forward => self.send(&[ToEngine::Command(Command::Cancel(job))]),
            // It was sent before the job: now it comes after it.
            Cancelled::Unknown if self.moved.remove(&job) => {
                let _stopping = self.replicas.send(Command::Cancel(job));
            }
            Cancelled::Unknown => {}
        }
    }

    fn handle_message(&mut self, message: FromEngine) {
        match message {
            FromEngine::Ready(_) => {
                tracing::info!("the engine's process has been started again");
                self.set_running();
            }
            // The model is served already: requests wait, and /health names the restart.
            FromEngine::Loading(_) => {}
            FromEngine::Refused(why) => {
                self.end_process();
                self.load_failed(&why);
            }
            FromEngine::Report(report) => {
                let Report { jobs, stats, replies, requested_pixels } = *report;
                self.adapters.answered(&replies, &mut self.start.settings.adapters);
                if let Some(process) = &mut self.process {
                    process.last_report = Instant::now();
                }
                self.status.update(stats, replies);
                self.send_pixels(&requested_pixels);
                let jobs = self.journal.record(jobs);
                self.report(jobs);
            }
        }
    }

    /// Sends what the process requested, of jobs that go on.
    fn send_pixels(&mut self, requested: &[(JobId, MediaKey)]) {
        // One by one, so that the encoder begins with the first.
        for (job, key) in requested {
            if let Some(pixels) = self.journal.pixels(*job, *key) {
                self.send(&[ToEngine::Command(Command::Pixels(*job, *key, pixels))]);
            }
        }
    }

    fn set_running(&mut self) {
        let now = Instant::now();
        if let Some(process) = &mut self.process {
            (process.state, process.last_report) = (ProcessState::Running { since: now }, now);
        }
        self.load_retry.succeeded();
        // What was sent before them has long come.
        self.moved.clear();
        self.status.set_running();
    }

    /// Passes reports on to the clients' outputs.
    fn report(&mut self, reports: Vec<JobReport>) {
        if !reports.is_empty() {
            let _ends_with_the_handle = self.reports.send(reports);
        }
    }

    /// Sends held jobs to the process, if one runs.
    fn dispatch(&mut self) {
        let running = |process: &&mut EngineProcess| process.state != ProcessState::Loading;
        let idle = !self.journal.has_dispatched();
        let Some(process) = self.process.as_mut().filter(running) else { return };
        if idle {
            process.last_report = Instant::now();
        }
        let jobs = self.journal.dispatch(Instant::now());
        if !jobs.is_empty() {
            let messages = jobs.into_iter().map(|job| ToEngine::Command(Command::Submit(Box::new(job))));
            self.send(&messages.collect::<Vec<_>>());
        }
    }

    fn send(&mut self, messages: &[ToEngine]) {
        let Some(process) = &mut self.process else { return };
        if let Err(error) = wire::write(&mut process.socket, messages) {
            tracing::warn!(%error, "the engine's process does not read its socket");
            // The listener reports its end, as of any other process.
            terminate(&process.child, &process.socket);
        }
    }

    fn handle_hang_up(&mut self) {
        if self.process.as_ref().is_some_and(|process| process.state == ProcessState::Loading) {
            let status = self.end_process();
            self.load_failed(&format!("its process ended while it loaded the model ({status})"));
        } else {
            self.crashed();
        }
    }

    /// After a running process has ended, or to end one that hangs.
    fn crashed(&mut self) {
        let status = self.end_process();
        tracing::error!(
            replica = self.replica,
            status,
            pause_s = self.pause.as_secs_f64(),
            "the engine's process has ended; starting another"
        );
        self.status.set_restarting();
        let ended = self.journal.crashed();
        self.report(ended);
        self.move_jobs();
        self.restart_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// After a process ended before it could compute. No job is suspected.
    fn load_failed(&mut self, why: &str) {
        let pause = self.load_retry.failed();
        let retry_at = Instant::now() + pause;
        self.restart_at = Some(retry_at);
        tracing::error!(why, pause_s = pause.as_secs_f64(), "the engine cannot be loaded; trying again");
        self.journal.take_back();
        self.status.set_load_failed(why, retry_at, self.load_retry.state());
        self.move_jobs();
        if let Some(failure) = self.status.refusal() {
            let failed = self.journal.fail_all(&failure);
            self.report(failed);
        }
    }

    fn spawn(&mut self) -> io::Result<()> {
        let left = self.memory_left.starting(available_bytes());
        metrics::gauge!("omnibus_engine_memory_left_bytes").set(left.unwrap_or_default() as f64);
        if let Some(bytes) = left {
            let fewer = gigabytes(bytes);
            tracing::warn!(%fewer, "the machine has less memory than before the engine's first process");
        }
        let (ours, theirs) = UnixStream::pair()?;
        // A process that does not read for this long hangs.
        ours.set_write_timeout(Some(self.isolation.watchdog))?;
        let mut command = std::process::Command::new(&self.isolation.program);
        command
            .arg0("omnibus")
            .args(&self.isolation.arguments)
            .envs(self.isolation.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Stdout is for results, which the front prints.
            .stdout(Stdio::from(io::stderr()))
            // A terminal's Ctrl-C is for the front, which stops the process when its requests are done.
            .process_group(0);
        let child = command.spawn()?;
        self.number += 1;
        let (number, to_supervisor) = (self.number, self.to_self.clone());
        let from = BufReader::new(ours.try_clone()?);
        let listener = std::thread::Builder::new()
            .name("omnibus-listener".to_owned())
            .spawn(in_this(move || listen(number, from, &to_supervisor)))?;
        let (state, last_report) = (ProcessState::Loading, Instant::now());
        self.process = Some(EngineProcess { child, socket: ours, state, last_report, listener });
        self.send(&[ToEngine::Start(Box::new(self.start.clone()))]);
        Ok(())
    }

    /// Makes sure that the process has ended. Returns its exit status in words.
    fn end_process(&mut self) -> String {
        let Some(mut process) = self.process.take() else { return "it was never started".to_owned() };
        terminate(&process.child, &process.socket);
        let status = process.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        // The listener ends with the socket, whose other end is now closed.
        let _panic_was_printed = process.listener.join();
        status
    }

    /// Stops the process; terminates it after a timeout.
    fn stop(&mut self) {
        self.send(&[ToEngine::Command(Command::Stop)]);
        let until = Instant::now() + SHUTDOWN_TIMEOUT;
        // The listener reports the end of the socket, which the process closes last.
        while self.process.is_some() {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Input::HungUp(number)) if self.is_current(number) => break,
                Ok(_) => {}
                Err(_) => {
                    self.end_process();
                }
            }
        }
        self.end_process();
    }
}

/// Passes a process's messages on, until its end.
fn listen(number: u64, mut from: BufReader<UnixStream>, to_supervisor: &Sender<Input>) {
    loop {
        let input = match wire::read(&mut from) {
            Ok(Some(message)) => Input::Message(number, message),
            Ok(None) => Input::HungUp(number),
            Err(error) => {
                tracing::error!(%error, "the engine's process sent an invalid message");
                Input::HungUp(number)
            }
        };
        let ended = matches!(input, Input::HungUp(_));
        if to_supervisor.send(input).is_err() || ended {
            return;
        }
    }
}
