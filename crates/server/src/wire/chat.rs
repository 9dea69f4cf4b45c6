//! `POST /v1/chat/completions`: OpenAI's fields and our extensions.

use serde::Serialize;
use serde_json::{Map, Value};

use super::fields::{Field, Fields, honoured, refused, type_error};
use super::generation::{self, Generation, TOKENS_MAX};
use super::kv_transfer::KvTransferParams;
use super::logprobs::{ChatLogprobs, PromptLogprobs, alternatives};
use super::messages::{self, ContinuationMode, Message};
use super::structured;
use super::timings::{PromptProgress, Timings};
use super::tools::{self, Tools};
use super::usage::Usage;
use super::verbosity::{self, Verbosity};
use super::{chat_thinking, gateway};
use crate::error::ApiError;

/// Fields, besides [`generation::FIELDS`].
pub const FIELDS: &[Field] = &[
    honoured("messages", "the conversation; text only"),
    honoured("max_completion_tokens", "the newer name of `max_tokens`"),
    honoured("logprobs", "true reports the log-probability of each token"),
    honoured(
        "top_logprobs",
        "with `logprobs`: how many of the most likely tokens to report, at most `--max-logprobs` (20), or -1 for all",
    ),
    honoured(
        "tools",
        "functions and custom tools that the model may call, and MCP servers whose tools this server runs; `\"auto\"` is those \
         of the configuration",
    ),
    honoured("max_tool_calls", "most calls of tools that this server runs"),
    honoured("tool_choice", "`none`, `auto`, `required`, `allowed_tools`, or the tool that must be called"),
    honoured("functions", "the older form of `tools`; the answer's call is in `function_call`"),
    honoured("function_call", "with `functions`: `none`, `auto`, or the function that must be called"),
    honoured("parallel_tool_calls", "false ends the message after its first call"),
    honoured("chat_template_kwargs", "more variables for the chat template"),
    honoured("reasoning_effort", "passed to the chat template; `none` switches reasoning off"),
    honoured("thinking_token_budget", "most tokens of reasoning; then its end is forced"),
    honoured("enable_thinking", "switches reasoning on or off, in chat templates that can"),
    honoured("thinking", "`type` and `budget_tokens`, as DeepSeek, Z.ai and Moonshot have them"),
    honoured("include_reasoning", "false leaves the reasoning out of the answer"),
    honoured("verbosity", "`low` and `high` are given to the model in the system message"),
    honoured("documents", "passed to the chat template"),
    honoured("add_generation_prompt", "false leaves out the start of the answer"),
    honoured("continue_final_message", "continues the last assistant message instead of adding a new one"),
    honoured("modalities", "only `[\"text\"]`"),
    honoured(
        "prediction",
        "text that the answer will repeat in parts, as draft tokens; of a longer one, as much as the context holds",
    ),
    refused("audio", "only text output is supported"),
    refused("web_search_options", "this server does not search"),
    honoured(
        "chat_template",
        "the text of a template in place of the model's; with `--trust-request-chat-template`",
    ),
    refused("best_of", "use `n`"),
    refused("echo", "use `/v1/completions`"),
    refused("prompt", "use `messages`, or `/v1/completions`"),
];

/// Fields of `prediction`.
pub const PREDICTION: &[Field] =
    &[honoured("type", "`content`"), honoured("content", "the text, or a list of texts")];

/// Template variables that clients cannot set.
const TEMPLATE_RESERVED: &[&str] = &[
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
    "raise_exception",
    "strftime_now",
];

/// A request body, read and validated.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The fields shared with text completions.
    pub generation: Generation,
    /// The messages and tools.
    pub conversation: Conversation,
    /// How many alternatives to report per token; `None` reports no log-probabilities.
    pub logprobs: Option<usize>,
    /// `thinking_token_budget`.
    pub reasoning_budget: Option<usize>,
    /// `prediction`.
    pub prediction: Option<String>,
    /// Whether the answer has the reasoning.
    pub shown_reasoning: ShownReasoning,
    /// Most calls of tools that this server runs.
    pub max_tool_calls: Option<usize>,
}

/// Whether an answer has the reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShownReasoning {
    /// In a field of its own.
    #[default]
    Include,
    /// It has not.
    Omit,
}

