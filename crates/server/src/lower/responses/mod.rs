//! Lowers `POST /v1/responses`.

mod toolbox;

use omnibus_engine::{
    Chat, ContentPart, Input, MediaItem, Message, OutputMode, Request, Role, Sampling, SamplingParameter,
    ToolArguments, ToolCall, ToolResult,
};
use serde_json::{Map, Value};

pub use toolbox::{ToolKind, Toolbox};

use super::chat::{self, content_parts, tool_choice};
use super::{Caller, GenerationBatch, custom_tool, generation, opaque, structured, thinking, verbosity};
use crate::error::ApiError;
use crate::wire::responses::input_item::{Author, CalledTool, InputItem};
use crate::wire::responses::{Generation, ResponsesRequest, tools};

/// What stands before the summary that a compaction left of a conversation.
const COMPACTED: &str = "A summary of our conversation so far:\n\n";

/// The engine requests of a responses request, and its tools by the names that the model knows. `items` is the whole
/// conversation; `model` is the served name.
pub fn lower(
    wire: &ResponsesRequest,
    items: Vec<InputItem>,
    model: Option<String>,
    caller: &Caller,
) -> Result<(GenerationBatch, Toolbox), ApiError> {
    let mut toolbox = Toolbox::new(&wire.tools);
    let (mut messages, mut media) = (Vec::new(), Vec::new());
    let items_are_missing = items.is_empty() && wire.instructions.is_none();
    messages.extend(wire.instructions.as_deref().map(|text| Message::new(Role::System, text)));
    for item in items {
        messages.push(message(item, &mut toolbox, &mut media)?);
    }
    verbosity::tell(wire.verbosity, &mut messages);
    if items_are_missing {
        return Err(ApiError::invalid("input", "`input` must have at least one item"));
    }
    // The names of tools that this server runs are known later.
    let has_servers_tools = !wire.mcp.is_empty() || wire.search.is_some();
    if let (Some(choice), false) = (&wire.tool_choice, has_servers_tools) {
        toolbox.check(choice)?;
    }
    let (tools, calls) = match &wire.tool_choice {
        Some(choice) => (toolbox.tools(choice), Some(chat::call_limit(wire.parallel))),
        None => (Vec::new(), None),
    };
    let default = Sampling::default();
    let sampling = Sampling {
        temperature: wire.temperature.map_or(default.temperature, |value| value as f32),
        top_p: wire.top_p.map_or(default.top_p, |value| value as f32),
        ..default
    };
    let unset = generation::absent(&[
        (SamplingParameter::Temperature, wire.temperature.is_none()),
        (SamplingParameter::TopP, wire.top_p.is_none()),
    ]);
    let chat = Chat { messages, media, tools, template_kwargs: reasoning(wire), ..Chat::default() };
    let request = Request {
        model,
        max_new_tokens: match wire.generation {
            Generation::Full => wire.max_output_tokens,
            Generation::Warmup => Some(1),
        },
        sampling,
        unset,
        output: OutputMode::Message { calls },
        tool_choice: wire.tool_choice.as_ref().map(|choice| tool_choice(&choice.call)).unwrap_or_default(),
        structured: wire.structured.clone().map(structured::lower),
        logprobs: wire.logprobs,
        tenant: caller.tenant.clone(),
        ..Request::new(caller.response_id.clone(), Input::Chat(chat))
    };
    Ok((GenerationBatch { prompts: vec![request], n: 1 }, toolbox))
}

/// Without `reasoning`, the chat template decides.
fn reasoning(wire: &ResponsesRequest) -> Map<String, Value> {
    let mut kwargs = Map::new();
    match wire.effort.as_deref() {
        Some("none") => thinking::switch(Some(false), None, &mut kwargs),
        Some("xhigh" | "max") => thinking::switch(None, Some("high"), &mut kwargs),
        effort => thinking::switch(None, effort, &mut kwargs),
    }
    kwargs
}

/// Parts of one answer are messages of one role, which the engine joins.
fn message(item: InputItem, toolbox: &mut Toolbox, media: &mut Vec<MediaItem>) -> Result<Message, ApiError> {
    Ok(match item {
        InputItem::Message { author, parts } => {
            let role = match author {
                Author::System => Role::System,
                Author::User => Role::User,
                Author::Assistant => Role::Assistant,
            };
            Message { role, name: None, content: content_parts(parts, media) }
        }
        InputItem::Reasoning { text, encrypted } => {
            let text = encrypted.as_deref().and_then(opaque::decode).unwrap_or(text);
            assistant(ContentPart::Reasoning(text))
        }
        InputItem::Call { call_id, tool, arguments } => assistant(call(call_id, &tool, arguments, toolbox)),
        InputItem::Output { call_id, parts } => {
            let content = chat::result(call_id, parts, media);
            Message { role: Role::Tool, name: None, content }
        }
        InputItem::Compaction { encrypted } => {
            let summary = opaque::decode(&encrypted).ok_or_else(|| {
                let message = "`encrypted_content` of the item `compaction` is not from this server";
                ApiError::invalid("input.encrypted_content", message)
            })?;
            Message::new(Role::User, format!("{COMPACTED}{summary}"))
        }
        InputItem::FoundTools { call_id, tools } => {
            let found = tools::read(&tools)?;
            result(call_id, toolbox.add_found(&found))
        }
    })
}

fn assistant(part: ContentPart) -> Message {
    Message { role: Role::Assistant, name: None, content: vec![part] }
}

fn result(call_id: String, text: String) -> Message {
    let content = vec![ContentPart::ToolResult(ToolResult { call_id, text })];
    Message { role: Role::Tool, name: None, content }
}

fn call(id: String, tool: &CalledTool, arguments: String, toolbox: &Toolbox) -> ContentPart {
    let json = match tool {
        CalledTool::Custom(_) => custom_tool::arguments(&arguments).to_string(),
        CalledTool::Function { .. } | CalledTool::Client(_) | CalledTool::Search => arguments,
    };
    let arguments = match crate::wire::json::parse(json.as_bytes()) {
        Ok(Value::Object(_)) => ToolArguments::Json(json),
        _ => ToolArguments::Text(json),
    };
    ContentPart::ToolCall(ToolCall { id, name: toolbox.name_of(tool), arguments })
}

#[cfg(test)]
mod tests;
