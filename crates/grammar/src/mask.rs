//! Which tokens may follow, one bit each.

use serde::{Deserialize, Serialize};

/// Which tokens may follow. Bit `t % 32` of word `t / 32` stands for token `t`; there is a word for every token of the
/// model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenMask(Vec<u32>);

impl TokenMask {
    /// No token of a vocabulary of this size.
    pub fn none(vocab: usize) -> Self {
        Self(vec![0; vocab.div_ceil(32)])
    }

    /// Every token.
    pub fn all(vocab: usize) -> Self {
        Self(vec![u32::MAX; vocab.div_ceil(32)])
    }

    /// One token.
    pub fn only(token: u32, vocab: usize) -> Self {
        let mut mask = Self::none(vocab);
        mask.set(token, true);
        mask
    }

    /// From words that may stand for more tokens than the model has.
    pub(crate) fn from_words(words: &[u32], vocab: usize) -> Self {
        let mut mask = Self(words.iter().copied().take(vocab.div_ceil(32)).collect());
        mask.0.resize(vocab.div_ceil(32), 0);
        if let (Some(last), rest @ 1..) = (mask.0.last_mut(), vocab % 32) {
            *last &= (1 << rest) - 1;
        }
        mask
    }

    /// Allows or forbids a token. One outside of the vocabulary has no bit.
    pub fn set(&mut self, token: u32, allowed: bool) {
        let Some(word) = self.0.get_mut(token as usize / 32) else { return };
        let bit = 1 << (token % 32);
        if allowed { *word |= bit } else { *word &= !bit }
    }

    /// Whether a token may follow.
    pub fn allows(&self, token: u32) -> bool {
        self.0.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// Whether no token may follow.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The words.
    pub fn words(&self) -> &[u32] {
        &self.0
    }
}
