//! Lowers `POST /v1/messages`.

use std::collections::BTreeMap;

use omnibus_engine::{
    Chat, ContentPart, Input, MediaItem, Message, OutputMode, Request, Role, Sampling, SamplingParameter,
    Stop, Tool, ToolArguments, ToolCall, ToolChoice, ToolPlace,
};
use serde_json::{Map, Value};

use super::{Caller, GenerationBatch, chat, generation, opaque, structured, thinking};
use crate::wire::anthropic::blocks::{Author, Block, ResultPart, Turn};
use crate::wire::anthropic::tools::{Loading, ToolDefinition, ToolUse};
use crate::wire::anthropic::{Conversation, MessagesRequest, Thinking};
use crate::wire::media::{Part, push};

/// A system block that differs for every conversation and says nothing to the model.
const BILLING: &str = "x-anthropic-billing-header:";
/// Between texts that become one.
const GAP: &str = "\n\n";

/// The engine requests of a messages request. `model` is the served name.
pub fn lower(wire: MessagesRequest, model: Option<String>, caller: &Caller) -> GenerationBatch {
    let output = output(&wire.conversation);
    let reasoning_budget = match wire.conversation.thinking {
        Thinking::On { budget_tokens, .. } => budget_tokens,
        Thinking::Off => None,
    };
    let choice = match &wire.conversation.tool_use {
        ToolUse::Allowed(choice, _) => chat::tool_choice(choice),
        ToolUse::None => ToolChoice::Auto,
    };
    let default = Sampling::default();
    let sampling = Sampling {
        temperature: wire.temperature.map_or(default.temperature, |value| value as f32),
        top_p: wire.top_p.map_or(default.top_p, |value| value as f32),
        top_k: wire.top_k.unwrap_or(default.top_k),
        ..default
    };
    let unset = generation::absent(&[
        (SamplingParameter::Temperature, wire.temperature.is_none()),
        (SamplingParameter::TopP, wire.top_p.is_none()),
        (SamplingParameter::TopK, wire.top_k.is_none()),
    ]);
    let request = Request {
        model,
        max_new_tokens: wire.max_tokens,
        sampling,
        unset,
        stop: Stop { strings: wire.stop_sequences, ..Stop::default() },
        output,
        reasoning_budget,
        tool_choice: choice,
        structured: wire.structured.map(structured::lower),
        tenant: caller.tenant.clone(),
        ..Request::new(caller.response_id.clone(), Input::Chat(self::chat(wire.conversation)))
    };
    GenerationBatch { prompts: vec![request], n: 1 }
}

fn output(wire: &Conversation) -> OutputMode {
    let calls = match wire.tool_use {
        ToolUse::Allowed(_, parallel) if !wire.tools.is_empty() => Some(chat::call_limit(parallel)),
        ToolUse::Allowed(..) | ToolUse::None => None,
    };
    OutputMode::Message { calls }
}

/// The conversation, as the engine takes it.
pub fn chat(wire: Conversation) -> Chat {
    let mut template_kwargs = Map::new();
    match wire.thinking {
        Thinking::Off => thinking::switch(Some(false), None, &mut template_kwargs),
        Thinking::On { .. } => {
            let effort = wire.effort.as_deref().map(effort);
            thinking::switch(Some(true), effort, &mut template_kwargs);
        }
    }
    let definitions: BTreeMap<&str, &ToolDefinition> =
        wire.tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
    let (mut messages, mut media) = (Vec::new(), Vec::new());
    let system: Vec<String> =
        wire.system.into_iter().filter(|text| !text.trim_start().starts_with(BILLING)).collect();
    if !system.is_empty() {
        messages.push(Message::new(Role::System, system.join(GAP)));
    }
    for turn in wire.turns {
        messages.extend(message(turn, &definitions, &mut media));
    }
    let tools = match wire.tool_use {
        ToolUse::Allowed(..) => wire.tools.iter().map(tool).collect(),
        ToolUse::None => Vec::new(),
    };
    Chat { messages, media, tools, template_kwargs, ..Chat::default() }
}

/// Chat templates know three efforts.
fn effort(effort: &str) -> &str {
    match effort {
        "xhigh" | "max" => "high",
        other => other,
    }
}

/// A user's message may have results of tools: each is a message of its own.
fn message(turn: Turn, tools: &BTreeMap<&str, &ToolDefinition>, media: &mut Vec<MediaItem>) -> Vec<Message> {
    let role = match turn.author {
        Author::User => Role::User,
        Author::Assistant => Role::Assistant,
        Author::System => Role::System,
    };
    let (mut messages, mut content, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for block in turn.blocks {
        match block {
            Block::Text(text) | Block::Compaction(text) => push(&mut parts, Part::Text(text), GAP),
            Block::Image(image) => parts.push(Part::Media(image)),
            Block::Thinking { text, signature } => {
                let hidden = || signature.as_deref().and_then(opaque::decode);
                let text = if text.is_empty() { hidden().unwrap_or_default() } else { text };
                content.push(ContentPart::Reasoning(text));
            }
            Block::ToolUse { id, name, input } => {
                let arguments = ToolArguments::Json(Value::Object(input).to_string());
                content.push(ContentPart::ToolCall(ToolCall { id, name, arguments }));
            }
            Block::ToolResult { id, parts } => messages.push(result(id, parts, tools, media)),
        }
    }
    if !parts.is_empty() || !content.is_empty() || messages.is_empty() {
        if parts.is_empty() {
            parts.push(Part::Text(String::new()));
        }
        let mut all = chat::content_parts(parts, media);
        all.append(&mut content);
        messages.push(Message { role, name: None, content: all });
    }
    messages
}

fn result(
    call_id: String,
    parts: Vec<ResultPart>,
    tools: &BTreeMap<&str, &ToolDefinition>,
    media: &mut Vec<MediaItem>,
) -> Message {
    let part = |part: ResultPart| match part {
        ResultPart::Text(text) => Part::Text(text),
        ResultPart::Image(image) => Part::Media(image),
        ResultPart::ToolReference(name) => Part::Text(match tools.get(name.as_str()) {
            Some(definition) => tool(definition).function().to_string(),
            None => format!("The tool `{name}` is not available."),
        }),
    };
    let parts = parts.into_iter().map(part).collect();
    Message { role: Role::Tool, name: None, content: chat::result(call_id, parts, media) }
}

/// Every tool may be called, a deferred one as well: the model knows those that were referenced.
fn tool(wire: &ToolDefinition) -> Tool {
    let place = match wire.loading {
        Loading::Immediate => ToolPlace::Template,
        Loading::Deferred => ToolPlace::Message,
    };
    let (rule, parameters) = (chat::call_rule(wire.schema), wire.input_schema.clone());
    Tool { rule, place, ..Tool::new(wire.name.clone(), wire.description.clone(), parameters) }
}

#[cfg(test)]
mod tests;
