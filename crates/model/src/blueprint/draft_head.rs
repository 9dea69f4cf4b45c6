//! What a draft head reads: a network of few layers that drafts tokens from the hidden states of a target model.

/// What the first layer of a draft head reads of each row: the token that follows the row, and a hidden state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftHeadInput {
    /// Where embeddings come from.
    pub table: TokenTable,
    #[allow(missing_docs)]
    pub states: HeadStates,
}

/// Whose table of embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TokenTable {
    Own,
    Target,
}

/// The hidden states that a draft head reads, and those that it gives for its next token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadStates {
    /// States of the final norm: the stream is `projection([norm(embedding), norm(state)])` (MTP).
    FinalNorm,
    /// So many streams of the target model, one beside the other: the stream is `projection(streams)`. Its own stream is read
    /// as it is (EAGLE-3).
    Streams(usize),
    /// So many streams of the target model, one beside the other: `norm(projection(streams))` gives the keys and values of a row
    /// in every layer. What is computed is a block of tokens behind these rows (DFlash).
    Context(usize),
}
