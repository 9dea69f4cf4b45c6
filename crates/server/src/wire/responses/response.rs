//! Responses, their items and the events of a stream.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::wire::energy::Energy;
use crate::wire::logprobs::ChatLogprob;

/// A response.
#[derive(Debug, Clone, Serialize)]
pub struct ResponseObject {
    /// `resp_…`
    pub id: String,
    /// `response`
    pub object: &'static str,
    /// Unix seconds.
    pub created_at: u64,
    /// `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`
    pub status: &'static str,
    /// Whether it was requested in the background.
    pub background: bool,
    /// Why it failed.
    pub error: Option<ErrorObject>,
    /// Why it is incomplete.
    pub incomplete_details: Option<IncompleteDetails>,
    /// As sent.
    pub instructions: Option<String>,
    /// As sent.
    pub max_output_tokens: Option<usize>,
    /// The requested model.
    pub model: String,
    /// The items.
    pub output: Vec<Value>,
    /// As sent.
    pub parallel_tool_calls: bool,
    /// As sent.
    pub previous_response_id: Option<String>,
    /// As sent.
    pub conversation: Option<ConversationReference>,
    /// As sent.
    pub reasoning: ReasoningEcho,
    /// Whether it is kept.
    pub store: bool,
    /// As sent, or the default.
    pub temperature: f64,
    /// The format of the text.
    pub text: TextEcho,
    /// Always 0.
    pub presence_penalty: f64,
    /// Always 0.
    pub frequency_penalty: f64,
    /// As sent, or `auto`.
    pub tool_choice: Value,
    /// As sent; a function has all of its fields.
    pub tools: Vec<Value>,
    /// As sent, or the default.
    pub top_p: f64,
    /// `auto` or `disabled`
    pub truncation: &'static str,
    /// Token counts, once it has ended.
    pub usage: Option<Usage>,
    /// As sent.
    pub metadata: Map<String, Value>,
    /// Unix seconds of its end, if it is complete.
    pub completed_at: Option<u64>,
    /// As sent.
    pub max_tool_calls: Option<usize>,
    /// As sent, or 0.
    pub top_logprobs: usize,
    /// `default`
    pub service_tier: &'static str,
    /// As sent.
    pub user: Option<String>,
    /// As sent.
    pub safety_identifier: Option<String>,
    /// As sent.
    pub prompt_cache_key: Option<String>,
}

/// The conversation that a response belongs to.
#[derive(Debug, Clone, Serialize)]
pub struct ConversationReference {
    /// `conv_…`
    pub id: String,
}

/// Why a response failed.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorObject {
    /// Machine-readable.
    pub code: &'static str,
    /// Human-readable.
    pub message: String,
}

/// Why a response is incomplete.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct IncompleteDetails {
    /// `max_output_tokens`, or the limit of tool calls that was reached
    pub reason: &'static str,
}

/// `reasoning`, as sent.
#[derive(Debug, Clone, Serialize)]
pub struct ReasoningEcho {
    /// `effort`
    pub effort: Option<String>,
    /// Always null.
    pub summary: Option<String>,
}

/// `text`
#[derive(Debug, Clone, Serialize)]
pub struct TextEcho {
    /// The format, as sent or of type `text`.
    pub format: Value,
    /// `low`, `medium` or `high`
    pub verbosity: &'static str,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input_tokens: usize,
    /// Cached tokens among them.
    pub input_tokens_details: InputDetails,
    /// Tokens generated.
    pub output_tokens: usize,
    /// Reasoning tokens among them.
    pub output_tokens_details: OutputDetails,
    /// The sum of both.
    pub total_tokens: usize,
    /// What the response used, where that was requested and a sensor counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

/// Cached tokens among the prompt's.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct InputDetails {
    /// Tokens found in the prefix cache.
    pub cached_tokens: usize,
    /// Always 0: caching costs nothing.
    pub cache_write_tokens: usize,
}

/// Reasoning tokens among the generated ones.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OutputDetails {
    /// Tokens of reasoning.
    pub reasoning_tokens: usize,
}

/// An item of the output.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    /// Text.
    Message {
        /// `msg_…`
        id: String,
        /// `in_progress`, `completed` or `incomplete`
        status: &'static str,
        /// `assistant`
        role: &'static str,
        /// One part; none at the start of a stream.
        content: Vec<ContentPart>,
    },
    /// Reasoning.
    Reasoning {
        /// `rs_…`
        id: String,
        /// One part; none at the start of a stream.
        summary: Vec<SummaryPart>,
        /// For stateless clients, when requested.
        encrypted_content: Option<String>,
    },
    /// A call of a function.
    FunctionCall {
        /// `fc_…`
        id: String,
        /// `in_progress`, `completed` or `incomplete`
        status: &'static str,
        /// What the output refers to.
        call_id: String,
        /// The function.
        name: String,
        /// The namespace it is in.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// JSON text.
        arguments: String,
    },
    /// A call of a custom tool.
    CustomToolCall {
        /// `ctc_…`
        id: String,
        /// `in_progress`, `completed` or `incomplete`
        status: &'static str,
        /// What the output refers to.
        call_id: String,
        /// The tool.
        name: String,
        /// Text.
        input: String,
    },
    /// A search for tools.
    ToolSearchCall {
        /// `tsc_…`
        id: String,
        /// `in_progress`, `completed` or `incomplete`
        status: &'static str,
        /// What the output refers to.
        call_id: String,
        /// `client`
        execution: &'static str,
        /// What to search.
        arguments: Value,
    },
    /// A call of a tool that the client runs.
    #[serde(untagged)]
    Client(ClientCall),
    /// A search of the web.
    #[serde(untagged)]
    Search(SearchItem),
    /// Of an MCP server: its tools, a call, or a call that waits for an approval.
    #[serde(untagged)]
    Mcp(McpItem),
}

