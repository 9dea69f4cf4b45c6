//! How long an answer took, as llama.cpp's server says it.

use serde::Serialize;

/// Times of a choice. `_ms` are milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Tokens of the prompt that were cached.
    pub cache_n: usize,
    /// Tokens of the prompt that were computed.
    pub prompt_n: usize,
    /// From the first step to the first token.
    pub prompt_ms: f64,
    /// Of this, for each computed token.
    pub prompt_per_token_ms: f64,
    /// Computed tokens of the prompt in a second.
    pub prompt_per_second: f64,
    /// Tokens generated; in a stream at least its parts so far, and all at the end.
    pub predicted_n: usize,
    /// From the first token to the last one.
    pub predicted_ms: f64,
    /// Of this, for each token.
    pub predicted_per_token_ms: f64,
    /// Tokens generated in a second.
    pub predicted_per_second: f64,
    /// Draft tokens that were verified, if there were any; known at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_n: Option<usize>,
    /// Draft tokens that were accepted, if there were any; known at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_n_accepted: Option<usize>,
}

/// How much of a prompt is computed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PromptProgress {
    /// Tokens of the prompt.
    pub total: usize,
    /// Tokens of it that were cached.
    pub cache: usize,
    /// Tokens of it that are computed or were cached.
    pub processed: usize,
    /// Milliseconds since the first step.
    pub time_ms: u64,
}
