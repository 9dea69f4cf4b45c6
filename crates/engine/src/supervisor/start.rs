//! Starting the replicas of a model: a supervisor and an engine process each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::adapters::LoadingAdapters;
use super::job_journal::JobJournal;
use super::load_retry::LoadRetry;
use super::memory_left::MemoryLeft;
use super::replicas::{REPLICAS_MAX, Replicas};
use super::{Isolation, PAUSE_MIN, Supervisor};
use crate::error::StartError;
use crate::load_progress::LoadWatch;
use crate::log_span::of_model;
use crate::message::{Command, CommandSender, JobReport, Ready};
use crate::process::wire::Start;
use crate::settings::Settings;
use crate::status::{EngineStatus, ReplicaStatus};

/// Receives reports and state changes.
pub(crate) struct Outputs {
    /// Closed when all replicas have stopped.
    pub(crate) reports: Sender<Vec<JobReport>>,
    pub(crate) status: Arc<EngineStatus>,
    /// Of the loads of all replicas.
    pub(crate) progress: LoadWatch,
}

/// Running engine processes, as their user sees them.
pub(crate) struct Supervised {
    pub(crate) commands: CommandSender,
    pub(crate) ready: Ready,
    /// Of each replica.
    pub(crate) threads: Vec<JoinHandle<()>>,
}

/// A supervisor whose process loads the model.
struct Starting {
    thread: JoinHandle<()>,
    ready: Receiver<Result<Ready, StartError>>,
}

/// Starts the processes and waits until all have loaded the model.
pub(crate) fn start(isolation: Isolation, start: Start, outputs: Outputs) -> Result<Supervised, StartError> {
    let count = start.settings.data_parallel_size;
    if !(1..=REPLICAS_MAX).contains(&count) {
        return Err(StartError::new(format!(
            "--data-parallel-size {count} is not between 1 and {REPLICAS_MAX}"
        )));
    }
    let Outputs { reports, status, progress } = outputs;
    let replicas = Arc::new(Replicas::new(Arc::clone(&status)));
    let mut threads = Vec::new();
    let started =
        start_all((&isolation, start), (&reports, status.replicas(), &progress), &replicas, &mut threads);
    let ready = match started {
        Ok(ready) => ready,
        Err(error) => {
            // Replicas that run end; the one that failed has ended.
            let _one_has_ended = replicas.send(Command::Stop);
            for thread in threads {
                let _reported = thread.join();
            }
            return Err(error);
        }
    };
    let send = move |command| replicas.send(command);
    Ok(Supervised { commands: CommandSender::new(send), ready, threads })
}

/// Starts the first replica, then all others at once, which must hold sequences as long as the first one.
fn start_all(
    (isolation, mut start): (&Isolation, Start),
    (reports, statuses, progress): (&Sender<Vec<JobReport>>, Vec<ReplicaStatus>, &LoadWatch),
    replicas: &Arc<Replicas>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Ready, StartError> {
    let mut first: Option<Ready> = None;
    let mut loading = Vec::new();
    for (replica, status) in statuses.into_iter().enumerate() {
        let outputs = (reports.clone(), status, progress.clone());
        let isolation = isolation_of_replica(isolation, &start.settings, replica);
        let Starting { thread, ready } =
            begin(isolation, start_of_replica(&start, replica), outputs, (replica, replicas))?;
        threads.push(thread);
        match first {
            None => {
                let ready = loaded(&ready)?;
                start.settings.max_model_len = Some(ready.max_model_len);
                first = Some(ready);
            }
            Some(_) => loading.push(ready),
        }
    }
    for ready in loading {
        loaded(&ready)?;
    }
    first.ok_or_else(|| StartError::new("a model needs one engine process or more"))
}

/// What starts a replica: each publishes KV events at a port of its own.
fn start_of_replica(start: &Start, replica: usize) -> Start {
    let kv_events = start.settings.kv_events.as_ref().map(|events| events.of_replica(replica));
    Start { settings: Settings { kv_events, ..start.settings.clone() }, ..start.clone() }
}

/// How a replica's process is started: each begins with a GPU of its own, where there are any.
fn isolation_of_replica(isolation: &Isolation, settings: &Settings, replica: usize) -> Isolation {
    let (ranks, replicas) = (settings.tensor_parallel_size.max(1), settings.data_parallel_size);
    let gpus = match replicas {
        0 | 1 => None,
        _ => mlx::environment::gpus_from(replica * ranks, replicas * ranks),
    };
    let variables = isolation.variables.iter().cloned().chain(gpus).collect();
    Isolation { variables, ..isolation.clone() }
}

fn loaded(ready: &Receiver<Result<Ready, StartError>>) -> Result<Ready, StartError> {
    let ended = |_| Err(StartError::new("the engine's supervisor ended while the model was loading"));
    ready.recv().unwrap_or_else(ended)
}

/// Starts the supervisor of a replica, and with it the process.
fn begin(
    isolation: Isolation,
    start: Start,
    (reports, status, progress): (Sender<Vec<JobReport>>, ReplicaStatus, LoadWatch),
    (replica, replicas): (usize, &Arc<Replicas>),
) -> Result<Starting, StartError> {
    let (to_supervisor, inbox) = channel();
    let (ready_tx, ready) = channel();
    replicas.add(to_supervisor.clone());
    let label = isolation.label.clone();
    let supervisor = Supervisor {
        isolation,
        start,
        replica,
        replicas: Arc::clone(replicas),
        to_self: to_supervisor,
        inbox,
        reports,
        status,
        progress,
        journal: JobJournal::default(),
        moved: BTreeSet::new(),
        process: None,
        number: 0,
        pause: PAUSE_MIN,
        load_retry: LoadRetry::default(),
        restart_at: None,
        adapters: LoadingAdapters::default(),
        memory_left: MemoryLeft::default(),
    };
    let thread = std::thread::Builder::new()
        .name("omnibus-supervisor".to_owned())
        .spawn(move || of_model(label.as_deref()).in_scope(|| supervisor.run(&ready_tx)))
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}")))?;
    Ok(Starting { thread, ready })
}
