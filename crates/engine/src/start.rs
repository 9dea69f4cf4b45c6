//! Starting an engine: on a thread of this process, or in a process of its own.

use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::StartError;
use crate::error::Disconnected;
use crate::front::{Handle, ModelText, Started, check_names};
use crate::logits_processor::LogitsProcessors;
use crate::message::CommandSender;
use crate::model_source::ModelSource;
use crate::process::wire::{SourceName, Start};
use crate::registry::ActiveRequests;
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
    let source = only(&models)?;
    check_names(&settings.adapters, &source.names())?;
    let text = ModelText::read(&source.files(), &settings)?;
    let (to_loop, inbox) = channel();
    let (reports, from_loop) = channel();
    let requests = ActiveRequests::default();
    let status = Arc::new(EngineStatus::new(IN_PROCESS_HANG_LIMIT));
    let report_tx = Box::new(move |report| reports.send(report).map_err(|_| Disconnected));
    let own = Own { settings: settings.clone(), processors: processors.clone() };
    let (ready, thread) = worker::start(source.files(), own, inbox, report_tx)?;
    let commands = CommandSender::new(move |command| to_loop.send(command).map_err(|_| Disconnected));
    let (for_text, status_for_text, cancel) = (requests.clone(), Arc::clone(&status), commands.clone());
    std::thread::Builder::new()
        .name("omnibus-text".to_owned())
        .spawn(move || for_text.run(&from_loop, &status_for_text, &cancel))
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}")))?;
    let started = Started { text, ready, commands, thread, requests, status, processors };
    Ok(Handle::new(started, source, &settings))
}

/// Starts the engine in a process of its own, and waits until its model is loaded. When that process ends, another is
/// started, and every request resumes.
pub fn start_isolated(
    models: Vec<ModelSource>,
    settings: Settings,
    isolation: Isolation,
) -> Result<Handle, StartError> {
    let source = only(&models)?;
    check_names(&settings.adapters, &source.names())?;
    let text = ModelText::read(&source.files(), &settings)?;
    let name = match source {
        ModelSource::Directory { path, .. } => SourceName::Directory(path.clone()),
        ModelSource::Embedded { .. } => SourceName::Embedded,
    };
    let requests = ActiveRequests::default();
    let status = Arc::new(EngineStatus::new(isolation.watchdog));
    let outputs = Outputs { requests: requests.clone(), status: Arc::clone(&status) };
    let start = Start { source: name, settings: settings.clone() };
    let Supervised { commands, ready, thread } = supervisor::start(isolation, start, outputs)?;
    let processors = LogitsProcessors::default();
    let started = Started { text, ready, commands, thread, requests, status, processors };
    Ok(Handle::new(started, source, &settings))
}

fn only(models: &[ModelSource]) -> Result<&ModelSource, StartError> {
    match models {
        [source] => Ok(source),
        several => Err(StartError::new(format!("one model at a time, not {}", several.len()))),
    }
}
