//! `GET /v1/sessions`, `DELETE /v1/sessions/{id}` and `GET /v1/cache/stats`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use omnibus_engine::SessionInfo;
use serde_json::{Map, Value, json};

use super::owner::{OwnerQuery, tenant};
use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::keys::Key;
use crate::wire::sessions::{Deleted, Session, SessionList};

/// Lists the tenant's sessions: conversations whose blocks are pinned between requests.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    owner: OwnerQuery,
) -> Result<Json<SessionList>, ApiError> {
    let tenant = tenant(&key, owner)?;
    let sessions = blocking(move || Ok(app.engine.sessions(None, &tenant)?)).await?;
    let session = |info: SessionInfo| Session {
        id: info.id,
        object: "session",
        tokens: info.tokens,
        blocks: info.blocks,
        idle_seconds: info.idle_s,
    };
    Ok(Json(SessionList { object: "list", data: sessions.into_iter().map(session).collect() }))
}

/// Drops a session, so that its blocks can be evicted.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    owner: OwnerQuery,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let tenant = tenant(&key, owner)?;
    let Path(id) = id?;
    let session_id = id.clone();
    if blocking(move || Ok(app.engine.drop_session(None, &tenant, &session_id)?)).await? {
        Ok(Json(Deleted { id, object: "session.deleted", deleted: true }))
    } else {
        Err(ApiError::not_found(format!("there is no session `{id}`")))
    }
}

/// Statistics of the KV cache and the prefix index.
pub async fn cache_stats(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let stats = app.engine.stats(None)?;
    let groups = stats.scheduler.groups.iter().map(|group| {
        json!({
            "used_blocks": group.used,
            "cached_blocks": group.cached,
            "pinned_blocks": group.pinned,
            "total_blocks": group.total,
        })
    });
    let misses: Map<String, Value> = stats
        .scheduler
        .prefix_misses
        .by_reason()
        .into_iter()
        .map(|(reason, count)| (reason.to_owned(), count.into()))
        .collect();
    Ok(Json(json!({
        "object": "cache.stats",
        "groups": groups.collect::<Vec<_>>(),
        "hit_tokens_total": stats.scheduler.cached_tokens_total,
        "computed_tokens_total": stats.scheduler.computed_tokens_total,
        "misses_total": misses,
        "partial_copies_total": stats.scheduler.partial_copies_total,
        "checkpoints_total": stats.scheduler.checkpoints_total,
        "sessions": stats.scheduler.sessions,
        "media": {
            "features": stats.media.entries,
            "feature_bytes": stats.media.bytes,
            "feature_bytes_limit": stats.media.limit_bytes,
            "evictions_total": stats.media.evicted_total,
            "encoder_runs_total": stats.media.encoder_runs_total,
            "encode_seconds_total": stats.media.encode_seconds_total,
            "hits_total": {"prefix": stats.media.prefix_hits_total, "features": stats.media.feature_hits_total, "disk": stats.media.disk_hits_total},
            "misses_total": {"cold": stats.media.cold_misses_total, "evicted": stats.media.evicted_misses_total},
        },
    })))
}
