//! Anthropic's messages and content blocks.
//!
//! Invariant: a string and one text block are the same; what only marks a block for caching is dropped.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, count_unknown, harmless, honoured, type_error};
use crate::wire::media::{self, MediaPart, Part};

use super::rendered;

/// Fields of a message.
pub const MESSAGE: &[Field] = &[
    honoured("role", "`user`, `assistant` or `system`"),
    honoured("content", "a string or a list of blocks"),
];

/// Fields of a content block.
pub const BLOCK: &[Field] = &[
    honoured(
        "type",
        "`text`, `thinking`, `redacted_thinking`, `tool_use`, `tool_result`, `image`, `document`, `search_result`, \
         `compaction`, or a call or a result of a server's own tool, which is rendered as text",
    ),
    honoured("text", "of a text"),
    honoured("thinking", "of thinking"),
    honoured("signature", "of thinking; holds its text where it was not displayed"),
    honoured("id", "of a tool use"),
    honoured("name", "of a tool use"),
    honoured("server_name", "of an MCP server's tool use"),
    honoured("input", "of a tool use"),
    honoured("tool_use_id", "of a tool result"),
    honoured(
        "content",
        "of a tool result or a search result: a string or a list of blocks; of a compaction, what stands for all before it",
    ),
    honoured("tool_name", "of a tool reference"),
    honoured(
        "source",
        "of an image or a search result; of a document its text or its blocks, or a note for what is not text",
    ),
    honoured("title", "of a document or a search result"),
    honoured("context", "of a document"),
    harmless("is_error", "the result's text says it"),
    harmless("cache_control", "every prompt is looked up in the prefix cache"),
    harmless("citations", "sources are not part of the prompt"),
    harmless("data", "of redacted thinking: not readable here"),
    harmless("encrypted_content", "not readable here"),
    harmless("tool_changes", "the request has all tools"),
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
    /// What stands for all that was said before.
    Compaction(String),
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

/// Reads messages. What stands before a compaction is replaced by it.
pub fn turns(list: Vec<Value>) -> Result<Vec<Turn>, ApiError> {
    let mut turns = Vec::with_capacity(list.len());
    for (index, value) in list.into_iter().enumerate() {
        turns.push(turn(value, &format!("messages[{index}]"))?);
        let last = turns.last_mut().and_then(compaction);
        if let Some(compacted) = last {
            drop(turns.splice(..turns.len() - 1, [compacted]));
            turns.retain(|turn| !turn.blocks.is_empty());
        }
    }
    Ok(turns)
}

/// Takes the last compaction out of a turn with all blocks before it: a message of the user, as templates begin with one.
fn compaction(turn: &mut Turn) -> Option<Turn> {
    let at = turn.blocks.iter().rposition(|block| matches!(block, Block::Compaction(_)))?;
    let Block::Compaction(text) = turn.blocks.drain(..=at).next_back()? else { return None };
    Some(Turn { author: Author::User, blocks: vec![Block::Text(text)] })
}

/// The texts of blocks that can only be text.
pub fn texts(list: Vec<Value>, at: &str) -> Result<Vec<String>, ApiError> {
    let mut texts = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        for block in block(value, &format!("{at}[{index}]"))? {
            if let Block::Text(text) = block {
                texts.push(text);
            }
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
            blocks.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
        }
        Some(other) => return Err(type_error(&at, "a string or a list of blocks", &other)),
    };
    Ok(Turn { author, blocks })
}

/// One block, in parts if it has images inside. None for a type that has no text for the model.
fn block(value: Value, at: &str) -> Result<Vec<Block>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[BLOCK])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    let block = match kind.as_str() {
        "text" => Block::Text(fields.text("text")?.unwrap_or_default()),
        "thinking" => Block::Thinking {
            text: fields.text("thinking")?.unwrap_or_default(),
            signature: fields.text("signature")?,
        },
        "tool_use" => tool_use(&mut fields)?,
        "tool_result" => tool_result(&mut fields)?,
        "image" => Block::Image(media::of_anthropic(&mut fields)?),
        // One without content failed, and replaces nothing.
        "compaction" => return Ok(fields.text("content")?.map(Block::Compaction).into_iter().collect()),
        "redacted_thinking" => return Ok(Vec::new()),
        other => {
            let parts = rendered::parts(other, &mut fields)?;
            if parts.is_none() {
                count_unknown(&format!("{at}.type={other}"));
            }
            let block = |part| match part {
                Part::Text(text) => Block::Text(text),
                Part::Media(image) => Block::Image(image),
            };
            return Ok(parts.into_iter().flatten().map(block).collect());
        }
    };
    Ok(vec![block])
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
            parts.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
        }
        Some(other) => return Err(type_error(&at, "a string or a list of blocks", &other)),
    };
    Ok(Block::ToolResult { id, parts })
}

fn result_part(value: Value, at: &str) -> Result<Vec<ResultPart>, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[BLOCK])?;
    let kind = fields.text("type")?;
    let kind = fields.required("type", kind)?;
    let part = match kind.as_str() {
        "text" => ResultPart::Text(fields.text("text")?.unwrap_or_default()),
        "tool_reference" => {
            let name = fields.text("tool_name")?;
            ResultPart::ToolReference(fields.required("tool_name", name)?)
        }
        "image" => ResultPart::Image(media::of_anthropic(&mut fields)?),
        other => {
            let parts = rendered::parts(other, &mut fields)?;
            if parts.is_none() {
                count_unknown(&format!("{at}.type={other}"));
            }
            let part = |part| match part {
                Part::Text(text) => ResultPart::Text(text),
                Part::Media(image) => ResultPart::Image(image),
            };
            return Ok(parts.into_iter().flatten().map(part).collect());
        }
    };
    Ok(vec![part])
}
