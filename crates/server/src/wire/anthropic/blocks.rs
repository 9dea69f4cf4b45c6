//! Anthropic's messages and content blocks.
//!
//! Invariant: a string and one text block are the same; what only marks a block for caching is dropped.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, count_unknown, harmless, honoured, type_error};
use crate::wire::media::{self, MediaPart};

/// Fields of a message.
pub const MESSAGE: &[Field] = &[
    honoured("role", "`user`, `assistant` or `system`"),
    honoured("content", "a string or a list of blocks"),
];

/// Fields of a content block.
pub const BLOCK: &[Field] = &[
    honoured(
        "type",
        "`text`, `thinking`, `redacted_thinking`, `tool_use`, `tool_result`, `image` or `document`",
    ),
    honoured("text", "of a text"),
    honoured("thinking", "of thinking"),
    honoured("signature", "of thinking; holds its text where it was not displayed"),
    honoured("id", "of a tool use"),
    honoured("name", "of a tool use"),
    honoured("input", "of a tool use"),
    honoured("tool_use_id", "of a tool result"),
    honoured("content", "of a tool result: a string or a list of blocks"),
    honoured("tool_name", "of a tool reference"),
    honoured("source", "of an image; of a document its text, or a note for what is not text"),
    harmless("is_error", "the result's text says it"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("citations", "sources are not part of the prompt"),
    harmless("data", "of redacted thinking: not readable here"),
    harmless("title", "of a document"),
    harmless("context", "of a document"),
    harmless("caller", "only the model calls tools"),
];

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Its author.
    pub author: Author,
    /// Its blocks, in order.
    pub blocks: Vec<Block>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// Instructions.
    System,
}

/// A content block.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Text.
    Text(String),
    /// Reasoning of the model.
    Thinking {
        /// Empty where it was not displayed.
        text: String,
        /// As it was sent to the client.
        signature: Option<String>,
    },
    /// A call of the model.
    ToolUse {
        /// What the result refers to.
        id: String,
        /// The function.
        name: String,
        /// The arguments.
        input: Map<String, Value>,
    },
    /// An image.
    Image(MediaPart),
    /// The result of a call.
    ToolResult {
        /// The call.
        id: String,
        /// Its parts: texts, images and references.
        parts: Vec<ResultPart>,
    },
}

/// A part of a tool's result.
#[derive(Debug, Clone, PartialEq)]
pub enum ResultPart {
    /// Text.
    Text(String),
    /// An image.
    Image(MediaPart),
    /// A tool whose definition belongs here.
    ToolReference(String),
}

/// Reads messages.
pub fn turns(list: Vec<Value>) -> Result<Vec<Turn>, ApiError> {
    list.into_iter().enumerate().map(|(index, value)| turn(value, &format!("messages[{index}]"))).collect()
}

/// The texts of blocks that can only be text.
pub fn texts(list: Vec<Value>, at: &str) -> Result<Vec<String>, ApiError> {
    let mut texts = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        if let Some(Block::Text(text)) = block(value, &format!("{at}[{index}]"))? {
            texts.push(text);
        }
    }
    Ok(texts)
}

fn turn(value: Value, at: &str) -> Result<Turn, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[MESSAGE])?;
    let role = fields.text("role")?;
    let author = match fields.required("role", role)?.as_str() {
        "user" => Author::User,
        "assistant" => Author::Assistant,
        "system" => Author::System,
        other => {
            let at = fields.at("role");
            let message = format!("{at}: must be `user`, `assistant` or `system`, not `{other}`");
            return Err(ApiError::invalid(at, message));
        }
    };
    let at = fields.at("content");
    let blocks = match fields.value("content") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![Block::Text(text)],
        Some(Value::Array(list)) => {
            let blocks = list.into_iter().enumerate();
            let blocks = blocks.map(|(index, value)| block(value, &format!("{at}[{index}]")));
            blocks.filter_map(Result::transpose).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(type_error(&at, "a string or a list of blocks", &other)),
    };
    Ok(Turn { author, blocks })
}

/// One block. `None` for a type that has no text for the model.
fn block(value: Value, at: &str) -> Result<Option<Block>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[BLOCK])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    Ok(match kind.as_str() {
        "text" => Some(Block::Text(fields.text("text")?.unwrap_or_default())),
        "thinking" => Some(Block::Thinking {
            text: fields.text("thinking")?.unwrap_or_default(),
            signature: fields.text("signature")?,
        }),
        "tool_use" => Some(tool_use(&mut fields)?),
        "tool_result" => Some(tool_result(&mut fields)?),
        "image" => Some(Block::Image(media::of_anthropic(&mut fields)?)),
        "document" => Some(Block::Text(document(&mut fields)?)),
        "redacted_thinking" => None,
        other => {
            count_unknown(&format!("{at}.type={other}"));
            None
        }
    })
}

fn tool_use(fields: &mut Fields) -> Result<Block, ApiError> {
    let (id, name) = (fields.text("id")?, fields.text("name")?);
    Ok(Block::ToolUse {
        id: fields.required("id", id)?,
        name: fields.required("name", name)?,
        input: fields.object("input")?.unwrap_or_default(),
    })
}

fn tool_result(fields: &mut Fields) -> Result<Block, ApiError> {
    let id = fields.text("tool_use_id")?;
    let id = fields.required("tool_use_id", id)?;
    let at = fields.at("content");
    let parts = match fields.value("content") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![ResultPart::Text(text)],
        Some(Value::Array(list)) => {
            let parts = list.into_iter().enumerate();
            let parts = parts.map(|(index, value)| result_part(value, &format!("{at}[{index}]")));
            parts.filter_map(Result::transpose).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(type_error(&at, "a string or a list of blocks", &other)),
    };
    Ok(Block::ToolResult { id, parts })
}

fn result_part(value: Value, at: &str) -> Result<Option<ResultPart>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[BLOCK])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    Ok(match kind.as_str() {
        "text" => Some(ResultPart::Text(fields.text("text")?.unwrap_or_default())),
        "tool_reference" => {
            let name = fields.text("tool_name")?;
            Some(ResultPart::ToolReference(fields.required("tool_name", name)?))
        }
        "image" => Some(ResultPart::Image(media::of_anthropic(&mut fields)?)),
        "document" => Some(ResultPart::Text(document(&mut fields)?)),
        other => {
            count_unknown(&format!("{at}.type={other}"));
            None
        }
    })
}

/// The text of a document, or a note in the place of what is no text.
fn document(fields: &mut Fields) -> Result<String, ApiError> {
    let source = fields.object("source")?.unwrap_or_default();
    let is_text = source.get("type").and_then(Value::as_str) == Some("text");
    match source.get("data").and_then(Value::as_str) {
        Some(text) if is_text => Ok(text.to_owned()),
        _ => Ok("[document: this model reads text only]".to_owned()),
    }
}
