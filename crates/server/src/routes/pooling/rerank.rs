//! `POST /v1/rerank` and `/v2/rerank`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use super::scores::{self, Pairs};
use super::{PoolingCall, answered, name_cut};
use crate::app::App;
use crate::error::ApiError;
use crate::wire::pooling::rerank::{
    DocumentText, Meta, RankedDocument, RerankRequest, Reranked, ReturnedDocuments,
};
use crate::wire::pooling::{PoolingUsage, Side, Truncation};

const API: &str = "rerank";

/// Documents, the best first.
pub async fn rerank(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answered(API, answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = PoolingCall::open(app, request, (API, "rerank-")).await?;
    let mut wire = RerankRequest::read(body)?;
    if let Some(tokens) = wire.max_tokens {
        wire.options.truncation = Truncation::To { tokens: Some(tokens), side: Side::Right };
    }
    let texts = wire.documents.iter().map(|document| (wire.query.clone(), document.clone())).collect();
    let pairs = Pairs {
        options: &wire.options,
        texts,
        field: "documents",
        instruction: wire.instruction.clone(),
        activated: wire.activated,
    };
    let scored = scores::of(&call, pairs).await?;
    let mut ranked: Vec<(usize, f32)> = scored.scores.iter().copied().enumerate().collect();
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranked.truncate(wire.top_n.unwrap_or(usize::MAX));
    let document = |index: usize| match wire.returned {
        ReturnedDocuments::Omit => None,
        ReturnedDocuments::Texts => wire.documents.get(index).map(|text| DocumentText { text: text.clone() }),
    };
    let results = ranked.into_iter().map(|(index, relevance_score)| RankedDocument {
        index,
        relevance_score,
        document: document(index),
    });
    let reranked = Reranked {
        id: call.caller.response_id.clone(),
        model: call.name(wire.options.model.as_deref()),
        usage: PoolingUsage::new(scored.tokens),
        results: results.collect(),
        meta: Meta::new(scored.tokens),
    };
    let mut response = Json(reranked).into_response();
    name_cut(&mut response, &scored.pooled);
    Ok(response)
}
