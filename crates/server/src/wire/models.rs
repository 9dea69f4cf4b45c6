//! `GET /v1/models`, in OpenAI's shape with what else a client wants to know.

use serde::Serialize;

/// All models.
#[derive(Debug, Clone, Serialize)]
pub struct ModelList {
    /// `list`
    pub object: &'static str,
    /// One for each name that can be asked for.
    pub data: Vec<Model>,
}

/// One model.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    /// What to ask for.
    pub id: String,
    /// `model`
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// `omnibus`
    pub owned_by: &'static str,
    /// The model's own name, where `id` is an alias of it.
    pub root: String,
    /// Most tokens the model was made for.
    pub context_length: usize,
    /// Most tokens of prompt and answer that this server takes.
    pub max_model_len: usize,
    /// The family, as its configuration names it.
    pub architecture: String,
    /// How its weights are quantized, if they are.
    pub quantization: Option<String>,
    /// Whether it is in memory.
    pub loaded: bool,
}
