//! The messages of a conversation, in OpenAI's shape.
//!
//! Invariant: a conversation that was read is consistent: roles are known, and each tool result refers
//! to a call of an earlier message.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fields::{Field, Fields, harmless, honoured, refused, type_error};
use super::files;
use super::media::{self, Part};
use crate::error::ApiError;

/// Fields of a message.
pub const FIELDS: &[Field] = &[
    honoured(
        "role",
        "`system`, `developer`, `user`, `assistant` or `tool`; `function` is the older name of `tool`",
    ),
    honoured("content", "a string, or a list of parts"),
    honoured("name", "passed to the chat template"),
    honoured("tool_calls", "of the assistant"),
    honoured("tool_call_id", "of a tool's result"),
    honoured("reasoning_content", "of the assistant; passed to the chat template"),
    honoured("reasoning", "another name of `reasoning_content`"),
    honoured("reasoning_details", "OpenRouter's: the reasoning, where no other field has it"),
    honoured("thinking_blocks", "LiteLLM's: the reasoning, where no other field has it"),
    honoured(
        "prefix",
        "of the last message, an assistant's: true continues it, as `continue_final_message` does",
    ),
    honoured("partial", "another name of `prefix`"),
    honoured("refusal", "of the assistant: the text, where there is no content"),
    harmless("id", "messages are known by their place"),
    harmless("parsed", "the content has it"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("citations", "sources; not part of the prompt"),
    harmless("annotations", "sources; not part of the prompt"),
    harmless("provider_specific_fields", "LiteLLM's notes on an earlier response"),
    refused("audio", "send it as text"),
    honoured("function_call", "of the assistant: its call in the older shape"),
];

/// Fields of a content part.
pub const PARTS: &[Field] = &[
    honoured("type", "`text`, `refusal`, `image_url`, `video_url`, `video`, `input_audio` or `file`"),
    honoured("text", "the text"),
    honoured("image_url", "an object with a `url`, for models that see images"),
    honoured("video_url", "the same for videos"),
    honoured("video", "the frames of a video: a list of URLs of images, or objects with a `url`"),
    honoured("fps", "how many of these frames a second has; 2 when absent"),
    honoured("input_audio", "an object with `data`, for models that hear"),
    honoured("refusal", "the text of a refusal"),
    honoured("file", "a file: a text, or media for models that take them"),
    harmless("prompt_cache_breakpoint", "every prompt is cached"),
    harmless("cache_control", "every prompt is cached"),
    harmless("annotations", "sources; not part of the prompt"),
];

/// Fields of a tool call.
pub const CALLS: &[Field] = &[
    honoured("id", "what the result refers to"),
    honoured("type", "`function` or `custom`"),
    honoured("function", "`name` and `arguments`"),
    honoured("custom", "`name` and `input`"),
    harmless("extra_content", "Gemini's notes on an earlier response"),
    harmless("index", "the list's order counts"),
];

/// Fields of a tool call's `function`.
pub const CALLED: &[Field] =
    &[honoured("name", "of the function"), honoured("arguments", "JSON in a string")];

/// Fields of a tool call's `custom`.
pub const CUSTOM: &[Field] = &[honoured("name", "of the tool"), honoured("input", "text")];

/// Where the completion starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContinuationMode {
    /// In a new assistant message.
    #[default]
    NewMessage,
    /// At the end of the last message, an assistant's.
    LastMessage,
    /// Behind the last message, without the start of an answer.
    EndOfMessages,
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Instructions. `developer` is the newer name of the role.
    System(Content),
    /// The user.
    User(Content),
    /// An earlier completion of the model.
    Assistant {
        /// Empty when the message has only tool calls.
        text: Content,
        /// Reasoning before the content.
        reasoning: Option<String>,
        /// Tool calls.
        calls: Vec<ToolCall>,
    },
    /// The result of a tool call.
    Tool {
        /// The result.
        text: Content,
        /// The id of the call.
        call_id: String,
    },
}

/// The content of a message, with the participant's name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    /// Adjacent texts are joined.
    pub parts: Vec<Part>,
    /// A participant's or a tool's name.
    pub name: Option<String>,
}

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The id that the tool result refers to.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// JSON text, as generated by the model.
    pub arguments: String,
}

