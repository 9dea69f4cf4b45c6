//! Texts from elsewhere, made so that none of their characters become a token that steers the model.

use super::{Tokenizer, guarded};
use crate::error::Error;

/// How often a text is looked at: what was split may spell another marker.
const MARKER_ROUNDS: usize = 4;

impl Tokenizer {
    /// The text with a space in each marker, so that it is plain text: what comes from elsewhere cannot spell a token that was
    /// added to the vocabulary as a whole, as those of chat templates are. Fails where it spells one all the same.
    pub fn without_markers(&self, text: &str) -> Result<String, Error> {
        let mut text = text.to_owned();
        for _ in 0..MARKER_ROUNDS {
            let places = self.marker_places(&text)?;
            if places.is_empty() {
                return Ok(text);
            }
            places.into_iter().rev().for_each(|at| text.insert(at, ' '));
        }
        match self.marker_places(&text)?.is_empty() {
            true => Ok(text),
            false => Err(Error::Tokenize { message: "the text spells special tokens".to_owned() }),
        }
    }

    /// Where the second characters of markers are, in order.
    fn marker_places(&self, text: &str) -> Result<Vec<usize>, Error> {
        let encode = || self.inner.encode(text, false);
        let encoding = guarded(encode).map_err(|message| Error::Tokenize { message })?;
        let added = self.inner.get_added_vocabulary();
        let mut places = Vec::new();
        for (id, (start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            let Some(spelling) = added.simple_id_to_token(*id) else { continue };
            let Some(marker) = text.get(*start..*end) else { continue };
            let Some(first) = marker.trim_start().chars().next() else { continue };
            if self.special_ids.contains(id) || is_markup(&spelling) {
                places.push(start + (marker.len() - marker.trim_start().len()) + first.len_utf8());
            }
        }
        Ok(places)
    }
}

/// Whether a token that is not special looks like one, as `<think>` and `[INST]` do: templates and parsers of calls read them.
fn is_markup(spelling: &str) -> bool {
    let is_between = |open, close| spelling.starts_with(open) && spelling.ends_with(close);
    is_between('<', '>') || is_between('[', ']')
}
