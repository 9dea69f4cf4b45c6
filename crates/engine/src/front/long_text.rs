//! Texts that cannot fit a context, found without tokenizing all of them: a tokenizer takes a microsecond and 200 bytes of memory
//! for each byte.

use omnibus_text::{AddSpecial, Error, Tokenizer};

/// Bytes for each token of the context. A text with fewer is tokenized at once: usual ones have three to five a token.
const BYTES_PER_TOKEN: usize = 16;
/// Bytes that are tokenized at a time.
const PIECE_BYTES: usize = 256 << 10;

/// How many tokens the first part of a text has that is surely too long for `most` tokens. `None` if it may fit.
pub(super) fn excess(tokenizer: &Tokenizer, text: &str, most: usize) -> Result<Option<usize>, Error> {
    if text.len() <= most.saturating_mul(BYTES_PER_TOKEN) {
        return Ok(None);
    }
    // Cuts may split what is one token, so a few more are counted than there are.
    let surely = most.saturating_add(most / 2);
    let (mut counted, mut rest) = (0, text);
    while !rest.is_empty() {
        let end = (PIECE_BYTES.min(rest.len())..=rest.len()).find(|end| rest.is_char_boundary(*end));
        let (piece, behind) = rest.split_at(end.unwrap_or(rest.len()));
        counted += tokenizer.encode(piece, AddSpecial::No)?.len();
        if counted > surely {
            return Ok(Some(counted));
        }
        rest = behind;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn long_texts_are_found_by_their_first_pieces() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
        let tokenizer = Tokenizer::from_dir(&model, None).unwrap();
        let excess = |text: &str, most| excess(&tokenizer, text, most).unwrap();
        assert_eq!(excess("the bus stops at the market", 4096), None);
        let long = "the bus stops — at the market. ".repeat(1 << 20);
        let counted = excess(&long, 4096).unwrap();
        assert!((6_144..200_000).contains(&counted), "{counted}");
    }
}
