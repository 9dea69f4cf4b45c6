//! Anthropic's messages, stream events, errors and token counts.

use serde::Serialize;
use serde_json::Value;

use crate::wire::energy::Energy;

/// An event of a stream, with its data.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent {
    /// The first event.
    MessageStart {
        /// Without content.
        message: Message,
    },
    /// Shows that the stream is alive.
    Ping,
    /// A block starts.
    ContentBlockStart {
        /// Its place.
        index: usize,
        /// Empty.
        content_block: Block,
    },
    /// More of a block.
    ContentBlockDelta {
        /// Its place.
        index: usize,
        /// What is new.
        delta: BlockDelta,
    },
    /// A block is complete.
    ContentBlockStop {
        /// Its place.
        index: usize,
    },
    /// The message is complete.
    MessageDelta {
        /// Why it ended.
        delta: StopDelta,
        /// Token counts.
        usage: Usage,
    },
    /// The last event.
    MessageStop,
    /// The last event of a stream that failed.
    Error {
        /// The error.
        error: ErrorObject,
        /// The request's id, as in the response's header.
        request_id: String,
    },
}

impl StreamEvent {
    /// The event's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::Ping => "ping",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Error { .. } => "error",
        }
    }
}

/// A message of the model.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// `msg_…`
    pub id: String,
    /// `message`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `assistant`
    pub role: &'static str,
    /// The requested model.
    pub model: String,
    /// The blocks.
    pub content: Vec<Block>,
    /// Why it ended; null at the start of a stream.
    pub stop_reason: Option<&'static str>,
    /// The stop sequence that ended it.
    pub stop_sequence: Option<String>,
    /// Token counts.
    pub usage: Usage,
}

/// A content block.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning.
    Thinking {
        /// The reasoning; empty where it is not displayed.
        thinking: String,
        /// To be sent back with it.
        signature: String,
    },
    /// A call.
    ToolUse {
        /// What the result refers to.
        id: String,
        /// The function.
        name: String,
        /// The arguments; empty at the start of a stream.
        input: Value,
    },
    /// A call of a tool of the API itself: the search of the web.
    ServerToolUse {
        /// What the result refers to.
        id: String,
        /// `web_search`
        name: &'static str,
        /// The arguments; empty at the start of a stream.
        input: Value,
    },
    /// What a search of the web found.
    WebSearchToolResult {
        /// The call.
        tool_use_id: String,
        /// Pages, or an error.
        content: Value,
    },
    /// A call that the server makes.
    McpToolUse {
        /// What the result refers to.
        id: String,
        /// The tool.
        name: String,
        /// The server.
        server_name: String,
        /// The arguments; empty at the start of a stream.
        input: Value,
    },
    /// Its result.
    McpToolResult {
        /// The call.
        tool_use_id: String,
        /// Whether the tool failed.
        is_error: bool,
        /// One text.
        content: Vec<Value>,
    },
}

/// What is new in a block.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the API tags them so")]
pub enum BlockDelta {
    /// Text to append.
    TextDelta {
        /// The text.
        text: String,
    },
    /// Reasoning to append.
    ThinkingDelta {
        /// The reasoning.
        thinking: String,
    },
    /// The signature of complete reasoning.
    SignatureDelta {
        /// The signature.
        signature: String,
    },
    /// Arguments to append.
    InputJsonDelta {
        /// A part of a JSON text.
        partial_json: String,
    },
}

/// Why a message ended.
#[derive(Debug, Clone, Serialize)]
pub struct StopDelta {
    /// `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, or `pause_turn` at a limit of calls of MCP tools
    pub stop_reason: &'static str,
    /// The stop sequence that ended it.
    pub stop_sequence: Option<String>,
}

/// Token counts. The prompt has the sum of the three kinds of input tokens.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Usage {
    /// Tokens of the prompt that were computed.
    pub input_tokens: usize,
    /// Always 0: caching costs nothing.
    pub cache_creation_input_tokens: usize,
    /// Tokens of the prompt that were cached.
    pub cache_read_input_tokens: usize,
    /// Tokens generated.
    pub output_tokens: usize,
    /// Searches of the web, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_tool_use: Option<ServerToolUse>,
    /// What the message used, where that was requested and a sensor counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

/// Calls of tools of the API itself.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ServerToolUse {
    /// Searches of the web.
    pub web_search_requests: usize,
}

/// The body of every response that is not 2xx.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorBody<'a> {
    /// `error`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The error.
    pub error: ErrorObject,
    /// The request's id, as in the response's header.
    pub request_id: &'a str,
}

/// Anthropic's error object.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorObject {
    /// One of Anthropic's types.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Human-readable description.
    pub message: String,
}

/// The response to `count_tokens`.
#[derive(Debug, Clone, Serialize)]
pub struct TokenCount {
    /// Tokens of the prompt.
    pub input_tokens: usize,
}
