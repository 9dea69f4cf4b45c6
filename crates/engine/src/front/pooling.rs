//! Vectors, scores and labels of texts: each text is a request that generates nothing, whose hidden states are pooled.
//!
//! Start at [`Handle::pool`](crate::Handle::pool).
//!
//! Invariant: texts of one call are packed into steps with all other requests, and a text's result does not depend on them.

use omnibus_pooler::{PoolingOutput, VectorLength};
use omnibus_text::CutSide;

use crate::request::{Chat, Request};

/// Texts to pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolingRequest {
    /// Its id, model, tenant, class, priority and time limit are those of each text; other fields are replaced.
    pub request: Request,
    /// The field of the API that the texts are in, for errors.
    pub field: &'static str,
    /// What is pooled.
    pub inputs: Vec<PoolingInput>,
    /// What stands before each text.
    pub prompt: PoolingPrompt,
    /// What a pair is judged by, of models whose template has it.
    pub instruction: Option<String>,
    /// What becomes of texts that are too long.
    pub too_long: TooLong,
    /// Whether special tokens are added to texts.
    pub special: omnibus_text::AddSpecial,
    /// What is made of each text.
    pub output: PoolingOutput,
    /// Whether vectors have the length 1 where the model's files say so.
    pub length: VectorLength,
}

/// What is pooled.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum PoolingInput {
    Text(String),
    /// Of the model's own vocabulary, special ones included.
    Tokens(Vec<u32>),
    /// Two texts that are read together.
    Pair(String, String),
    Chat(Box<Chat>),
}

/// What stands before a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolingPrompt {
    /// What the model's files say.
    Default,
    /// The model's prompt of this name.
    Named(String),
}

/// What becomes of a text that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// It is cut where the model's files name a length, else refused.
    AsTheModel,
    /// It is refused.
    Refuse,
    /// It is cut to so many tokens, or to the model's limit.
    #[allow(missing_docs)]
    Cut { tokens: Option<usize>, side: CutSide },
}

/// What a text became.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooled {
    /// What the model's head gives: a vector, or the numbers of its labels; of each token, one behind the other, where it
    /// gives them for each.
    pub numbers: Vec<f32>,
    /// Of vectors and weights of tokens, the tokens that they are of.
    pub of_tokens: Vec<u32>,
    /// How many tokens were read.
    pub tokens: usize,
    /// How many there were, if more.
    pub cut_from: Option<usize>,
}
