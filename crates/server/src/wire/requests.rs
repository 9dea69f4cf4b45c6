//! `GET /v1/requests`, `DELETE /v1/requests/{id}` and `GET /v1/status`.

use serde::Serialize;

/// What is queued or running.
#[derive(Debug, Clone, Serialize)]
pub struct RequestList {
    /// `list`
    pub object: &'static str,
    /// Oldest first.
    pub data: Vec<RunningRequest>,
}

/// One answer in the making.
#[derive(Debug, Clone, Serialize)]
pub struct RunningRequest {
    /// The answer's id, as in its chunks.
    pub id: String,
    /// `request`
    pub object: &'static str,
    /// The HTTP request's id.
    pub request_id: String,
    /// Which of the answers to it.
    pub index: usize,
    /// The model it runs on.
    pub model: String,
    /// `queued` or `running`
    pub state: &'static str,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens so far.
    pub generated_tokens: usize,
    /// Since it was taken.
    pub age_seconds: f64,
}

/// What a cancellation did.
#[derive(Debug, Clone, Serialize)]
pub struct Cancelled {
    /// As asked for.
    pub id: String,
    /// `request.cancelled`
    pub object: &'static str,
    /// How many answers ended by it.
    pub cancelled: usize,
}
