//! `GET /v1/requests` and `DELETE /v1/requests/{id}`, for the key's own requests, or for those of all keys.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use omnibus_engine::{RequestInfo, RequestOrigin, RequestState};

use crate::app::App;
use crate::error::ApiError;
use crate::keys::Key;
use crate::wire::requests::{Cancelled, RequestList, RunningRequest};

/// Lists queued and running requests.
pub async fn list(State(app): State<Arc<App>>, Extension(key): Extension<Arc<Key>>) -> Json<RequestList> {
    Json(RequestList { object: "list", data: visible(&app, &key) })
}

/// The queued and running requests that a key may see, the oldest first.
pub fn visible(app: &App, key: &Key) -> Vec<RunningRequest> {
    let own = app.engine.requests().into_iter().filter(|info| is_visible(key, info));
    let mut data: Vec<_> = own.map(running).collect();
    data.sort_by(|one, other| other.age_seconds.total_cmp(&one.age_seconds));
    data
}

fn running(info: RequestInfo) -> RunningRequest {
    RunningRequest {
        id: info.origin.response_id,
        object: "request",
        request_id: info.origin.request_id,
        index: info.origin.index,
        key: Some(info.tenant).filter(|name| !name.is_empty()),
        model: info.model,
        state: state(info.state),
        prompt_tokens: info.prompt_tokens,
        generated_tokens: info.generated_tokens,
        age_seconds: info.age_s,
        deadline_seconds: info.deadline_s,
        kv_blocks: info.blocks.map(|held| held.blocks),
        kv_blocks_shared: info.blocks.map(|held| held.shared),
    }
}

fn state(state: RequestState) -> &'static str {
    match state {
        RequestState::Queued => "queued",
        RequestState::Running => "running",
    }
}

fn is_visible(key: &Key, request: &RequestInfo) -> bool {
    key.is_admin() || request.tenant == key.name
}

/// Cancels a response, one of its choices, or all choices of an HTTP request.
pub async fn cancel(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Cancelled>, ApiError> {
    let Path(id) = id?;
    let named = |info: &RequestInfo| {
        let RequestOrigin { response_id, request_id, .. } = &info.origin;
        is_visible(&key, info) && [&info.id, response_id, request_id].contains(&&id)
    };
    let found = app.engine.requests().into_iter().filter(named);
    let cancelled = found.filter(|info| app.engine.cancel(&info.id)).count();
    if cancelled == 0 {
        return Err(ApiError::not_found(format!("no request `{id}` is queued or running")));
    }
    Ok(Json(Cancelled { id, object: "request.cancelled", cancelled }))
}
