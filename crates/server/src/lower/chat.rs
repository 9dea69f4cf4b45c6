//! Lowers `POST /v1/chat/completions`.

use omnibus_engine::{Chat, Input};
use serde_json::{Map, Value, json};

use super::{Caller, GenerationBatch, generation};
use crate::wire::chat::{ChatRequest, ContinuationMode, Conversation};
use crate::wire::messages::{Message, TextContent, ToolCall};
use crate::wire::tools::Tool;

/// The engine requests of a chat request.
pub fn lower(wire: ChatRequest, caller: &Caller) -> GenerationBatch {
    let input = Input::Chat(chat(wire.conversation));
    let mut request = generation::lower(&wire.generation, input, caller);
    request.logprobs = wire.logprobs;
    GenerationBatch { prompts: vec![request], n: wire.generation.n }
}

/// A conversation in the shape that chat templates expect.
pub fn chat(wire: Conversation) -> Chat {
    let tools: Vec<Value> = wire.tools.into_iter().map(tool).collect();
    Chat {
        messages: wire.messages.into_iter().map(message).collect(),
        tools: (!tools.is_empty()).then_some(Value::Array(tools)),
        documents: wire.documents.map(Value::Array),
        template_kwargs: wire.template_kwargs,
        template: None,
        continues: wire.continuation == ContinuationMode::LastMessage,
    }
}

fn message(wire: Message) -> Value {
    let object = match wire {
        // Chat templates use the older role name `system`.
        Message::System(text) => text_message("system", text),
        Message::User(text) => text_message("user", text),
        Message::Assistant { text, reasoning, calls } => assistant(text, reasoning, calls),
        Message::Tool { text, call_id } => {
            let mut object = text_message("tool", text);
            object.insert("tool_call_id".into(), call_id.into());
            object
        }
    };
    Value::Object(object)
}

fn text_message(role: &str, text: TextContent) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("role".into(), role.into());
    object.insert("content".into(), text.content.into());
    if let Some(name) = text.name {
        object.insert("name".into(), name.into());
    }
    object
}

fn assistant(text: TextContent, reasoning: Option<String>, calls: Vec<ToolCall>) -> Map<String, Value> {
    let mut object = text_message("assistant", text);
    if let Some(reasoning) = reasoning {
        object.insert("reasoning_content".into(), reasoning.into());
    }
    if !calls.is_empty() {
        object.insert("tool_calls".into(), calls.into_iter().map(call).collect());
    }
    object
}

/// Chat templates expect arguments as an object. Arguments that are not a JSON object stay a string.
fn call(wire: ToolCall) -> Value {
    let arguments = match crate::wire::json::parse(wire.arguments.as_bytes()) {
        Ok(object @ Value::Object(_)) => object,
        _ => Value::String(wire.arguments),
    };
    json!({"id": wire.id, "type": "function", "function": {"name": wire.name, "arguments": arguments}})
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
