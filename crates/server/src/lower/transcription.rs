//! Lowers `POST /v1/audio/transcriptions` and `/translations`.

use omnibus_engine::{
    Input, MediaItem, MediaSource, Request, Sampling, SpeechTask, SpeechTimes, Transcription,
};

use super::Caller;
use crate::wire::transcription::{Timed, TranscriptFormat, TranscriptionRequest};

/// The engine's transcription of a request.
pub fn lower(wire: TranscriptionRequest, task: SpeechTask, caller: &Caller) -> Transcription {
    let request = Request {
        model: wire.model,
        tenant: caller.tenant.clone(),
        priority: wire.priority,
        sampling: Sampling { seed: wire.seed, ..Sampling::default() },
        ..Request::new(caller.response_id.clone(), Input::Tokens(Vec::new()))
    };
    let times = match wire.format {
        TranscriptFormat::VerboseJson(timed) if timed.lists_words() => {
            SpeechTimes::OfWords { field: Timed::FIELDS[0] }
        }
        format if format.has_times() => SpeechTimes::OfSegments { field: "response_format" },
        _ => SpeechTimes::Optional,
    };
    Transcription {
        request,
        audio: MediaItem { field: "file".to_owned(), source: MediaSource::Bytes(wire.file.into()) },
        task,
        language: wire.language,
        prompt: wire.prompt,
        temperature: wire.temperature,
        times,
    }
}
