//! `POST /api/chat`, Ollama's.

use serde_json::Value;

use super::{FIELDS, Shared, messages, tools};
use crate::error::ApiError;
use crate::wire::chat::Conversation;
use crate::wire::fields::{Field, Fields, honoured};

/// Fields of a chat, besides the shared ones.
pub const CHAT: &[Field] = &[
    honoured(
        "messages",
        "the conversation; a last message of the assistant is continued; an empty list only loads the model",
    ),
    honoured("tools", "functions that the model may call"),
];

/// A chat.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The shared fields.
    pub shared: Shared,
    /// The messages and tools, without what `think` makes of them.
    pub conversation: Conversation,
}

impl ChatRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[FIELDS, CHAT])?;
        let shared = Shared::read(&mut fields)?;
        let list = fields.list("messages")?;
        let (messages, continuation) = messages::read(fields.required("messages", list)?)?;
        let tools = tools::read(&mut fields)?;
        fields.finish();
        Ok(Self {
            shared,
            conversation: Conversation { messages, tools, continuation, ..Conversation::default() },
        })
    }
}
