//! The wire types of `GET /v1/usage`.

use serde::Serialize;

/// What keys have used since the server's start.
#[derive(Debug, Serialize)]
pub struct KeyUsageList {
    /// Always `list`.
    pub object: &'static str,
    /// One key's, or every key's for an administrator.
    pub data: Vec<KeyUsage>,
}

/// What a key has used.
#[derive(Debug, Serialize)]
pub struct KeyUsage {
    /// Always `key.usage`.
    pub object: &'static str,
    /// Its name; null when no keys are configured.
    pub key: Option<String>,
    /// Requests that were not limited.
    pub requests: u64,
    /// Requests that a limit refused.
    pub limited_requests: u64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were cached.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Responses that are generated now.
    pub streams: usize,
    /// Its limits; null where there is none.
    pub limits: UsageLimits,
}

/// Limits of a key.
#[derive(Debug, Serialize)]
pub struct UsageLimits {
    /// Of requests.
    pub requests_per_minute: Option<LimitLevel>,
    /// Of tokens.
    pub tokens_per_minute: Option<LimitLevel>,
    /// Responses at once.
    pub streams: Option<usize>,
    /// Part of the queue.
    pub queue_share: Option<f64>,
}

/// A limit per minute now.
#[derive(Debug, Serialize)]
pub struct LimitLevel {
    /// What a minute allows.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// Seconds until all of it is there again.
    pub reset_seconds: f64,
}
