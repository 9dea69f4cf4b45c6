//! `POST /classify` and `POST /pooling`: vLLM's labels of texts, and what a model's head gives.

use serde::Serialize;
use serde_json::Value;

use super::embeddings::encoding;
use super::numbers::{Encoding, Numbers};
use super::{PooledInput, PoolingOptions, inputs};
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, honoured};

/// Fields of `/classify`.
pub const FIELDS: &[Field] = &[
    honoured("input", "a string, a list of token ids, or a list of several of either"),
    honoured("use_activation", "false gives the head's numbers as they are"),
];

/// Fields of `/pooling`.
pub const POOLING: &[Field] = &[
    honoured("input", "a string, a list of token ids, or a list of several of either"),
    honoured("task", "`embed`, `token_embed`, `classify` or `token_classify`: one that the model does"),
    honoured("input_type", "which of the model's prompts stands before each text, as `query` or `document`"),
    honoured("encoding_format", "`float` or `base64`: little-endian float32"),
    honoured("use_activation", "false gives the head's numbers as they are, and vectors of any length"),
];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassifyRequest {
    #[allow(missing_docs)]
    pub options: PoolingOptions,
    #[allow(missing_docs)]
    pub inputs: Vec<PooledInput>,
    /// Whether numbers are probabilities, or the head's.
    pub activated: bool,
    /// Of `/pooling`.
    pub task: Option<String>,
    /// Of `/pooling`: a prompt of the model.
    pub prompt: Option<String>,
    /// Of `/pooling`.
    pub encoding: Encoding,
}

impl ClassifyRequest {
    /// Reads a body of one of the two.
    pub fn read(body: Value, table: &'static [Field]) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[table, super::COMMON])?;
        let options = PoolingOptions::read(&mut fields)?;
        let input = fields.value("input");
        let inputs = inputs("input", fields.required("input", input)?)?;
        let activated = fields.flag("use_activation")?.unwrap_or(true);
        let task = fields.text("task")?;
        let prompt = fields.text("input_type")?;
        let encoding = encoding(&mut fields)?;
        fields.finish();
        Ok(Self { options, inputs, activated, task, prompt, encoding })
    }
}

/// The label of a text.
#[derive(Debug, Clone, Serialize)]
pub struct Classification {
    /// Which text's.
    pub index: usize,
    /// The most likely one.
    pub label: String,
    /// Of all labels, in the model's order.
    pub probs: Vec<f32>,
    #[allow(missing_docs)]
    pub num_classes: usize,
}

/// What the head gives for a text.
#[derive(Debug, Clone, Serialize)]
pub struct PooledData {
    /// Which text's.
    pub index: usize,
    /// `pooling`.
    pub object: &'static str,
    #[allow(missing_docs)]
    pub data: Numbers,
}
