//! Where in a sound the tokens of a text are: the weights of a speech model's cross attention.
//!
//! The front requests them of a job, the loop reports them; [`crate::transcription`] makes times of them.

use serde::{Deserialize, Serialize};

use crate::floats;

/// What is reported of the tokens of a prompt that attend to a sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alignment {
    /// Layer of cross attention, and head in it.
    pub heads: Vec<(usize, usize)>,
    /// The encoder's rows that hold sound, at least one: the first ones. The weights of a token sum to 1 over these.
    pub frames: usize,
}

/// Weights of consecutive tokens of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlignedTokens {
    /// Position of the first of them.
    pub first: usize,
    /// `[heads, tokens, frames]`
    #[serde(with = "floats")]
    pub weights: Vec<f32>,
}
