//! Ollama's API: the fields that chats and completions share.
//!
//! Invariant: unknown fields and options are accepted, counted and logged, as Ollama does it; what is known must have its
//! type. A body becomes the types of OpenAI's chat completions, which are lowered once.

pub mod chat;
pub mod embed;
pub mod generate;
pub mod keep_alive;
pub mod messages;
pub mod models;
pub mod name;
pub mod options;
pub mod response;
pub mod think;
pub mod tools;

use serde_json::Value;

use super::fields::{Field, Fields, harmless, honoured};
use super::generation::{Generation, StreamUsage, Streaming};
use super::logprobs::alternatives;
use super::structured::{Enforced, Grammar, StructuredOutput, Whitespace, json_schema};
use crate::error::ApiError;
use keep_alive::KeepAlive;
use think::Think;

/// Fields of chats and completions.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name, in any case, with or without `:latest`"),
    honoured("stream", "one JSON object a line; true when absent"),
    honoured("format", "`json`, or a JSON schema that the answer matches; reasoning before it is free"),
    honoured("options", "sampling and limits"),
    honoured(
        "think",
        "true, false, or an effort: `low`, `medium`, `high`, `max`; true when absent, for models that reason",
    ),
    honoured(
        "keep_alive",
        "how long the model stays loaded after this request, unless its memory is needed: a duration such as `5m`, or seconds; negative for ever; absent as the server was started",
    ),
    honoured("logprobs", "true reports the log-probability of each token"),
    honoured(
        "top_logprobs",
        "with `logprobs`: how many of the most likely tokens to report, at most `--max-logprobs` (20), or -1 for all",
    ),
    harmless("truncate", "a prompt that does not fit the context is refused"),
    harmless("shift", "an answer ends where the context does"),
];

/// The fields that chats and completions share.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// The model's name, as sent.
    pub model: String,
    /// Sampling, limits, format and delivery.
    pub generation: Generation,
    /// Whether to reason.
    pub think: Think,
    /// How many alternatives to report per token; `None` reports no log-probabilities.
    pub logprobs: Option<usize>,
}

impl Shared {
    /// Takes the shared fields out of a body.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let model = model(fields)?;
        let mut generation = options::read(fields)?;
        generation.structured = format(fields)?;
        generation.streaming = match fields.flag("stream")? {
            Some(false) => Streaming::Off,
            Some(true) | None => Streaming::On(StreamUsage::Omit),
        };
        KeepAlive::read(fields)?;
        Ok(Self { model, generation, think: Think::read(fields)?, logprobs: logprobs(fields)? })
    }
}

/// A request without input, which only loads or unloads its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The model's name, as sent.
    pub model: String,
    /// Zero unloads it.
    pub keep_alive: KeepAlive,
}

impl Load {
    /// A body whose `input` is absent or empty, and that has no `suffix`. `None` for others.
    pub fn of(body: &Value, input: &str) -> Result<Option<Self>, ApiError> {
        let is_empty = |name: &str| match body.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(_) => false,
        };
        // The text before the one to generate is empty at the begin of a file.
        let (true, Value::Object(object)) = (is_empty(input) && is_empty("suffix"), body) else {
            return Ok(None);
        };
        let known = ["model", "keep_alive"].into_iter();
        let few = known.filter_map(|name| Some((name.to_owned(), object.get(name)?.clone())));
        let mut fields = Fields::tolerant(Value::Object(few.collect()), "", &[FIELDS])?;
        Ok(Some(Self { model: model(&mut fields)?, keep_alive: KeepAlive::read(&mut fields)? }))
    }
}

/// The required name of a model.
fn model(fields: &mut Fields) -> Result<String, ApiError> {
    let model = fields.text("model")?.filter(|name| !name.is_empty());
    model.ok_or_else(|| ApiError::invalid("model", "`model` is missing: model is required"))
}

fn format(fields: &mut Fields) -> Result<Option<StructuredOutput>, ApiError> {
    let field = "format".to_owned();
    match fields.value("format") {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => {
            Ok(Some(StructuredOutput { grammar: Grammar::JsonObject, field }))
        }
        Some(schema @ Value::Object(_)) => {
            json_schema(schema, (Whitespace::Usual, Enforced::Possible), field).map(Some)
        }
        Some(other) => {
            let message = format!("`format` must be \"json\" or a JSON schema, not {other}");
            Err(ApiError::invalid("format", message))
        }
    }
}

fn logprobs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let enabled = fields.flag("logprobs")?.unwrap_or(false);
    let top = alternatives(fields, "top_logprobs")?;
    Ok(enabled.then_some(top.unwrap_or(0)))
}
