//! The input items of the Responses API.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, count_unknown, harmless, honoured, type_error};
use crate::wire::files;
use crate::wire::media::{self, Part};
use crate::wire::responses::input_item::{Author, CalledTool, InputItem};
use crate::wire::responses::{client_items, item_ids};

/// Between texts that become one.
const GAP: &str = "\n\n";

/// What the ids of input items begin with that have none of their own.
pub const INPUT_PREFIX: &str = "item";

/// Fields of an item.
pub const FIELDS: &[Field] = &[
    honoured("type", "`message` when absent, or `item_reference` without a `role`"),
    honoured("role", "of a message: `system`, `developer`, `user` or `assistant`"),
    honoured("content", "of a message: a string or a list of parts; of reasoning: its text"),
    honoured("call_id", "of a call and of its output"),
    honoured("name", "of a call"),
    honoured("namespace", "of a call of a tool inside a namespace"),
    honoured("arguments", "of a function call: JSON text; of a tool search: an object"),
    honoured("input", "of a custom tool call: text"),
    honoured("action", "of a call of a shell or of a computer"),
    honoured("actions", "of a call of a computer"),
    honoured("operation", "of a call of `apply_patch`"),
    honoured("output", "of a call: a string or a list of parts; of a client's tool, what it returned"),
    honoured("tools", "of a tool search's output: what was found"),
    honoured("summary", "of reasoning"),
    honoured("encrypted_content", "of reasoning, and of a compaction that this server made"),
    honoured("id", "of an `item_reference`: the id of a stored item; others are known by their place"),
    honoured("status", "of the output of `apply_patch`; other items of the input are complete"),
    harmless("environment", "of a shell: the client's"),
    harmless("max_output_length", "of a shell: the client cuts what it returns"),
    harmless("pending_safety_checks", "of a computer: the client checks"),
    harmless("acknowledged_safety_checks", "of a computer: the client checks"),
    harmless("caller", "only the model calls tools"),
    harmless("created_by", "not part of the prompt"),
    harmless("execution", "the client searches"),
    harmless("phase", "not part of the prompt"),
];

/// Fields of a part of a message's content.
pub const PART: &[Field] = &[
    honoured("type", "`input_text`, `output_text`, `text`, `refusal`, `input_image` or `input_file`"),
    honoured("text", "the text"),
    honoured("refusal", "the text of a refusal"),
    harmless("annotations", "sources are not part of the prompt"),
    harmless("logprobs", "not part of the prompt"),
    honoured("image_url", "of an image: a `data:` URL, or an `https:` or `file:` URL that the server allows"),
    honoured(
        "file_data",
        "of a text, an image, a video or a sound: a `data:` URL, or base64; a note stands for other files",
    ),
    honoured(
        "file_url",
        "of an image, a video or a sound: an `https:` or `file:` URL that the server allows",
    ),
    honoured("filename", "its ending says what a file is whose `data:` URL does not"),
    harmless("file_id", "this server keeps no files; a note stands for it"),
    harmless("detail", "the model's processor chooses the size"),
];

/// One item. `None` for a type that has no text for the model.
pub fn item(value: Value, at: &str) -> Result<Option<InputItem>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[FIELDS])?;
    let kind = fields.text("type")?.unwrap_or_else(|| "message".to_owned());
    let item = match kind.as_str() {
        "message" => message(&mut fields)?,
        "reasoning" => reasoning(&mut fields)?,
        "function_call" => {
            let tool = CalledTool::Function {
                name: required(&mut fields, "name")?,
                namespace: fields.text("namespace")?,
            };
            let arguments = fields.text("arguments")?.unwrap_or_default();
            InputItem::Call { call_id: required(&mut fields, "call_id")?, tool, arguments }
        }
        "custom_tool_call" => InputItem::Call {
            call_id: required(&mut fields, "call_id")?,
            tool: CalledTool::Custom(required(&mut fields, "name")?),
            arguments: fields.text("input")?.unwrap_or_default(),
        },
        "tool_search_call" => InputItem::Call {
            call_id: fields.text("call_id")?.unwrap_or_default(),
            tool: CalledTool::Search,
            arguments: Value::Object(fields.object("arguments")?.unwrap_or_default()).to_string(),
        },
        "function_call_output" | "custom_tool_call_output" => InputItem::Output {
            call_id: required(&mut fields, "call_id")?,
            parts: content(&mut fields, "output")?,
        },
        "compaction" | "compaction_summary" => {
            InputItem::Compaction { encrypted: required(&mut fields, "encrypted_content")? }
        }
        "tool_search_output" => InputItem::FoundTools {
            call_id: fields.text("call_id")?.unwrap_or_default(),
            tools: fields.list("tools")?.unwrap_or_default(),
        },
        other => match client_items::item(other, &mut fields)? {
            Some(item) => item,
            None => {
                count_unknown(&format!("{at}.type={other}"));
                return Ok(None);
            }
        },
    };
    Ok(Some(item))
}

