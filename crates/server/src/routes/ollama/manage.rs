//! Ollama's routes that change which models there are. The operator decides this, so they answer with what to do.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::stream;
use omnibus_engine::ModelInfo;

use super::models::missing;
use super::served;
use crate::app::{App, blocking};
use crate::error::ApiError;
use crate::keys::Key;
use crate::response::{Frames, JsonBody, ndjson};
use crate::routes::models::usable;
use crate::wire::ollama::models::{Named, PullDelivery, Status};

/// Success for a served model; an error that says how to fetch any other.
pub async fn pull(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = app.bodies.untyped_json(request).await?;
    let Named { model, delivery } = blocking(move || Named::read(body.parse()?.0)).await?;
    if served::find(&usable(&app, &key), &model).is_none() {
        let id = model.strip_suffix(":latest").unwrap_or(&model);
        return Err(ApiError::unsupported(
            "model",
            format!(
                "model '{model}' not found: this server fetches none; run `omnibus pull {id}` and then `omnibus serve {id}`"
            ),
        ));
    }
    let success = Status { status: "success" };
    Ok(match delivery {
        PullDelivery::Whole => JsonBody::of(&success).into_response(),
        PullDelivery::Lines => {
            let mut frames = Frames::default();
            frames.data(&Status { status: "pulling manifest" });
            frames.data(&success);
            ndjson::response(stream::iter(frames.take()))
        }
    })
}

/// 404, or 403 for a served model.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = app.bodies.untyped_json(request).await?;
    let Named { model, .. } = blocking(move || Named::read(body.parse()?.0)).await?;
    refused(&usable(&app, &key), &model, "it is served; `omnibus rm` removes models from the cache")
}

/// 404, or 403 for a served model.
pub async fn copy(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = app.bodies.untyped_json(request).await?;
    let model = blocking(move || Named::of_copy(body.parse()?.0)).await?;
    refused(&usable(&app, &key), &model, "start the server with --served-model-name to give it more names")
}

/// 403: models come from the hub or from a directory.
pub async fn create() -> ApiError {
    let message =
        "this server creates no models; `omnibus convert` writes one, and `omnibus serve` serves it";
    ApiError::forbidden("not_supported", message)
}

/// 403: nothing is sent to a registry.
pub async fn push() -> ApiError {
    ApiError::forbidden("not_supported", "this server sends no models to a registry")
}

fn refused(models: &[ModelInfo], model: &str, why: &str) -> Result<Response, ApiError> {
    match served::find(models, model) {
        None => Err(missing(model)),
        Some(_) => {
            Err(ApiError::forbidden("not_supported", format!("model '{model}' stays as it is: {why}")))
        }
    }
}
