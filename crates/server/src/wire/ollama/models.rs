//! Ollama's lists and descriptions of models, and requests that name one.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured};

/// Fields of requests that name a model.
pub const NAMED: &[Field] = &[
    honoured("model", "a served name, in any case, with or without `:latest`"),
    honoured("name", "the older name of `model`"),
    harmless("verbose", "the description is always whole"),
    harmless("insecure", "nothing is fetched"),
    honoured("stream", "of `/api/pull`: one JSON object a line; true when absent"),
];

/// Fields of a copy.
pub const COPY: &[Field] = &[
    honoured("source", "the model"),
    harmless("destination", "nothing is copied: `--served-model-name` adds names"),
];

/// A request that names a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name, as sent.
    pub model: String,
    /// Whether the answer is one object or lines.
    pub delivery: PullDelivery,
}

/// How the progress of a pull is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullDelivery {
    /// Lines.
    Lines,
    /// The last line alone.
    Whole,
}

impl Named {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[NAMED])?;
        let (model, name) = (fields.text("model")?, fields.text("name")?);
        let model = model.or(name).filter(|name| !name.is_empty());
        let delivery = match fields.flag("stream")? {
            Some(false) => PullDelivery::Whole,
            Some(true) | None => PullDelivery::Lines,
        };
        Ok(Self { model: fields.required("model", model)?, delivery })
    }

    /// Reads the body of a copy.
    pub fn of_copy(body: Value) -> Result<String, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[COPY])?;
        let source = fields.text("source")?;
        fields.required("source", source)
    }
}

/// A list of models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct List<T> {
    /// The models.
    pub models: Vec<T>,
}

/// A served model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tag {
    /// With a tag.
    pub name: String,
    /// Equal to `name`.
    pub model: String,
    /// RFC 3339.
    pub modified_at: String,
    /// Bytes of its weights.
    pub size: u64,
    /// 64 hexadecimal digits that stand for the name.
    pub digest: String,
    /// What it is.
    pub details: Details,
    /// What it can do.
    pub capabilities: Vec<&'static str>,
}

/// A loaded model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loaded {
    /// With a tag.
    pub name: String,
    /// Equal to `name`.
    pub model: String,
    /// Bytes of its weights and its KV cache.
    pub size: u64,
    /// As in the list of models.
    pub digest: String,
    /// What it is.
    pub details: Details,
    /// RFC 3339.
    pub expires_at: String,
    /// Equal to `size`.
    pub size_vram: u64,
    /// Longest sequence that is served, in tokens.
    pub context_length: usize,
}

/// What a model is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Details {
    /// Empty.
    pub parent_model: &'static str,
    /// `safetensors`
    pub format: &'static str,
    /// Its architecture.
    pub family: String,
    /// Its only entry is `family`.
    pub families: Vec<String>,
    /// As `7.6B`.
    pub parameter_size: String,
    /// As `4-bit`; empty where weights are not quantized.
    pub quantization_level: String,
}

/// A description.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Show {
    /// Empty: the model's folder may have it.
    pub license: &'static str,
    /// The line that names the model.
    pub modelfile: String,
    /// Lines of a name and a value.
    pub parameters: String,
    /// In Go's notation: which parts a prompt may have.
    pub template: &'static str,
    /// What it is.
    pub details: Details,
    /// GGUF's keys.
    pub model_info: Map<String, Value>,
    /// What it can do.
    pub capabilities: Vec<&'static str>,
    /// RFC 3339.
    pub modified_at: String,
}

/// A line of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// `success` at the end.
    pub status: &'static str,
}
