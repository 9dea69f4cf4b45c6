//! `tokenizer.json` and `tokenizer_config.json` from metadata.

mod merges;
mod pre_tokenizers;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::error::Problem;
use crate::metadata::{Metadata, required};

/// Tokens that are not part of text, by their numbers in `tokenizer.ggml.token_type`.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
/// Tokens that are found in text before it is divided.
const USER_DEFINED: i64 = 4;

/// Control tokens that end a turn, whatever the file's own end of sequence is.
///
/// Source: llama.cpp `src/llama-vocab.cpp`, `special_eog_ids`.
const ENDS_OF_TURN: &[&str] =
    &["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>"];

/// A file's tokenizer.
pub struct Tokenizer<'a> {
    metadata: Metadata<'a>,
    tokens: &'a [String],
    kinds: &'a [i64],
}

impl<'a> Tokenizer<'a> {
    /// Reads the tokens.
    pub fn read(metadata: Metadata<'a>) -> Result<Self, Problem> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let tokens = required(TOKENS, metadata.texts(TOKENS)?)?;
        let kinds = metadata.integers("tokenizer.ggml.token_type")?.unwrap_or_default();
        if !kinds.is_empty() && kinds.len() != tokens.len() {
            return Err(Problem::broken("`tokenizer.ggml.token_type` has another length than the tokens"));
        }
        Ok(Self { metadata, tokens, kinds })
    }

    /// `tokenizer.json`.
    pub fn file(&self) -> Result<Value, Problem> {
        const MODEL: &str = "tokenizer.ggml.model";
        let mut file = match required(MODEL, self.metadata.text(MODEL)?)? {
            "gpt2" => self.byte_level()?,
            "llama" => self.sentence_piece()?,
            other => {
                return Err(Problem::unsupported(format!("`{MODEL}` is {other} (read are gpt2 and llama)")));
            }
        };
        let parts = [
            ("version", json!("1.0")),
            ("truncation", Value::Null),
            ("padding", Value::Null),
            ("added_tokens", Value::Array(self.added())),
            ("post_processor", self.post_processor()?),
        ];
        file.extend(parts.map(|(name, value)| (name.to_owned(), value)));
        Ok(Value::Object(file))
    }

    /// `tokenizer_config.json`.
    pub fn config(&self) -> Result<Value, Problem> {
        let mut config = Map::new();
        config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
        config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
        let roles = [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")];
        for (name, role) in roles {
            if let Some(token) = self.token_of(role)? {
                config.insert(format!("{name}_token"), json!(token));
            }
        }
        if let Some(template) = self.metadata.text("tokenizer.chat_template")? {
            config.insert("chat_template".to_owned(), json!(template));
        }
        Ok(Value::Object(config))
    }

    /// The tokens that end a text or a turn.
    pub fn ends(&self) -> Result<BTreeSet<usize>, Problem> {
        let mut ends = BTreeSet::new();
        for role in ["eos", "eot", "eom"] {
            ends.extend(self.id_of(role)?);
        }
        let is_end = |id: &usize| {
            self.kinds.get(*id) == Some(&CONTROL)
                && self.tokens.get(*id).is_some_and(|token| ENDS_OF_TURN.contains(&token.as_str()))
        };
        ends.extend((0..self.tokens.len()).filter(is_end));
        Ok(ends)
    }

    fn id_of(&self, role: &str) -> Result<Option<usize>, Problem> {
        let key = format!("tokenizer.ggml.{role}_token_id");
        let id = self.metadata.count(&key)?;
        match id {
            Some(id) if id >= self.tokens.len() => Err(Problem::broken(format!("`{key}` is no token"))),
            id => Ok(id),
        }
    }

    fn token_of(&self, role: &str) -> Result<Option<&'a str>, Problem> {
        Ok(self.id_of(role)?.and_then(|id| self.tokens.get(id)).map(String::as_str))
    }

    fn added(&self) -> Vec<Value> {
        let tokens = self.tokens.iter().zip(self.kinds).enumerate();
        tokens
            .filter(|(_, (_, kind))| [UNKNOWN, CONTROL, USER_DEFINED].contains(kind))
            .map(|(id, (content, kind))| {
                json!({
                    "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": *kind != USER_DEFINED
                })
            })
            .collect()
    }

