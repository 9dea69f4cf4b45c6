//! A model's tokenizer: text to tokens and back, and which tokens are special.
//!
//! Invariant: nothing here changes after loading, and no text and no tokens make it panic.

mod markers;
mod texts;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::catch_panic::catch_panic;
use crate::decoder::Decoder;
use crate::error::Error;
use crate::files;
pub use texts::{Cut, CutSide, TextTokens};

/// Whether encoding adds the tokens that the model expects around a text, as its first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddSpecial {
    /// For a bare text.
    Yes,
    /// For a rendered chat template, which has them already.
    No,
}

/// Whether decoding skips special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipSpecial {
    /// They are skipped.
    Yes,
    /// They are decoded as the vocabulary spells them.
    No,
}

/// The contents of a model's tokenizer files. Only `tokenizer.json` is required.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenizerFiles<'a> {
    /// `tokenizer.json`.
    pub tokenizer: &'a [u8],
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<&'a Value>,
    /// `special_tokens_map.json`.
    pub special_tokens_map: Option<&'a Value>,
    /// `added_tokens.json`.
    pub added_tokens: Option<&'a Value>,
    /// `generation_config.json`.
    pub generation_config: Option<&'a Value>,
    /// `config.json`, for its `eos_token_id`.
    pub config: Option<&'a Value>,
}

/// A tokenizer, shared by all sequences of a model.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    decoder: Decoder,
    vocab_size: usize,
    special_ids: BTreeSet<u32>,
    special_tokens: Vec<(String, String)>,
    eos_ids: BTreeSet<u32>,
}

impl Tokenizer {
    /// Reads the tokenizer of a model directory. `config` is its `config.json`, which the caller has read.
    pub fn from_dir(directory: &Path, config: Option<&Value>) -> Result<Self, Error> {
        let path = directory.join("tokenizer.json");
        let Some(tokenizer) = files::read(&path)? else { return Err(missing(directory)) };
        let json = |file: &str| files::read_json(&directory.join(file));
        let (tokenizer_config, special_tokens_map) =
            (json("tokenizer_config.json")?, json("special_tokens_map.json")?);
        let (added_tokens, generation_config) = (json("added_tokens.json")?, json("generation_config.json")?);
        let files = TokenizerFiles {
            tokenizer: &tokenizer,
            tokenizer_config: tokenizer_config.as_ref(),
            special_tokens_map: special_tokens_map.as_ref(),
            added_tokens: added_tokens.as_ref(),
            generation_config: generation_config.as_ref(),
            config,
        };
        Self::from_bytes(files).map_err(|error| in_directory(directory, error))
    }

