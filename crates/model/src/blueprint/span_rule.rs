//! Which positions of a prompt attend to each other in both directions.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::batch::SpanRuns;
use crate::mixers::Bidirectional;

/// Which positions of a prompt attend to each other in both directions in some layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanRule {
    pub(crate) directions: Bidirectional,
    /// Tokens that stand for pictures, where all pictures of a prompt attend to each other.
    pub(crate) picture_tokens: Vec<u32>,
}

impl SpanRule {
    /// The spans of a prompt, in order. `media`: the positions of each picture's features, in order.
    pub fn spans(&self, prompt: &[u32], media: &[Range<usize>]) -> Vec<SpanRuns> {
        match self.directions {
            Bidirectional::Pictures => media.iter().map(|run| vec![run.clone()]).collect(),
            Bidirectional::AllPictures => {
                let is_picture =
                    |at: &usize| prompt.get(*at).is_some_and(|token| self.picture_tokens.contains(token));
                let places: Vec<usize> = (0..prompt.len()).filter(is_picture).collect();
                let runs = places.chunk_by(|place, next| place + 1 == *next);
                let runs: SpanRuns = runs.filter_map(|run| Some(*run.first()?..run.last()? + 1)).collect();
                std::iter::once(runs).filter(|runs| !runs.is_empty()).collect()
            }
            Bidirectional::Prompts | Bidirectional::Symmetric => {
                vec![std::iter::once(0..prompt.len()).collect()]
            }
            Bidirectional::No => Vec::new(),
        }
    }
}
