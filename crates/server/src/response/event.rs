//! What a response is made of: events of the engine, and those of the server's own.

use omnibus_engine::{TranscriptionEvent, Usage};

use super::ToolEvent;
use crate::error::ApiError;

/// One event of a choice. The last one [ends](Self::end) it.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Of a generation.
    Engine(omnibus_engine::Event),
    /// Of a transcription.
    Speech(TranscriptionEvent),
    /// Of a tool that the server runs.
    Tool(ToolEvent),
    /// The server cannot go on.
    Failed(ApiError),
}

impl Event {
    /// How the choice ended, if this is its last event.
    pub fn end(&self) -> Option<Result<Usage, ApiError>> {
        match self {
            Self::Engine(event) => end_of_generation(event),
            Self::Speech(event) => end_of_transcription(event),
            Self::Tool(_) => None,
            Self::Failed(error) => Some(Err(error.clone())),
        }
    }
}

fn end_of_generation(event: &omnibus_engine::Event) -> Option<Result<Usage, ApiError>> {
    use omnibus_engine::Event;
    match event {
        Event::Finished { usage, .. } => Some(Ok(*usage)),
        Event::Failed(failure) => Some(Err(ApiError::of_generation(failure.clone()))),
        Event::Started { .. }
        | Event::Prompt(_)
        | Event::Alignment(_)
        | Event::Hidden(_)
        | Event::TokenLogits(_)
        | Event::Progress { .. }
        | Event::Delta { .. } => None,
    }
}

fn end_of_transcription(event: &TranscriptionEvent) -> Option<Result<Usage, ApiError>> {
    match event {
        TranscriptionEvent::Finished(summary) => Some(Ok(summary.usage)),
        TranscriptionEvent::Failed(failure) => Some(Err(failure.clone().into())),
        TranscriptionEvent::Segment(_) => None,
    }
}
