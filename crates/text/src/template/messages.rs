//! Messages as chat templates see them: dicts in OpenAI's shape, as transformers gives them.
//!
//! A message whose only content is a text has a string as its `content`; other content is a list of parts with their
//! `type`; no content is `None`. Reasoning is in the field that the template reads, or a part of the content where it wants
//! that; calls are `tool_calls`.

use omnibus_jinja::{Context, ContextValue, Error};

use crate::message::{ContentPart, Message, Role, ToolArguments, ToolCall};

/// What a dict and each of its entries are counted as, in bytes, beside their texts.
const ENTRY_BYTES: usize = 64;

/// Names that templates give the reasoning of a message. The first that a template reads is its own.
const REASONING_FIELDS: &[&str] = &["reasoning_content", "thinking", "thought", "reasoning"];

/// Reasoning is a part of the content of type `thinking`, as in Ministral 3.
const THINKING_PART: &str = "content[].thinking";
/// The content of the assistant is an object of blocks, and reasoning one of type `thoughts`, as in Apertus.
const THOUGHTS_BLOCK: &str = "content.blocks[].thoughts";

/// The field in which a template expects the reasoning of a message.
pub(super) fn reasoning_field(source: &str) -> &'static str {
    let has = |text: &str| source.contains(text);
    if has("['type'] == 'thinking'") || has(".type == 'thinking'") {
        return THINKING_PART;
    }
    if has(".blocks") && has("'thoughts'") {
        return THOUGHTS_BLOCK;
    }
    let reads = |field: &str| {
        let forms = [format!(".{field}"), format!("'{field}'"), format!("\"{field}\"")];
        forms.iter().any(|form| has_name(source, form))
    };
    REASONING_FIELDS.iter().find(|field| reads(field)).copied().unwrap_or("reasoning_content")
}

/// Whether the source has this text and no longer name that begins with it.
fn has_name(source: &str, text: &str) -> bool {
    source.match_indices(text).any(|(at, _)| {
        let after = source.get(at + text.len()..).and_then(|rest| rest.chars().next());
        after.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    })
}

/// A list of dicts. `reasoning` is the field of the reasoning.
pub(super) fn list(context: &Context, messages: &[Message], reasoning: &str) -> Result<ContextValue, Error> {
    // Templates with blocks want them in all messages of the assistant or in none.
    let reasons = |message: &Message| message.content.iter().any(ContentPart::is_reasoning);
    let reasoning = match reasoning {
        THOUGHTS_BLOCK if !messages.iter().any(reasons) => "reasoning_content",
        other => other,
    };
    let list = messages.iter().map(|one| message(context, one, reasoning));
    context.list(list.collect::<Result<_, _>>()?)
}

fn message(context: &Context, message: &Message, field: &str) -> Result<ContextValue, Error> {
    let content = match field {
        THINKING_PART if message.content.iter().any(ContentPart::is_reasoning) => {
            let parts = message.content.iter().filter(|part| part.is_content() || part.is_reasoning());
            context.list(parts.map(|part| thinking_part(context, part)).collect::<Result<_, _>>()?)?
        }
        THOUGHTS_BLOCK if message.role == Role::Assistant => blocks(context, message)?,
        _ => content(context, message)?,
    };
    let mut entries = vec![("role", context.text(message.role.name())?), ("content", content)];
    if let Some(name) = &message.name {
        entries.push(("name", context.text(name)?));
    }
    let mut reasoning: Option<String> = None;
    let mut calls = Vec::new();
    for part in &message.content {
        match part {
            ContentPart::Reasoning(text) => reasoning.get_or_insert_default().push_str(text),
            ContentPart::ToolCall(call) => calls.push(tool_call(context, call)?),
            ContentPart::ToolResult(result) => entries.push(("tool_call_id", context.text(&result.call_id)?)),
            _ => {}
        }
    }
    if let Some(reasoning) = reasoning.filter(|_| ![THINKING_PART, THOUGHTS_BLOCK].contains(&field)) {
        entries.push((field, context.text(&reasoning)?));
    }
    if !calls.is_empty() {
        entries.push(("tool_calls", context.list(calls)?));
    }
    context.dict(entries)
}

