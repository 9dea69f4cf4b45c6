//! What an API asked for, as requests of the engine.
//!
//! Invariant: one direction, once. Everything here is a pure function from wire types.

pub mod chat;
pub mod completions;
pub mod fan;
mod generation;
pub mod tokenize;

use omnibus_engine::Request;

/// Who asks, and what the answer will be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The answer's id, as in its chunks.
    pub answer_id: String,
    /// Whose request it is; empty when there are no keys.
    pub tenant: String,
}

/// What to generate: a request for each prompt, and how many answers each is to have.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One for each prompt.
    pub prompts: Vec<Request>,
    /// Answers to each.
    pub n: usize,
}
