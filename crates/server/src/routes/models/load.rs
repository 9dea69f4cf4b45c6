//! `POST /v1/models/load` and `POST /v1/models/unload`.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use omnibus_engine::Failure;

use crate::app::{App, blocking, is_listed};
use crate::auth::Tenant;
use crate::engine::TimeToLive;
use crate::error::ApiError;
use crate::wire::models::{LoadModel, ModelMoved, unloaded_model};

/// Loads a model, and answers when it is loaded; at once where it is.
pub async fn load(State(app): State<Arc<App>>, request: Request) -> Result<Json<ModelMoved>, ApiError> {
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    let body = app.bodies.json(request).await?;
    let wire = blocking(move || LoadModel::read(body.parse()?.0)).await?;
    let since = Instant::now();
    let lease = app.lease(&tenant, Some(&wire.model)).await?;
    check_served(&app, &wire.model)?;
    if wire.ttl != TimeToLive::Configured {
        app.engine.set_ttl(Some(&wire.model), wire.ttl);
    }
    drop(lease);
    let load_time_seconds = Some(since.elapsed().as_secs_f64());
    Ok(Json(ModelMoved { success: true, model: wire.model, status: "loaded", load_time_seconds }))
}

/// Unloads a model once the requests that use it have ended, and answers when its memory is given back.
pub async fn unload(State(app): State<Arc<App>>, request: Request) -> Result<Json<ModelMoved>, ApiError> {
    let body = app.bodies.json(request).await?;
    let model = blocking(move || unloaded_model(body.parse()?.0)).await?;
    check_served(&app, &model)?;
    app.engine.unload(&model).await?;
    Ok(Json(ModelMoved { success: true, model, status: "unloaded", load_time_seconds: None }))
}

fn check_served(app: &App, name: &str) -> Result<(), ApiError> {
    match is_listed(app.engine.as_ref(), name) {
        true => Ok(()),
        false => Err(Failure::unknown_model(name, &app.engine.models()).into()),
    }
}
