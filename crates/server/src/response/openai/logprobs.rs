//! Log-probabilities in the formats of chat and text completions.

use std::collections::BTreeMap;
use std::fmt::Write;

use omnibus_engine::{Candidate, TokenInfo};

use crate::wire::generation::TokenNames;
use crate::wire::logprobs::{
    ChatCandidate, ChatLogprob, ChatLogprobs, PromptLogprob, PromptLogprobs, TextLogprobs,
};

/// The log-probability of an impossible token: JSON has no infinity.
const LOGPROB_MIN: f32 = -9999.0;

/// Log-probabilities of the tokens of a chat completion.
pub fn chat(tokens: Vec<TokenInfo>, names: TokenNames) -> ChatLogprobs {
    let token = |token| chat_token(token, names);
    ChatLogprobs { content: tokens.into_iter().map(token).collect(), refusal: None }
}

fn chat_token(token: TokenInfo, names: TokenNames) -> ChatLogprob {
    let logprob = token.logprob.unwrap_or(LOGPROB_MIN);
    let sampled = Candidate { id: token.id, bytes: token.bytes, logprob };
    ChatLogprob {
        sampled: chat_candidate(sampled, names),
        top_logprobs: token.top.into_iter().map(|candidate| chat_candidate(candidate, names)).collect(),
    }
}

fn chat_candidate(candidate: Candidate, names: TokenNames) -> ChatCandidate {
    ChatCandidate {
        token: match names {
            TokenNames::Texts => String::from_utf8_lossy(&candidate.bytes).into_owned(),
            TokenNames::Ids => id_name(candidate.id),
        },
        logprob: finite(candidate.logprob),
        bytes: candidate.bytes,
    }
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LOGPROB_MIN }
}

/// Log-probabilities of a prompt's tokens.
pub fn prompt(tokens: Vec<TokenInfo>) -> PromptLogprobs {
    tokens.into_iter().map(prompt_token).collect()
}

fn prompt_token(token: TokenInfo) -> Option<BTreeMap<u32, PromptLogprob>> {
    let entry = |bytes: &[u8], logprob: f32, rank: Option<usize>| PromptLogprob {
        logprob: finite(logprob),
        rank,
        decoded_token: String::from_utf8_lossy(bytes).into_owned(),
    };
    let own = (token.id, entry(&token.bytes, token.logprob?, None));
    let ranked = token.top.iter().enumerate();
    let ranked = ranked.map(|(at, other)| (other.id, entry(&other.bytes, other.logprob, Some(at + 1))));
    Some(std::iter::once(own).chain(ranked).collect())
}

/// The offset of the next token in a choice's text.
#[derive(Debug, Clone, Default)]
pub struct Offsets {
    characters: usize,
    /// The first bytes of an incomplete character.
    pending: Vec<u8>,
}

impl Offsets {
    /// Log-probabilities of more tokens of a text completion.
    pub fn text(&mut self, tokens: Vec<TokenInfo>, names: TokenNames) -> TextLogprobs {
        let mut lists = TextLogprobs::default();
        for token in tokens {
            lists.text_offset.push(self.characters);
            self.advance(&token.bytes);
            let name = token_name(token.id, &token.bytes, names);
            let top = |logprob| top(token.top, (name.clone(), finite(logprob)), names);
            lists.top_logprobs.push(token.logprob.map(top));
            lists.token_logprobs.push(token.logprob.map(finite));
            lists.tokens.push(name);
        }
        lists
    }

    fn advance(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let (total, mut settled) = (self.pending.len(), 0);
        for chunk in self.pending.utf8_chunks() {
            let (valid, invalid) = (chunk.valid(), chunk.invalid());
            self.characters += valid.chars().count();
            settled += valid.len();
            let may_continue = settled + invalid.len() == total && invalid.len() < 4;
            if !invalid.is_empty() && !may_continue {
                self.characters += 1;
                settled += invalid.len();
            }
        }
        self.pending.drain(..settled);
    }
}

/// The most likely tokens, and the sampled one.
fn top(candidates: Vec<Candidate>, sampled: (String, f32), names: TokenNames) -> BTreeMap<String, f32> {
    let named =
        |candidate: Candidate| (token_name(candidate.id, &candidate.bytes, names), finite(candidate.logprob));
    std::iter::once(sampled).chain(candidates.into_iter().map(named)).collect()
}

fn token_name(id: u32, bytes: &[u8], names: TokenNames) -> String {
    match names {
        TokenNames::Texts => token_text(bytes),
        TokenNames::Ids => id_name(id),
    }
}

/// As vLLM writes it.
fn id_name(id: u32) -> String {
    format!("token_id:{id}")
}

/// A token's text, or its bytes in OpenAI's notation.
pub fn token_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |mut spelled, byte| {
            _ = write!(spelled, "\\x{byte:02x}");
            spelled
        }),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(tokens: &[&[u8]], expected: Expect) {
        let tokens = tokens.iter().map(|bytes| TokenInfo {
            id: 0,
            bytes: bytes.to_vec(),
            logprob: Some(f32::NEG_INFINITY),
            top: vec![Candidate { id: 1, bytes: b"x".to_vec(), logprob: -0.5 }],
        });
        let logprobs = Offsets::default().text(tokens.collect(), TokenNames::Texts);
        expected.assert_eq(&serde_json::to_string(&logprobs).unwrap());
    }

    #[test]
    fn the_sampled_token_is_among_the_most_likely_ones() {
        let token = |text: &str, top: &[&str]| TokenInfo {
            id: 7,
            bytes: text.into(),
            logprob: Some(-3.0),
            top: top
                .iter()
                .map(|text| Candidate { id: 1, bytes: text.as_bytes().into(), logprob: -0.5 })
                .collect(),
        };
        let tokens = vec![token("a", &["x", "y"]), token("b", &[]), token("x", &["x"])];
        let lists = Offsets::default().text(tokens, TokenNames::Texts);
        for (name, top) in lists.tokens.iter().zip(&lists.top_logprobs) {
            assert!(top.as_ref().unwrap().contains_key(name), "{name} in {top:?}");
        }
        let counts: Vec<usize> = lists.top_logprobs.iter().map(|top| top.as_ref().unwrap().len()).collect();
        assert_eq!(counts, [3, 1, 1]);
    }

    #[test]
    fn offsets_count_characters_once_they_are_complete() {
        check(
            &[b"a", "é".as_bytes(), b"b"],
            expect![[
                r#"{"tokens":["a","é","b"],"token_logprobs":[-9999.0,-9999.0,-9999.0],"top_logprobs":[{"a":-9999.0,"x":-0.5},{"x":-0.5,"é":-9999.0},{"b":-9999.0,"x":-0.5}],"text_offset":[0,1,2]}"#
            ]],
        );
        check(
            &[b"\xe2\x82", b"\xac", b"b"],
            expect![[
                r#"{"tokens":["bytes:\\xe2\\x82","bytes:\\xac","b"],"token_logprobs":[-9999.0,-9999.0,-9999.0],"top_logprobs":[{"bytes:\\xe2\\x82":-9999.0,"x":-0.5},{"bytes:\\xac":-9999.0,"x":-0.5},{"b":-9999.0,"x":-0.5}],"text_offset":[0,0,1]}"#
            ]],
        );
    }
}
