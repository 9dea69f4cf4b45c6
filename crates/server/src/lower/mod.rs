//! Lowers wire types to engine requests.
//!
//! Invariant: one direction, once. Everything here is a pure function of wire types.

pub mod chat;
pub mod completions;
mod custom_tool;
pub mod decisions;
pub mod expand;
mod generation;
pub mod infill;
pub mod messages;
pub mod ollama;
pub mod opaque;
pub mod pooling;
pub mod responses;
mod structured;
mod thinking;
pub mod tokenize;
pub mod transcription;
mod verbosity;

use omnibus_engine::Request;

/// The caller's tenant, and the id of the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The response's id, as in its chunks.
    pub response_id: String,
    /// The tenant; empty when no keys are configured.
    pub tenant: String,
}

/// Engine requests of one API request: one per prompt, each to be completed `n` times.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationBatch {
    /// One request per prompt.
    pub prompts: Vec<Request>,
    /// Completions of each prompt.
    pub n: usize,
}

/// The number of choices in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choices {
    /// All choices.
    pub count: usize,
    /// Choices of each prompt.
    pub per_prompt: usize,
}

impl GenerationBatch {
    /// The number of choices.
    pub fn choices(&self) -> Choices {
        Choices { count: self.prompts.len() * self.n, per_prompt: self.n }
    }
}