/// The inputs of the chat template.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// At least one.
    pub messages: Vec<Message>,
    /// The tools that may be called.
    pub tools: Tools,
    /// For retrieval templates.
    pub documents: Option<Vec<Value>>,
    /// A template in place of the model's.
    pub template: Option<String>,
    /// Additional template variables.
    pub template_kwargs: Map<String, Value>,
    /// Whether and how much to reason.
    pub reasoning: Reasoning,
    /// Where the completion starts.
    pub continuation: ContinuationMode,
    /// How long the answer should be.
    pub verbosity: Verbosity,
}

/// Whether and how much to reason. `None` leaves it to the chat template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasoning {
    /// `reasoning_effort`.
    pub effort: Option<String>,
    /// `enable_thinking`.
    pub enabled: Option<bool>,
}

impl ChatRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields =
            Fields::open(body, "", &[FIELDS, generation::FIELDS, gateway::FIELDS, structured::FIELDS])?;
        check_text_only(&mut fields)?;
        let mut generation = Generation::read(&mut fields)?;
        generation.max_tokens = max_tokens(&mut fields, generation.max_tokens)?;
        let budget = fields.count("thinking_token_budget", (0, TOKENS_MAX))?;
        let logprobs = logprobs(&mut fields)?;
        let verbosity = verbosity::read(&mut fields)?;
        let shown_reasoning = match fields.flag("include_reasoning")? {
            Some(false) => ShownReasoning::Omit,
            Some(true) | None => ShownReasoning::Include,
        };
        let prediction = prediction(&mut fields)?;
        let max_tool_calls = fields.count("max_tool_calls", (0, TOKENS_MAX))?;
        let mut conversation = Conversation::read_with_mcp(&mut fields)?;
        conversation.verbosity = verbosity;
        let thinking = chat_thinking::read(&mut fields)?;
        conversation.reasoning.enabled = conversation.reasoning.enabled.or(thinking.enabled);
        let reasoning_budget = budget.or(thinking.budget_tokens);
        let request = Self {
            generation,
            logprobs,
            reasoning_budget,
            prediction,
            conversation,
            shown_reasoning,
            max_tool_calls,
        };
        fields.finish();
        Ok(request)
    }
}

impl Conversation {
    /// Reads the fields that are passed to the chat template. Tools that this server runs are for chat completions.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let conversation = Self::read_with_mcp(fields)?;
        match conversation.tools.mcp.is_empty() {
            true => Ok(conversation),
            false => {
                Err(ApiError::unsupported("tools", "`tools` of MCP servers are not supported on this route"))
            }
        }
    }

    /// Reads the fields that are passed to the chat template, with the tools that this server runs.
    fn read_with_mcp(fields: &mut Fields) -> Result<Self, ApiError> {
        let list = fields.list("messages")?;
        let list = fields.required("messages", list)?;
        let prefix = messages::prefix(&list)?;
        let messages = messages::read(list)?;
        let continuation = continuation(fields, prefix)?;
        check_continuation(continuation, &messages)?;
        let template_kwargs = template_kwargs(fields)?;
        let reasoning =
            Reasoning { effort: fields.text("reasoning_effort")?, enabled: fields.flag("enable_thinking")? };
        Ok(Self {
            messages,
            tools: tools::read(fields)?,
            documents: fields.list("documents")?,
            template: fields.text("chat_template")?,
            template_kwargs,
            reasoning,
            continuation,
            verbosity: Verbosity::default(),
        })
    }
}

fn max_tokens(fields: &mut Fields, old: Option<usize>) -> Result<Option<usize>, ApiError> {
    let new = fields.count("max_completion_tokens", (1, TOKENS_MAX))?;
    if old == Some(0) {
        return Err(ApiError::invalid("max_tokens", "`max_tokens` must be at least 1"));
    }
    match (old, new) {
        (Some(old), Some(new)) if old != new => Err(ApiError::invalid(
            "max_completion_tokens",
            "`max_completion_tokens` and `max_tokens` differ; send one of them",
        )),
        (old, new) => Ok(new.or(old)),
    }
}

