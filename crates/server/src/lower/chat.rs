//! Lowers `POST /v1/chat/completions`.

use omnibus_engine::{
    CallLimit, Chat, ContentPart, Input, MediaIndex, MediaItem, MediaSource, Message, OutputMode, Role,
    ToolArguments, ToolCall, ToolChoice, ToolResult,
};
use serde_json::{Map, Value, json};

use super::{Caller, GenerationBatch, generation, thinking};
use crate::error::ApiError;
use crate::wire::chat::{ChatRequest, ContinuationMode, Conversation, Reasoning};
use crate::wire::media::{self as wire_media, MediaKind, MediaPart, Part};
use crate::wire::messages;
use crate::wire::tools::{self as wire, ParallelCalls, Tool};

/// The engine requests of a chat request.
pub fn lower(wire: ChatRequest, caller: &Caller) -> GenerationBatch {
    let calls = match wire.conversation.tools.parallel {
        ParallelCalls::Allow => CallLimit::Any,
        ParallelCalls::Refuse => CallLimit::One,
    };
    let (choice, strict) =
        (tool_choice(&wire.conversation.tools.choice), strict(&wire.conversation.tools.list));
    let chat = chat(wire.conversation);
    let output = OutputMode::Message { tools: chat.tools.clone().map(|tools| marked(tools, &strict)), calls };
    let mut request = generation::lower(&wire.generation, Input::Chat(chat), caller);
    request.output = output;
    request.tool_choice = choice;
    request.logprobs = wire.logprobs;
    request.reasoning_budget = wire.reasoning_budget;
    GenerationBatch { prompts: vec![request], n: wire.generation.n }
}

/// Which tools are called.
pub(super) fn tool_choice(wire: &wire::ToolChoice) -> ToolChoice {
    match wire {
        wire::ToolChoice::Auto => ToolChoice::Auto,
        wire::ToolChoice::Required => ToolChoice::Required,
        wire::ToolChoice::Function(name) => ToolChoice::Function(name.clone()),
    }
}

/// Names of the tools whose schema is enforced.
fn strict(tools: &[Tool]) -> Vec<String> {
    let enforced = tools.iter().filter(|tool| tool.schema == wire::SchemaUse::Enforced);
    enforced.map(|tool| tool.name.clone()).collect()
}

/// The tools with `strict` where it is set. The chat template gets them without, since prompts do not depend on it.
fn marked(mut tools: Value, strict: &[String]) -> Value {
    for tool in tools.as_array_mut().into_iter().flatten() {
        let Some(function) = tool.get_mut("function").and_then(Value::as_object_mut) else { continue };
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        if strict.iter().any(|strict| strict == name) {
            function.insert("strict".to_owned(), true.into());
        }
    }
    tools
}

/// A conversation, as the engine takes it.
pub fn chat(wire: Conversation) -> Chat {
    let mut media = Vec::new();
    let tools: Vec<Value> = wire.tools.list.into_iter().map(tool).collect();
    let mut template_kwargs = wire.template_kwargs;
    reason(&wire.reasoning, &mut template_kwargs);
    Chat {
        messages: wire.messages.into_iter().map(|wire| message(wire, &mut media)).collect(),
        media,
        tools: (!tools.is_empty()).then_some(Value::Array(tools)),
        documents: wire.documents.map(Value::Array),
        template_kwargs,
        template: None,
        continues: wire.continuation == ContinuationMode::LastMessage,
    }
}

/// Sets the variables by which chat templates switch reasoning, unless the client set them itself.
fn reason(wire: &Reasoning, kwargs: &mut Map<String, Value>) {
    let is_none = wire.effort.as_deref() == Some("none");
    let enabled = wire.enabled.or(is_none.then_some(false));
    thinking::switch(enabled, wire.effort.as_deref().filter(|_| !is_none), kwargs);
}

