//! Fields that a response repeats as they were sent.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::wire::fields::Fields;
use crate::wire::logprobs::alternatives;

/// What a response repeats of its request, besides what the request means.
#[derive(Debug, Clone, PartialEq)]
pub struct Echo {
    /// `tool_choice`
    pub tool_choice: Value,
    /// `text.format`
    pub format: Value,
    /// `max_tool_calls`
    pub max_tool_calls: Option<usize>,
    /// `top_logprobs`
    pub top_logprobs: Option<usize>,
    /// `user`
    pub user: Option<String>,
    /// `safety_identifier`
    pub safety_identifier: Option<String>,
    /// `prompt_cache_key`
    pub prompt_cache_key: Option<String>,
}

/// Most of what `max_tool_calls` counts.
const CALLS_MAX: usize = i32::MAX as usize;

impl Echo {
    /// Reads the fields that are repeated, and keeps what was sent of two that are read elsewhere.
    pub fn read(
        fields: &mut Fields,
        tool_choice: Option<&Value>,
        format: Option<&Map<String, Value>>,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            tool_choice: tool_choice.cloned().unwrap_or_else(|| "auto".into()),
            format: format.map_or_else(|| json!({"type": "text"}), with_name),
            max_tool_calls: fields.count("max_tool_calls", (1, CALLS_MAX))?,
            top_logprobs: alternatives(fields, "top_logprobs")?,
            user: fields.text("user")?,
            safety_identifier: fields.text("safety_identifier")?,
            prompt_cache_key: fields.text("prompt_cache_key")?,
        })
    }
}

/// The tools with all fields of functions, as clients read them.
pub fn tools(sent: Vec<Value>) -> Vec<Value> {
    let with_fields = |mut tool: Value| {
        if let Some(fields) = tool.as_object_mut()
            && fields.get("type").and_then(Value::as_str) == Some("function")
        {
            for name in ["description", "parameters", "strict"] {
                fields.entry(name).or_insert(Value::Null);
            }
        }
        tool
    };
    sent.into_iter().map(with_fields).collect()
}

/// A format of a schema has a name in every response.
fn with_name(format: &Map<String, Value>) -> Value {
    let mut named = format.clone();
    if named.get("type").and_then(Value::as_str) == Some("json_schema") {
        named.entry("name").or_insert_with(|| "response".into());
    }
    Value::Object(named)
}