/// Reads a conversation.
pub fn read(list: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must have at least one message"));
    }
    let mut called = Called::default();
    let mut messages = Vec::with_capacity(list.len());
    for (index, value) in list.into_iter().enumerate() {
        let message = message(value, &format!("messages[{index}]"), &called)?;
        if let Message::Assistant { calls, .. } = &message {
            called.add(calls);
        }
        messages.push(message);
    }
    Ok(messages)
}

/// The calls of earlier messages.
#[derive(Debug, Default)]
struct Called {
    ids: BTreeSet<String>,
    /// The last call of each function.
    by_name: BTreeMap<String, String>,
}

impl Called {
    fn add(&mut self, calls: &[ToolCall]) {
        for ToolCall { id, name, .. } in calls {
            self.ids.insert(id.clone());
            self.by_name.insert(name.clone(), id.clone());
        }
    }
}

fn message(value: Value, at: &str, called: &Called) -> Result<Message, ApiError> {
    let mut fields = Fields::open(value, at, &[FIELDS])?;
    let role = fields.text("role")?;
    let role = fields.required("role", role)?;
    let name = fields.text("name")?;
    let content = content(&mut fields)?;
    let message = match role.as_str() {
        "system" | "developer" => Message::System(named(content, name)),
        "user" => Message::User(named(content, name)),
        "assistant" => assistant(&mut fields, content, name)?,
        "tool" => {
            let call_id = call_id(&mut fields, called)?;
            Message::Tool { text: named(content, name), call_id }
        }
        "function" => {
            let call_id = call_of(&fields, name.as_deref(), called)?;
            Message::Tool { text: named(content, name), call_id }
        }
        other => {
            let at = fields.at("role");
            let message = format!("`{at}` must be system, developer, user, assistant or tool, not `{other}`");
            return Err(ApiError::invalid(at, message));
        }
    };
    fields.refuse_rest(&format!("does not belong to the role `{role}`"))?;
    Ok(message)
}

/// No content is an empty text.
fn named(content: Option<Vec<Part>>, name: Option<String>) -> Content {
    Content { parts: content.unwrap_or_else(|| vec![Part::Text(String::new())]), name }
}

fn assistant(
    fields: &mut Fields,
    content: Option<Vec<Part>>,
    name: Option<String>,
) -> Result<Message, ApiError> {
    let reasoning = fields.text("reasoning_content")?;
    let reasoning = fields.text("reasoning")?.or(reasoning);
    let details = [reasoning_of(fields, "reasoning_details")?, reasoning_of(fields, "thinking_blocks")?];
    let reasoning = reasoning.or_else(|| details.into_iter().flatten().next());
    // Where the conversation ends is read before its messages.
    let (_prefix, _partial) = (fields.flag("prefix")?, fields.flag("partial")?);
    let refusal = fields.text("refusal")?;
    let content = content.or(refusal.map(|refusal| vec![Part::Text(refusal)]));
    let at = fields.at("tool_calls");
    let call = |(index, value)| tool_call(value, &format!("{at}[{index}]"));
    let calls = fields.list("tool_calls")?.unwrap_or_default();
    let mut calls: Vec<_> = calls.into_iter().enumerate().map(call).collect::<Result<_, _>>()?;
    calls.extend(function_call(fields)?);
    Ok(Message::Assistant { text: named(content, name), reasoning, calls })
}

/// The texts of a list of reasoning, which other servers return beside the reasoning itself.
fn reasoning_of(fields: &mut Fields, name: &str) -> Result<Option<String>, ApiError> {
    let list = fields.list(name)?.unwrap_or_default();
    let text = |block: &Value| {
        let names = ["text", "thinking", "summary"];
        names.iter().find_map(|name| block.get(*name).and_then(Value::as_str).map(str::to_owned))
    };
    let texts: String = list.iter().filter_map(text).collect();
    Ok(Some(texts).filter(|texts| !texts.is_empty()))
}

/// Whether the last message says itself that it is continued. Fails if another one does.
pub fn prefix(list: &[Value]) -> Result<ContinuationMode, ApiError> {
    for (index, message) in list.iter().enumerate() {
        for name in ["prefix", "partial"] {
            if message.get(name).and_then(Value::as_bool) != Some(true) {
                continue;
            }
            if index + 1 == list.len() {
                return Ok(ContinuationMode::LastMessage);
            }
            let at = format!("messages[{index}].{name}");
            return Err(ApiError::invalid(&at, format!("`{at}` can be true in the last message only")));
        }
    }
    Ok(ContinuationMode::NewMessage)
}

