//! How likely given replies to conversations are: each reply is scored behind its prompt, and nothing is generated.
//!
//! Start at [`Handle::score`](crate::Handle::score).
//!
//! Invariant: what the prompts of one call begin with in common is computed once. A prompt's result does not depend on the
//! others.

use crate::request::{Chat, Request};

/// Prompts whose replies are scored.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoringRequest {
    /// Its id, model, tenant, priority and time limit are those of each part; other fields are replaced.
    pub request: Request,
    /// At least one.
    pub prompts: Vec<ScoringPrompt>,
}

/// A prompt, and the replies to it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoringPrompt {
    /// The conversation. Its media are not read.
    pub chat: Chat,
    /// Texts that the answer may begin with, all different.
    pub replies: Vec<String>,
    /// The field of the API that it comes from, for errors.
    pub field: String,
}

/// What became of all prompts.
#[derive(Debug, Clone, PartialEq)]
pub struct Scoring {
    /// Of each prompt, the natural logarithm of the probability that the answer begins with each reply.
    pub logprobs: Vec<Vec<f64>>,
    /// Tokens of all prompts, and of the replies that have more than one.
    pub prompt_tokens: usize,
    /// How many of them were not computed, since others begin with the same or they were cached.
    pub cached_tokens: usize,
}
