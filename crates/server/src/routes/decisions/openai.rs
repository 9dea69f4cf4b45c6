//! `POST /v1/decisions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};

use super::labels;
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::response::decisions::openai;
use crate::routes::pooling::{PoolingCall, answered};
use crate::wire::decisions::openai::{DecisionsRequest, DecisionsResponse};
use crate::wire::decisions::{Question, Readout};

const API: &str = "decisions";

/// Answers questions about a text.
pub async fn answer(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<DecisionsResponse>, ApiError> {
    answered(API, decided(app, request).await).map(Json)
}

async fn decided(app: Arc<App>, request: Request) -> Result<DecisionsResponse, ApiError> {
    let (call, body) = PoolingCall::open(app, request, (API, "decision-")).await?;
    let wire = Arc::new(DecisionsRequest::read(body)?);
    let model = wire.model.clone();
    call.check_model(model.as_deref())?;
    let (wanted, caller) = (Arc::clone(&wire), call.caller.clone());
    let prompts = move |app: &App| {
        let questions: Vec<&Question> = wanted.questions.iter().map(|listed| &listed.question).collect();
        let (of, readout) = (wanted.model.as_deref(), Readout::Labels);
        let pairs = labels::pairs(app.engine.as_ref(), of, questions.iter().copied(), readout);
        lower::decisions::request((of, &wanted.input), questions.into_iter(), (readout, &pairs), &caller)
    };
    let scoring = call.score(prompts).await?;
    Ok(openai::response(&wire, &scoring, call.name(model.as_deref())))
}
