//! `POST /v1/score`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use super::scores::{self, Pairs};
use super::{PoolingCall, answered, name_cut};
use crate::app::App;
use crate::error::ApiError;
use crate::wire::pooling::score::{Score, ScoreRequest};
use crate::wire::pooling::{Envelope, PoolingUsage};

const API: &str = "score";

/// Scores of pairs.
pub async fn score(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answered(API, answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = PoolingCall::open(app, request, (API, "score-")).await?;
    let ScoreRequest { options, pairs, instruction, activated } = ScoreRequest::read(body)?;
    let pairs = Pairs { options: &options, texts: pairs, field: "text_2", instruction, activated };
    let scored = scores::of(&call, pairs).await?;
    let data = scored.scores.iter().enumerate();
    let envelope = Envelope {
        id: call.caller.response_id.clone(),
        object: "list",
        created: call.created(),
        model: call.name(options.model.as_deref()),
        data: data.map(|(index, score)| Score { index, object: "score", score: *score }).collect(),
        usage: PoolingUsage::new(scored.tokens),
    };
    let mut response = Json(envelope).into_response();
    name_cut(&mut response, &scored.pooled);
    Ok(response)
}
