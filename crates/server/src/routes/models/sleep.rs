//! vLLM's sleep mode for the default model: `POST /sleep`, `POST /wake_up` and `GET /is_sleeping`.
//!
//! A sleeping model is an unloaded one. Its prefix cache stays where there is a disk cache, and its next request loads it.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::auth::Tenant;
use crate::error::ApiError;

/// The query of `POST /sleep`. vLLM's `level` says where weights go; here they are always on disk.
#[derive(Debug, Default, Deserialize)]
pub struct Sleep {
    mode: Option<String>,
}

/// Whether the default model sleeps.
#[derive(Debug, Serialize)]
pub struct IsSleeping {
    /// vLLM's name.
    pub is_sleeping: bool,
}

/// Unloads the default model once its requests have ended.
pub async fn sleep(
    State(app): State<Arc<App>>,
    query: Result<Query<Sleep>, QueryRejection>,
) -> Result<Json<IsSleeping>, ApiError> {
    let Query(Sleep { mode }) = query.map_err(|error| ApiError::invalid("mode", error.body_text()))?;
    if let Some(mode) = mode.filter(|mode| mode != "wait") {
        let message = format!("`mode` must be wait: requests end before a model sleeps, not `{mode}`");
        return Err(ApiError::invalid("mode", message));
    }
    if let Some(model) = app.engine.models().into_iter().next() {
        app.engine.unload(&model.id).await?;
    }
    Ok(state(&app))
}

/// Loads the default model.
pub async fn wake_up(State(app): State<Arc<App>>, request: Request) -> Result<Json<IsSleeping>, ApiError> {
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    drop(app.lease(&tenant, None).await?);
    Ok(state(&app))
}

/// Whether the default model is unloaded.
pub async fn is_sleeping(State(app): State<Arc<App>>) -> Json<IsSleeping> {
    state(&app)
}

fn state(app: &App) -> Json<IsSleeping> {
    let default = app.engine.models().into_iter().next();
    Json(IsSleeping { is_sleeping: default.is_some_and(|model| model.details().is_none()) })
}
