//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's fields.
//!
//! Invariant: unknown fields, block types and tool types are accepted, counted and logged, as Anthropic's own clients
//! send new ones at any time. What is known must have its type.

pub mod blocks;
pub mod client_tools;
pub mod mcp;
pub mod models;
pub mod rendered;
pub mod response;
pub mod search;
pub mod tools;

use serde_json::Value;

use super::energy::ShownEnergy;
use super::fields::{Field, Fields, harmless, honoured, type_error};
use super::mcp::McpServer;
use super::structured::{StructuredOutput, json_schema};
use super::tool_choice::ToolChoice;
use super::web_search::{self, Need, WebSearch};
use crate::error::ApiError;
use blocks::Turn;
use tools::{ToolDefinition, ToolUse};

/// Fields of a request.
pub const FIELDS: &[Field] = &[
    honoured(
        "model",
        "a served name; any other is served by the loaded model, unless `--strict-model-names` is set",
    ),
    honoured("messages", "the conversation; system messages may stand anywhere"),
    honoured("system", "a string or text blocks; a billing header is left out of the prompt"),
    honoured("max_tokens", "most tokens to generate; what does not fit the context is refused"),
    honoured(
        "tools",
        "functions that the model may call; a tool with `defer_loading` is shown where it is referenced",
    ),
    honoured("tool_choice", "`auto`, `any`, `tool` or `none`, and `disable_parallel_tool_use`"),
    honoured("thinking", "`enabled`, `adaptive` or `disabled`, and `display`"),
    honoured("output_config", "`effort`"),
    honoured("stop_sequences", "at most 64"),
    honoured("stream", "server-sent events"),
    honoured("temperature", "0 is greedy; when absent the model's own, else 1"),
    honoured("top_p", "nucleus sampling"),
    honoured("top_k", "keeps the k most likely tokens"),
    harmless("metadata", "labels for the operator"),
    harmless("service_tier", "there is one service tier"),
    harmless("context_management", "the whole conversation is used"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("container", "this server runs no code"),
    honoured(
        "include_energy",
        "ours: true adds `energy` to `usage`, in joules, where a sensor counts it; absent elsewhere",
    ),
    honoured("mcp_servers", "servers whose tools this server runs, with `--mcp-config` or `--allow-mcp-url`"),
    harmless("safeguards", "a matter of the client"),
    harmless("betas", "there are no beta features to switch on"),
    harmless("inference_geo", "there is one place"),
    harmless("speed", "there is one speed"),
    harmless("diagnostics", "`usage` says how much of a prompt was cached"),
    harmless("user_profile_id", "a label for the operator"),
    harmless("workspace_id", "there is one workspace"),
];

/// Fields of `thinking`.
pub const THINKING: &[Field] = &[
    honoured("type", "`enabled`, `adaptive` or `disabled`"),
    honoured("budget_tokens", "most tokens of reasoning; then its end is forced"),
    honoured("display", "`omitted` sends no text, only a signature that holds it"),
];

/// Fields of `output_config`.
pub const OUTPUT_CONFIG: &[Field] = &[
    honoured("effort", "passed to the chat template as `reasoning_effort`"),
    honoured("format", "of type `json_schema`: the `schema` that the answer matches"),
];

/// Most tokens that a field may count.
const TOKENS_MAX: usize = i32::MAX as usize;

/// A request body, read and validated.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagesRequest {
    /// The model's name, as sent.
    pub model: Option<String>,
    /// The conversation.
    pub conversation: Conversation,
    /// Most tokens to generate; required but for counting tokens.
    pub max_tokens: Option<usize>,
    /// `temperature`.
    pub temperature: Option<f64>,
    /// `top_p`.
    pub top_p: Option<f64>,
    /// `top_k`.
    pub top_k: Option<usize>,
    /// `stop_sequences`.
    pub stop_sequences: Vec<String>,
    /// `output_config.format`.
    pub structured: Option<StructuredOutput>,
    /// `stream`.
    pub stream: bool,
    /// `include_energy`.
    pub energy: ShownEnergy,
    /// The MCP servers whose tools this server runs.
    pub mcp: Vec<McpServer>,
    /// The search of the web.
    pub search: Option<WebSearch>,
}

