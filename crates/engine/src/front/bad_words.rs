//! The tokens of words that are never generated, as vLLM has them: of each word with and without a space before it.

use omnibus_text::{AddSpecial, Error, Tokenizer};

/// The sequences of tokens that spell these words.
pub(super) fn tokens(tokenizer: &Tokenizer, words: &[String]) -> Result<Vec<Vec<u32>>, Error> {
    let mut all = Vec::new();
    for word in words {
        let word = word.trim_start();
        for text in [word.to_owned(), format!(" {word}")] {
            let tokens = tokenizer.encode(&text, AddSpecial::No)?;
            if !tokens.is_empty() && !all.contains(&tokens) {
                all.push(tokens);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_meant_with_and_without_a_space() {
        let vocab = serde_json::json!({"a": 0, "b": 1, "\u{120}": 2, "\u{120}a": 3, "ab": 4});
        let json = serde_json::json!({
            "model": {"type": "BPE", "vocab": vocab, "merges": [["\u{120}", "a"], ["a", "b"]]},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        });
        let tokenizer = Tokenizer::from_bytes(omnibus_text::TokenizerFiles {
            tokenizer: json.to_string().as_bytes(),
            ..omnibus_text::TokenizerFiles::default()
        })
        .unwrap();
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            tokens(&tokenizer, &words).unwrap()
        };
        assert_eq!(of(&["a"]), [vec![0], vec![3]]);
        assert_eq!(of(&["b", " b"]), [vec![1], vec![2, 1]]);
        assert!(of(&[]).is_empty());
    }
}
