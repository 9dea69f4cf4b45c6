//! `GET /v1/models`: OpenAI's fields and our extensions.

use std::collections::BTreeMap;
use std::time::Duration;

use omnibus_engine::{LoadProgress, Modality, ModelTask};
use serde::Serialize;
use serde_json::Value;

use super::fields::{Field, Fields, honoured};
use crate::engine::TimeToLive;
use crate::error::ApiError;

/// All models.
#[derive(Debug, Clone, Serialize)]
pub struct ModelList {
    /// `list`
    pub object: &'static str,
    /// One entry per served name.
    pub data: Vec<Model>,
    /// Again, in TypeSafe's shape.
    pub models: Vec<DecisionModel>,
}

/// One model in TypeSafe's shape.
#[derive(Debug, Clone, Serialize)]
pub struct DecisionModel {
    /// The served name.
    pub name: String,
    /// Its architecture, once it is loaded.
    pub description: String,
    /// The day on which it was loaded, as in `2026-11-28`.
    pub release_date: String,
}

/// One model.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    /// The served name.
    pub id: String,
    /// `model`
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// `omnibus`
    pub owned_by: &'static str,
    /// The model's first name, of which `id` may be an alias; of an adapter, its directory.
    pub root: String,
    /// Of an adapter, the model that it belongs to.
    pub parent: Option<String>,
    /// The model's own context length, in tokens, once it is loaded.
    pub context_length: Option<usize>,
    /// Most tokens of prompt and completion together that this server accepts, once it is loaded.
    pub max_model_len: Option<usize>,
    /// The `model_type` of `config.json`, once it is loaded.
    pub architecture: Option<String>,
    /// The quantization of the weights, if any.
    pub quantization: Option<String>,
    /// What requests have that leave sampling parameters out, by the parameters' names, once it is loaded.
    pub default_generation_settings: Option<BTreeMap<&'static str, f64>>,
    /// What it is for: `generate`, `embed`, `score`, `classify`, `token_classify` or `transcribe`, once it is loaded.
    pub task: Option<ModelTask>,
    /// What prompts may hold: `text`, `image` and `audio`, once it is loaded.
    pub modalities: Vec<Modality>,
    /// 32 hexadecimal digits that change with the chat template, once it is loaded.
    pub chat_template_hash: Option<String>,
    /// Whether the model is loaded.
    pub loaded: bool,
    /// Where it is, as llama.cpp's router says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ModelStatus>,
    /// Its memory, and who uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ModelMemory>,
}

/// Where a model is.
#[derive(Debug, Clone, Serialize)]
pub struct ModelStatus {
    /// How far its load is, while it is loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<LoadProgress>,
    /// `unloaded`, `loading`, `loaded`, `draining`, `unloading` or `failed`.
    pub value: &'static str,
    /// Whether its last load failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A model's memory, and who uses it.
#[derive(Debug, Clone, Serialize)]
pub struct ModelMemory {
    /// Bytes that it takes, or is expected to take.
    pub bytes: u64,
    /// Whether it stays when another model needs its memory.
    pub pinned: bool,
    /// Requests that use it.
    pub active_requests: usize,
    /// Requests that wait until it is loaded.
    pub waiting_requests: usize,
    /// Unix seconds of its last use.
    pub last_used: Option<u64>,
    /// Unix seconds when it is unloaded unless it is used again; null for not by itself.
    pub expires_at: Option<u64>,
    /// How often it was loaded.
    pub loads: u64,
}

/// Fields of `/v1/models/load`.
pub const LOAD: &[Field] = &[
    honoured("model", "a served name"),
    honoured("ttl", "seconds that it stays loaded after its last use, from now on; negative for ever"),
];

/// Fields of `/v1/models/unload`.
pub const UNLOAD: &[Field] = &[honoured("model", "a served name")];

/// Fields of `/v1/models/plan`.
pub const PLAN: &[Field] = &[honoured("model", "a model of the hub, as org/name")];

/// A `/v1/models/load` request.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadModel {
    /// The name.
    pub model: String,
    /// How long it stays.
    pub ttl: TimeToLive,
}

impl LoadModel {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[LOAD])?;
        let ttl = match fields.number("ttl")? {
            None => TimeToLive::Configured,
            Some(seconds) if seconds < 0.0 => TimeToLive::Forever,
            Some(seconds) => {
                Duration::try_from_secs_f64(seconds).map_or(TimeToLive::Forever, TimeToLive::For)
            }
        };
        Ok(Self { model: name(&mut fields)?, ttl })
    }
}

/// Reads the body of `/v1/models/unload`: the model's name.
pub fn unloaded_model(body: Value) -> Result<String, ApiError> {
    name(&mut Fields::open(body, "", &[UNLOAD])?)
}

/// Reads the body of `/v1/models/plan`: the model's name.
pub fn planned_model(body: Value) -> Result<String, ApiError> {
    name(&mut Fields::open(body, "", &[PLAN])?)
}

fn name(fields: &mut Fields) -> Result<String, ApiError> {
    let name = fields.text("model")?.filter(|name| !name.is_empty());
    fields.required("model", name)
}

/// The response of both.
#[derive(Debug, Clone, Serialize)]
pub struct ModelMoved {
    /// True.
    pub success: bool,
    /// The name, as requested.
    pub model: String,
    /// `loaded` or `unloaded`.
    pub status: &'static str,
    /// How long it took, if it was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_time_seconds: Option<f64>,
}
