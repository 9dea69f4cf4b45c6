//! `POST /apply-template`, as in llama.cpp's server.

use serde::Serialize;
use serde_json::Value;

use super::chat::Conversation;
use super::fields::{Field, Fields, honoured};
use super::tokenize::CONVERSATION;
use crate::error::ApiError;

/// Fields of `/apply-template`.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("messages", "a conversation; media become placeholders"),
];

/// An `/apply-template` request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyTemplateRequest {
    /// A served name.
    pub model: Option<String>,
    /// The conversation.
    pub conversation: Conversation,
}

impl ApplyTemplateRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS, CONVERSATION])?;
        let model = fields.text("model")?;
        let conversation = Conversation::read(&mut fields)?;
        fields.finish();
        Ok(Self { model, conversation })
    }
}

/// An `/apply-template` response.
#[derive(Debug, Clone, Serialize)]
pub struct Rendered {
    /// The rendered conversation.
    pub prompt: String,
}
