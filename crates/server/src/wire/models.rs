//! `GET /v1/models`: OpenAI's fields and our extensions.

use std::collections::BTreeMap;

use omnibus_engine::{Modality, ModelTask};
use serde::Serialize;

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
}
