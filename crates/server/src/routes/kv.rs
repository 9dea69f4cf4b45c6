//! `POST /v1/kv/lookup`, `/v1/kv/blocks` and `/v1/kv/prefill`: blocks for other replicas.
//!
//! Invariant: blocks are sent as they are read, some at a time: a slow client costs the memory of those.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use omnibus_engine::{BlockQuery, BlocksRefused};
use omnibus_kv_peer::{FoundBlocks, PrefillAnswer};

use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::routes::pooling::PoolingCall;
use crate::wire;
use crate::wire::kv::Prefill;

/// Which blocks this server has.
pub async fn lookup(State(app): State<Arc<App>>, request: Request) -> Result<Json<FoundBlocks>, ApiError> {
    let query = query(&app, request).await?;
    let found = blocking(move || app.engine.find_blocks(query)?.map_err(refused)).await?;
    Ok(Json(FoundBlocks { found }))
}

/// Computes a prompt, whose blocks can be read then.
pub async fn prefill(State(app): State<Arc<App>>, request: Request) -> Result<Json<PrefillAnswer>, ApiError> {
    let (call, body) = PoolingCall::open(Arc::clone(&app), request, ("kv_prefill", "kv-")).await?;
    let wire = Prefill::read(body)?;
    // Only for a replica that can use the blocks.
    let replica = BlockQuery { fingerprint: wire.fingerprint, names: Vec::new() };
    blocking(move || app.engine.find_blocks(replica)?.map_err(refused)).await?;
    let usage = call.compute(wire.tokens, wire.cache_salt).await;
    let usage = usage.map_err(about_tokens)?;
    Ok(Json(PrefillAnswer { prompt_tokens: usage.prompt_tokens, cached_tokens: usage.cached_tokens }))
}

/// Errors of a prompt are about the field that has it here.
fn about_tokens(error: ApiError) -> ApiError {
    match error.param() {
        Some("prompt") => error.with_param("tokens"),
        _ => error.with_input_param("tokens"),
    }
}

/// The blocks that this server has, each as a file of the disk cache, one after the other.
pub async fn blocks(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let query = query(&app, request).await?;
    // The first ones are read before the response begins: an error is an answer.
    let (first, rest) = next_blocks(Arc::clone(&app), query).await?;
    let later = stream::try_unfold(rest, move |rest| {
        let app = Arc::clone(&app);
        async move {
            match rest {
                Some(query) => next_blocks(app, query).await.map(Some),
                None => Ok(None),
            }
        }
    });
    let all = stream::once(async { Ok(first) }).chain(later);
    let records = all.map(|batch: Result<Vec<Bytes>, ApiError>| {
        let batch = batch.map_err(|error| std::io::Error::other(error.message().to_owned()))?;
        Ok::<_, std::io::Error>(Bytes::from(batch.concat()))
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::from_stream(records)).into_response())
}

/// The records of some blocks, and the query for those after them.
async fn next_blocks(app: Arc<App>, query: BlockQuery) -> Result<(Vec<Bytes>, Option<BlockQuery>), ApiError> {
    if query.names.is_empty() {
        return Ok((Vec::new(), None));
    }
    blocking(move || {
        let (records, answered) = app.engine.read_blocks(query.clone())?.map_err(refused)?;
        let names = query.names.get(answered..).unwrap_or_default().to_vec();
        let rest = (answered > 0 && !names.is_empty()).then_some(BlockQuery { names, ..query });
        Ok((records, rest))
    })
    .await
}

async fn query(app: &App, request: Request) -> Result<BlockQuery, ApiError> {
    let body = app.bodies.json(request).await?;
    blocking(move || {
        let (value, _reading) = body.parse()?;
        wire::kv::read(value)
    })
    .await
}

fn refused(refused: BlocksRefused) -> ApiError {
    match refused {
        BlocksRefused::NotServed => {
            ApiError::not_found("this server serves no blocks; start it with `--role prefill` or `both`")
        }
        BlocksRefused::OtherModel => {
            ApiError::conflict("this server has another model, another KV format or another block size")
        }
    }
}