fn tool_call(value: Value, at: &str) -> Result<ToolCall, ApiError> {
    let mut fields = Fields::open(value, at, &[CALLS])?;
    let kind = fields.text("type")?.unwrap_or_else(|| "function".into());
    let id = fields.text("id")?;
    let id = fields.required("id", id)?;
    let call = match kind.as_str() {
        "function" => {
            let function = fields.nested("function", CALLED)?;
            called_function(fields.required("function", function)?, id)?
        }
        "custom" => {
            let custom = fields.nested("custom", CUSTOM)?;
            let mut custom = fields.required("custom", custom)?;
            let (name, input) = (custom.text("name")?, custom.text("input")?);
            let (name, input) = (custom.required("name", name)?, custom.required("input", input)?);
            ToolCall { id, name, arguments: json!({ "input": input }).to_string() }
        }
        _ => {
            let at = fields.at("type");
            let message = format!("`{at}` must be `function` or `custom`, not `{kind}`");
            return Err(ApiError::unsupported(&at, message));
        }
    };
    fields.refuse_rest(&format!("does not belong to the type `{kind}`"))?;
    Ok(call)
}

fn called_function(mut function: Fields, id: String) -> Result<ToolCall, ApiError> {
    let name = function.text("name")?;
    let name = function.required("name", name)?;
    let arguments = function.text("arguments")?;
    let arguments = function.required("arguments", arguments)?;
    Ok(ToolCall { id, name, arguments })
}

/// A call in the older shape has no id: its place is one.
fn function_call(fields: &mut Fields) -> Result<Option<ToolCall>, ApiError> {
    let id = fields.at("function_call");
    let call = fields.nested("function_call", CALLED)?;
    call.map(|call| called_function(call, id)).transpose()
}

/// The call of the function whose result this is, in the older shape.
fn call_of(fields: &Fields, name: Option<&str>, called: &Called) -> Result<String, ApiError> {
    let name = fields.required("name", name)?;
    let id = called.by_name.get(name).cloned();
    let at = fields.at("name");
    let message = format!("`{at}` refers to `{name}`, which no earlier message called");
    id.ok_or_else(|| ApiError::invalid(&at, message))
}

fn call_id(fields: &mut Fields, called: &Called) -> Result<String, ApiError> {
    let id = fields.text("tool_call_id")?;
    let id = fields.required("tool_call_id", id)?;
    if called.ids.contains(&id) {
        return Ok(id);
    }
    let at = fields.at("tool_call_id");
    Err(ApiError::invalid(&at, format!("`{at}` refers to `{id}`, which no earlier message called")))
}

fn content(fields: &mut Fields) -> Result<Option<Vec<Part>>, ApiError> {
    let at = fields.at("content");
    match fields.value("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(vec![Part::Text(text)])),
        Some(Value::Array(list)) => {
            let mut parts: Vec<Part> = Vec::new();
            for (index, value) in list.into_iter().enumerate() {
                media::push(&mut parts, part(value, &format!("{at}[{index}]"))?, "");
            }
            Ok(Some(parts).filter(|parts| !parts.is_empty()))
        }
        Some(other) => Err(type_error(&at, "a string or a list of parts", &other)),
    }
}

fn part(value: Value, at: &str) -> Result<Part, ApiError> {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or("text").to_owned();
    let media = media::kind_of(&kind);
    if !matches!(kind.as_str(), "text" | "refusal" | "file") && media.is_none() {
        let at = format!("{at}.type");
        let message = format!(
            "`{at}` is `{kind}`: only `text`, `image_url`, `video_url`, `video`, `input_audio` and `file` parts are supported"
        );
        return Err(ApiError::unsupported(at, message));
    }
    let mut fields = Fields::open(value, at, &[PARTS])?;
    let found = fields.text("type")?;
    fields.required("type", found)?;
    let part = match media {
        None if kind == "file" => {
            let file = fields.nested("file", files::FILE)?;
            files::part(&mut fields.required("file", file)?)?
        }
        None if kind == "refusal" => {
            let text = fields.text("refusal")?;
            Part::Text(fields.required("refusal", text)?)
        }
        Some(media) => Part::Media(media::of_chat(media, &kind, &mut fields)?),
        None => {
            let text = fields.text("text")?;
            Part::Text(fields.required("text", text)?)
        }
    };
    fields.refuse_rest(&format!("does not belong to the type `{kind}`"))?;
    Ok(part)
}
