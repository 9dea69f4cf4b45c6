//! Conversations that are kept, for the Responses API.

use serde::Serialize;
use serde_json::{Map, Value};

use super::ResponsesRequest;
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, harmless, honoured};

/// Fields of a new conversation.
pub const CREATE: &[Field] = &[
    honoured("items", "the first items, as in `input` of a response"),
    honoured("metadata", "labels, returned as sent"),
];

/// Fields of a change of a conversation.
pub const UPDATE: &[Field] = &[honoured("metadata", "labels in the place of the earlier ones")];

/// Fields of a request that adds items.
pub const ADD: &[Field] = &[
    honoured("items", "what to append, as in `input` of a response"),
    harmless("include", "items are returned whole"),
];

/// A conversation.
#[derive(Debug, Clone, Serialize)]
pub struct ConversationObject {
    /// `conv_…`
    pub id: String,
    /// `conversation`
    pub object: &'static str,
    /// Unix seconds.
    pub created_at: u64,
    /// As sent.
    pub metadata: Map<String, Value>,
}

/// The items and labels of a new conversation.
pub fn created(body: Value) -> Result<(Vec<Value>, Map<String, Value>), ApiError> {
    let mut fields = Fields::tolerant(body, "", &[CREATE])?;
    let items = fields.list("items")?.unwrap_or_default();
    Ok((checked(items)?, fields.object("metadata")?.unwrap_or_default()))
}

/// The new labels of a conversation.
pub fn updated(body: Value) -> Result<Map<String, Value>, ApiError> {
    Ok(Fields::tolerant(body, "", &[UPDATE])?.object("metadata")?.unwrap_or_default())
}

/// The items to append.
pub fn added(body: Value) -> Result<Vec<Value>, ApiError> {
    let mut fields = Fields::tolerant(body, "", &[ADD])?;
    let items = fields.list("items")?;
    checked(fields.required("items", items)?)
}

/// Items that a request can have.
fn checked(items: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    ResponsesRequest::items_at("items", &items)?;
    Ok(items)
}
