//! Vectors of texts, for Ollama's clients.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use super::served;
use crate::api::Origin;
use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::keys::Key;
use crate::lower;
use crate::response::JsonBody;
use crate::routes::models::usable;
use crate::routes::pooling::{PoolingCall, answered, cut, embeds_texts, name_cut, tokens};
use crate::wire::ollama::embed::{OllamaEmbedRequest, OllamaEmbedding, OllamaEmbeddings};

const API: &str = "ollama_embed";

/// Vectors of one text or several.
pub async fn embed(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    request: Request,
) -> Result<Response, ApiError> {
    let since = Instant::now();
    let mut embedded = answered(API, vectors(app, &key, request, "input").await)?;
    embedded.body.total_duration = since.elapsed().as_nanos() as u64;
    let mut response = JsonBody::of(&embedded.body).into_response();
    name_cut(&mut response, &embedded.pooled);
    Ok(response)
}

/// The vector of one text.
pub async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    request: Request,
) -> Result<Response, ApiError> {
    let embedded = answered(API, vectors(app, &key, request, "prompt").await)?;
    let embedding = embedded.body.embeddings.into_iter().next().unwrap_or_default();
    Ok(JsonBody::of(&OllamaEmbedding { embedding }).into_response())
}

struct Embedded {
    body: OllamaEmbeddings,
    pooled: Vec<omnibus_engine::Pooled>,
}

async fn vectors(
    app: Arc<App>,
    key: &Key,
    request: Request,
    field: &'static str,
) -> Result<Embedded, ApiError> {
    let origin = Origin::of(&request);
    let body = app.bodies.untyped_json(request).await?;
    let read = move || {
        let (value, reading) = body.parse()?;
        Ok((OllamaEmbedRequest::read(value, field)?, reading))
    };
    let (wire, _reading) = blocking(read).await?;
    let models = usable(&app, key);
    let Some((_, served)) = served::find(&models, &wire.model) else {
        return Err(served::missing(&wire.model));
    };
    let call = PoolingCall::new(Arc::clone(&app), origin, (API, "embd-"), Some(served)).await?;
    app.engine.set_ttl(Some(served), wire.keep_alive.time_to_live());
    let options = wire.options(served);
    let pooler = call.pooler(options.model.as_deref())?;
    if !embeds_texts(pooler.task()) {
        let message = format!("\"{}\" does not support embeddings", wire.model);
        return Err(ApiError::unsupported("model", message));
    }
    let inputs = lower::pooling::inputs(wire.texts);
    let pooled = call.pool(lower::pooling::request(&options, inputs, field, &call.caller)).await?;
    let vectors = pooled.iter().map(|text| cut(&pooler, &text.numbers, wire.dimensions));
    let body = OllamaEmbeddings {
        model: wire.model,
        embeddings: vectors.collect::<Result<_, _>>()?,
        total_duration: 0,
        load_duration: 0,
        prompt_eval_count: tokens(&pooled),
    };
    Ok(Embedded { body, pooled })
}
