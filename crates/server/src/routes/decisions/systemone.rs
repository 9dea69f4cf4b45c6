//! `POST /v1/systemone`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};

use super::labels;
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::request_id::RequestId;
use crate::response::decisions::systemone;
use crate::routes::pooling::{PoolingCall, answered};
use crate::wire::decisions::Question;
use crate::wire::decisions::systemone::{SystemOneRequest, SystemOneResponse, images_refused};

const API: &str = "systemone";

/// The header by which TypeSafe's clients know a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-typesafe-request-id");

/// Answers questions about a state.
pub async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    let RequestId(id) = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
    let mut response = answered(API, decided(app, request).await).map(Json).into_response();
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

async fn decided(app: Arc<App>, request: Request) -> Result<SystemOneResponse, ApiError> {
    if is_form(&request) {
        // It is received first, so that its client reads the answer.
        app.bodies.form(request).await?;
        return Err(images_refused());
    }
    let (call, body) = PoolingCall::open_any(app, request, (API, "decision-")).await?;
    let wire = Arc::new(SystemOneRequest::read(body)?);
    let model = call.served(wire.model.as_deref())?;
    let (wanted, of, caller) = (Arc::clone(&wire), model.clone(), call.caller.clone());
    let prompts = move |app: &App| {
        let questions: Vec<&Question> = wanted.questions.iter().map(|named| &named.question).collect();
        let (of, readout) = (of.as_deref(), wanted.readout);
        let pairs = labels::pairs(app.engine.as_ref(), of, questions.iter().copied(), readout);
        lower::decisions::request((of, &wanted.state), questions.into_iter(), (readout, &pairs), &caller)
    };
    let scoring = call.score(prompts).await?;
    Ok(systemone::response(&wire, &scoring, call.name(model.as_deref())))
}

/// Whether the body is a form, as clients send with images.
fn is_form(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data"))
}
