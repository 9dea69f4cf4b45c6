//! Conversations.

use omnibus_engine::{Chat, Input};
use serde_json::{Map, Value, json};

use super::{Caller, Plan, generation};
use crate::wire::chat::{ChatRequest, Conversation, Turn};
use crate::wire::messages::{Message, Said, ToolCall};
use crate::wire::tools::Tool;

/// A plan for the answers to a conversation.
pub fn lower(wire: ChatRequest, caller: &Caller) -> Plan {
    let input = Input::Chat(chat(wire.conversation));
    let mut request = generation::lower(&wire.generation, input, caller);
    request.logprobs = wire.logprobs;
    Plan { prompts: vec![request], n: wire.generation.n }
}

/// A conversation in the shape chat templates expect.
pub fn chat(wire: Conversation) -> Chat {
    let tools: Vec<Value> = wire.tools.into_iter().map(tool).collect();
    Chat {
        messages: wire.messages.into_iter().map(message).collect(),
        tools: (!tools.is_empty()).then_some(Value::Array(tools)),
        documents: wire.documents.map(Value::Array),
        template_kwargs: wire.template_kwargs,
        template: None,
        continues: wire.turn == Turn::Continue,
    }
}

fn message(wire: Message) -> Value {
    let object = match wire {
        // Templates were written before OpenAI renamed the role.
        Message::System(words) => said("system", words),
        Message::User(words) => said("user", words),
        Message::Assistant { said: words, reasoning, calls } => assistant(words, reasoning, calls),
        Message::Tool { said: words, call_id } => {
            let mut object = said("tool", words);
            object.insert("tool_call_id".into(), call_id.into());
            object
        }
    };
    Value::Object(object)
}

fn said(role: &str, words: Said) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("role".into(), role.into());
    object.insert("content".into(), words.content.into());
    if let Some(name) = words.name {
        object.insert("name".into(), name.into());
    }
    object
}

fn assistant(words: Said, reasoning: Option<String>, calls: Vec<ToolCall>) -> Map<String, Value> {
    let mut object = said("assistant", words);
    if let Some(reasoning) = reasoning {
        object.insert("reasoning_content".into(), reasoning.into());
    }
    if !calls.is_empty() {
        object.insert("tool_calls".into(), calls.into_iter().map(call).collect());
    }
    object
}

/// Templates expect arguments as an object. What a model wrote is not always JSON: then it stays text.
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
