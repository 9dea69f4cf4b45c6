//! Hidden states of a prompt, where they were requested.

use serde::{Deserialize, Serialize};

use crate::floats;

/// Positions of a prompt whose hidden states are reported: after the norm that the model's head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HiddenPositions {
    /// The last one.
    Last,
    /// All.
    All,
    /// Not states: of each token of the vocabulary the largest logit over all positions, by the head of a masked language
    /// model.
    Vocabulary,
}

/// Hidden states of consecutive positions of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HiddenStates {
    /// The first position.
    pub first: usize,
    /// Numbers of a position.
    pub width: usize,
    /// `[positions, width]`
    #[serde(with = "floats")]
    pub values: Vec<f32>,
}
