//! `POST /v1/chat/completions`, as OpenAI documents it and with the extra fields of ours.

use serde::Serialize;
use serde_json::{Map, Value};

use super::fields::{Field, Fields, harmless, honoured, refused};
use super::generation::{self, Generation, TOKENS_MAX};
use super::logprobs::ChatLogprobs;
use super::messages::{self, Message};
use super::tools::{self, Tool};
use super::usage::Usage;
use crate::error::ApiError;

/// What happens to each field, besides [`generation::FIELDS`].
pub const FIELDS: &[Field] = &[
    honoured("messages", "the conversation; text only"),
    honoured("max_completion_tokens", "the newer name of `max_tokens`"),
    honoured("logprobs", "true reports the probability of each token"),
    honoured("top_logprobs", "with `logprobs`: how many of the likeliest tokens, at most 20"),
    honoured("tools", "given to the chat template; calls come back as text for now"),
    honoured("tool_choice", "`none` or `auto`"),
    honoured("parallel_tool_calls", "only true, which is the default"),
    honoured("response_format", "only `{\"type\": \"text\"}`"),
    honoured("chat_template_kwargs", "more variables for the chat template"),
    honoured("reasoning_effort", "given to the chat template"),
    honoured("documents", "given to the chat template"),
    honoured("add_generation_prompt", "true, or false with `continue_final_message`"),
    honoured("continue_final_message", "the last assistant message is continued instead of answered"),
    honoured("modalities", "only `[\"text\"]`"),
    honoured("store", "only false: nothing is stored"),
    harmless("prediction", "it can only change the speed"),
    refused("audio", "the answer is text"),
    refused("functions", "use `tools`"),
    refused("function_call", "use `tool_choice`"),
    refused("web_search_options", "this server does not search"),
    refused("verbosity", "say it in a message"),
    refused("prompt_logprobs", "use `/v1/completions` with `echo` and `logprobs`"),
    refused("chat_template", "templates come with the model or from the server's settings"),
    refused("best_of", "use `n`"),
    refused("echo", "use `/v1/completions`"),
    refused("prompt", "use `messages`, or `/v1/completions`"),
];

/// Variables of the template that are not the client's to set.
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

/// A request, read and checked as far as the wire goes.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The fields that text completions have as well.
    pub generation: Generation,
    /// What is answered.
    pub conversation: Conversation,
    /// How many alternatives to report for each token, if any are wanted.
    pub logprobs: Option<usize>,
}

/// What the chat template is given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// At least one.
    pub messages: Vec<Message>,
    /// Empty when there are none, or when none may be called.
    pub tools: Vec<Tool>,
    /// For retrieval templates.
    pub documents: Option<Vec<Value>>,
    /// More variables.
    pub template_kwargs: Map<String, Value>,
    /// What the answer begins with.
    pub turn: Turn,
}

/// Where the answer begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Turn {
    /// With a new assistant message.
    #[default]
    Answer,
    /// At the end of the last message.
    Continue,
}

impl ChatRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS, generation::FIELDS])?;
        check_text_only(&mut fields)?;
        let mut generation = Generation::read(&mut fields)?;
        generation.max_tokens = max_tokens(&mut fields, generation.max_tokens)?;
        let request = Self {
            generation,
            logprobs: logprobs(&mut fields)?,
            conversation: Conversation::read(&mut fields)?,
        };
        fields.finish();
        Ok(request)
    }
}

impl Conversation {
    /// Reads the fields that a chat template gets to see.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let list = fields.list("messages")?;
        let messages = messages::read(fields.required("messages", list)?)?;
        let turn = turn(fields)?;
        check_turn(turn, &messages)?;
        let mut template_kwargs = template_kwargs(fields)?;
        if let Some(effort) = fields.text("reasoning_effort")? {
            template_kwargs.insert("reasoning_effort".into(), Value::String(effort));
        }
        Ok(Self {
            messages,
            tools: tools::read(fields)?,
            documents: fields.list("documents")?,
            template_kwargs,
            turn,
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
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs", (0, super::logprobs::TOP_MAX))?;
    match (wanted, top) {
        (false, Some(1..)) => {
            Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs` to be true"))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0))),
    }
}

/// Fields with one value that is fine.
fn check_text_only(fields: &mut Fields) -> Result<(), ApiError> {
    if fields.flag("store")? == Some(true) {
        return Err(ApiError::unsupported("store", "`store` must be false: nothing is stored"));
    }
    if let Some(format) = fields.object("response_format")?
        && format.get("type").and_then(Value::as_str) != Some("text")
    {
        let message =
            "`response_format` must be {\"type\": \"text\"}: structured output is not implemented yet";
        return Err(ApiError::unsupported("response_format", message));
    }
    if let Some(modalities) = fields.list("modalities")?
        && modalities != ["text"]
    {
        return Err(ApiError::unsupported("modalities", "`modalities` must be [\"text\"]"));
    }
    Ok(())
}

fn turn(fields: &mut Fields) -> Result<Turn, ApiError> {
    let answers = fields.flag("add_generation_prompt")?;
    let continues = fields.flag("continue_final_message")?.unwrap_or(false);
    match (answers, continues) {
        (Some(true), true) => Err(ApiError::invalid(
            "continue_final_message",
            "`continue_final_message` and `add_generation_prompt` cannot both be true",
        )),
        (Some(false), false) => Err(ApiError::unsupported(
            "add_generation_prompt",
            "`add_generation_prompt` can be false only with `continue_final_message`",
        )),
        (_, true) => Ok(Turn::Continue),
        (_, false) => Ok(Turn::Answer),
    }
}

fn check_turn(turn: Turn, messages: &[Message]) -> Result<(), ApiError> {
    let last_is_ours = messages.last().is_some_and(|message| matches!(message, Message::Assistant { .. }));
    match turn {
        Turn::Continue if !last_is_ours => Err(ApiError::invalid(
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
            Err(ApiError::invalid(&at, format!("`{at}` is the server's to set")))
        }
    }
}

/// The whole answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChatCompletion {
    /// `chatcmpl-…`
    pub id: String,
    /// `chat.completion`
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// As asked for.
    pub model: String,
    /// One for each of `n`.
    pub choices: Vec<Choice>,
    /// Of all choices.
    pub usage: Usage,
    /// The server's version.
    pub system_fingerprint: &'static str,
}

/// One answer.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// Below `n`.
    pub index: usize,
    /// What the assistant says.
    pub message: AnswerMessage,
    /// When asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ends.
    pub finish_reason: &'static str,
}

/// What the assistant says.
#[derive(Debug, Clone, Serialize)]
pub struct AnswerMessage {
    /// `assistant`
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// Always null: models here answer in text.
    pub refusal: Option<String>,
}

/// A part of a streamed answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChatChunk {
    /// The same in all chunks.
    pub id: String,
    /// `chat.completion.chunk`
    pub object: &'static str,
    /// The same in all chunks.
    pub created: u64,
    /// As asked for.
    pub model: String,
    /// One, or none in the chunk with the usage.
    pub choices: Vec<ChunkChoice>,
    /// Absent unless asked for; then null in all but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// The server's version.
    pub system_fingerprint: &'static str,
}

/// More of one answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChunkChoice {
    /// Below `n`.
    pub index: usize,
    /// What is new.
    pub delta: Delta,
    /// When asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// In the last chunk of this choice.
    pub finish_reason: Option<&'static str>,
}

/// What is new in a chunk.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Delta {
    /// In the first chunk of a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Text to append.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}
