//! Token usage of a response.

use serde::Serialize;

use super::energy::Energy;

/// Token counts of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Tokens of all prompts, each prompt counted once.
    pub prompt_tokens: usize,
    /// Tokens of all completions.
    pub completion_tokens: usize,
    /// The sum of both.
    pub total_tokens: usize,
    /// Cached tokens among the prompt's.
    pub prompt_tokens_details: PromptTokensDetails,
    /// Reasoning tokens among the completions', and draft tokens.
    pub completion_tokens_details: CompletionTokensDetails,
    /// What the steps of all completions used, where that was requested and a sensor counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

/// Reasoning tokens among the completions', and draft tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CompletionTokensDetails {
    /// Tokens of reasoning.
    pub reasoning_tokens: usize,
    /// Draft tokens that became tokens of the completion.
    pub accepted_prediction_tokens: usize,
    /// Draft tokens that did not.
    pub rejected_prediction_tokens: usize,
}

/// Cached tokens, images and audio among the prompt's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    /// Tokens found in the prefix cache.
    pub cached_tokens: usize,
    /// What images took, if there are any.
    #[serde(flatten)]
    pub images: Option<ImageDetails>,
    /// What audio took, if there is any.
    #[serde(flatten)]
    pub audio: Option<AudioDetails>,
}

/// What the audio of a prompt took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AudioDetails {
    /// Tokens that stand for it.
    pub audio_tokens: usize,
    /// Windows of it that were encoded; the others were cached.
    pub encoded_audio: usize,
    /// Milliseconds spent on that.
    pub audio_encode_ms: u64,
}

/// What the images of a prompt took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ImageDetails {
    /// Tokens that stand for them.
    pub image_tokens: usize,
    /// Images that were encoded; the others were cached.
    pub encoded_images: usize,
    /// Milliseconds spent on that.
    pub image_encode_ms: u64,
}