    /// Of equal tokens the first one counts.
    fn vocabulary(&self) -> Map<String, Value> {
        let mut vocabulary = Map::new();
        for (id, token) in self.tokens.iter().enumerate() {
            vocabulary.entry(token.clone()).or_insert_with(|| json!(id));
        }
        vocabulary
    }

    /// Byte-level BPE with the file's merges.
    fn byte_level(&self) -> Result<Map<String, Value>, Problem> {
        const MERGES: &str = "tokenizer.ggml.merges";
        let merges = required(MERGES, self.metadata.texts(MERGES)?)?;
        let pair = |merge: &String| {
            // A token may begin with what stands for a space, never with a space.
            let halves = merge.char_indices().skip(1).find(|(_, letter)| *letter == ' ');
            let halves = halves.and_then(|(at, _)| Some((merge.get(..at)?, merge.get(at + 1..)?)));
            halves
                .map(|(left, right)| json!([left, right]))
                .ok_or_else(|| Problem::broken(format!("`{MERGES}` holds `{merge}`, which is no pair")))
        };
        let merges = merges.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        let name = self.metadata.text("tokenizer.ggml.pre")?.unwrap_or("default");
        let pre_tokenizer = pre_tokenizers::of(name).ok_or_else(|| {
            Problem::unsupported(format!(
                "`tokenizer.ggml.pre` is {name}, a way to divide text that is not known"
            ))
        })?;
        Ok(object([
            ("normalizer", pre_tokenizer.normalizer),
            ("pre_tokenizer", pre_tokenizer.steps),
            (
                "decoder",
                json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true }),
            ),
            (
                "model",
                json!({
                    "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                    "ignore_merges": pre_tokenizer.whole_words_first, "vocab": self.vocabulary(), "merges": merges
                }),
            ),
        ]))
    }

    /// SentencePiece's BPE: the merges follow from the scores.
    fn sentence_piece(&self) -> Result<Map<String, Value>, Problem> {
        const SCORES: &str = "tokenizer.ggml.scores";
        let scores = required(SCORES, self.metadata.floats(SCORES)?)?;
        if scores.len() != self.tokens.len() {
            return Err(Problem::broken(format!("`{SCORES}` has another length than the tokens")));
        }
        let merges = merges::of_scores(self.tokens, scores);
        let prefix = self.metadata.truth("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let spaces = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" });
        let mut normalizers = vec![json!({ "type": "Prepend", "prepend": "\u{2581}" })];
        let mut decoders = vec![
            json!({ "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
            json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }),
        ];
        if !prefix {
            normalizers.clear();
            decoders.pop();
        }
        normalizers.push(spaces);
        let unknown = self.token_of("unknown")?;
        Ok(object([
            ("normalizer", json!({ "type": "Sequence", "normalizers": normalizers })),
            ("pre_tokenizer", Value::Null),
            ("decoder", json!({ "type": "Sequence", "decoders": decoders })),
            (
                "model",
                json!({
                    "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
                    "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                    "vocab": self.vocabulary(), "merges": merges
                }),
            ),
        ]))
    }

    /// Puts the begin of sequence in front of text, where the file wants it.
    fn post_processor(&self) -> Result<Value, Problem> {
        let is_sentence_piece = self.metadata.text("tokenizer.ggml.model")? == Some("llama");
        let adds = self.metadata.truth("tokenizer.ggml.add_bos_token")?.unwrap_or(is_sentence_piece);
        let bos = self.id_of("bos")?.zip(self.token_of("bos")?).filter(|_| adds);
        let Some((id, token)) = bos else { return Ok(Value::Null) };
        let special = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let sequence = |name: &str, kind: usize| json!({ "Sequence": { "id": name, "type_id": kind } });
        Ok(json!({
            "type": "TemplateProcessing",
            "single": [special, sequence("A", 0)],
            "pair": [special, sequence("A", 0), sequence("B", 1)],
            "special_tokens": { token: { "id": token, "ids": [id], "tokens": [token] } }
        }))
    }
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
