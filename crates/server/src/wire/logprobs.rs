//! Log-probabilities, in the two shapes OpenAI has for them.

use std::collections::BTreeMap;

use serde::Serialize;

/// Most alternatives to one token.
pub const TOP_MAX: usize = 20;

/// Of a chat answer or chunk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprobs {
    /// One for each token.
    pub content: Vec<ChatLogprob>,
    /// Always null.
    pub refusal: Option<Vec<ChatLogprob>>,
}

/// A token of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprob {
    /// What was drawn.
    #[serde(flatten)]
    pub drawn: ChatCandidate,
    /// What is likeliest there, best first.
    pub top_logprobs: Vec<ChatCandidate>,
}

/// A token and how likely it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCandidate {
    /// Its text, with replacement characters where it is not whole characters.
    pub token: String,
    /// Natural logarithm.
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Of a text completion: four lists of one length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TextLogprobs {
    /// The text of each token; `bytes:\x..` where it is not whole characters.
    pub tokens: Vec<String>,
    /// Null for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f32>>,
    /// Null for the first token of an echoed prompt.
    pub top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// Where each token begins in the text, in characters.
    pub text_offset: Vec<usize>,
}
