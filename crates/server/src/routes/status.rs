//! `GET /health`, `/ready`, `/version`, `/metrics`, `/openapi.json` and `/v1/status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use omnibus_engine::{Health, MemoryPlan, ModelInfo, ModelState, Stats};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::metrics::scrape;

/// 200 while the engine steps or is idle, else 503.
pub async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let health = alive(&app)?;
    Ok(Json(json!({"status": "ok", "detail": health.detail})))
}

fn alive(app: &App) -> Result<Health, ApiError> {
    let health = app.engine.health(None)?;
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

/// The document of `/openapi.json`, made once.
#[derive(Clone)]
pub struct OpenApiDocument(pub Arc<Value>);

/// The routes as an OpenAPI document.
pub async fn openapi(Extension(document): Extension<OpenApiDocument>) -> Json<Value> {
    Json(Value::clone(&document.0))
}

/// The server's name and version.
pub async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION"), "name": "mlx-omnibus"}))
}

/// The text that Ollama's clients expect of a server that runs.
pub async fn running() -> &'static str {
    "Ollama is running"
}

/// Metrics in Prometheus' text format.
pub async fn metrics(State(app): State<Arc<App>>) -> Result<impl IntoResponse, ApiError> {
    let text = scrape(&app.metrics, app.engine.as_ref(), &app.keys, app.vllm_metrics.as_ref())?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// Statistics and state as JSON.
pub async fn status(State(app): State<Arc<App>>) -> Result<Json<Map<String, Value>>, ApiError> {
    snapshot(&app).map(Json)
}

/// Statistics and state as they are now.
pub fn snapshot(app: &App) -> Result<Map<String, Value>, ApiError> {
    let health = app.engine.health(None)?;
    let mut stats = flat(&app.engine.stats(None)?)?;
    let cost_model = stats.remove("cost_model");
    let models: Vec<ModelInfo> = app.engine.models();
    let (running, queued) = requests(app, &models)?;
    let replicas = app.engine.replica_stats(None)?;
    let replicas: Vec<Value> = replicas.iter().filter(|_| replicas.len() > 1).map(replica).collect();
    let names: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
    let status = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "alive": health.alive,
        "detail": health.detail,
        "stopping": app.stopping(),
        "models": names,
        "running": running,
        "queued": queued,
        "engine": stats,
        "replicas": replicas,
        "memory": memory_plans(&models),
        "cost_model": cost_model,
    });
    match status {
        Value::Object(status) => Ok(status),
        _ => Err(ApiError::internal("the status is no object")),
    }
}

/// What tells replicas apart. The engine's statistics are those of all together.
fn replica(stats: &Stats) -> Value {
    let blocks = stats.scheduler.blocks();
    json!({
        "process": stats.process,
        "running": stats.scheduler.running,
        "queued": stats.scheduler.queued,
        "kv_blocks_used": blocks.used,
        "kv_blocks_total": blocks.total,
        "cached_tokens_total": stats.scheduler.cached_tokens_total,
        "computed_tokens_total": stats.scheduler.computed_tokens_total,
        "steps_total": stats.steps_total,
        "restarts_total": stats.engine_restarts_total,
    })
}

/// How the memory of each loaded model is divided, by its name.
fn memory_plans(models: &[ModelInfo]) -> BTreeMap<&str, &MemoryPlan> {
    let loaded =
        models.iter().filter(|model| model.adapter.is_none()).filter_map(|model| match &model.state {
            ModelState::Ready(details) => Some((model.id.as_str(), &details.memory)),
            ModelState::Unloaded | ModelState::Loading(_) | ModelState::Failed { .. } => None,
        });
    loaded.collect()
}

/// How many requests run and wait, of all models.
fn requests(app: &App, models: &[ModelInfo]) -> Result<(usize, usize), ApiError> {
    let mut sums = (0, 0);
    for model in models.iter().filter(|model| model.adapter.is_none()) {
        let scheduler = app.engine.stats(Some(&model.id))?.scheduler;
        sums = (sums.0 + scheduler.running, sums.1 + scheduler.queued);
    }
    Ok(sums)
}

/// Statistics as one flat object.
fn flat(stats: &Stats) -> Result<Map<String, Value>, ApiError> {
    let unserializable = |error| ApiError::internal(format!("the statistics did not serialize: {error}"));
    let mut flat = Map::new();
    let mut all = serde_json::to_value(stats).map_err(unserializable)?;
    let scheduler = all.as_object_mut().and_then(|stats| stats.remove("scheduler"));
    // Where both count something, failed steps, the engine's number includes the scheduler's.
    for part in [scheduler.unwrap_or_default(), all] {
        if let Value::Object(part) = part {
            flat.extend(part);
        }
    }
    if stats.energy.source.is_none() {
        flat.insert("energy".to_owned(), Value::Null);
    }
    let blocks = stats.scheduler.blocks();
    for (name, count) in [("used", blocks.used), ("cached", blocks.cached), ("total", blocks.total)] {
        flat.insert(format!("kv_blocks_{name}"), count.into());
    }
    Ok(flat)
}
