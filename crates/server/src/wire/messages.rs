//! The messages of a conversation, in OpenAI's shape.
//!
//! Invariant: a conversation that is read makes sense by itself: roles are known, a tool result
//! answers a call that was made before it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{Field, Fields, harmless, honoured, refused, wanted};
use crate::error::ApiError;

/// What happens to the fields of a message.
pub const FIELDS: &[Field] = &[
    honoured("role", "`system`, `developer`, `user`, `assistant` or `tool`"),
    honoured("content", "a string, or a list of text parts, which are joined"),
    honoured("name", "given to the chat template"),
    honoured("tool_calls", "of the assistant"),
    honoured("tool_call_id", "of a tool's result"),
    honoured("reasoning_content", "of the assistant, given to the chat template"),
    honoured("reasoning", "another name of `reasoning_content`"),
    harmless("annotations", "a record of sources, which the model is not shown"),
    refused("refusal", "send it as `content`"),
    refused("audio", "messages are text"),
    refused("function_call", "use `tool_calls`"),
];

/// What happens to the fields of a content part.
pub const PARTS: &[Field] = &[
    honoured("type", "`text`"),
    honoured("text", "the text"),
    harmless("cache_control", "every prompt is cached"),
    harmless("annotations", "a record of sources, which the model is not shown"),
];

/// What happens to the fields of a tool call.
pub const CALLS: &[Field] = &[
    honoured("id", "what the result refers to"),
    honoured("type", "`function`"),
    honoured("function", "`name` and `arguments`"),
    harmless("index", "the order is the list's"),
];

/// What happens to the fields of a called function.
pub const CALLED: &[Field] =
    &[honoured("name", "of the function"), honoured("arguments", "JSON in a string")];

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Instructions. `developer` is the newer name of the role.
    System(Said),
    /// A person.
    User(Said),
    /// The model, earlier.
    Assistant {
        /// Empty when it only calls tools.
        said: Said,
        /// What it thought before.
        reasoning: Option<String>,
        /// What it called.
        calls: Vec<ToolCall>,
    },
    /// What a call came to.
    Tool {
        /// The result.
        said: Said,
        /// Which call.
        call_id: String,
    },
}

/// Text, and who it is from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// All parts, joined.
    pub content: String,
    /// A participant's or a tool's name.
    pub name: Option<String>,
}

/// A call that the model made.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// What the result refers to.
    pub id: String,
    /// Which function.
    pub name: String,
    /// JSON, as the model wrote it.
    pub arguments: String,
}

/// Reads a conversation.
pub fn read(list: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must have at least one message"));
    }
    let mut called = BTreeSet::new();
    let mut messages = Vec::with_capacity(list.len());
    for (index, value) in list.into_iter().enumerate() {
        let message = message(value, &format!("messages[{index}]"), &called)?;
        if let Message::Assistant { calls, .. } = &message {
            called.extend(calls.iter().map(|call| call.id.clone()));
        }
        messages.push(message);
    }
    Ok(messages)
}

fn message(value: Value, at: &str, called: &BTreeSet<String>) -> Result<Message, ApiError> {
    let mut fields = Fields::open(value, at, &[FIELDS])?;
    let role = fields.text("role")?;
    let role = fields.required("role", role)?;
    let name = fields.text("name")?;
    let content = content(&mut fields)?;
    let message = match role.as_str() {
        "system" | "developer" => Message::System(said(&fields, content, name)?),
        "user" => Message::User(said(&fields, content, name)?),
        "assistant" => assistant(&mut fields, content, name)?,
        "tool" => {
            let call_id = call_id(&mut fields, called)?;
            Message::Tool { said: said(&fields, content, name)?, call_id }
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

fn said(fields: &Fields, content: Option<String>, name: Option<String>) -> Result<Said, ApiError> {
    Ok(Said { content: fields.required("content", content)?, name })
}

fn assistant(
    fields: &mut Fields,
    content: Option<String>,
    name: Option<String>,
) -> Result<Message, ApiError> {
    let reasoning = fields.text("reasoning_content")?;
    let reasoning = fields.text("reasoning")?.or(reasoning);
    let at = fields.at("tool_calls");
    let call = |(index, value)| tool_call(value, &format!("{at}[{index}]"));
    let calls = fields.list("tool_calls")?.unwrap_or_default();
    let calls: Vec<_> = calls.into_iter().enumerate().map(call).collect::<Result<_, _>>()?;
    if content.is_none() && calls.is_empty() && reasoning.is_none() {
        return Err(ApiError::invalid(
            fields.at("content"),
            format!("`{}` is missing, and there are no `tool_calls`", fields.at("content")),
        ));
    }
    Ok(Message::Assistant { said: Said { content: content.unwrap_or_default(), name }, reasoning, calls })
}

fn tool_call(value: Value, at: &str) -> Result<ToolCall, ApiError> {
    let mut fields = Fields::open(value, at, &[CALLS])?;
    let kind = fields.text("type")?.unwrap_or_else(|| "function".into());
    if kind != "function" {
        let at = fields.at("type");
        return Err(ApiError::unsupported(&at, format!("`{at}` must be `function`, not `{kind}`")));
    }
    let id = fields.text("id")?;
    let id = fields.required("id", id)?;
    let function = fields.nested("function", CALLED)?;
    let mut function = fields.required("function", function)?;
    let name = function.text("name")?;
    let name = function.required("name", name)?;
    let arguments = function.text("arguments")?;
    let arguments = function.required("arguments", arguments)?;
    Ok(ToolCall { id, name, arguments })
}

fn call_id(fields: &mut Fields, called: &BTreeSet<String>) -> Result<String, ApiError> {
    let id = fields.text("tool_call_id")?;
    let id = fields.required("tool_call_id", id)?;
    if called.contains(&id) {
        return Ok(id);
    }
    let at = fields.at("tool_call_id");
    Err(ApiError::invalid(&at, format!("`{at}` refers to `{id}`, which no earlier message called")))
}

fn content(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let at = fields.at("content");
    match fields.value("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(parts)) if parts.is_empty() => {
            Err(ApiError::invalid(&at, format!("`{at}` must have at least one part")))
        }
        Some(Value::Array(parts)) => {
            let part = |(index, value)| part(value, &format!("{at}[{index}]"));
            parts.into_iter().enumerate().map(part).collect::<Result<String, _>>().map(Some)
        }
        Some(other) => Err(wanted(&at, "a string or a list of parts", &other)),
    }
}

fn part(value: Value, at: &str) -> Result<String, ApiError> {
    if let Some(kind) = value.get("type").and_then(Value::as_str)
        && kind != "text"
    {
        let at = format!("{at}.type");
        let message = format!("`{at}` is `{kind}`: only `text` parts are supported");
        return Err(ApiError::unsupported(at, message));
    }
    let mut fields = Fields::open(value, at, &[PARTS])?;
    let kind = fields.text("type")?;
    fields.required("type", kind)?;
    let text = fields.text("text")?;
    fields.required("text", text)
}
