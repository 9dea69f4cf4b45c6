//! `POST /v2/embed`: Cohere's embeddings.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use omnibus_engine::{Pooler, PoolingInput, PoolingPrompt, PoolingRequest};

use super::{PoolingCall, answered, cut, embeds_texts, name_cut, tokens, wrong_task};
use crate::app::App;
use crate::error::ApiError;
use crate::lower;
use crate::wire::pooling::cohere::{CohereEmbedRequest, CohereEmbeddings, CohereVector, Format};
use crate::wire::pooling::rerank::Meta;
use crate::wire::pooling::{PoolingOptions, Truncation};

const API: &str = "embed";

/// Prompts that models call otherwise than Cohere.
const PROMPTS: [(&str, &[&str]); 2] = [
    ("search_query", &["query", "search_query"]),
    ("search_document", &["document", "passage", "search_document"]),
];

/// Vectors of texts.
pub async fn embed(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answered(API, answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = PoolingCall::open(app, request, (API, "embd-")).await?;
    let wire = CohereEmbedRequest::read(body)?;
    let pooler = call.pooler(wire.model.as_deref())?;
    if !embeds_texts(pooler.task()) {
        return Err(wrong_task(pooler.task(), "gives no vectors"));
    }
    let truncation = match wire.truncate {
        None => Truncation::Never,
        Some(side) => Truncation::To { tokens: wire.max_tokens, side },
    };
    let options = PoolingOptions { model: wire.model.clone(), truncation, priority: wire.priority };
    let inputs = wire.texts.iter().cloned().map(PoolingInput::Text).collect();
    let pooling = PoolingRequest {
        prompt: prompt(&pooler, wire.prompt.as_deref()),
        ..lower::pooling::request(&options, inputs, "texts", &call.caller)
    };
    let pooled = call.pool(pooling).await?;
    let vectors = pooled.iter().map(|text| cut(&pooler, &text.numbers, wire.dimensions));
    let vectors = vectors.collect::<Result<Vec<_>, ApiError>>()?;
    let is_packed = |format: &Format| matches!(format, Format::Binary | Format::Ubinary);
    if let (true, Some(vector)) = (wire.formats.iter().any(is_packed), vectors.first())
        && !vector.len().is_multiple_of(8)
    {
        let message = format!("vectors of {} numbers are no whole bytes", vector.len());
        return Err(ApiError::invalid("embedding_types", message));
    }
    let in_format = |format: &Format| {
        (format.name(), vectors.iter().map(|vector| CohereVector::of(vector, *format)).collect())
    };
    let embeddings = CohereEmbeddings {
        id: call.caller.response_id.clone(),
        embeddings: wire.formats.iter().map(in_format).collect(),
        texts: wire.texts,
        meta: Meta::new(tokens(&pooled)),
        response_type: "embeddings_by_type",
    };
    let mut response = Json(embeddings).into_response();
    name_cut(&mut response, &pooled);
    Ok(response)
}

/// The prompt of an `input_type`. Cohere's own types have none where the model has none.
fn prompt(pooler: &Pooler, input_type: Option<&str>) -> PoolingPrompt {
    const COHERES: [&str; 4] = ["search_query", "search_document", "classification", "clustering"];
    let Some(name) = input_type else { return PoolingPrompt::Default };
    let others = PROMPTS.iter().find(|(coheres, _)| *coheres == name).map_or(&[][..], |(_, names)| names);
    let names = std::iter::once(&name).chain(others);
    match names.copied().find(|name| pooler.prompts().named(name).is_some()) {
        Some(name) => PoolingPrompt::Named(name.to_owned()),
        None if COHERES.contains(&name) => PoolingPrompt::Default,
        None => PoolingPrompt::Named(name.to_owned()),
    }
}
