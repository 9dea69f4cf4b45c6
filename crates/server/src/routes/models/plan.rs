//! `POST /v1/models/plan`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use serde_json::Value;

use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::wire::models::planned_model;

/// What a model of the hub would need on this machine, before it is downloaded.
pub async fn plan(State(app): State<Arc<App>>, request: Request) -> Result<Json<Value>, ApiError> {
    let body = app.bodies.json(request).await?;
    let model = blocking(move || planned_model(body.parse()?.0)).await?;
    let refused =
        || ApiError::not_found("this server downloads no models: it was started without --allow-pull");
    app.engine.plan(&model).await?.map(Json).ok_or_else(refused)
}
