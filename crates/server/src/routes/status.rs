//! `GET /health`, `/ready`, `/version`, `/metrics` and `/v1/status`: how the server is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use omnibus_engine::Health;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::metrics::scrape;

/// Whether steps happen when there is work.
pub async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let health = alive(&app)?;
    Ok(Json(json!({"status": "ok", "detail": health.detail})))
}

fn alive(app: &App) -> Result<Health, ApiError> {
    let health = app.engine.health();
    if health.alive {
        Ok(health)
    } else {
        Err(ApiError::unavailable(format!("the engine does not step: {}", health.detail)))
    }
}

/// Whether a request would be taken.
pub async fn ready(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    if app.stopping() {
        return Err(ApiError::unavailable("the server is stopping"));
    }
    alive(&app)?;
    Ok(Json(json!({"status": "ready"})))
}

/// Which server this is.
pub async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION"), "name": "mlx-omnibus"}))
}

/// What Prometheus scrapes.
pub async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = scrape(&app.metrics, app.engine.as_ref());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

/// The same for people.
pub async fn status(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let health = app.engine.health();
    let mut stats = serde_json::to_value(app.engine.stats())
        .map_err(|error| ApiError::internal(format!("the statistics did not serialize: {error}")))?;
    let cost_model = stats.as_object_mut().and_then(|stats| stats.remove("cost_model"));
    let models: Vec<String> = app.engine.models().into_iter().map(|model| model.id).collect();
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "alive": health.alive,
        "detail": health.detail,
        "stopping": app.stopping(),
        "models": models,
        "engine": stats,
        "cost_model": cost_model,
    })))
}
