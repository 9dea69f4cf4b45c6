//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream;
use omnibus_engine::{RequestOrigin, SpeechTask, TranscriptionEvent};
use tracing::Span;
use uuid::Uuid;

use crate::api::count_refused;
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::lower::{Caller, transcription};
use crate::observe::ObservedTranscripts;
use crate::request_id::RequestId;
use crate::response::openai::transcription::{TranscriptBody, TranscriptSoFar, failed};
use crate::response::{Frame, Frames, json, sse};
use crate::wire::form::FormFields;
use crate::wire::transcription::{FIELDS, TranscriptFormat, TranscriptionRequest};

/// Writes down what is spoken.
pub async fn transcriptions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(app, request, SpeechTask::Transcribe).await
}

/// Writes down what is spoken in English.
pub async fn translations(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(app, request, SpeechTask::Translate).await
}

async fn answer(app: Arc<App>, request: Request, task: SpeechTask) -> Result<Response, ApiError> {
    let api = api(task);
    let begun = begun(app, request, task).await;
    let (format, streams, events) = begun.inspect_err(|error| count_refused(api, error))?;
    if streams {
        return Ok(sse::response(frames(events)));
    }
    full(events, format, task).await
}

/// The value of the `api` label of metrics.
fn api(task: SpeechTask) -> &'static str {
    match task {
        SpeechTask::Transcribe => "transcriptions",
        SpeechTask::Translate => "translations",
    }
}

async fn begun(
    app: Arc<App>,
    request: Request,
    task: SpeechTask,
) -> Result<(TranscriptFormat, bool, ObservedTranscripts), ApiError> {
    let extensions = request.extensions();
    let RequestId(request_id) = extensions.get::<RequestId>().cloned().unwrap_or_default();
    let Tenant(tenant) = extensions.get::<Tenant>().cloned().unwrap_or_default();
    let (body, boundary, _reserved) = app.bodies.form(request).await?;
    let wire = TranscriptionRequest::read(FormFields::read(body, boundary, FIELDS).await?)?;
    let response_id = format!("transcript-{}", Uuid::new_v4().simple());
    Span::current().record("response_id", &response_id);
    let (format, streams) = (wire.format, wire.stream);
    let caller = Caller { response_id: response_id.clone(), tenant };
    let mut transcription = transcription::lower(wire, task, &caller);
    transcription.request.origin = RequestOrigin { response_id, request_id, index: 0 };
    let events = blocking(move || app.engine.transcribe(transcription).map_err(ApiError::from)).await?;
    Ok((format, streams, ObservedTranscripts::new(events, api(task))))
}

/// The whole answer.
async fn full(
    mut events: ObservedTranscripts,
    format: TranscriptFormat,
    task: SpeechTask,
) -> Result<Response, ApiError> {
    let mut so_far = TranscriptSoFar::default();
    while let Some(event) = events.next().await {
        match event {
            TranscriptionEvent::Segment(segment) => _ = so_far.add(segment),
            TranscriptionEvent::Failed(failure) => return Err(failure.into()),
            TranscriptionEvent::Finished(summary) => {
                return Ok(match so_far.body(format, task, &summary) {
                    TranscriptBody::Json(body) => json(body),
                    TranscriptBody::Text(kind, text) => ([(CONTENT_TYPE, kind)], text).into_response(),
                });
            }
        }
    }
    Err(ApiError::internal("the engine ended a transcription without its last event"))
}

/// The frames of a streamed answer.
fn frames(events: ObservedTranscripts) -> impl futures::Stream<Item = Frame> + Send {
    let frames_of = move |so_far: &mut TranscriptSoFar, event: TranscriptionEvent| {
        let mut frames = Frames::default();
        match event {
            TranscriptionEvent::Segment(segment) => {
                let new = so_far.add(segment);
                so_far.delta(&new, &mut frames);
            }
            TranscriptionEvent::Finished(summary) => {
                so_far.done(&summary, &mut frames);
            }
            TranscriptionEvent::Failed(failure) => {
                failed(&ApiError::from(failure), &mut frames);
            }
        }
        futures::future::ready(Some(stream::iter(frames.take())))
    };
    events.scan(TranscriptSoFar::default(), frames_of).flatten()
}
