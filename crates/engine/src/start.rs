//! Starting an engine: on a thread of this process, or in a process of its own.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::error::{Disconnected, StartError};
use crate::front::{ActiveRequests, Handle, LoadedModel, ModelText, Started, check_names};
use crate::load_progress::LoadWatch;
use crate::logits_processor::LogitsProcessors;
use crate::memory_pressure;
use crate::message::{CommandSender, JobReport, Report};
use crate::model_source::ModelSource;
use crate::process::wire::{SourceName, Start};
use crate::settings::Settings;
use crate::status::{EngineStatus, IN_PROCESS_HANG_LIMIT};
use crate::supervisor::{self, Isolation, Outputs, Supervised};
use crate::worker::{self, Own};

/// Starts the engine in this process, and waits until its model is loaded.
pub fn start(models: Vec<ModelSource>, settings: Settings) -> Result<Handle, StartError> {
    start_with(models, settings, LogitsProcessors::default())
}

/// Starts the engine in this process, with code that requests may name to change their logits.
pub fn start_with(
    models: Vec<ModelSource>,
    settings: Settings,
    processors: LogitsProcessors,
) -> Result<Handle, StartError> {
    load(&unloaded(models, settings, EngineHost::InProcess(processors))?)
}

/// Starts the engine in a process of its own, and waits until its model is loaded. When that process ends, another is
/// started, and every request resumes.
pub fn start_isolated(
    models: Vec<ModelSource>,
    settings: Settings,
    isolation: Isolation,
) -> Result<Handle, StartError> {
    load(&unloaded(models, settings, EngineHost::Isolated(isolation))?)
}

/// Where an engine runs.
pub enum EngineHost {
    /// On a thread of this process, with code that requests may name to change their logits.
    InProcess(LogitsProcessors),
    /// In a process of its own.
    Isolated(Isolation),
}

/// The handle of a model that is not loaded: nothing of its files is read before [`Handle::load`].
pub fn unloaded(
    models: Vec<ModelSource>,
    settings: Settings,
    host: EngineHost,
) -> Result<Handle, StartError> {
    let source = only(models)?;
    check_names(&settings.adapters, &source.names())?;
    let names = source.names();
    Ok(Handle::new(names, Box::new(move |progress| start_engine(&source, (&settings, &host), progress))))
}

fn load(handle: &Handle) -> Result<Handle, StartError> {
    handle.load()?;
    Ok(handle.clone())
}

fn start_engine(
    source: &ModelSource,
    (settings, host): (&Settings, &EngineHost),
    progress: &LoadWatch,
) -> Result<LoadedModel, StartError> {
    let text = ModelText::read(&source.files(), settings)?;
    let settings = &with_topic(settings, source);
    let started = match host {
        EngineHost::InProcess(processors) => {
            start_in_process(source, settings, (processors, progress), text)?
        }
        EngineHost::Isolated(isolation) => start_process(source, settings, (isolation, progress), text)?,
    };
    if let Some(pressure) = memory_pressure::of_this_machine() {
        memory_pressure::watch(pressure, &started.status, &started.commands);
    }
    Ok(LoadedModel::new(started, source, settings))
}

/// These settings, where KV events have their topic.
fn with_topic(settings: &Settings, source: &ModelSource) -> Settings {
    let model = source.names().into_iter().next().unwrap_or_default();
    let topic = settings.kv_events_topic.as_deref();
    let kv_events = settings.kv_events.as_ref().map(|events| events.with_topic(topic, &model));
    Settings { kv_events, ..settings.clone() }
}

fn start_in_process(
    source: &ModelSource,
    settings: &Settings,
    (processors, progress): (&LogitsProcessors, &LoadWatch),
    text: ModelText,
) -> Result<Started, StartError> {
    if settings.data_parallel_size > 1 {
        return Err(StartError::new(format!(
            "--data-parallel-size {} needs engine processes; leave out --in-process",
            settings.data_parallel_size
        )));
    }
    let (to_loop, inbox) = channel();
    let (to_outputs, reports) = channel();
    let status = Arc::new(EngineStatus::new(1, IN_PROCESS_HANG_LIMIT));
    let replicas = status.replicas();
    // In one process, jobs have their pixels.
    let report_tx = Box::new(move |Report { jobs, stats, replies, requested_pixels: _ }| {
        // The statistics come first: they include a request's end when its client sees it.
        if let [of_loop] = replicas.as_slice() {
            of_loop.update(stats, replies);
        }
        to_outputs.send(jobs).map_err(|_| Disconnected)
    });
    let watch = progress.clone();
    let own = Own {
        settings: settings.clone(),
        processors: processors.clone(),
        launch: None,
        progress: Some(Box::new(move |progress| watch.set(0, progress))),
    };
    let (ready, thread) = worker::start(source.files(), own, inbox, report_tx)?;
    let commands = CommandSender::new(move |command| to_loop.send(command).map_err(|_| Disconnected));
    let requests = hand_out(reports, &status, &commands)?;
    let processors = processors.clone();
    Ok(Started { text, ready, commands, threads: vec![thread], requests, status, processors })
}

fn start_process(
    source: &ModelSource,
    settings: &Settings,
    (isolation, progress): (&Isolation, &LoadWatch),
    text: ModelText,
) -> Result<Started, StartError> {
    let name = match source {
        ModelSource::Directory { path, .. } => SourceName::Directory(path.clone()),
        ModelSource::Embedded { .. } => SourceName::Embedded,
    };
    let (to_outputs, reports) = channel();
    let status = Arc::new(EngineStatus::new(settings.data_parallel_size, isolation.watchdog));
    let outputs = Outputs { reports: to_outputs, status: Arc::clone(&status), progress: progress.clone() };
    let start = Start {
        source: name,
        settings: settings.clone(),
        watchdog: isolation.watchdog,
        label: isolation.label.clone(),
        variables: isolation.variables.clone(),
    };
    let Supervised { commands, ready, threads } = supervisor::start(isolation.clone(), start, outputs)?;
    let requests = hand_out(reports, &status, &commands)?;
    let processors = LogitsProcessors::default();
    Ok(Started { text, ready, commands, threads, requests, status, processors })
}

/// Starts the thread that turns reports into events of the requests it returns.
fn hand_out(
    reports: Receiver<Vec<JobReport>>,
    status: &Arc<EngineStatus>,
    commands: &CommandSender,
) -> Result<ActiveRequests, StartError> {
    let requests = ActiveRequests::default();
    let (own, status, commands) = (requests.clone(), Arc::clone(status), commands.clone());
    std::thread::Builder::new()
        .name("omnibus-text".to_owned())
        .spawn(move || own.run(&reports, &status, &commands))
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}")))?;
    Ok(requests)
}

fn only(models: Vec<ModelSource>) -> Result<ModelSource, StartError> {
    match <[ModelSource; 1]>::try_from(models) {
        Ok([source]) => Ok(source),
        Err(several) => Err(StartError::new(format!("one model at a time, not {}", several.len()))),
    }
}
