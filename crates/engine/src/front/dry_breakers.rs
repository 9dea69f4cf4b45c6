//! The texts that no repetition contains, as the tokens that spell them.
//!
//! Invariant: a token breaks a repetition if its text contains such a text, or if its text ends with the beginning of one
//! and tokens that spell the rest follow it.

use std::sync::{Mutex, PoisonError};

use omnibus_text::{AddSpecial, Tokenizer};

/// Most tokens that spell the rest of a text. More are not compared.
const REST_TOKENS_MAX: usize = 20;

/// Finds the tokens of texts, and keeps those of the last ones: requests seldom differ in them, and each search reads the
/// whole vocabulary.
#[derive(Default)]
pub(crate) struct DryBreakers(Mutex<Option<Found>>);

/// The tokens of some texts.
struct Found {
    texts: Vec<String>,
    tokens: Vec<Vec<u32>>,
}

impl DryBreakers {
    /// The tokens of each place where one of these texts may stand, ascending.
    pub(crate) fn tokens(&self, tokenizer: &Tokenizer, texts: &[String]) -> Vec<Vec<u32>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = last.as_ref().filter(|found| found.texts == texts) {
            return found.tokens.clone();
        }
        let tokens = find(tokenizer, texts);
        *last = Some(Found { texts: texts.to_vec(), tokens: tokens.clone() });
        tokens
    }
}

fn find(tokenizer: &Tokenizer, texts: &[String]) -> Vec<Vec<u32>> {
    let rests: Vec<Vec<(&str, Vec<u32>)>> = texts.iter().map(|text| rests(tokenizer, text)).collect();
    let mut found = Vec::new();
    for id in 0..tokenizer.vocab_size() as u32 {
        let Some(piece) = tokenizer.id_to_piece(id) else { continue };
        for (text, rests) in texts.iter().zip(&rests) {
            if contains(&piece, text.as_bytes()) {
                found.push(vec![id]);
                continue;
            }
            let begins = rests.iter().filter(|(start, _)| piece.ends_with(start.as_bytes()));
            found.extend(begins.map(|(_, rest)| std::iter::once(id).chain(rest.iter().copied()).collect()));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Each proper beginning of a text with the tokens of its rest.
fn rests<'a>(tokenizer: &Tokenizer, text: &'a str) -> Vec<(&'a str, Vec<u32>)> {
    let cuts = text.char_indices().map(|(at, _)| at).filter(|at| *at > 0);
    let rest = |at: usize| {
        let (start, rest) = text.split_at(at);
        let mut tokens = tokenizer.encode(rest, AddSpecial::No).ok()?;
        tokens.truncate(REST_TOKENS_MAX);
        (!tokens.is_empty()).then_some((start, tokens))
    };
    cuts.filter_map(rest).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let json = serde_json::json!({
            "model": { "type": "BPE", "vocab": { "a": 0, ":": 1, "b": 2, "ab": 3, "a:": 4, "#": 5 }, "merges": [["a", "b"], ["a", ":"]] }
        });
        Tokenizer::from_bytes(omnibus_text::TokenizerFiles {
            tokenizer: json.to_string().as_bytes(),
            ..omnibus_text::TokenizerFiles::default()
        })
        .unwrap()
    }

    #[track_caller]
    fn check(texts: &[&str], want: &[&[u32]]) {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(DryBreakers::default().tokens(&tokenizer(), &texts), want);
    }

    #[test]
    fn every_token_that_contains_a_breaker_is_one() {
        check(&[":"], &[&[1], &[4]]);
        check(&["ab", "#"], &[&[0, 2], &[3], &[5]]);
        check(&[], &[]);
    }

    #[test]
    fn a_breaker_of_several_tokens_begins_with_each_token_that_may_begin_it() {
        // `b#` begins with `b` or at the end of `ab`.
        check(&["b#"], &[&[2, 5], &[3, 5]]);
    }

    #[test]
    fn other_texts_are_searched_for_after_the_last_ones() {
        let (breakers, tokenizer) = (DryBreakers::default(), tokenizer());
        let of = |text: &str| breakers.tokens(&tokenizer, &[text.to_owned()]);
        assert_eq!((of("#"), of("#"), of("b")), (vec![vec![5]], vec![vec![5]], vec![vec![2], vec![3]]));
    }
}
