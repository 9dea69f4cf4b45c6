//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use omnibus_engine::Task;

use super::{PoolingCall, answered, cut, embeds_texts, name_cut, tokens, wrong_task};
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::wire::pooling::embeddings::{Embedding, EmbeddingsRequest};
use crate::wire::pooling::numbers::Numbers;
use crate::wire::pooling::{Envelope, PoolingUsage};

const API: &str = "embeddings";

/// Vectors of texts.
pub async fn embeddings(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answered(API, answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = PoolingCall::open(app, request, (API, "embd-")).await?;
    let wire = EmbeddingsRequest::read(body)?;
    let model = wire.options.model.clone();
    let pooler = call.pooler(model.as_deref())?;
    if !embeds_texts(pooler.task()) && *pooler.task() != Task::EmbedTokens {
        return Err(wrong_task(pooler.task(), "gives no vectors"));
    }
    let (encoding, dimensions) = (wire.encoding, wire.dimensions);
    let pooled = call.pool(lower::pooling::embeddings(wire, &call.caller)).await?;
    let one = |(index, text): (usize, &omnibus_engine::Pooled)| {
        let numbers = cut(&pooler, &text.numbers, dimensions)?;
        let embedding = match text.of_tokens.len() {
            0 => Numbers::of(numbers, encoding),
            rows => Numbers::rows(&numbers, numbers.len() / rows, encoding),
        };
        Ok(Embedding { object: "embedding", index, embedding })
    };
    let data = pooled.iter().enumerate().map(one).collect::<Result<_, ApiError>>()?;
    let envelope = Envelope {
        id: call.caller.response_id.clone(),
        object: "list",
        created: call.created(),
        model: call.name(model.as_deref()),
        data,
        usage: PoolingUsage::new(tokens(&pooled)),
    };
    let mut response = Json(envelope).into_response();
    name_cut(&mut response, &pooled);
    Ok(response)
}
