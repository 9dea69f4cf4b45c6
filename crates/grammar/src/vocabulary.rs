//! A model's tokens as llguidance needs them: the bytes of each, and how bytes are tokenized.
//!
//! Invariant: special tokens are no text. A grammar's text never matches one, and forced text never becomes one.

use std::sync::Arc;

use omnibus_text::{AddSpecial, Tokenizer};
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// Longer tokens, which are runs of one character, are never allowed: the trie has a limit.
const TOKEN_BYTES_MAX: usize = 512;
/// A control character that no merge begins with, so that what follows is tokenized as inside a text.
const BEFORE: &str = "\u{2}";

/// A model's tokens, shared by all of its grammars.
#[derive(Clone)]
pub struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    pub(crate) env: TokEnv,
    /// Tokens of the model; those of the trie are one more.
    pub(crate) size: usize,
}

/// Tokens and the tokenizer.
struct Environment {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
    /// The tokens of [`BEFORE`].
    before: Vec<TokenId>,
}

impl Vocabulary {
    /// The tokens of a model with `size` of them; the tokenizer may have fewer or more.
    ///
    /// The end of the text has an id of its own after the model's, because which tokens end a sequence is up to the
    /// request.
    pub fn new(tokenizer: Arc<Tokenizer>, size: usize) -> Self {
        let word = |id: u32| word(&tokenizer, id);
        let words: Vec<Vec<u8>> = (0..size as u32).map(word).chain([Vec::new()]).collect();
        let trie = TokTrie::from(&TokRxInfo::new(size as u32 + 1, size as u32), &words);
        let before = tokenizer.encode(BEFORE, AddSpecial::No).unwrap_or_default();
        let env = Arc::new(Environment { trie, tokenizer: tokenizer.clone(), before });
        Self { tokenizer, env, size }
    }
}

impl Vocabulary {
    /// The token that a text is, if it is one.
    pub(crate) fn token_of(&self, text: &str) -> Option<u32> {
        match self.tokenizer.encode(text, AddSpecial::No).ok()?.as_slice() {
            [token] => Some(*token),
            _ => None,
        }
    }

    /// The text of a token, that of a special one included.
    pub(crate) fn text(&self, token: u32) -> Vec<u8> {
        let bytes = self.env.tok_trie().token(token);
        bytes.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER]).unwrap_or(bytes).to_vec()
    }
}

/// A token's bytes; those of a special token begin with a marker.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let is_special = tokenizer.special_ids().contains(&id);
    let bytes = tokenizer.id_to_piece(id).filter(|bytes| bytes.len() <= TOKEN_BYTES_MAX).unwrap_or_default();
    match is_special {
        true => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes.as_slice()].concat(),
        false if tokenizer.eos_ids().contains(&id) => Vec::new(),
        false => bytes,
    }
}

impl Environment {
    /// The tokens of a text inside another, if the tokenizer gives any with exactly these bytes.
    fn tokenize(&self, text: &str) -> Option<Vec<TokenId>> {
        let tokens = self.tokenizer.encode(&format!("{BEFORE}{text}"), AddSpecial::No).ok()?;
        let tokens = tokens.strip_prefix(self.before.as_slice())?.to_vec();
        let is_text = tokens.iter().all(|token| !self.trie.is_special_token(*token));
        (is_text && self.trie.decode(&tokens) == text.as_bytes()).then_some(tokens)
    }
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.tokenize(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }
}