/// The messages of a conversation in OpenAI's shape, from outside of a request. Fails if they have media.
pub fn messages(list: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    let mut media: Vec<MediaItem> = Vec::new();
    let read = messages::read(list)?.into_iter().map(|wire| message(wire, &mut media)).collect();
    match media.first() {
        None => Ok(read),
        Some(item) => Err(ApiError::unsupported(&item.field, format!("`{}` must be a text", item.field))),
    }
}

/// A message. Its media are added to `media`.
fn message(wire: messages::Message, media: &mut Vec<MediaItem>) -> Message {
    match wire {
        // Chat templates use the older role name `system`.
        messages::Message::System(content) => with_content(Role::System, content, media),
        messages::Message::User(content) => with_content(Role::User, content, media),
        messages::Message::Assistant { text, reasoning, calls } => {
            let mut message = with_content(Role::Assistant, text, media);
            message.content.extend(reasoning.map(ContentPart::Reasoning));
            message.content.extend(calls.into_iter().map(|call| ContentPart::ToolCall(tool_call(call))));
            message
        }
        messages::Message::Tool { text, call_id } => {
            let content = result(call_id, text.parts, media);
            Message { role: Role::Tool, name: text.name, content }
        }
    }
}

fn with_content(role: Role, wire: messages::Content, media: &mut Vec<MediaItem>) -> Message {
    Message { role, name: wire.name, content: content_parts(wire.parts, media) }
}

/// Parts in their order. Media are added to `media`.
pub(super) fn content_parts(parts: Vec<Part>, media: &mut Vec<MediaItem>) -> Vec<ContentPart> {
    let part = |part| match part {
        Part::Text(text) => ContentPart::Text(text),
        Part::Media(part) => media_part(part, media),
    };
    parts.into_iter().map(part).collect()
}

/// The result of a call: its texts, then its media.
pub(super) fn result(call_id: String, parts: Vec<Part>, media: &mut Vec<MediaItem>) -> Vec<ContentPart> {
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text(text) => texts.push(text),
            Part::Media(part) => others.push(media_part(part, media)),
        }
    }
    let result = ContentPart::ToolResult(ToolResult { call_id, text: texts.join("\n\n") });
    std::iter::once(result).chain(others).collect()
}

/// A media part, whose bytes are added to `media`.
fn media_part(wire: MediaPart, media: &mut Vec<MediaItem>) -> ContentPart {
    let index = MediaIndex(media.len());
    media.push(MediaItem { field: wire.field, source: source(wire.source) });
    match wire.kind {
        MediaKind::Image => ContentPart::Image(index),
        MediaKind::Audio => ContentPart::Audio(index),
        MediaKind::Video => ContentPart::Video(index),
    }
}

fn source(wire: wire_media::MediaSource) -> MediaSource {
    match wire {
        wire_media::MediaSource::Base64(text) => MediaSource::Base64(text.into()),
        wire_media::MediaSource::Url(url) => MediaSource::Url(url),
        wire_media::MediaSource::Frames { files, per_1000_s } => {
            MediaSource::Frames { files: files.into_iter().map(source).collect(), per_1000_s }
        }
    }
}

/// Chat templates expect arguments as an object. Arguments that are not a JSON object stay a string.
fn tool_call(wire: messages::ToolCall) -> ToolCall {
    let arguments = match crate::wire::json::parse(wire.arguments.as_bytes()) {
        Ok(Value::Object(_)) => ToolArguments::Json(wire.arguments),
        _ => ToolArguments::Text(wire.arguments),
    };
    ToolCall { id: wire.id, name: wire.name, arguments }
}

fn tool(wire: Tool) -> Value {
    let mut function = Map::new();
    function.insert("name".into(), wire.name.into());
    if let Some(description) = wire.description {
        function.insert("description".into(), description.into());
    }
    function.insert("parameters".into(), wire.parameters.unwrap_or_else(|| json!({})));
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests;
