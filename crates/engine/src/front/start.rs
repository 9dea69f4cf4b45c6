//! Starting an engine: on a thread of this process, or in a process of its own.

use std::sync::Arc;
use std::sync::mpsc::channel;

use super::gauges::Gauges;
use super::handle::{Handle, StartError, Started};
use super::keeper::{self, Audience, Isolation, Kept};
use super::line::Line;
use super::model::{ModelSource, ModelText};
use super::narrator::Stage;
use crate::process::wire::{SourceName, Start};
use crate::settings::Settings;
use crate::worker::{self, NobodyListens};

/// Starts the engine in this process, and waits until its model is in memory.
pub fn start(models: Vec<ModelSource>, settings: Settings) -> Result<Handle, StartError> {
    let source = only(&models)?;
    let text = ModelText::read(&source.files(), settings.chat_template.as_deref())?;
    let (commands, inbox) = channel();
    let (reports, heard) = channel();
    let (stage, gauges) = (Stage::default(), Arc::new(Gauges::default()));
    let outlet = Box::new(move |report| reports.send(report).map_err(|_| NobodyListens));
    let (ready, thread) = worker::start(source.files(), settings.clone(), inbox, outlet)?;
    let line = Line::Thread(commands);
    let (told, shown, stop) = (stage.clone(), Arc::clone(&gauges), line.clone());
    std::thread::Builder::new()
        .name("omnibus-text".to_owned())
        .spawn(move || told.narrate(&heard, &shown, &stop))
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}")))?;
    Ok(Handle::of(Started { text, ready, line, thread, stage, gauges }, source, &settings))
}

/// Starts the engine in a process of its own, and waits until its model is in memory. Whatever ends that process,
/// it is started again, and every request goes on where it was.
pub fn start_isolated(
    models: Vec<ModelSource>,
    settings: Settings,
    isolation: Isolation,
) -> Result<Handle, StartError> {
    let source = only(&models)?;
    let text = ModelText::read(&source.files(), settings.chat_template.as_deref())?;
    let name = match source {
        ModelSource::Directory { path, .. } => SourceName::Directory(path.clone()),
        ModelSource::Embedded { .. } => SourceName::Embedded,
    };
    let (stage, gauges) = (Stage::default(), Arc::new(Gauges::default()));
    let audience = Audience { stage: stage.clone(), gauges: Arc::clone(&gauges) };
    let first = Start { source: name, settings: settings.clone() };
    let Kept { commands, ready, thread } = keeper::start(isolation, first, audience)?;
    let line = Line::Process(commands);
    Ok(Handle::of(Started { text, ready, line, thread, stage, gauges }, source, &settings))
}

fn only(models: &[ModelSource]) -> Result<&ModelSource, StartError> {
    match models {
        [source] => Ok(source),
        several => Err(StartError::new(format!("one model at a time, not {}", several.len()))),
    }
}
