//! `POST /v1/embeddings`.

use serde::Serialize;
use serde_json::Value;

use super::numbers::{Encoding, Numbers};
use super::{PooledInput, PoolingOptions, inputs};
use crate::error::ApiError;
use crate::wire::chat::Conversation;
use crate::wire::fields::{Field, Fields, honoured, refused};

/// Its own fields.
pub const FIELDS: &[Field] = &[
    honoured("input", "a string, a list of token ids, or a list of several of either; or `messages`"),
    honoured("messages", "a conversation, rendered by the chat template; or `input`"),
    honoured("encoding_format", "`float` or `base64`: little-endian float32"),
    honoured("dimensions", "the first numbers of each vector, normalized again"),
    honoured("input_type", "which of the model's prompts stands before each text, as `query` or `document`"),
    honoured("add_special_tokens", "true when absent"),
    refused("embed_dtype", "vectors are float32"),
    refused("endianness", "bytes are little-endian"),
    refused("use_activation", "the model's files say what is normalized"),
];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingsRequest {
    #[allow(missing_docs)]
    pub options: PoolingOptions,
    /// What is embedded.
    pub inputs: EmbeddingInputs,
    #[allow(missing_docs)]
    pub encoding: Encoding,
    /// Numbers of each vector, if fewer than the model gives.
    pub dimensions: Option<usize>,
    /// A prompt of the model.
    pub prompt: Option<String>,
    /// Whether special tokens are added.
    pub add_special: bool,
}

/// What is embedded.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum EmbeddingInputs {
    Texts(Vec<PooledInput>),
    Conversation(Box<Conversation>),
}

impl EmbeddingsRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let tables = &[FIELDS, super::COMMON, crate::wire::tokenize::CONVERSATION];
        let mut fields = Fields::open(body, "", tables)?;
        let options = PoolingOptions::read(&mut fields)?;
        let encoding = encoding(&mut fields)?;
        let dimensions = fields.count("dimensions", (1, 1 << 20))?;
        let prompt = fields.text("input_type")?;
        let add_special = fields.flag("add_special_tokens")?.unwrap_or(true);
        let inputs = match fields.value("input") {
            Some(value) => {
                let inputs = inputs("input", value)?;
                fields.refuse_rest("does not go with `input`")?;
                EmbeddingInputs::Texts(inputs)
            }
            None => EmbeddingInputs::Conversation(Box::new(conversation(&mut fields)?)),
        };
        Ok(Self { options, inputs, encoding, dimensions, prompt, add_special })
    }
}

fn conversation(fields: &mut Fields) -> Result<Conversation, ApiError> {
    match fields.has("messages") {
        true => Conversation::read(fields),
        false => Err(ApiError::invalid("input", "`input` is missing")),
    }
}

/// `encoding_format`.
pub fn encoding(fields: &mut Fields) -> Result<Encoding, ApiError> {
    match fields.text("encoding_format")?.as_deref() {
        None | Some("float") => Ok(Encoding::Floats),
        Some("base64") => Ok(Encoding::Base64),
        Some(other) => Err(ApiError::unsupported(
            "encoding_format",
            format!("`encoding_format` must be `float` or `base64`, not `{other}`"),
        )),
    }
}

/// A vector of a response.
#[derive(Debug, Clone, Serialize)]
pub struct Embedding {
    /// `embedding`.
    pub object: &'static str,
    /// Which text's.
    pub index: usize,
    #[allow(missing_docs)]
    pub embedding: Numbers,
}
