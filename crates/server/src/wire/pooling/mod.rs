//! Texts that become vectors, scores and labels: what the routes share.
//!
//! Source: OpenAI's embeddings, vLLM's pooling routes, Cohere's and Jina's rerank.

pub mod classify;
pub mod cohere;
pub mod embeddings;
pub mod numbers;
pub mod rerank;
pub mod score;

use serde::Serialize;
use serde_json::Value;

use super::fields::{Field, Fields, harmless, honoured, refused, token_ids, type_error};
use super::usage::PromptTokensDetails;
use crate::error::ApiError;

/// Fields of all of them.
pub const COMMON: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("truncate_prompt_tokens", "cuts longer texts to so many tokens; −1 is the model's limit"),
    honoured("truncation_side", "`left` or `right`: which end is left out; `right` when absent"),
    honoured("priority", "higher runs first"),
    harmless("user", "keys name users"),
    harmless("request_id", "the header `x-request-id` has it"),
    harmless("cache_salt", "texts that are read whole share nothing"),
    harmless("padding", "texts are packed, not padded"),
    harmless("mm_processor_kwargs", "texts only"),
    refused("normalize", "the model's files say what is normalized"),
];

/// Most texts of a request.
pub const TEXTS_MAX: usize = 65_536;

/// What all of them say.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolingOptions {
    /// A served name.
    pub model: Option<String>,
    /// Whether long texts are cut.
    pub truncation: Truncation,
    /// Higher runs first.
    pub priority: i32,
}

/// Whether long texts are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncation {
    /// As the model's files say.
    Default,
    /// To so many tokens, or to the model's limit.
    #[allow(missing_docs)]
    To { tokens: Option<usize>, side: Side },
    /// They are refused.
    Never,
}

/// Which end of a long text is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Side {
    Left,
    Right,
}

/// A text to pool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PooledInput {
    Text(String),
    Tokens(Vec<u32>),
}

impl PoolingOptions {
    /// Reads the common fields.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let at = fields.at("truncate_prompt_tokens");
        let tokens = fields.integer("truncate_prompt_tokens")?;
        let tokens = tokens.map(|tokens| match tokens {
            -1 => Ok(None),
            1..=0x7fff_ffff => Ok(Some(tokens as usize)),
            other => Err(ApiError::invalid(&at, format!("`{at}` must be -1 or at least 1, not {other}"))),
        });
        let side = match fields.text("truncation_side")?.as_deref() {
            None | Some("right") => Side::Right,
            Some("left") => Side::Left,
            Some(other) => {
                let message = format!("`truncation_side` must be `left` or `right`, not `{other}`");
                return Err(ApiError::invalid("truncation_side", message));
            }
        };
        let truncation = match tokens.transpose()? {
            None => Truncation::Default,
            Some(tokens) => Truncation::To { tokens, side },
        };
        let priority = fields.integer("priority")?.unwrap_or(0);
        let priority = i32::try_from(priority)
            .map_err(|_| ApiError::invalid("priority", "`priority` must be an integer of 32 bits"))?;
        Ok(Self { model: fields.text("model")?, truncation, priority })
    }
}

/// A string, a list of token ids, or a list of several of either.
pub fn inputs(at: &str, value: Value) -> Result<Vec<PooledInput>, ApiError> {
    let list = match value {
        Value::String(text) => return Ok(vec![PooledInput::Text(text)]),
        Value::Array(list) => list,
        other => return Err(type_error(at, "a string or a list", &other)),
    };
    if list.is_empty() {
        return Err(ApiError::invalid(at, format!("`{at}` must not be empty")));
    }
    if list.iter().all(Value::is_number) {
        return Ok(vec![PooledInput::Tokens(token_ids(at, &list)?)]);
    }
    check_count(at, list.len())?;
    let one = |(number, value): (usize, Value)| {
        let at = format!("{at}[{number}]");
        match value {
            Value::String(text) => Ok(PooledInput::Text(text)),
            Value::Array(ids) => token_ids(&at, &ids).map(PooledInput::Tokens),
            other => Err(type_error(&at, "a string or a list of token ids", &other)),
        }
    };
    list.into_iter().enumerate().map(one).collect()
}

/// A list of texts, or one: each a string, an object with a `text`, or a list of parts with texts.
pub fn texts(at: &str, value: Value) -> Result<Vec<String>, ApiError> {
    let list = match value {
        Value::Array(list) => list,
        one => return Ok(vec![text(at, one)?]),
    };
    if list.is_empty() {
        return Err(ApiError::invalid(at, format!("`{at}` must not be empty")));
    }
    check_count(at, list.len())?;
    list.into_iter().enumerate().map(|(number, value)| text(&format!("{at}[{number}]"), value)).collect()
}

/// One text.
pub fn text(at: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(object) => match (object.get("text"), object.get("content")) {
            (Some(Value::String(text)), _) => Ok(text.clone()),
            (_, Some(Value::Array(parts))) => parts_text(at, parts),
            _ => Err(ApiError::invalid(at, format!("`{at}` must have a `text`; it takes texts only"))),
        },
        other => Err(type_error(at, "a string, or an object with a `text`", &other)),
    }
}

fn parts_text(at: &str, parts: &[Value]) -> Result<String, ApiError> {
    let part = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    let texts: Option<Vec<String>> = parts.iter().map(part).collect();
    let texts = texts.ok_or_else(|| ApiError::unsupported(at, format!("`{at}` takes texts only")))?;
    Ok(texts.join("\n"))
}

fn check_count(at: &str, count: usize) -> Result<(), ApiError> {
    match count > TEXTS_MAX {
        true => Err(ApiError::invalid(at, format!("`{at}` must have at most {TEXTS_MAX} entries"))),
        false => Ok(()),
    }
}

/// Tokens of a response.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PoolingUsage {
    /// Of all texts, special ones included.
    pub prompt_tokens: usize,
    /// `prompt_tokens`.
    pub total_tokens: usize,
    /// Cached tokens among the prompt's: none, because texts are read whole.
    pub prompt_tokens_details: PromptTokensDetails,
}

impl PoolingUsage {
    /// Of so many tokens.
    pub fn new(tokens: usize) -> Self {
        let prompt_tokens_details = PromptTokensDetails::default();
        Self { prompt_tokens: tokens, total_tokens: tokens, prompt_tokens_details }
    }
}

/// What every response begins with.
#[derive(Debug, Clone, Serialize)]
pub struct Envelope<T> {
    /// The response's id.
    pub id: String,
    /// `list`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    /// As the client named it.
    pub model: String,
    /// One entry for each text, in order.
    pub data: Vec<T>,
    #[allow(missing_docs)]
    pub usage: PoolingUsage,
}
