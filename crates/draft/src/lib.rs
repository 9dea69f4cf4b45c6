//! Draft tokens without a model: what followed the same tokens before, in the sequence itself and in recent answers.
//!
//! A [`History`] finds the longest suffix of a sequence that occurred before and drafts its most frequent continuation,
//! as SuffixDecoding does (arXiv 2411.04975); with one occurrence that is prompt lookup. [`Answers`] keeps histories of
//! recent answers, apart for each salt.
//!
//! Invariant: a draft depends on the tokens that were added alone. Nothing here knows models, requests or time.

mod answers;
mod draft;
mod history;

pub use answers::Answers;
pub use draft::Draft;
pub use history::History;

/// An index into the vocabulary.
pub type Token = u32;
