//! Generated text that arrives in pieces and is consumed from the front.
//!
//! From an opening on, consumed text is kept until [`Input::commit`], so that a malformed call can be returned as text.
//! Until then only a bounded part of the text can be read, so that what is held back is bounded.

use super::{Peek, Stop};

/// The most text that can be read from an opening on before it is committed, in bytes.
const MAX_HELD: usize = 64 << 10;

/// Text of the message that is not parsed yet.
#[derive(Debug, Default)]
pub(crate) struct Input {
    text: String,
    /// Where unconsumed text begins. A char boundary.
    at: usize,
    /// Where the syntax that reads began, until it commits. A char boundary.
    opening: Option<usize>,
    ended: bool,
}

impl Input {
    pub fn push(&mut self, text: &str) {
        let kept_from = self.opening.unwrap_or(self.at);
        self.text.drain(..kept_from);
        self.at -= kept_from;
        self.opening = self.opening.map(|_| 0);
        self.text.push_str(text);
    }

    /// No more text comes.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether nothing follows what can be read.
    pub fn has_ended(&self) -> bool {
        self.ended && self.readable_end() == self.text.len()
    }

    /// Whether as much is held back as may be.
    pub fn is_full(&self) -> bool {
        self.readable_end() < self.text.len()
    }

    /// What is not consumed and can be read.
    pub fn rest(&self) -> &str {
        self.text.get(self.at..self.readable_end()).unwrap_or_default()
    }

    /// Where the text ends that can be read. A char boundary.
    fn readable_end(&self) -> usize {
        let end = self.opening.map_or(self.text.len(), |opening| opening + MAX_HELD);
        if end >= self.text.len() {
            return self.text.len();
        }
        (0..=end).rev().find(|end| self.text.is_char_boundary(*end)).unwrap_or(0)
    }

    /// Consumes the first bytes, which end at a char boundary.
    pub fn consume(&mut self, bytes: usize) -> &str {
        let from = self.at;
        self.at = (from + bytes).min(self.text.len());
        self.text.get(from..self.at).unwrap_or_default()
    }

    /// Consumes what `read` takes if it succeeds, and nothing otherwise.
    pub fn read<T>(&mut self, read: impl FnOnce(&mut Peek<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        let mut peek = Peek::new(self.rest(), self.has_ended());
        let value = read(&mut peek)?;
        let bytes = peek.taken();
        self.consume(bytes);
        Ok(value)
    }

    /// Consumes whitespace that is there.
    pub fn skip_whitespace(&mut self) {
        let rest = self.rest();
        let bytes = rest.len() - rest.trim_start().len();
        self.consume(bytes);
    }

    /// Keeps text from here on until [`Self::commit`].
    pub fn open(&mut self) {
        self.opening = Some(self.at);
    }

    /// What was consumed since the opening stays consumed.
    pub fn commit(&mut self) {
        self.opening = None;
    }

    pub fn is_committed(&self) -> bool {
        self.opening.is_none()
    }

    /// Whether anything was consumed since the opening.
    pub fn has_advanced(&self) -> bool {
        self.opening.is_none_or(|opening| self.at > opening)
    }

    /// Returns to the opening.
    pub fn rewind(&mut self) {
        if let Some(opening) = self.opening.take() {
            self.at = opening;
        }
    }
}