fn logprobs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let enabled = fields.flag("logprobs")?.unwrap_or(false);
    let top = alternatives(fields, "top_logprobs")?;
    match (enabled, top) {
        (false, Some(1..)) => {
            Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs` to be true"))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0))),
    }
}

/// The text that the client expects, in one part or in several.
fn prediction(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let Some(mut prediction) = fields.nested("prediction", PREDICTION)? else { return Ok(None) };
    if prediction.text("type")?.is_some_and(|kind| kind != "content") {
        return Err(ApiError::unsupported("prediction.type", "`prediction.type` must be \"content\""));
    }
    match prediction.value("content") {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(at, part)| {
                let text = part.get("text").and_then(Value::as_str);
                text.ok_or_else(|| type_error(&format!("prediction.content[{at}].text"), "a string", part))
            });
            texts.collect::<Result<String, _>>().map(Some)
        }
        Some(other) => Err(type_error("prediction.content", "a string or a list of texts", &other)),
        None => Err(ApiError::invalid("prediction.content", "`prediction.content` is missing")),
    }
}

/// Checks fields of which only one value is supported.
fn check_text_only(fields: &mut Fields) -> Result<(), ApiError> {
    if let Some(modalities) = fields.list("modalities")?
        && modalities != ["text"]
    {
        return Err(ApiError::unsupported("modalities", "`modalities` must be [\"text\"]"));
    }
    Ok(())
}

/// `prefix` is what the last message says itself.
fn continuation(fields: &mut Fields, prefix: ContinuationMode) -> Result<ContinuationMode, ApiError> {
    let adds_prompt = fields.flag("add_generation_prompt")?;
    let continues = fields.flag("continue_final_message")?;
    let continues = continues.unwrap_or(prefix == ContinuationMode::LastMessage);
    match (adds_prompt, continues) {
        (Some(true), true) => Err(ApiError::invalid(
            "continue_final_message",
            "`continue_final_message` and `add_generation_prompt` cannot both be true",
        )),
        (Some(false), false) => Ok(ContinuationMode::EndOfMessages),
        (_, true) => Ok(ContinuationMode::LastMessage),
        (_, false) => Ok(ContinuationMode::NewMessage),
    }
}

fn check_continuation(continuation: ContinuationMode, messages: &[Message]) -> Result<(), ApiError> {
    let last_is_assistant =
        messages.last().is_some_and(|message| matches!(message, Message::Assistant { .. }));
    match continuation {
        ContinuationMode::LastMessage if !last_is_assistant => Err(ApiError::invalid(
            "continue_final_message",
            "`continue_final_message` needs the last message to be the assistant's",
        )),
        _ => Ok(()),
    }
}

fn template_kwargs(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let kwargs = fields.object("chat_template_kwargs")?.unwrap_or_default();
    match kwargs.keys().find(|key| TEMPLATE_RESERVED.contains(&key.as_str())) {
        None => Ok(kwargs),
        Some(key) => {
            let at = format!("chat_template_kwargs.{key}");
            Err(ApiError::invalid(&at, format!("`{at}` is reserved")))
        }
    }
}

/// A full response.
#[derive(Debug, Clone, Serialize)]
pub struct ChatCompletion {
    /// `chatcmpl-…`
    pub id: String,
    /// `chat.completion`
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The requested model.
    pub model: String,
    /// One entry per completion.
    pub choices: Vec<Choice>,
    /// Token counts of all choices.
    pub usage: Usage,
    /// The server's version.
    pub system_fingerprint: &'static str,
    /// The ids of the prompt's tokens, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Log-probabilities of the prompt's tokens, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Times, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// For the server that decodes, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_transfer_params: Option<KvTransferParams>,
}

/// One choice.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// Below `n`.
    pub index: usize,
    /// The assistant's message.
    pub message: ResponseMessage,
    /// When requested.
    pub logprobs: Option<ChatLogprobs>,
    /// Why the completion ended.
    pub finish_reason: &'static str,
    /// The limit that ended the calls of tools that this server runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_loop_stop: Option<&'static str>,
    /// The ids of the tokens, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// The assistant's message.
#[derive(Debug, Clone, Serialize)]
pub struct ResponseMessage {
    /// `assistant`
    pub role: &'static str,
    /// The text; null when there are only tool calls.
    pub content: Option<String>,
    /// The reasoning, if any, in DeepSeek's field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The reasoning, if any, in vLLM's field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The tool calls, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCallDelta>>,
    /// The call, if the request had `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_call: Option<FunctionDelta>,
    /// Calls that this server made, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_calls: Option<Vec<McpCall>>,
    /// Always null.
    pub refusal: Option<String>,
}

/// One chunk of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct ChatChunk {
    /// One id for all chunks.
    pub id: String,
    /// `chat.completion.chunk`
    pub object: &'static str,
    /// One time for all chunks.
    pub created: u64,
    /// The requested model.
    pub model: String,
    /// One entry; none in the usage chunk.
    pub choices: Vec<ChunkChoice>,
    /// Absent without `include_usage`; with it, null in all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// The server's version.
    pub system_fingerprint: &'static str,
    /// The ids of the prompt's tokens, when requested, in the first chunk of the first choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Times, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// How much of the prompt is computed, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<PromptProgress>,
}

