//! The unfinished requests of a serving process: one entry each, shared by the handle, the thread that receives reports
//! and the supervisor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::front::{OutputState, RequestOutput};
use crate::message::{Command, CommandSender, JobId, JobReport, JobUpdate, Report};
use crate::status::EngineStatus;
use crate::supervisor::JournaledJob;
use crate::{Failure, RequestInfo};

/// The unfinished requests.
#[derive(Clone, Default)]
pub(crate) struct ActiveRequests(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<Registry>,
    /// Notified when the last client has its last event.
    empty: Notify,
}

/// The entries of the unfinished requests.
#[derive(Default)]
pub(crate) struct Registry(BTreeMap<JobId, ActiveRequest>);

/// One unfinished request. It ends for the client and for the engine at different times, in either order.
#[derive(Default)]
struct ActiveRequest {
    /// `None` once the client has its last event.
    output: Option<RequestOutput>,
    /// `None` once the engine process has ended the job, and always with an engine in this process.
    job: Option<JournaledJob>,
}

impl ActiveRequests {
    pub(crate) fn insert(&self, job: JobId, output: RequestOutput) {
        self.lock().0.entry(job).or_default().output = Some(output);
    }

    /// Removes a request that was not queued.
    pub(crate) fn remove(&self, job: JobId) {
        self.update(|registry| registry.end(job, |request| request.output = None));
    }

    /// Changes the entries.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.lock();
        let changed = change(&mut registry);
        if registry.outputs().next().is_none() {
            self.0.empty.notify_waiters();
        }
        changed
    }

    pub(crate) fn find(&self, id: &str) -> Option<JobId> {
        let registry = self.lock();
        let named = |(job, request): (&JobId, &ActiveRequest)| {
            request.output.as_ref().filter(|output| output.is_named(id)).map(|_| *job)
        };
        registry.0.iter().find_map(named)
    }

    pub(crate) fn infos(&self) -> Vec<RequestInfo> {
        self.lock().outputs().map(RequestOutput::info).collect()
    }

    /// Waits until every client has its last event.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            let empty = self.0.empty.notified();
            if self.lock().outputs().next().is_none() {
                return;
            }
            empty.await;
        }
    }

    /// True when one more request of this tenant fits, with `running` requests and a queue limit of `queue`. Tenants with
    /// less than their share may exceed the limit by a quarter. The scheduler applies the same rule to simultaneous
    /// requests.
    pub(crate) fn has_room(&self, tenant: &str, queue: usize, running: usize) -> bool {
        let registry = self.lock();
        let full = queue.saturating_add(running);
        let active = registry.outputs().count();
        if active < full {
            return true;
        }
        let tenants: BTreeSet<&str> = registry.outputs().map(RequestOutput::tenant).chain([tenant]).collect();
        let own = registry.outputs().filter(|output| output.tenant() == tenant).count();
        let under_share = tenants.len() > 1 && own.saturating_mul(tenants.len()) < queue;
        under_share && active < full.saturating_add(queue.div_ceil(4))
    }

    /// Handles the reports of an engine in this process until it ends, then fails the remaining requests.
    pub(crate) fn run(&self, reports: &Receiver<Report>, status: &EngineStatus, commands: &CommandSender) {
        while let Ok(Report { jobs, stats, replies }) = reports.recv() {
            // The statistics come first: they include a request's end when its client sees it.
            status.update(stats, replies);
            for command in self.update(|registry| registry.handle(jobs)) {
                let _stopping = commands.send(command);
            }
        }
        status.set_stopped();
        self.fail_all();
    }

    /// Fails all requests: the engine has stopped.
    pub(crate) fn fail_all(&self) {
        self.update(|registry| {
            for request in std::mem::take(&mut registry.0).into_values() {
                let stopped = JobUpdate::Failed(Failure::unavailable("the engine has stopped"));
                request.output.map(|mut output| output.handle(stopped));
            }
        });
    }

    /// A panic in one request's output leaves the others' as they were.
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// Sends the clients the events of reports. Returns commands to the loop: jobs that have finished here are cancelled
    /// there, and some go on as another job.
    pub(crate) fn handle(&mut self, reports: Vec<JobReport>) -> Vec<Command> {
        let mut commands = Vec::new();
        for JobReport { job, update } in reports {
            let output = self.0.get_mut(&job).and_then(|request| request.output.as_mut());
            let Some(output) = output else { continue };
            match output.handle(update) {
                OutputState::Active => continue,
                OutputState::Finished => {}
                OutputState::Stopped => commands.push(Command::Cancel(job)),
                OutputState::Continued(next) => {
                    let output = self.0.get_mut(&job).and_then(|request| request.output.take());
                    self.0.entry(next.id).or_default().output = output;
                    commands.extend([Command::Cancel(job), Command::Submit(next)]);
                }
            }
            self.end(job, |request| request.output = None);
        }
        commands
    }

    /// Adds the job of a request.
    pub(crate) fn insert_job(&mut self, job: JournaledJob) {
        let id = job.job.id;
        self.0.entry(id).or_default().job = Some(job);
    }

    /// The job of a request that the engine has not ended.
    pub(crate) fn job_mut(&mut self, id: JobId) -> Option<&mut JournaledJob> {
        self.0.get_mut(&id)?.job.as_mut()
    }

    /// The jobs that the engine has not ended, by id.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &JournaledJob> {
        self.0.values().filter_map(|request| request.job.as_ref())
    }

    /// The same, to be changed.
    pub(crate) fn jobs_mut(&mut self) -> impl Iterator<Item = &mut JournaledJob> {
        self.0.values_mut().filter_map(|request| request.job.as_mut())
    }

    /// The engine has ended this job.
    pub(crate) fn end_job(&mut self, id: JobId) {
        self.end(id, |request| request.job = None);
    }

    fn outputs(&self) -> impl Iterator<Item = &RequestOutput> {
        self.0.values().filter_map(|request| request.output.as_ref())
    }

    /// Ends one side of a request, and removes it once both have ended.
    fn end(&mut self, id: JobId, side: impl FnOnce(&mut ActiveRequest)) {
        let Some(request) = self.0.get_mut(&id) else { return };
        side(request);
        if request.output.is_none() && request.job.is_none() {
            self.0.remove(&id);
        }
    }
}
