//! Several engine processes of one model, each with a supervisor: which of them gets a job, and where a job resumes when
//! its process has died.
//!
//! Invariant: a job is at one supervisor. What is sent to a replica that does not run waits there for its next process.

mod placement;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::input::Input;
use super::journaled_job::{JournaledJob, Place};
use crate::error::Disconnected;
use crate::message::{Command, Job};
use crate::status::EngineStatus;
pub(super) use placement::REPLICAS_MAX;
use placement::{Placement, Wanted};

/// The replicas of a model, as the front and their supervisors see them.
pub(super) struct Replicas {
    status: Arc<EngineStatus>,
    router: Mutex<Router>,
}

#[derive(Default)]
struct Router {
    placement: Placement,
    replicas: Vec<Replica>,
}

struct Replica {
    inbox: Sender<Input>,
    /// Jobs that it has or will get.
    open: Arc<AtomicUsize>,
}

impl Replicas {
    /// No replicas so far.
    pub(super) fn new(status: Arc<EngineStatus>) -> Self {
        Self { status, router: Mutex::default() }
    }

    /// Adds the next replica, by what its supervisor receives.
    pub(super) fn add(&self, inbox: Sender<Input>) {
        self.lock().replicas.push(Replica { inbox, open: Arc::default() });
    }

    /// Sends a job to one replica, and anything else to all: ids that a replica does not know are ignored there.
    pub(super) fn send(&self, command: Command) -> Result<(), Disconnected> {
        let mut router = self.lock();
        let Command::Submit(job) = command else { return router.send_to_all(&command) };
        let open = router.open(&self.status.running_replicas());
        let (replica, place) = router.place(&job, &open).ok_or(Disconnected)?;
        router.send_job(replica, JournaledJob::new(*job, Instant::now(), place))
    }

    /// Sends the jobs of a replica whose process has ended to others that run. Returns those that have to wait, because
    /// none runs.
    pub(super) fn move_jobs(&self, from: usize, jobs: Vec<JournaledJob>) -> Vec<JournaledJob> {
        let mut router = self.lock();
        router.placement.forget(from);
        let mut running = self.status.running_replicas();
        if let Some(own) = running.get_mut(from) {
            *own = false;
        }
        if !running.contains(&true) {
            return jobs;
        }
        for mut job in jobs {
            let open = router.open(&running);
            let Some((replica, place)) = router.place(&job.job, &open) else { continue };
            job.place = place;
            // It ends with the engine.
            let _stopped = router.send_job(replica, job);
        }
        Vec::new()
    }

    /// A panic leaves at most a guess of what is cached half-written.
    fn lock(&self) -> MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Router {
    /// The jobs of each replica, `None` where it does not run.
    fn open(&self, running: &[bool]) -> Vec<Option<usize>> {
        let open =
            |(replica, running): (&Replica, &bool)| running.then(|| replica.open.load(Ordering::Relaxed));
        self.replicas.iter().zip(running).map(open).collect()
    }

    /// The replica for a job, and the job's place there.
    fn place(&mut self, job: &Job, open: &[Option<usize>]) -> Option<(usize, Place)> {
        let request = &job.request;
        // An adapter's blocks are its own.
        let salt = request.cache_salt ^ request.adapter;
        let wanted = Wanted { tokens: &request.prompt, salt, session: request.session };
        let replica = match open {
            [_] => 0,
            several => self.placement.place(wanted, several),
        };
        Some((replica, Place::new(&self.replicas.get(replica)?.open)))
    }

    fn send_job(&self, replica: usize, job: JournaledJob) -> Result<(), Disconnected> {
        let inbox = &self.replicas.get(replica).ok_or(Disconnected)?.inbox;
        inbox.send(Input::Job(Box::new(job))).map_err(|_| Disconnected)
    }

    fn send_to_all(&self, command: &Command) -> Result<(), Disconnected> {
        let sent = self.replicas.iter().map(|replica| replica.inbox.send(Input::Command(command.clone())));
        // It goes to all, also after one that has stopped.
        sent.map(|sent| sent.map_err(|_| Disconnected)).fold(Ok(()), Result::and)
    }
}
