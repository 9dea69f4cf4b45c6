//! `GET /v1/sessions` and `DELETE /v1/sessions/{id}`.

use serde::Serialize;

/// Sessions: conversations whose blocks are pinned.
#[derive(Debug, Clone, Serialize)]
pub struct SessionList {
    /// `list`
    pub object: &'static str,
    /// Unordered.
    pub data: Vec<Session>,
}

/// One session.
#[derive(Debug, Clone, Serialize)]
pub struct Session {
    /// The `session_id` of its requests.
    pub id: String,
    /// `session`
    pub object: &'static str,
    /// Leading tokens that the next request of the session would find in the cache.
    pub tokens: usize,
    /// Blocks pinned for it.
    pub blocks: usize,
    /// Time since its last request.
    pub idle_seconds: f64,
}

/// The response to a deletion.
#[derive(Debug, Clone, Serialize)]
pub struct Deleted {
    /// The id in the request.
    pub id: String,
    /// `session.deleted`
    pub object: &'static str,
    /// `true`
    pub deleted: bool,
}
