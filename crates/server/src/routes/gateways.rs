//! `GET /server_info`, `/model_info` and `/v1/loads`: by these SGLang's gateways and smg choose a replica.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use omnibus_engine::{ModelInfo, ModelTask, Stats};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;

/// The default model and the limits of the server.
pub async fn server_info(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let mut info = of_model(&app)?;
    if let Some(fields) = info.as_object_mut() {
        fields.extend([
            ("version".to_owned(), env!("CARGO_PKG_VERSION").into()),
            ("tp_size".to_owned(), app.tensor_parallel_size.into()),
            // Replicas are behind this port: a gateway chooses none of them.
            ("dp_size".to_owned(), 1.into()),
            ("max_running_requests".to_owned(), app.max_num_seqs.into()),
            ("max_queued_requests".to_owned(), app.queue_places.into()),
        ]);
    }
    Ok(Json(info))
}

/// The default model.
pub async fn model_info(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    of_model(&app).map(Json)
}

/// What is known of a model before it is loaded is its name.
fn of_model(app: &App) -> Result<Value, ApiError> {
    let models = app.engine.models();
    let model = models.first().ok_or_else(|| ApiError::unavailable("no model is served yet"))?;
    let details = model.details();
    Ok(json!({
        "model_path": model.id,
        "tokenizer_path": model.id,
        "served_model_name": model.id,
        "model_type": details.map(|details| details.architecture.as_str()),
        "is_generation": details.is_none_or(|details| details.task == ModelTask::Generate),
        "max_total_num_tokens": details.map(|details| details.memory.kv_tokens),
        "context_length": details.map(|details| details.max_model_len),
        "vocab_size": details.map(|details| details.vocab_size),
    }))
}

/// How much each model has to do: one row each, numbered as SGLang numbers its ranks, and their sum.
pub async fn loads(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let models = app.engine.models();
    let models = models.iter().filter(|model| model.adapter.is_none());
    let loads: Vec<Load> = models
        .map(|model| Ok(Load::new(model, &app.engine.stats(Some(&model.id))?)))
        .collect::<Result<_, ApiError>>()?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let sum = |of: fn(&Load) -> usize| loads.iter().map(of).sum::<usize>();
    let (running, waiting) = (sum(|load| load.running), sum(|load| load.waiting));
    let (used, total) = (sum(|load| load.used_tokens), sum(|load| load.tokens));
    Ok(Json(json!({
        "timestamp": since,
        "version": env!("CARGO_PKG_VERSION"),
        "dp_rank_count": loads.len(),
        "loads": loads.iter().enumerate().map(|(rank, load)| load.row(rank)).collect::<Vec<_>>(),
        "aggregate": {
            "total_running_reqs": running,
            "total_waiting_reqs": waiting,
            "total_reqs": running + waiting,
            "avg_token_usage": share(used, total),
        },
    })))
}

struct Load {
    model: String,
    running: usize,
    waiting: usize,
    used_tokens: usize,
    tokens: usize,
    /// Of all prompt and generated tokens, those that were cached.
    hit_rate: f64,
}

impl Load {
    fn new(model: &ModelInfo, stats: &Stats) -> Self {
        let scheduler = &stats.scheduler;
        let blocks = scheduler.blocks();
        let tokens = model.details().map_or(0, |details| details.memory.kv_tokens);
        let (cached, computed) = (scheduler.cached_tokens_total, scheduler.computed_tokens_total);
        Self {
            model: model.id.clone(),
            running: scheduler.running,
            waiting: scheduler.queued,
            used_tokens: (share(blocks.used, blocks.total) * tokens as f64) as usize,
            tokens,
            hit_rate: cached as f64 / (cached + computed).max(1) as f64,
        }
    }

    fn row(&self, rank: usize) -> Value {
        json!({
            "dp_rank": rank,
            "model": self.model,
            "num_running_reqs": self.running,
            "num_waiting_reqs": self.waiting,
            "num_total_reqs": self.running + self.waiting,
            "num_used_tokens": self.used_tokens,
            "max_total_num_tokens": self.tokens,
            "token_usage": share(self.used_tokens, self.tokens),
            "cache_hit_rate": self.hit_rate,
        })
    }
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}
