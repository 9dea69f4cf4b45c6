//! Logits of some tokens at one place.

use serde::{Deserialize, Serialize};

/// Logits of the tokens that a request named, behind its prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenLogits {
    /// One for each token, in the order of the request.
    pub logits: Vec<f32>,
    /// The logarithm of the sum of the exponentials of all logits of the vocabulary.
    pub log_sum: f32,
}

impl TokenLogits {
    /// The natural logarithm of each token's probability.
    pub fn logprobs(&self) -> impl Iterator<Item = f64> {
        self.logits.iter().map(|logit| f64::from(*logit) - f64::from(self.log_sum))
    }
}
