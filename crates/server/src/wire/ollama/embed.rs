//! Ollama's requests for vectors: `POST /api/embed` and the older `/api/embeddings`.

use serde::Serialize;
use serde_json::Value;

use super::keep_alive::KeepAlive;
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured};
use crate::wire::pooling::{PooledInput, PoolingOptions, Side, Truncation, texts};

/// Fields of requests for vectors.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name, in any case, with or without `:latest`"),
    honoured("input", "of `/api/embed`: a text or a list of texts"),
    honoured("prompt", "of `/api/embeddings`: a text"),
    honoured("truncate", "false refuses texts that are too long; they are cut when absent"),
    honoured("dimensions", "the first numbers of each vector, normalized again"),
    harmless("options", "loading options; vectors have none"),
    honoured("keep_alive", "how long the model stays loaded after this request, as for chats"),
];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct OllamaEmbedRequest {
    #[allow(missing_docs)]
    pub model: String,
    #[allow(missing_docs)]
    pub texts: Vec<PooledInput>,
    /// Numbers of each vector, if fewer than the model gives.
    pub dimensions: Option<usize>,
    #[allow(missing_docs)]
    pub truncation: Truncation,
    /// How long the model stays loaded.
    pub keep_alive: KeepAlive,
}

impl OllamaEmbedRequest {
    /// Reads a body, whose texts are in `field`.
    pub fn read(body: Value, field: &str) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[FIELDS])?;
        let model = fields.text("model")?;
        let model = fields.required("model", model.filter(|name| !name.is_empty()))?;
        // Without a text both load the model.
        let texts = match fields.value(field) {
            None => Vec::new(),
            Some(Value::Array(list)) if list.is_empty() => Vec::new(),
            Some(value) => texts(field, value)?,
        };
        let truncation = match fields.flag("truncate")? {
            Some(false) => Truncation::Never,
            Some(true) | None => Truncation::To { tokens: None, side: Side::Right },
        };
        let dimensions = fields.count("dimensions", (0, 1 << 20))?.filter(|width| *width > 0);
        let texts = texts.into_iter().map(PooledInput::Text).collect();
        let keep_alive = KeepAlive::read(&mut fields)?;
        Ok(Self { model, texts, dimensions, truncation, keep_alive })
    }

    /// The options of a model under its served name.
    pub fn options(&self, served: &str) -> PoolingOptions {
        PoolingOptions { model: Some(served.to_owned()), truncation: self.truncation, priority: 0 }
    }
}

/// A response of `/api/embed`.
#[derive(Debug, Clone, Serialize)]
pub struct OllamaEmbeddings {
    /// As the client named it.
    pub model: String,
    /// One vector for each text.
    pub embeddings: Vec<Vec<f32>>,
    /// Nanoseconds.
    pub total_duration: u64,
    /// Nanoseconds; the model was loaded.
    pub load_duration: u64,
    /// Tokens of all texts.
    pub prompt_eval_count: usize,
}

/// A response of `/api/embeddings`.
#[derive(Debug, Clone, Serialize)]
pub struct OllamaEmbedding {
    #[allow(missing_docs)]
    pub embedding: Vec<f32>,
}
