//! `POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};

use super::models::listed;
use crate::app::{AdapterUpdates, App, blocking};
use crate::auth::Tenant;
use crate::error::ApiError;
use crate::wire::adapters::{LoadAdapter, UnloadedAdapter, unloaded_name};
use crate::wire::models::Model;

/// Loads an adapter that requests may name from then on.
pub async fn load(State(app): State<Arc<App>>, request: Request) -> Result<Json<Model>, ApiError> {
    check_allowed(&app)?;
    let Tenant(tenant) = request.extensions().get::<Tenant>().cloned().unwrap_or_default();
    let body = app.bodies.json(request).await?;
    let LoadAdapter { name, path, base } = blocking(move || LoadAdapter::read(body.parse()?.0)).await?;
    let _lease = app.lease(&tenant, base.as_deref()).await?;
    let work = move || {
        let loaded = app.engine.load_adapter(base.as_deref(), &name, &path)?;
        tracing::info!(name, path = %path.display(), "adapter loaded");
        Ok(listed(&loaded, &loaded.id))
    };
    blocking(work).await.map(Json)
}

/// Unloads an adapter, once the requests that use it have ended.
pub async fn unload(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<UnloadedAdapter>, ApiError> {
    check_allowed(&app)?;
    let name = unloaded_name(app.bodies.json(request).await?.parse()?.0)?;
    let unloaded = name.clone();
    // A client that does not wait for the end changes nothing.
    let work = tokio::spawn(async move { app.engine.unload_adapter(None, &unloaded).await });
    let failed = |_| ApiError::internal("the server failed on this request; this is a bug");
    work.await.map_err(failed)?.map_err(|failure| ApiError::from(failure).with_model_param("lora_name"))?;
    tracing::info!(name, "adapter unloaded");
    Ok(Json(UnloadedAdapter { id: name, object: "model", deleted: true }))
}

fn check_allowed(app: &App) -> Result<(), ApiError> {
    match app.adapter_updates {
        AdapterUpdates::Allowed => Ok(()),
        AdapterUpdates::Refused => Err(ApiError::not_found(
            "this server was started without --allow-runtime-lora-updating; restart it with that flag, or with \
             --adapter-path NAME=DIRECTORY",
        )),
    }
}