fn required(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    let text = fields.text(name)?;
    fields.required(name, text)
}

fn message(fields: &mut Fields) -> Result<InputItem, ApiError> {
    let author = match required(fields, "role")?.as_str() {
        "system" | "developer" => Author::System,
        "user" => Author::User,
        "assistant" => Author::Assistant,
        other => {
            let at = fields.at("role");
            let message = format!("`{at}` must be system, developer, user or assistant, not `{other}`");
            return Err(ApiError::invalid(at, message));
        }
    };
    Ok(InputItem::Message { author, parts: content(fields, "content")? })
}

fn reasoning(fields: &mut Fields) -> Result<InputItem, ApiError> {
    let (text, summary) = (text(fields, "content")?, text(fields, "summary")?);
    let text = if text.is_empty() { summary } else { text };
    Ok(InputItem::Reasoning { text, encrypted: fields.text("encrypted_content")? })
}

/// The texts of content that can only be text.
fn text(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    let texts = content(fields, name)?.into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        Part::Media(_) => None,
    });
    Ok(texts.collect::<Vec<_>>().join(GAP))
}

/// A text, or parts. Absent is an empty text.
fn content(fields: &mut Fields, name: &str) -> Result<Vec<Part>, ApiError> {
    let at = fields.at(name);
    let mut parts = Vec::new();
    match fields.value(name) {
        None => {}
        Some(Value::String(text)) => parts.push(Part::Text(text)),
        Some(Value::Array(list)) => {
            for (index, value) in list.into_iter().enumerate() {
                if let Some(part) = part(value, &format!("{at}[{index}]"))? {
                    media::push(&mut parts, part, GAP);
                }
            }
        }
        Some(other) => return Err(type_error(&at, "a string or a list of parts", &other)),
    }
    if parts.is_empty() {
        parts.push(Part::Text(String::new()));
    }
    Ok(parts)
}

fn part(value: Value, at: &str) -> Result<Option<Part>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[PART])?;
    let kind = required(&mut fields, "type")?;
    Ok(match kind.as_str() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Some(Part::Text(fields.text("text")?.unwrap_or_default()))
        }
        "refusal" => fields.text("refusal")?.map(Part::Text),
        "input_image" => Some(Part::Media(media::of_responses(&mut fields)?)),
        "input_file" => Some(files::part(&mut fields)?),
        other => {
            count_unknown(&format!("{at}.type={other}"));
            None
        }
    })
}

/// The id of a stored item that stands here in place of the item. Only a reference may come without a type and a role.
pub fn reference(item: &Value) -> Option<&str> {
    let id = item.get("id").and_then(Value::as_str);
    match item.get("type").and_then(Value::as_str) {
        Some("item_reference") => Some(id.unwrap_or_default()),
        Some(_) => None,
        None => id.filter(|_| item.get("role").is_none()),
    }
}

/// The id of an item that has one.
pub fn id_of(item: &Value) -> Option<String> {
    item.get("id").and_then(Value::as_str).map(str::to_owned)
}

/// An item as it is listed: a message has its type, its status and a list of parts.
pub fn in_full(item: Value) -> Value {
    let Value::Object(mut item) = item else { return item };
    let kind = item.get("type").and_then(Value::as_str);
    if !matches!(kind, None | Some("message")) {
        return Value::Object(item);
    }
    let part = |text: String| match item.get("role").and_then(Value::as_str) {
        Some("assistant") => {
            json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}])
        }
        _ => json!([{"type": "input_text", "text": text}]),
    };
    if let Some(Value::String(text)) = item.get("content") {
        let parts = part(text.clone());
        item.insert("content".to_owned(), parts);
    }
    item.insert("type".to_owned(), "message".into());
    item.entry("status").or_insert_with(|| "completed".into());
    Value::Object(item)
}

/// Gives an item of a response or conversation the id that lists show, unless it has one.
pub fn with_id(item: Value, owner_id: &str, index: usize) -> Value {
    let Value::Object(item) = item else { return item };
    let mut named = Map::new();
    let has_id = item.get("id").is_some_and(Value::is_string);
    if !has_id {
        named.insert("id".to_owned(), item_ids::of(INPUT_PREFIX, owner_id, index).into());
    }
    named.extend(item.into_iter().filter(|(key, _)| key != "id" || has_id));
    Value::Object(named)
}