fn thinking_part(context: &Context, one: &ContentPart) -> Result<ContextValue, Error> {
    match one {
        ContentPart::Reasoning(text) => {
            context.dict(vec![("type", context.text("thinking")?), ("thinking", context.text(text)?)])
        }
        other => part(context, other),
    }
}

/// Reasoning and text as blocks; no content is `None`.
fn blocks(context: &Context, message: &Message) -> Result<ContextValue, Error> {
    let mut blocks = Vec::new();
    for one in &message.content {
        let (kind, text) = match one {
            ContentPart::Reasoning(text) => ("thoughts", text),
            ContentPart::Text(text) if !text.is_empty() => ("response", text),
            _ => continue,
        };
        blocks.push(context.dict(vec![("type", context.text(kind)?), ("text", context.text(text)?)])?);
    }
    match blocks.is_empty() {
        true => Ok(ContextValue::NONE),
        false => context.dict(vec![("blocks", context.list(blocks)?)]),
    }
}

fn content(context: &Context, message: &Message) -> Result<ContextValue, Error> {
    let parts: Vec<&ContentPart> = message.content.iter().filter(|part| part.is_content()).collect();
    match parts.as_slice() {
        [] => Ok(ContextValue::NONE),
        [ContentPart::Text(text)] => context.text(text),
        [ContentPart::ToolResult(result)] => context.text(&result.text),
        parts => context.list(parts.iter().map(|one| part(context, one)).collect::<Result<_, _>>()?),
    }
}

fn part(context: &Context, part: &ContentPart) -> Result<ContextValue, Error> {
    let (kind, text) = match part {
        ContentPart::Text(text) | ContentPart::Reasoning(text) => ("text", Some(text)),
        ContentPart::ToolResult(result) => ("text", Some(&result.text)),
        ContentPart::Image(_) => ("image", None),
        ContentPart::Audio(_) => ("audio", None),
        ContentPart::Video(_) => ("video", None),
        ContentPart::ToolCall(_) => ("tool_call", None),
    };
    let mut entries = vec![("type", context.text(kind)?)];
    if let Some(text) = text {
        entries.push(("text", context.text(text)?));
    }
    context.dict(entries)
}

fn tool_call(context: &Context, call: &ToolCall) -> Result<ContextValue, Error> {
    let arguments = match &call.arguments {
        ToolArguments::Text(text) => context.text(text)?,
        ToolArguments::Json(text) => match serde_json::from_str(text) {
            Ok(arguments) => context.json(&arguments)?,
            Err(_) => context.text(text)?,
        },
    };
    let function = context.dict(vec![("name", context.text(&call.name)?), ("arguments", arguments)])?;
    context.dict(vec![
        ("id", context.text(&call.id)?),
        ("type", context.text("function")?),
        ("function", function),
    ])
}

/// About how many bytes the messages take as values.
pub(super) fn bytes(messages: &[Message]) -> usize {
    let part = |part: &ContentPart| match part {
        ContentPart::Text(text) | ContentPart::Reasoning(text) => ENTRY_BYTES + text.len(),
        ContentPart::Image(_) | ContentPart::Audio(_) | ContentPart::Video(_) => 2 * ENTRY_BYTES,
        ContentPart::ToolResult(result) => 2 * ENTRY_BYTES + result.call_id.len() + result.text.len(),
        ContentPart::ToolCall(call) => {
            let (ToolArguments::Json(arguments) | ToolArguments::Text(arguments)) = &call.arguments;
            // A number or a bracket of the arguments becomes a value.
            7 * ENTRY_BYTES + call.id.len() + call.name.len() + arguments.len() * 4
        }
    };
    let message = |message: &Message| {
        4 * ENTRY_BYTES
            + message.name.as_ref().map_or(0, |name| ENTRY_BYTES + name.len())
            + message.content.iter().map(part).sum::<usize>()
    };
    messages.iter().map(message).sum()
}
