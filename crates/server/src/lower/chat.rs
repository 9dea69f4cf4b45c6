//! Lowers `POST /v1/chat/completions`.

use omnibus_engine::{
    CallLimit, Chat, ContentPart, Input, Message, OutputMode, Role, ToolArguments, ToolCall, ToolChoice,
    ToolResult,
};
use serde_json::{Map, Value, json};

use super::{Caller, GenerationBatch, generation, thinking};
use crate::error::ApiError;
use crate::wire::chat::{ChatRequest, ContinuationMode, Conversation, Reasoning};
use crate::wire::messages::{self, TextContent};
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
    let tools: Vec<Value> = wire.tools.list.into_iter().map(tool).collect();
    let mut template_kwargs = wire.template_kwargs;
    reason(&wire.reasoning, &mut template_kwargs);
    Chat {
        messages: wire.messages.into_iter().map(message).collect(),
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

/// The messages of a conversation in OpenAI's shape, from outside of a request.
pub fn messages(list: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    Ok(messages::read(list)?.into_iter().map(message).collect())
}

fn message(wire: messages::Message) -> Message {
    match wire {
        // Chat templates use the older role name `system`.
        messages::Message::System(text) => text_message(Role::System, text),
        messages::Message::User(text) => text_message(Role::User, text),
        messages::Message::Assistant { text, reasoning, calls } => {
            let mut message = text_message(Role::Assistant, text);
            message.content.extend(reasoning.map(ContentPart::Reasoning));
            message.content.extend(calls.into_iter().map(|call| ContentPart::ToolCall(tool_call(call))));
            message
        }
        messages::Message::Tool { text, call_id } => {
            let result = ToolResult { call_id, text: text.content };
            Message { role: Role::Tool, name: text.name, content: vec![ContentPart::ToolResult(result)] }
        }
    }
}

fn text_message(role: Role, text: TextContent) -> Message {
    Message { role, name: text.name, content: vec![ContentPart::Text(text.content)] }
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
