//! `POST /v1/responses/compact`: a conversation in fewer tokens.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::ResponsesRequest;
use super::response::Usage;
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured};

/// Fields of a request.
pub const FIELDS: &[Field] = &[
    honoured("model", "which model writes the summary"),
    honoured("input", "a string or a list of items"),
    honoured("instructions", "a system message before the input"),
    honoured("previous_response_id", "compacts the conversation up to a stored response, and the input"),
    harmless("prompt_cache_key", "every prompt is looked up in the prefix cache"),
    harmless("prompt_cache_options", "every prompt is looked up in the prefix cache"),
    harmless("prompt_cache_retention", "cached prefixes stay until they are evicted"),
    harmless("service_tier", "there is one service tier"),
    harmless("tools", "the summary calls no tools"),
    harmless("parallel_tool_calls", "the summary calls no tools"),
    harmless("reasoning", "the model's template decides"),
    harmless("text", "the summary is plain text"),
];

/// What the model reads behind the conversation.
const REQUEST: &str = "Summarize our conversation so far, for yourself: you will go on with this summary and without the \
    conversation itself. Keep what was decided, facts, names, numbers, paths, open questions and what is to be done next. \
    Answer with the summary only.";

/// A compacted conversation.
#[derive(Debug, Clone, Serialize)]
pub struct CompactedResponse {
    /// `resp_…`
    pub id: String,
    /// `response.compaction`
    pub object: &'static str,
    /// Unix seconds.
    pub created_at: u64,
    /// The user's messages, and the compaction.
    pub output: Vec<Value>,
    /// Token counts of the summary.
    pub usage: Usage,
}

/// The request for a summary, without its last item.
pub fn read(body: Value) -> Result<ResponsesRequest, ApiError> {
    let mut fields = Fields::tolerant(body, "", &[FIELDS])?;
    let model = fields.text("model")?;
    let mut request = Map::from_iter([
        ("model".to_owned(), fields.required("model", model)?.into()),
        ("input".to_owned(), fields.value("input").unwrap_or_else(|| json!([]))),
        ("store".to_owned(), false.into()),
    ]);
    for name in ["instructions", "previous_response_id"] {
        request.extend(fields.value(name).map(|value| (name.to_owned(), value)));
    }
    ResponsesRequest::read(Value::Object(request))
}

/// The last item of the request for a summary.
pub fn request() -> Value {
    json!({"type": "message", "role": "user", "content": REQUEST})
}