    /// A tokenizer from the contents of its files. Errors name the invalid file.
    pub fn from_bytes(files: TokenizerFiles<'_>) -> Result<Self, Error> {
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(files.tokenizer))
            .map_err(|message| broken("tokenizer.json", &message))?;
        // Truncation and padding in the file are settings of training.
        inner.with_truncation(None).map_err(|error| broken("tokenizer.json", &error.to_string()))?;
        inner.with_padding(None);
        add_missing(&mut inner, "added_tokens.json", added_tokens(files.added_tokens))?;
        add_missing(&mut inner, "tokenizer_config.json", added_tokens_decoder(files.tokenizer_config))?;
        let decoder =
            Decoder::new(inner.get_decoder()).map_err(|message| broken("tokenizer.json", &message))?;
        let special_tokens = special_tokens(&files);
        let mut special_ids: BTreeSet<u32> = inner
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| id)
            .collect();
        let named = special_tokens.iter().filter(|(name, _)| CORE_NAMES.contains(&name.as_str()));
        let named: Vec<u32> = named.filter_map(|(_, text)| inner.token_to_id(text)).collect();
        special_ids.extend(named);
        let vocab_size = inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        let mut tokenizer =
            Tokenizer { inner, decoder, vocab_size, special_ids, special_tokens, eos_ids: BTreeSet::new() };
        tokenizer.eos_ids = tokenizer.find_eos(&files);
        Ok(tokenizer)
    }

    /// The tokens of a text. Text that spells a special token becomes that token.
    ///
    /// Costs up to a microsecond and 200 bytes of memory for each byte of the text, so limit its length first.
    pub fn encode(&self, text: &str, add_special: AddSpecial) -> Result<Vec<u32>, Error> {
        let encode = || self.inner.encode_fast(text, add_special == AddSpecial::Yes);
        let encoding = guarded(encode).map_err(|message| Error::Tokenize { message })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens. Unknown token ids have no text.
    pub fn decode(&self, tokens: &[u32], skip_special: SkipSpecial) -> String {
        let mut held = self.decoder.start();
        let mut text = String::new();
        for token in tokens {
            if let Some(piece) = self.shown_piece(*token, skip_special) {
                text.push_str(&self.decoder.push(&mut held, piece));
            }
        }
        text.push_str(&self.decoder.finish(&mut held));
        text
    }

    /// The id of the token with exactly this spelling in the vocabulary.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// A token's spelling in the vocabulary, as `Ġthe` or `▁the`.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        let added = self.inner.get_added_vocabulary().simple_id_to_token(id);
        added.or_else(|| self.inner.id_to_token(id))
    }

    /// The bytes of a token in the middle of a text, possibly part of a character.
    pub fn id_to_piece(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(added) = self.inner.get_added_vocabulary().simple_id_to_token(id) {
            return Some(added.into_bytes());
        }
        self.inner.id_to_token(id).map(|token| self.decoder.bytes(&token))
    }

    /// One more than the largest id. A model may have more rows than that.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Whether a token was added to the vocabulary as a whole, as markers are.
    pub fn is_added(&self, id: u32) -> bool {
        self.inner.get_added_vocabulary().simple_id_to_token(id).is_some()
    }

    /// Ids of special tokens, in order.
    pub fn special_ids(&self) -> &BTreeSet<u32> {
        &self.special_ids
    }

    /// End-of-sequence ids: those of `generation_config.json`, else of `config.json`, and the tokenizer's own.
    pub fn eos_ids(&self) -> &BTreeSet<u32> {
        &self.eos_ids
    }

    /// The special tokens by name, as `bos_token`, for chat templates.
    pub fn special_tokens(&self) -> &[(String, String)] {
        &self.special_tokens
    }

    /// The text of the special token called `name`, as `bos_token`.
    pub fn special_token(&self, name: &str) -> Option<&str> {
        self.special_tokens.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str())
    }

    /// The id of the special token called `name`, as `bos_token`.
    pub fn special_token_id(&self, name: &str) -> Option<u32> {
        self.token_to_id(self.special_token(name)?)
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// The vocabulary's spelling of a token that is not skipped.
    pub(crate) fn shown_piece(&self, id: u32, skip_special: SkipSpecial) -> Option<String> {
        if skip_special == SkipSpecial::Yes && self.special_ids.contains(&id) {
            return None;
        }
        self.id_to_token(id)
    }

    fn find_eos(&self, files: &TokenizerFiles<'_>) -> BTreeSet<u32> {
        let mut ids = eos_token_ids(files.generation_config);
        if ids.is_empty() {
            ids = eos_token_ids(files.config);
        }
        if ids.is_empty() {
            ids = eos_token_ids(files.config.and_then(|config| config.get("text_config")));
        }
        ids.extend(self.special_token_id("eos_token"));
        ids
    }
}

