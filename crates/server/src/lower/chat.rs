//! Lowers `POST /v1/chat/completions`.

use omnibus_engine::{
    CallLimit, CallRule, Chat, ContentPart, Input, MediaIndex, MediaItem, MediaSource, Message, OutputMode,
    PromptEnd, Role, Tool, ToolArguments, ToolCall, ToolChoice, ToolResult,
};
use serde_json::{Map, Value, json};

use super::{Caller, GenerationBatch, custom_tool, generation, thinking, verbosity};
use crate::error::ApiError;
use crate::wire::chat::{ChatRequest, Conversation, Reasoning};
use crate::wire::media::{self as wire_media, MediaKind, MediaPart, Part};
use crate::wire::messages::{self, ContinuationMode};
use crate::wire::tool_choice;
use crate::wire::tools::{self as wire, ParallelCalls};

/// The engine requests of a chat request.
pub fn lower(wire: ChatRequest, caller: &Caller) -> GenerationBatch {
    let limit = call_limit(wire.conversation.tools.parallel);
    let choice = tool_choice(&wire.conversation.tools.choice);
    let chat = chat(wire.conversation);
    let output = OutputMode::Message { calls: (!chat.tools.is_empty()).then_some(limit) };
    let mut request = generation::lower(&wire.generation, Input::Chat(chat), caller);
    request.output = output;
    request.tool_choice = choice;
    request.logprobs = wire.logprobs;
    request.prompt_logprobs = wire.generation.prompt_logprobs;
    request.reasoning_budget = wire.reasoning_budget;
    request.prediction = wire.prediction;
    GenerationBatch { prompts: vec![request], n: wire.generation.n }
}

/// Which tools are called.
pub(super) fn tool_choice(wire: &tool_choice::ToolChoice) -> ToolChoice {
    match wire {
        tool_choice::ToolChoice::Auto => ToolChoice::Auto,
        tool_choice::ToolChoice::Required => ToolChoice::Required,
        tool_choice::ToolChoice::Function(name) => ToolChoice::Function(name.clone()),
    }
}

/// How many calls an answer may have.
pub fn call_limit(wire: ParallelCalls) -> CallLimit {
    match wire {
        ParallelCalls::Allow => CallLimit::Any,
        ParallelCalls::Refuse => CallLimit::One,
    }
}

/// What the calls of a tool with a schema match.
pub(super) fn call_rule(wire: wire::SchemaUse) -> CallRule {
    match wire {
        wire::SchemaUse::Shown => CallRule::Lenient,
        wire::SchemaUse::Enforced => CallRule::Strict,
    }
}

/// A conversation, as the engine takes it.
pub fn chat(wire: Conversation) -> Chat {
    let mut media = Vec::new();
    let mut template_kwargs = wire.template_kwargs;
    reason(&wire.reasoning, &mut template_kwargs);
    let mut messages = wire.messages.into_iter().map(|wire| message(wire, &mut media)).collect();
    verbosity::tell(wire.verbosity, &mut messages);
    Chat {
        messages,
        media,
        tools: wire.tools.list.into_iter().map(tool).collect(),
        documents: wire.documents.map(Value::Array),
        template_kwargs,
        template: None,
        own_template: wire.template,
        end: match wire.continuation {
            ContinuationMode::NewMessage => PromptEnd::Answer,
            ContinuationMode::LastMessage => PromptEnd::OpenMessage,
            ContinuationMode::EndOfMessages => PromptEnd::Messages,
        },
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

/// The tools of a conversation in OpenAI's shape, from outside of a request.
pub fn tools(list: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    Ok(wire::list(list)?.into_iter().map(tool).collect())
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

fn tool(wire: wire::Tool) -> Tool {
    if let wire::ToolForm::Custom { grammar } = &wire.form {
        return custom_tool::function(&wire.name, wire.description, grammar.as_ref());
    }
    let parameters = wire.parameters.unwrap_or_else(|| json!({}));
    Tool { rule: call_rule(wire.schema), ..Tool::new(wire.name, wire.description, parameters) }
}

#[cfg(test)]
mod tests;