/// A search of the web.
#[derive(Debug, Clone, Serialize)]
pub struct SearchItem {
    /// `web_search_call`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `ws_…`
    pub id: String,
    /// `in_progress`, `completed` or `failed`
    pub status: &'static str,
    /// What was searched for.
    pub action: SearchAction,
    /// The pages, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<Value>>,
    /// What the model read, for requests that send the item back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_content: Option<String>,
}

/// What was searched for.
#[derive(Debug, Clone, Serialize)]
pub struct SearchAction {
    /// `search`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The query.
    pub query: String,
    /// A list with the query.
    pub queries: Vec<String>,
    /// Addresses of pages that were found, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<Value>>,
}

/// An item of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpItem {
    /// The tools of a server.
    McpListTools {
        /// `mcpl_…`
        id: String,
        /// The server.
        server_label: String,
        /// Its tools.
        tools: Vec<Value>,
        /// Always null.
        error: Option<String>,
    },
    /// A call.
    McpCall {
        /// `mcp_…`
        id: String,
        /// The server.
        server_label: String,
        /// The tool.
        name: String,
        /// JSON text.
        arguments: String,
        /// The result.
        output: Option<String>,
        /// Why there is none.
        error: Option<String>,
        /// `in_progress`, `calling`, `completed`, `incomplete` or `failed`
        status: &'static str,
        /// The approval that it had.
        approval_request_id: Option<String>,
    },
    /// A call that waits for an approval.
    McpApprovalRequest {
        /// `mcpr_…`
        id: String,
        /// The server.
        server_label: String,
        /// The tool.
        name: String,
        /// JSON text.
        arguments: String,
    },
}

/// A call of a tool that the client runs, whose item has fields of its own.
#[derive(Debug, Clone, Serialize)]
pub struct ClientCall {
    /// As in `shell_call`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// As in `sh_…`.
    pub id: String,
    /// `in_progress`, `completed` or `incomplete`
    pub status: &'static str,
    /// What the output refers to.
    pub call_id: String,
    /// What to do.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A part of a message.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Text.
    OutputText {
        /// The text.
        text: String,
        /// Always empty.
        annotations: Vec<Value>,
        /// Of each token, when requested.
        logprobs: Vec<ChatLogprob>,
    },
}

/// A part of reasoning.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SummaryPart {
    /// The reasoning.
    SummaryText {
        /// The text.
        text: String,
    },
}

/// The data of an event.
#[derive(Debug, Clone, Serialize)]
pub struct StreamEvent {
    /// The event's name.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its place in the stream.
    pub sequence_number: u64,
    /// What it is about.
    #[serde(flatten)]
    pub data: EventData,
}

/// What an event is about.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum EventData {
    /// The response.
    Response {
        /// As it is now.
        response: Box<ResponseObject>,
    },
    /// An item that starts or is complete.
    Item {
        /// Its place.
        output_index: usize,
        /// The item.
        item: OutputItem,
    },
    /// A part of a message that starts or is complete.
    Part {
        /// The item.
        item_id: String,
        /// Its place.
        output_index: usize,
        /// The part's place.
        content_index: usize,
        /// The part.
        part: ContentPart,
    },
    /// A part of reasoning that starts or is complete.
    Summary {
        /// The item.
        item_id: String,
        /// Its place.
        output_index: usize,
        /// The part's place.
        summary_index: usize,
        /// The part.
        part: SummaryPart,
    },
    /// More text of an item, or all of it.
    Text(TextEvent),
}

/// More text of an item, or all of it. One of the last four fields is set.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TextEvent {
    /// The item.
    pub item_id: String,
    /// Its place.
    pub output_index: usize,
    /// The place of a message's part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_index: Option<usize>,
    /// The place of a part of reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_index: Option<usize>,
    /// Log-probabilities of a message's text; empty unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<ChatLogprob>>,
    /// Text to append.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<String>,
    /// The whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The whole arguments of a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The whole input of a custom tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

/// The response to `input_tokens`.
#[derive(Debug, Clone, Serialize)]
pub struct InputTokens {
    /// `response.input_tokens`
    pub object: &'static str,
    /// Tokens of the prompt.
    pub input_tokens: usize,
}

/// The response to a deletion.
#[derive(Debug, Clone, Serialize)]
pub struct Deleted {
    /// The id in the request.
    pub id: String,
    /// `response` or `conversation.deleted`
    pub object: &'static str,
    /// `true`
    pub deleted: bool,
}

/// Items of a response's input or of a conversation.
#[derive(Debug, Clone, Serialize)]
pub struct ItemList {
    /// `list`
    pub object: &'static str,
    /// The items.
    pub data: Vec<Value>,
    /// The id of the first one.
    pub first_id: Option<String>,
    /// The id of the last one.
    pub last_id: Option<String>,
    /// Whether there are more.
    pub has_more: bool,
}
