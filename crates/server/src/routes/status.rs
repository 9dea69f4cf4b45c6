//! `GET /health`, `/ready`, `/version`, `/metrics` and `/v1/status`.

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

/// 200 while the engine steps or is idle, else 503.
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

/// 200 while requests are accepted, else 503.
pub async fn ready(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    if app.stopping() {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    alive(&app)?;
    Ok(Json(json!({"status": "ready"})))
}

/// The server's name and version.
pub async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION"), "name": "mlx-omnibus"}))
}

/// Metrics in Prometheus' text format.
pub async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = scrape(&app.metrics, app.engine.as_ref());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

/// Statistics and state as JSON.
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
