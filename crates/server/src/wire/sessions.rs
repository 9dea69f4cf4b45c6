//! `GET /v1/sessions` and `DELETE /v1/sessions/{id}`.

use serde::Serialize;

/// Conversations whose blocks are kept.
#[derive(Debug, Clone, Serialize)]
pub struct SessionList {
    /// `list`
    pub object: &'static str,
    /// In no order.
    pub data: Vec<Session>,
}

/// One conversation.
#[derive(Debug, Clone, Serialize)]
pub struct Session {
    /// The `session_id` of its requests.
    pub id: String,
    /// `session`
    pub object: &'static str,
    /// Leading tokens that its next turn would find.
    pub tokens: usize,
    /// Blocks that are kept for it.
    pub blocks: usize,
    /// Since its last request.
    pub idle_seconds: f64,
}

/// What a deletion did.
#[derive(Debug, Clone, Serialize)]
pub struct Deleted {
    /// As asked for.
    pub id: String,
    /// `session.deleted`
    pub object: &'static str,
    /// `true`
    pub deleted: bool,
}
