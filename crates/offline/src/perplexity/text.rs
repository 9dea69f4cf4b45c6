//! The text that perplexity is computed on, as token sequences of equal length.

use std::path::Path;

use omnibus_engine::{ModelSource, StartError, tokenizer_of};
use omnibus_text::{AddSpecial, Tokenizer};
use serde_json::Value;

/// Sequences of equal length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSequences {
    sequences: Vec<Vec<u32>>,
}

impl TokenSequences {
    /// Cuts tokens into sequences of `length`, at most `count` of them. What is left over is dropped. Fails when there is
    /// none.
    pub fn cut(tokens: &[u32], length: usize, count: Option<usize>) -> Result<Self, StartError> {
        let whole = tokens.chunks_exact(length.max(2)).map(<[u32]>::to_vec);
        let sequences: Vec<Vec<u32>> = whole.take(count.unwrap_or(usize::MAX)).collect();
        if sequences.is_empty() {
            return Err(StartError::new(format!(
                "the text has {} tokens, less than one sequence of {length}; lower --sequence-length",
                tokens.len()
            )));
        }
        Ok(Self { sequences })
    }

    /// The sequences.
    pub fn sequences(&self) -> &[Vec<u32>] {
        &self.sequences
    }

    /// The largest id.
    pub(super) fn largest(&self) -> u32 {
        self.sequences.iter().flatten().copied().max().unwrap_or(0)
    }
}

/// The tokens of a file by a model's tokenizer: a text, lines of JSON with a `text` each, which end with the end token as in
/// mlx-lm's datasets, or a JSON list of token ids.
pub fn read_tokens(file: &Path, source: &ModelSource) -> Result<Vec<u32>, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::new(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let extension = file.extension().and_then(|extension| extension.to_str());
    if extension == Some("json") {
        let ids: Vec<u32> = serde_json::from_str(&text)
            .map_err(|error| failed(&format!("should be a list of token ids: {error}")))?;
        return Ok(ids);
    }
    let tokenizer = tokenizer_of(&source.files())?;
    let encode = |text: &str| tokenizer.encode(text, AddSpecial::Yes).map_err(|error| failed(&error));
    match extension {
        Some("jsonl") => documents(&text).map_err(|problem| failed(&problem)).and_then(|documents| {
            let mut tokens = Vec::new();
            for document in documents {
                tokens.extend(ended(encode(&document)?, &tokenizer));
            }
            Ok(tokens)
        }),
        _ => encode(&text),
    }
}

fn documents(lines: &str) -> Result<Vec<String>, String> {
    let document = |(number, line): (usize, &str)| {
        let value: Option<Value> = serde_json::from_str(line).ok();
        let text = value.as_ref().and_then(|value| value.get("text")).and_then(Value::as_str);
        text.map(str::to_owned).ok_or_else(|| format!("line {} has no `text`", number + 1))
    };
    lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(document).collect()
}

/// With the end token, unless it is there.
fn ended(mut tokens: Vec<u32>, tokenizer: &Tokenizer) -> Vec<u32> {
    if let Some(end) = tokenizer.special_token_id("eos_token").filter(|end| tokens.last() != Some(end)) {
        tokens.push(end);
    }
    tokens
}
