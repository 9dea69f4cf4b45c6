//! Incremental detokenization of one sequence.

use std::sync::Arc;

use crate::decoder::Held;
use crate::tokenizer::{SkipSpecial, Tokenizer};

/// Detokenizes one token at a time.
///
/// What it has returned never changes: a character whose bytes are spread over tokens comes whole with the last
/// of them, and U+FFFD stands only for bytes that no later token can complete. All pieces together, with
/// [`Self::finish`], are [`Tokenizer::decode`] of all tokens. A token costs the same however long the sequence is.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special: SkipSpecial,
    held: Held,
}

impl Detokenizer {
    /// A detokenizer before its first token.
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: SkipSpecial) -> Self {
        let held = tokenizer.decoder().start();
        Detokenizer { tokenizer, skip_special, held }
    }

    /// Takes the next token and returns the text that is now certain, possibly empty. Unknown token ids have no text.
    pub fn push(&mut self, token: u32) -> String {
        match self.tokenizer.shown_piece(token, self.skip_special) {
            Some(piece) => self.tokenizer.decoder().push(&mut self.held, piece),
            None => String::new(),
        }
    }

    /// The text still held back. Resets the detokenizer.
    pub fn finish(&mut self) -> String {
        self.tokenizer.decoder().finish(&mut self.held)
    }
}