/// Names of special tokens that every tokenizer may have.
const CORE_NAMES: &[&str] =
    &["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Runs a call into the `tokenizers` crate. Its panics on malformed files or texts become errors.
fn guarded<T>(call: impl FnOnce() -> Result<T, tokenizers::Error>) -> Result<T, String> {
    match catch_panic(call) {
        Ok(result) => result.map_err(|error| one_line(&error.to_string())),
        Err(panic) => Err(one_line(&format!("the tokenizer panicked: {}", panic.message))),
    }
}

fn one_line(message: &str) -> String {
    let line: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}

fn broken(file: &str, message: &str) -> Error {
    Error::File {
        path: file.into(),
        message: format!("{message}; download it again or convert the model anew"),
    }
}

fn in_directory(directory: &Path, error: Error) -> Error {
    match error {
        Error::File { path, message } => Error::File { path: directory.join(path), message },
        other => other,
    }
}

fn missing(directory: &Path) -> Error {
    let has = |file: &str| directory.join(file).is_file();
    let message = if has("tokenizer.model") || has("vocab.json") || has("tiktoken.model") {
        "it is missing and this model has its tokenizer in an older format; \
         load it with transformers' AutoTokenizer and save_pretrained it here"
    } else {
        "it is missing; download the model again with all its files"
    };
    Error::File { path: directory.join("tokenizer.json"), message: message.to_owned() }
}

/// The tokens of `added_tokens.json`: `{"text": id}`.
fn added_tokens(file: Option<&Value>) -> Vec<(u32, AddedToken)> {
    let entries = file.and_then(Value::as_object).into_iter().flatten();
    let token = |(text, id): (&String, &Value)| {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok())?;
        Some((id, AddedToken::from(text.as_str(), true).normalized(false)))
    };
    entries.filter_map(token).collect()
}

/// The tokens of `added_tokens_decoder`: `{"id": {"content": "text", "special": true, …}}`.
fn added_tokens_decoder(config: Option<&Value>) -> Vec<(u32, AddedToken)> {
    let decoder = config.and_then(|config| config.get("added_tokens_decoder"));
    let entries = decoder.and_then(Value::as_object).into_iter().flatten();
    let token = |(id, token): (&String, &Value)| {
        let is = |key: &str| token.get(key).and_then(Value::as_bool).unwrap_or(false);
        let content = token.get("content")?.as_str()?;
        let added = AddedToken::from(content, is("special"))
            .single_word(is("single_word"))
            .lstrip(is("lstrip"))
            .rstrip(is("rstrip"))
            .normalized(is("normalized"));
        Some((id.parse().ok()?, added))
    };
    entries.filter_map(token).collect()
}

/// Adds the tokens that `tokenizer.json` lacks. Their ids must follow its own without a gap.
fn add_missing(
    inner: &mut tokenizers::Tokenizer,
    file: &str,
    mut tokens: Vec<(u32, AddedToken)>,
) -> Result<(), Error> {
    tokens.sort_by_key(|(id, _)| *id);
    tokens.retain(|(_, token)| inner.token_to_id(&token.content).is_none());
    let wanted: Vec<(u32, String)> = tokens.iter().map(|(id, token)| (*id, token.content.clone())).collect();
    guarded(|| inner.add_tokens(tokens.into_iter().map(|(_, token)| token)))
        .map_err(|message| broken(file, &message))?;
    for (id, text) in wanted {
        let found = inner.token_to_id(&text);
        if found.is_some_and(|found| found != id) {
            let message =
                format!("token '{text}' is {id} here, but its place after tokenizer.json is {found:?}");
            return Err(broken(file, &message));
        }
    }
    Ok(())
}

/// A special token is its text or an object with it as `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

fn special_tokens(files: &TokenizerFiles<'_>) -> Vec<(String, String)> {
    let mut tokens: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: &Value| {
        if let (Some(text), false) = (token_text(value), tokens.iter().any(|(found, _)| found == name)) {
            tokens.push((name.to_owned(), text.to_owned()));
        }
    };
    let object = |file: Option<&'_ Value>| -> Map<String, Value> {
        file.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let config = object(files.tokenizer_config);
    for (name, value) in config.iter().chain(&object(files.special_tokens_map)) {
        if name.ends_with("_token") {
            add(name, value);
        }
    }
    for (name, value) in object(config.get("extra_special_tokens")) {
        add(&name, &value);
    }
    tokens
}

/// `eos_token_id` is a number or a list of numbers.
fn eos_token_ids(file: Option<&Value>) -> BTreeSet<u32> {
    let value = file.and_then(|file| file.get("eos_token_id"));
    let ids = match value {
        Some(Value::Array(ids)) => ids.as_slice(),
        Some(id) => std::slice::from_ref(id),
        None => &[],
    };
    ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}
