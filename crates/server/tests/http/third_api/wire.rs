//! The request and response types of the third API.

use omnibus_server::ApiError;
use omnibus_server::wire::fields::{Field, Fields, honoured};
use serde::Serialize;
use serde_json::Value;

const FIELDS: &[Field] = &[
    honoured("model", "a served name"),
    honoured("max_tokens", "required"),
    honoured("messages", "`role` and `content`"),
    honoured("stream", "server-sent events"),
];
const MESSAGE: &[Field] = &[honoured("role", "`user` or `assistant`"), honoured("content", "a string")];

pub struct MessagesRequest {
    pub model: Option<String>,
    pub max_tokens: usize,
    pub contents: Vec<String>,
    pub stream: Option<bool>,
}

impl MessagesRequest {
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS])?;
        let max_tokens = fields.count("max_tokens", (1, 1 << 20))?;
        let max_tokens = fields.required("max_tokens", max_tokens)?;
        let list = fields.list("messages")?;
        let list = fields.required("messages", list)?;
        let contents = list.into_iter().enumerate().map(content).collect::<Result<_, _>>()?;
        Ok(Self { model: fields.text("model")?, max_tokens, contents, stream: fields.flag("stream")? })
    }
}

fn content((index, message): (usize, Value)) -> Result<String, ApiError> {
    let mut fields = Fields::open(message, &format!("messages[{index}]"), &[MESSAGE])?;
    fields.text("role")?;
    let content = fields.text("content")?;
    fields.required("content", content)
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent {
    MessageStart { message: Message },
    ContentBlockStart { index: usize, content_block: Block },
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: StopReason, usage: OutputUsage },
    MessageStop,
    Error { error: ErrorObject },
}

impl StreamEvent {
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Error { .. } => "error",
        }
    }
}

#[derive(Serialize)]
pub struct Message {
    pub id: String,
    pub role: &'static str,
    pub model: String,
    pub content: Vec<Block>,
    pub stop_reason: Option<&'static str>,
    pub usage: Usage,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text { text: String },
    Thinking { thinking: String },
    ToolUse { id: String, name: String, input: Value },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the API tags them so")]
pub enum BlockDelta {
    TextDelta { text: String },
    ThinkingDelta { thinking: String },
    InputJsonDelta { partial_json: String },
}

#[derive(Serialize)]
pub struct StopReason {
    pub stop_reason: &'static str,
}

#[derive(Serialize)]
pub struct OutputUsage {
    pub output_tokens: usize,
}

#[derive(Serialize)]
pub struct Usage {
    pub input_tokens: usize,
    pub cache_read_input_tokens: usize,
    pub output_tokens: usize,
}

#[derive(Serialize)]
pub struct ErrorObject {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub message: String,
}
