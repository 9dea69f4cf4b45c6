//! What an answer cost.

use serde::Serialize;

/// In tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Of the prompts, each counted once.
    pub prompt_tokens: usize,
    /// Of all answers.
    pub completion_tokens: usize,
    /// Both.
    pub total_tokens: usize,
    /// Where the prompt's tokens came from.
    pub prompt_tokens_details: PromptTokensDetails,
}

/// Where the prompt's tokens came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    /// Tokens that were not computed again.
    pub cached_tokens: usize,
}