/// A delta of one choice.
#[derive(Debug, Clone, Serialize)]
pub struct ChunkChoice {
    /// Below `n`.
    pub index: usize,
    /// The delta.
    pub delta: Delta,
    /// When requested.
    pub logprobs: Option<ChatLogprobs>,
    /// Set in the last chunk of the choice.
    pub finish_reason: Option<&'static str>,
    /// The limit that ended the calls of tools that this server runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_loop_stop: Option<&'static str>,
    /// The ids of the new tokens, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// The new parts of a message.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Delta {
    /// Set in the first chunk of a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Text to append.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Reasoning to append, in DeepSeek's field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Reasoning to append, in vLLM's field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// A tool call that starts, or arguments to append to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCallDelta>>,
    /// A call that starts, or arguments to append to it, if the request had `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_call: Option<FunctionDelta>,
    /// A call that this server makes: its start, more of its arguments, or its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_calls: Option<Vec<McpCall>>,
}

/// A call that this server makes, or what is new of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct McpCall {
    /// Which of the choice's calls; absent in a full response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The id, when the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The server, when the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_label: Option<String>,
    /// The tool, when the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Arguments to append, as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// `in_progress`, `calling`, `completed` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A tool call, or a part of one.
#[derive(Debug, Clone, Serialize)]
pub struct ToolCallDelta {
    /// Which of the choice's tool calls; absent in a full response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The id, when the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function` or `custom`, when the call starts.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionDelta>,
    /// The custom tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomDelta>,
}

/// A called custom tool, or a part of its input.
#[derive(Debug, Clone, Serialize)]
pub struct CustomDelta {
    /// The tool's name, when the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Text to append.
    pub input: String,
}

/// A called function, or a part of its arguments.
#[derive(Debug, Clone, Serialize)]
pub struct FunctionDelta {
    /// The function's name, when the call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Arguments to append, as JSON text.
    pub arguments: String,
}

impl ToolCallDelta {
    /// A call that starts, without arguments yet.
    pub fn start(index: usize, id: String, name: String) -> Self {
        Self { index: Some(index), ..Self::whole(id, name, String::new()) }
    }

    /// A whole call of a full response.
    pub fn whole(id: String, name: String, arguments: String) -> Self {
        let function = Some(FunctionDelta { name: Some(name), arguments });
        Self { index: None, id: Some(id), kind: Some("function"), function, custom: None }
    }

    /// Arguments to append to a call.
    pub fn arguments(index: usize, arguments: String) -> Self {
        let function = Some(FunctionDelta { name: None, arguments });
        Self { index: Some(index), id: None, kind: None, function, custom: None }
    }

    /// A call of a custom tool that starts, without input yet.
    pub fn start_custom(index: usize, id: String, name: String) -> Self {
        Self { index: Some(index), ..Self::whole_custom(id, name, String::new()) }
    }

    /// A whole call of a custom tool.
    pub fn whole_custom(id: String, name: String, input: String) -> Self {
        let custom = Some(CustomDelta { name: Some(name), input });
        Self { index: None, id: Some(id), kind: Some("custom"), function: None, custom }
    }

    /// Input to append to a call of a custom tool.
    pub fn input(index: usize, input: String) -> Self {
        let custom = Some(CustomDelta { name: None, input });
        Self { index: Some(index), id: None, kind: None, function: None, custom }
    }
}
