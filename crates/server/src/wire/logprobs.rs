//! Log-probabilities in OpenAI's two formats.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::ApiError;
use crate::wire::fields::Fields;

/// How many alternatives of a token are requested; -1, the whole vocabulary, is `usize::MAX`. The model's limits are checked
/// where they are known.
pub fn alternatives(fields: &mut Fields, name: &str) -> Result<Option<usize>, ApiError> {
    let at = fields.at(name);
    let count = |count: i128| match count {
        -1 => Ok(usize::MAX),
        count => usize::try_from(count).map_err(|_| {
            ApiError::invalid(
                &at,
                format!("`{at}` must be -1 for the whole vocabulary or a count, not {count}"),
            )
        }),
    };
    fields.integer(name)?.map(count).transpose()
}

/// Log-probabilities of a chat choice or chunk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprobs {
    /// One entry per token.
    pub content: Vec<ChatLogprob>,
    /// Always null.
    pub refusal: Option<Vec<ChatLogprob>>,
}

/// A generated token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprob {
    /// The sampled token.
    #[serde(flatten)]
    pub sampled: ChatCandidate,
    /// The most likely tokens at this position, best first.
    pub top_logprobs: Vec<ChatCandidate>,
}

/// A token with its log-probability.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCandidate {
    /// The token's text, with replacement characters for incomplete UTF-8.
    pub token: String,
    /// Natural logarithm.
    pub logprob: f32,
    /// The token's bytes.
    pub bytes: Vec<u8>,
}

/// Log-probabilities of a prompt's tokens, as in vLLM: each token with the most likely ones, by their ids. Null for the
/// first token.
pub type PromptLogprobs = Vec<Option<BTreeMap<u32, PromptLogprob>>>;

/// A token at a place of the prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptLogprob {
    /// Natural logarithm.
    pub logprob: f32,
    /// 1 is the most likely token; null for one that is not among those that are reported.
    pub rank: Option<usize>,
    /// The token's text, with replacement characters for incomplete UTF-8.
    pub decoded_token: String,
}

/// Log-probabilities of a text completion: four lists of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TextLogprobs {
    /// The text of each token; `bytes:\x..` for incomplete UTF-8.
    pub tokens: Vec<String>,
    /// Null for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f32>>,
    /// Null for the first token of an echoed prompt.
    pub top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// The offset of each token in the text, in characters.
    pub text_offset: Vec<usize>,
}
