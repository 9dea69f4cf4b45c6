//! Log-probabilities in the formats of chat and text completions.

use std::collections::BTreeMap;
use std::fmt::Write;

use omnibus_engine::{Candidate, TokenInfo};

use crate::wire::logprobs::{ChatCandidate, ChatLogprob, ChatLogprobs, TextLogprobs};

/// The log-probability of an impossible token: JSON has no infinity.
const LOGPROB_MIN: f32 = -9999.0;

/// Log-probabilities of the tokens of a chat completion.
pub fn chat(tokens: Vec<TokenInfo>) -> ChatLogprobs {
    ChatLogprobs { content: tokens.into_iter().map(chat_token).collect(), refusal: None }
}

fn chat_token(token: TokenInfo) -> ChatLogprob {
    let logprob = token.logprob.unwrap_or(LOGPROB_MIN);
    let sampled = Candidate { id: token.id, bytes: token.bytes, logprob };
    ChatLogprob {
        sampled: chat_candidate(sampled),
        top_logprobs: token.top.into_iter().map(chat_candidate).collect(),
    }
}

fn chat_candidate(candidate: Candidate) -> ChatCandidate {
    ChatCandidate {
        token: String::from_utf8_lossy(&candidate.bytes).into_owned(),
        logprob: finite(candidate.logprob),
        bytes: candidate.bytes,
    }
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LOGPROB_MIN }
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
    pub fn text(&mut self, tokens: Vec<TokenInfo>) -> TextLogprobs {
        let mut lists = TextLogprobs::default();
        for token in tokens {
            lists.text_offset.push(self.characters);
            self.advance(&token.bytes);
            lists.tokens.push(token_text(&token.bytes));
            lists.token_logprobs.push(token.logprob.map(finite));
            lists.top_logprobs.push(token.logprob.map(|_| top(token.top)));
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

fn top(candidates: Vec<Candidate>) -> BTreeMap<String, f32> {
    candidates
        .into_iter()
        .map(|candidate| (token_text(&candidate.bytes), finite(candidate.logprob)))
        .collect()
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
        expected.assert_eq(&serde_json::to_string(&Offsets::default().text(tokens.collect())).unwrap());
    }

    #[test]
    fn offsets_count_characters_once_they_are_complete() {
        check(
            &[b"a", "é".as_bytes(), b"b"],
            expect![[
                r#"{"tokens":["a","é","b"],"token_logprobs":[-9999.0,-9999.0,-9999.0],"top_logprobs":[{"x":-0.5},{"x":-0.5},{"x":-0.5}],"text_offset":[0,1,2]}"#
            ]],
        );
        check(
            &[b"\xe2\x82", b"\xac", b"b"],
            expect![[
                r#"{"tokens":["bytes:\\xe2\\x82","bytes:\\xac","b"],"token_logprobs":[-9999.0,-9999.0,-9999.0],"top_logprobs":[{"x":-0.5},{"x":-0.5},{"x":-0.5}],"text_offset":[0,0,1]}"#
            ]],
        );
    }
}
