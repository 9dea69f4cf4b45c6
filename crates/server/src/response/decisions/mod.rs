//! Answers of decisions, from the likelihoods of replies.

pub mod openai;
mod probabilities;
pub mod systemone;

pub use probabilities::Probabilities;
