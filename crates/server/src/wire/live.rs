//! The events of `GET /v1/status/stream`.

use omnibus_engine::StepRecord;
use serde::Serialize;
use serde_json::{Map, Value};

use super::requests::RunningRequest;

/// An event; its `type` is its name here.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LiveEvent {
    /// What `GET /v1/status` gives.
    Status(Map<String, Value>),
    /// Unfinished requests, all or the key's own.
    Requests {
        /// How many there are.
        total: usize,
        /// The oldest of them.
        data: Vec<RunningRequest>,
        /// Keys with unfinished requests, the one with most first.
        keys: Vec<KeyLoad>,
    },
    /// Steps as they happened.
    Steps {
        /// The model.
        model: String,
        /// How many before them were lost, because the client did not read.
        lost: u64,
        /// In their order.
        steps: Vec<StepRecord>,
    },
}

/// What a key's unfinished requests have.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KeyLoad {
    /// The name of the key; null when no keys are configured.
    pub key: Option<String>,
    /// Requests whose first step was launched.
    pub running: usize,
    /// Requests before that.
    pub queued: usize,
    /// How long the first of these waits.
    pub oldest_queued_seconds: f64,
    /// KV blocks that its requests hold.
    pub kv_blocks: usize,
    /// How many of them other requests hold, too. Each request counts them.
    pub kv_blocks_shared: usize,
    /// Tokens of prompts since the start.
    pub prompt_tokens: u64,
    /// Tokens that were generated since the start.
    pub completion_tokens: u64,
}
