//! Texts and pairs of texts as encoders read them: with special tokens, token types, and cut to a length.

use tokenizers::utils::truncation::{
    TruncationDirection, TruncationParams, TruncationStrategy, truncate_encodings,
};
use tokenizers::{Encoding, PostProcessor};

use super::{Tokenizer, guarded};
use crate::error::Error;

/// The tokens of a text or a pair, special ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextTokens {
    #[allow(missing_docs)]
    pub ids: Vec<u32>,
    /// Which text a token is of, as the tokenizer's file counts them.
    pub types: Vec<u32>,
    /// How many it would have if it were not cut.
    pub whole: usize,
}

/// Where a long text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Most tokens, special ones included, which are kept.
    pub tokens: usize,
    #[allow(missing_docs)]
    pub side: CutSide,
}

/// Which end of a long text is left out. The longer text of a pair is cut first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CutSide {
    Start,
    End,
}

impl Tokenizer {
    /// The tokens of a text, or of a pair of texts. Costs as much as [`encode`](Self::encode).
    pub fn encode_texts(
        &self,
        text: &str,
        second: Option<&str>,
        cut: Option<Cut>,
    ) -> Result<TextTokens, Error> {
        guarded(|| self.encoded_texts(text, second, cut)).map_err(|message| Error::Tokenize { message })
    }

    fn encoded_texts(
        &self,
        text: &str,
        second: Option<&str>,
        cut: Option<Cut>,
    ) -> tokenizers::Result<TextTokens> {
        let encode = |text: &str| self.inner.encode_fast(text, false);
        let first = encode(text)?;
        let second = second.map(encode).transpose()?;
        let added = self.inner.get_post_processor();
        let added = added.map_or(0, |processor| processor.added_tokens(second.is_some()));
        let whole = first.len() + second.as_ref().map_or(0, Encoding::len) + added;
        let (first, second) = match cut.filter(|cut| cut.tokens < whole) {
            None => (first, second),
            Some(Cut { tokens, side }) => {
                let direction = match side {
                    CutSide::Start => TruncationDirection::Left,
                    CutSide::End => TruncationDirection::Right,
                };
                let strategy = TruncationStrategy::LongestFirst;
                let max_length = tokens.saturating_sub(added);
                let params = TruncationParams { direction, max_length, strategy, stride: 0 };
                truncate_encodings(first, second, &params)?
            }
        };
        let encoding = self.inner.post_process(first, second, true)?;
        Ok(TextTokens { ids: encoding.get_ids().to_vec(), types: encoding.get_type_ids().to_vec(), whole })
    }
}
