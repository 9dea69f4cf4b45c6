//! `GET /v1/requests`, `DELETE /v1/requests/{id}` and `GET /v1/status`.

use serde::Serialize;

/// Queued and running requests.
#[derive(Debug, Clone, Serialize)]
pub struct RequestList {
    /// `list`
    pub object: &'static str,
    /// Oldest first.
    pub data: Vec<RunningRequest>,
}

/// One queued or running request.
#[derive(Debug, Clone, Serialize)]
pub struct RunningRequest {
    /// The response's id, as in its chunks.
    pub id: String,
    /// `request`
    pub object: &'static str,
    /// The HTTP request's id.
    pub request_id: String,
    /// The choice's index.
    pub index: usize,
    /// The name of its key; null when no keys are configured.
    pub key: Option<String>,
    /// The model's name.
    pub model: String,
    /// `queued` or `running`
    pub state: &'static str,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated so far.
    pub generated_tokens: usize,
    /// Time since it was accepted.
    pub age_seconds: f64,
    /// Time until its limit; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
    /// KV blocks that it holds, where a client reads `/v1/status/stream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_blocks: Option<usize>,
    /// How many of them other requests hold, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_blocks_shared: Option<usize>,
}

/// The response to a cancellation.
#[derive(Debug, Clone, Serialize)]
pub struct Cancelled {
    /// The id in the request.
    pub id: String,
    /// `request.cancelled`
    pub object: &'static str,
    /// Number of choices cancelled.
    pub cancelled: usize,
}