/// What becomes the prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The text of each system block.
    pub system: Vec<String>,
    /// The messages.
    pub turns: Vec<Turn>,
    /// Every tool.
    pub tools: Vec<ToolDefinition>,
    /// Whether tools may be called.
    pub tool_use: ToolUse,
    /// Whether to reason.
    pub thinking: Thinking,
    /// `output_config.effort`.
    pub effort: Option<String>,
}

/// Whether to reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Thinking {
    /// No.
    #[default]
    Off,
    /// Yes.
    On {
        /// Most tokens.
        budget_tokens: Option<usize>,
        /// Whether the client gets the text.
        display: Display,
    },
}

/// Whether the client gets the text of reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Display {
    /// It does.
    #[default]
    Text,
    /// It gets a signature only.
    Omitted,
}

/// Whether a request generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It does.
    Generate,
    /// It counts the prompt's tokens.
    Count,
}

impl MessagesRequest {
    /// Reads a body.
    pub fn read(body: Value, purpose: Purpose) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[FIELDS])?;
        let max_tokens = fields.count("max_tokens", (1, TOKENS_MAX))?;
        if purpose == Purpose::Generate {
            fields.required("max_tokens", max_tokens)?;
        }
        let messages = fields.list("messages")?;
        let messages = fields.required("messages", messages)?;
        if messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages: at least one message is required"));
        }
        let (effort, structured) = output_config(&mut fields)?;
        let list = fields.list("tools")?.unwrap_or_default();
        let mcp = mcp::read(&mut fields, &list)?;
        let search = web_search::of_anthropic(&list)?;
        let (tools, tool_use) = tools::read(list, &mut fields)?;
        let choice = match &tool_use {
            ToolUse::Allowed(choice, _) => Some(choice),
            ToolUse::None => None,
        };
        let need = Need::of(choice.and_then(ToolChoice::chosen));
        let search = search.filter(|_| choice.is_some()).map(|search| WebSearch { need, ..search });
        Ok(Self {
            model: fields.text("model")?,
            max_tokens,
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            top_k: fields.count("top_k", (0, TOKENS_MAX))?,
            stop_sequences: stop_sequences(&mut fields)?,
            structured,
            stream: fields.flag("stream")?.unwrap_or(false),
            energy: ShownEnergy::read(&mut fields)?,
            mcp,
            search,
            conversation: Conversation {
                system: system(&mut fields)?,
                turns: blocks::turns(messages)?,
                tools,
                tool_use,
                thinking: thinking(&mut fields)?,
                effort,
            },
        })
    }
}

fn system(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    match fields.value("system") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text]),
        Some(Value::Array(list)) => blocks::texts(list, "system"),
        Some(other) => Err(type_error("system", "a string or a list of blocks", &other)),
    }
}

fn stop_sequences(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let list = fields.list("stop_sequences")?.unwrap_or_default();
    let text = |(index, value): (usize, Value)| match value {
        Value::String(text) => Ok(text),
        other => Err(type_error(&format!("stop_sequences[{index}]"), "a string", &other)),
    };
    list.into_iter().enumerate().map(text).collect()
}

fn thinking(fields: &mut Fields) -> Result<Thinking, ApiError> {
    let Some(value) = fields.value("thinking") else { return Ok(Thinking::Off) };
    let mut fields = Fields::tolerant(value, "thinking", &[THINKING])?;
    let budget_tokens = fields.count("budget_tokens", (0, TOKENS_MAX))?;
    let display = match fields.text("display")?.as_deref() {
        Some("omitted") => Display::Omitted,
        _ => Display::Text,
    };
    match fields.text("type")?.as_deref() {
        Some("enabled" | "adaptive") => Ok(Thinking::On { budget_tokens, display }),
        Some("disabled") => Ok(Thinking::Off),
        _ => Err(ApiError::invalid(
            "thinking.type",
            "thinking.type: must be `enabled`, `adaptive` or `disabled`",
        )),
    }
}

type OutputConfig = (Option<String>, Option<StructuredOutput>);

fn output_config(fields: &mut Fields) -> Result<OutputConfig, ApiError> {
    let Some(value) = fields.value("output_config") else { return Ok((None, None)) };
    let mut fields = Fields::tolerant(value, "output_config", &[OUTPUT_CONFIG])?;
    let format = fields.object("format")?.and_then(|mut format| format.remove("schema"));
    let at = "output_config.format.schema".to_owned();
    let structured = format.map(|schema| json_schema(schema, Default::default(), at)).transpose()?;
    Ok((fields.text("effort")?, structured))
}
