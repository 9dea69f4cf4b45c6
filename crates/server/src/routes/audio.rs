//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt;
use omnibus_engine::{Class, RequestOrigin, SpeechTask};
use uuid::Uuid;

use crate::api::count_refused;
use crate::app::{App, blocking};
use crate::auth::Tenant;
use crate::charge::{Charge, PromptCharge};
use crate::error::ApiError;
use crate::lower::{Caller, Choices, transcription};
use crate::observe::ObservedEvents;
use crate::request_id::RequestId;
use crate::response::openai::transcription::TranscriptFramer;
use crate::response::{ChoiceEvents, Delivery, Event, merge, reply};
use crate::wire::form::FormFields;
use crate::wire::transcription::{FIELDS, TranscriptionRequest};

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
    let keep_alive = app.keep_alive;
    let begun = begun(app, request, task).await;
    let (framer, events, delivery) = begun.inspect_err(|error| count_refused(api, error))?;
    reply(framer, events, Choices { count: 1, per_prompt: 1 }, delivery, keep_alive).await
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
) -> Result<(TranscriptFramer, ChoiceEvents, Delivery), ApiError> {
    let extensions = request.extensions();
    let RequestId(request_id) = extensions.get::<RequestId>().cloned().unwrap_or_default();
    let Tenant(tenant) = extensions.get::<Tenant>().cloned().unwrap_or_default();
    let (body, boundary, _reserved) = app.bodies.form(request).await?;
    let wire = TranscriptionRequest::read(FormFields::read(body, boundary, FIELDS).await?)?;
    let response_id = format!("transcript-{}", Uuid::new_v4().simple());
    let framer = TranscriptFramer::new(wire.format, task);
    let delivery = if wire.stream { Delivery::Stream } else { Delivery::Full };
    let key = app.keys.of_tenant(&tenant)?;
    let stream = Arc::new(key.admit(Class::Online)?);
    let caller = Caller { response_id: response_id.clone(), tenant };
    let mut transcription = transcription::lower(wire, task, &caller);
    transcription.request.origin = RequestOrigin { response_id, request_id, index: 0 };
    let lease = app.lease(&caller.tenant, transcription.request.model.as_deref()).await?;
    let queued = key.queue(app.queue_places, Class::Online)?;
    let events = blocking(move || app.engine.transcribe(transcription).map_err(ApiError::from)).await?;
    let charge = Charge::new(Arc::clone(&key.account), PromptCharge::Charged, queued, stream);
    let events =
        ObservedEvents::new(events.map(Event::Speech).boxed(), api(task)).charging(charge).leasing(lease);
    Ok((framer, merge(vec![events]), delivery))
}
