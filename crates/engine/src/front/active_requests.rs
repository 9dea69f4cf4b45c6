//! The unfinished requests: one output each, shared by the model, which adds them, and the thread that hands out their
//! events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use omnibus_core::Class;
use omnibus_text::catch_panic;
use tokio::sync::Notify;

use super::output_processor::{OutputState, RequestOutput};
use crate::error::Failure;
use crate::info::RequestInfo;
use crate::message::{Command, CommandSender, JobId, JobReport, JobUpdate};
use crate::status::EngineStatus;

/// The unfinished requests.
#[derive(Clone, Default)]
pub(crate) struct ActiveRequests(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<Registry>,
    /// Notified when the last client has its last event.
    empty: Notify,
}

#[derive(Default)]
struct Registry {
    /// Of the requests whose clients do not have their last event yet.
    outputs: BTreeMap<JobId, RequestOutput>,
    /// How many requests of each class and tenant are prepared for the queue. None of the counts is zero.
    preparing: BTreeMap<(Class, String), usize>,
}

/// A place in the queue for a request that is being prepared: whose media are fetched and decoded, and whose prompt is
/// tokenized. Given back when dropped. The default holds none.
#[derive(Default)]
pub struct Admission(Option<Place>);

struct Place {
    requests: ActiveRequests,
    of: (Class, String),
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(Place { requests, of }) = self.0.take() {
            requests.lock().end_preparing(&of);
        }
    }
}

impl ActiveRequests {
    /// Adds a request that was prepared in this place of the queue.
    pub(crate) fn insert(&self, job: JobId, output: RequestOutput, mut admission: Admission) {
        let mut registry = self.lock();
        registry.outputs.insert(job, output);
        if let Some(Place { of, .. }) = admission.0.take() {
            registry.end_preparing(&of);
        }
    }

    /// Removes a request that was not queued.
    pub(crate) fn remove(&self, job: JobId) {
        self.update(|registry| _ = registry.outputs.remove(&job));
    }

    fn update<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.lock();
        let changed = change(&mut registry);
        if registry.outputs.is_empty() {
            self.0.empty.notify_waiters();
        }
        changed
    }

    pub(crate) fn find(&self, id: &str) -> Option<JobId> {
        let registry = self.lock();
        registry.outputs.iter().find(|(_, output)| output.is_named(id)).map(|(job, _)| *job)
    }

    pub(crate) fn infos(&self) -> Vec<RequestInfo> {
        self.lock().outputs.values().map(RequestOutput::info).collect()
    }

    /// Waits until every client has its last event.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            let empty = self.0.empty.notified();
            if self.lock().outputs.is_empty() {
                return;
            }
            empty.await;
        }
    }

    /// A place for one more request of this tenant and class, each of which has a queue, with `running` requests and a queue limit of `queue`; `None` where the
    /// queue is full. Tenants with less than their share may exceed the limit by a quarter. The scheduler applies the same
    /// rule to simultaneous requests.
    pub(crate) fn admit(
        &self,
        class: Class,
        tenant: &str,
        queue: usize,
        running: usize,
    ) -> Option<Admission> {
        let mut registry = self.lock();
        if !registry.has_room((class, tenant), queue, running) {
            return None;
        }
        let of = (class, tenant.to_owned());
        *registry.preparing.entry(of.clone()).or_default() += 1;
        Some(Admission(Some(Place { requests: self.clone(), of })))
    }

    /// Hands out the events of reports until the engine ends, then fails the remaining requests.
    pub(crate) fn run(
        &self,
        reports: &Receiver<Vec<JobReport>>,
        status: &EngineStatus,
        commands: &CommandSender,
    ) {
        while let Ok(reports) = reports.recv() {
            for command in self.update(|registry| registry.handle(reports)) {
                let _stopping = commands.send(command);
            }
        }
        status.set_stopped();
        self.update(|registry| {
            for mut output in std::mem::take(&mut registry.outputs).into_values() {
                output.handle(JobUpdate::Failed(Failure::unavailable("the engine has stopped")));
            }
        });
    }

    /// A panic leaves no entry half-written.
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// Sends the clients the events of reports. Returns commands to the loop: jobs that have finished here are cancelled
    /// there, and some go on as another job.
    fn handle(&mut self, reports: Vec<JobReport>) -> Vec<Command> {
        let mut commands = Vec::new();
        for JobReport { job, update } in reports {
            let Some(output) = self.outputs.get_mut(&job) else { continue };
            // A panic in one request's output ends that request alone: this thread serves all.
            let state = catch_panic(|| output.handle(update)).unwrap_or_else(|panic| {
                let message = format!("its output could not be processed: {panic}");
                output.handle(JobUpdate::Failed(Failure::Engine { message }));
                OutputState::Stopped
            });
            match state {
                OutputState::Active => continue,
                OutputState::Finished => {}
                OutputState::Stopped => commands.push(Command::Cancel(job)),
                OutputState::Continued(next) => {
                    let output = self.outputs.remove(&job);
                    self.outputs.extend(output.map(|output| (next.id, output)));
                    commands.extend([Command::Cancel(job), Command::Submit(next)]);
                }
            }
            self.outputs.remove(&job);
        }
        commands
    }

    fn has_room(&self, (class, tenant): (Class, &str), queue: usize, running: usize) -> bool {
        let full = queue.saturating_add(running);
        let outputs = || self.outputs.values().filter(|output| output.class() == class);
        let preparing = || self.preparing.iter().filter(|((of, _), _)| *of == class);
        let active = outputs().count() + preparing().map(|(_, count)| count).sum::<usize>();
        if active < full {
            return true;
        }
        let others = outputs().map(RequestOutput::tenant);
        let others = others.chain(preparing().map(|((_, tenant), _)| tenant.as_str()));
        let tenants: BTreeSet<&str> = others.chain([tenant]).collect();
        let prepared = outputs().filter(|output| output.tenant() == tenant).count();
        let own = prepared + self.preparing.get(&(class, tenant.to_owned())).copied().unwrap_or(0);
        let under_share = tenants.len() > 1 && own.saturating_mul(tenants.len()) < queue;
        under_share && active < full.saturating_add(queue.div_ceil(4))
    }

    fn end_preparing(&mut self, of: &(Class, String)) {
        if let Some(count) = self.preparing.get_mut(of) {
            *count -= 1;
            if *count == 0 {
                self.preparing.remove(of);
            }
        }
    }
}
