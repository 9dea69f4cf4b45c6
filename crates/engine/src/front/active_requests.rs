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
pub(crate) struct Registry {
    active: BTreeMap<JobId, ActiveRequest>,
    /// How many requests of each tenant are prepared for the queue. None of the counts is zero.
    preparing: BTreeMap<String, usize>,
}

/// A place in the queue for a request that is being prepared: whose media are fetched and decoded, and whose prompt is
/// tokenized. Given back when dropped. The default holds none.
#[derive(Default)]
pub struct Admission(Option<Place>);

struct Place {
    requests: ActiveRequests,
    tenant: String,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(Place { requests, tenant }) = self.0.take() {
            requests.lock().end_preparing(&tenant);
        }
    }
}

/// One unfinished request. It ends for the client and for the engine at different times, in either order.
#[derive(Default)]
struct ActiveRequest {
    /// `None` once the client has its last event.
    output: Option<RequestOutput>,
    /// `None` once the engine process has ended the job, and always with an engine in this process.
    job: Option<JournaledJob>,
}

impl ActiveRequests {
    /// Adds a request that was prepared in this place of the queue.
    pub(crate) fn insert(&self, job: JobId, output: RequestOutput, mut admission: Admission) {
        let mut registry = self.lock();
        registry.active.entry(job).or_default().output = Some(output);
        if let Some(Place { tenant, .. }) = admission.0.take() {
            registry.end_preparing(&tenant);
        }
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
        registry.active.iter().find_map(named)
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

    /// A place for one more request of this tenant, with `running` requests and a queue limit of `queue`; `None` where the
    /// queue is full. Tenants with less than their share may exceed the limit by a quarter. The scheduler applies the same
    /// rule to simultaneous requests.
    pub(crate) fn admit(&self, tenant: &str, queue: usize, running: usize) -> Option<Admission> {
        let mut registry = self.lock();
        if !registry.has_room(tenant, queue, running) {
            return None;
        }
        *registry.preparing.entry(tenant.to_owned()).or_default() += 1;
        Some(Admission(Some(Place { requests: self.clone(), tenant: tenant.to_owned() })))
    }

    /// Handles the reports of an engine in this process until it ends, then fails the remaining requests.
    pub(crate) fn run(&self, reports: &Receiver<Report>, status: &EngineStatus, commands: &CommandSender) {
        // In one process, jobs have their pixels.
        while let Ok(Report { jobs, stats, replies, requested_pixels: _ }) = reports.recv() {
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
            for request in std::mem::take(&mut registry.active).into_values() {
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
            let output = self.active.get_mut(&job).and_then(|request| request.output.as_mut());
            let Some(output) = output else { continue };
            match output.handle(update) {
                OutputState::Active => continue,
                OutputState::Finished => {}
                OutputState::Stopped => commands.push(Command::Cancel(job)),
                OutputState::Continued(next) => {
                    let output = self.active.get_mut(&job).and_then(|request| request.output.take());
                    self.active.entry(next.id).or_default().output = output;
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
        self.active.entry(id).or_default().job = Some(job);
    }

    /// The job of a request that the engine has not ended.
    pub(crate) fn job_mut(&mut self, id: JobId) -> Option<&mut JournaledJob> {
        self.active.get_mut(&id)?.job.as_mut()
    }

    /// The jobs that the engine has not ended, by id.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &JournaledJob> {
        self.active.values().filter_map(|request| request.job.as_ref())
    }

    /// The jobs that the engine has not ended, by id, to be changed.
    pub(crate) fn jobs_mut(&mut self) -> impl Iterator<Item = &mut JournaledJob> {
        self.active.values_mut().filter_map(|request| request.job.as_mut())
    }

    /// The engine has ended this job.
    pub(crate) fn end_job(&mut self, id: JobId) {
        self.end(id, |request| request.job = None);
    }

    fn has_room(&self, tenant: &str, queue: usize, running: usize) -> bool {
        let full = queue.saturating_add(running);
        let active = self.outputs().count() + self.preparing.values().sum::<usize>();
        if active < full {
            return true;
        }
        let others = self.outputs().map(RequestOutput::tenant);
        let others = others.chain(self.preparing.keys().map(String::as_str));
        let tenants: BTreeSet<&str> = others.chain([tenant]).collect();
        let prepared = self.outputs().filter(|output| output.tenant() == tenant).count();
        let own = prepared + self.preparing.get(tenant).copied().unwrap_or(0);
        let under_share = tenants.len() > 1 && own.saturating_mul(tenants.len()) < queue;
        under_share && active < full.saturating_add(queue.div_ceil(4))
    }

    fn end_preparing(&mut self, tenant: &str) {
        if let Some(count) = self.preparing.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.preparing.remove(tenant);
            }
        }
    }

    fn outputs(&self) -> impl Iterator<Item = &RequestOutput> {
        self.active.values().filter_map(|request| request.output.as_ref())
    }

    /// Ends one side of a request, and removes it once both have ended.
    fn end(&mut self, id: JobId, side: impl FnOnce(&mut ActiveRequest)) {
        let Some(request) = self.active.get_mut(&id) else { return };
        side(request);
        if request.output.is_none() && request.job.is_none() {
            self.active.remove(&id);
        }
    }
}
