//! Late interaction: a vector for each token, and how queries and documents are written (ColBERT).
//!
//! Source: arXiv 2004.12832, 2112.01488; Stanford's `artifact.metadata`, PyLate's and sentence-transformers' files.

use std::path::Path;

use serde_json::{Map, Value};

use crate::activation::Activation;
use crate::checkpoint::Checkpoint;
use crate::error::{PoolerError, object};
use crate::prompts::Prompts;
use crate::step::Step;
use crate::{Pooler, Task};

/// The class of a checkpoint in Stanford's layout.
pub(crate) const STANFORD_CLASS: &str = "HF_ColBERT";

/// Tokens of a query where no file says so.
const QUERY_LENGTH: usize = 32;

const FILE: &str = "config_sentence_transformers.json";

/// How the two kinds of texts are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateInteraction {
    /// A query.
    pub query: TokenForm,
    /// A document.
    pub document: TokenForm,
    /// Documents' tokens without a vector: punctuation.
    pub skipped: Vec<String>,
}

/// How a text is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenForm {
    /// Stands behind the first token, or in front of the text if the vocabulary does not have it.
    pub marker: String,
    /// Most tokens, the marker included.
    pub tokens: Option<usize>,
    /// What follows a short text.
    pub expansion: Option<Expansion>,
}

/// Tokens that follow a short query and have vectors of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// Which: the mask token where files name none.
    pub token: Option<String>,
    /// So many tokens it has then.
    pub tokens: usize,
    /// Whether others attend to them.
    pub attended: bool,
}

/// The sum over a query's vectors of the largest product with a vector of a document. `width`: numbers of a vector.
pub fn max_sim(query: &[f32], document: &[f32], width: usize) -> f32 {
    let dot =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    let width = width.max(1);
    let best = |vector: &[f32]| {
        document.chunks_exact(width).map(|other| dot(vector, other)).reduce(f64::max).unwrap_or_default()
    };
    query.chunks_exact(width).map(best).sum::<f64>() as f32
}

/// Stanford's layout: a BERT, and `linear` without a bias.
pub(crate) fn stanford(directory: &Path, checkpoint: &Checkpoint) -> Result<Pooler, PoolerError> {
    let metadata = object(directory, "artifact.metadata")?.unwrap_or_default();
    let text =
        |field: &str, absent: &str| metadata.get(field).and_then(Value::as_str).unwrap_or(absent).to_owned();
    let length = |field: &str| count(&metadata, field);
    let expansion = Expansion {
        token: None,
        tokens: length("query_maxlen").unwrap_or(QUERY_LENGTH),
        attended: is_on(&metadata, "attend_to_mask_tokens").unwrap_or(false),
    };
    let skipped = match is_on(&metadata, "mask_punctuation").unwrap_or(true) {
        true => punctuation(),
        false => Vec::new(),
    };
    let projection = checkpoint.dense("linear", Activation::Identity)?;
    Ok(Pooler {
        token_steps: vec![Step::Dense(projection), Step::Normalize],
        late: Some(LateInteraction {
            query: TokenForm {
                marker: text("query_token_id", "[unused0]"),
                tokens: Some(expansion.tokens),
                expansion: Some(expansion),
            },
            document: TokenForm {
                marker: text("doc_token_id", "[unused1]"),
                tokens: length("doc_maxlen"),
                expansion: None,
            },
            skipped,
        }),
        prompts: Prompts::of_roles(),
        ..Pooler::new(Task::EmbedTokens, Vec::new(), Vec::new())
    })
}

/// What files of sentence-transformers and PyLate say, if the model is of this kind. `transformer`: its first module's file.
/// `mask`: that of a module that leaves out tokens.
pub(crate) fn declared(
    directory: &Path,
    transformer: &Map<String, Value>,
    mask: Option<&Map<String, Value>>,
) -> Result<Option<LateInteraction>, PoolerError> {
    let config = object(directory, FILE)?.unwrap_or_default();
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    if mask.is_none() && !matches!(kind, "ColBERT" | "MultiVectorEncoder") {
        return Ok(None);
    }
    let length = |field: &str| count(transformer, field).or_else(|| count(&config, field));
    let expansion = expansion(transformer, &config);
    let query_tokens =
        expansion.as_ref().map(|expansion| expansion.tokens).or_else(|| length("query_length"));
    let words = |of: &Map<String, Value>| {
        let words = of.get("skiplist_words").and_then(Value::as_array)?.iter();
        Some(words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
    };
    let skipped = match mask {
        Some(mask) => words(mask).unwrap_or_default(),
        None => words(&config).unwrap_or_else(punctuation),
    };
    Ok(Some(LateInteraction {
        query: TokenForm { marker: marker(&config, "query"), tokens: query_tokens, expansion },
        document: TokenForm {
            marker: marker(&config, "document"),
            tokens: length("document_length"),
            expansion: None,
        },
        skipped,
    }))
}

/// PyLate's prefix, which is one token, or a prompt.
fn marker(config: &Map<String, Value>, role: &str) -> String {
    let prompt = config.get("prompts").and_then(|prompts| prompts.get(role)).and_then(Value::as_str);
    let prompt = prompt.unwrap_or_default();
    let prefix = config.get(&format!("{role}_prefix")).and_then(Value::as_str).unwrap_or_default();
    format!("{prefix}{}", prompt.strip_prefix(prefix).unwrap_or(prompt))
}

/// Newer files have an object of the first module, PyLate's switches of the model.
fn expansion(transformer: &Map<String, Value>, config: &Map<String, Value>) -> Option<Expansion> {
    let newer = transformer.get("query_expansion").or_else(|| config.get("query_expansion"));
    if let Some(newer) = newer {
        let newer = newer.as_object()?;
        let token = newer.get("token").and_then(Value::as_str).map(str::to_owned);
        let tokens = count(newer, "length").unwrap_or(QUERY_LENGTH);
        return Some(Expansion { token, tokens, attended: is_on(newer, "attend").unwrap_or(false) });
    }
    let fields = ["do_query_expansion", "attend_to_expansion_tokens", "query_length", "query_prefix"];
    let is_pylates = fields.iter().any(|field| config.contains_key(*field));
    if !is_pylates || is_on(config, "do_query_expansion") == Some(false) {
        return None;
    }
    Some(Expansion {
        token: None,
        tokens: count(config, "query_length").unwrap_or(QUERY_LENGTH),
        attended: is_on(config, "attend_to_expansion_tokens").unwrap_or(false),
    })
}

fn count(of: &Map<String, Value>, field: &str) -> Option<usize> {
    of.get(field).and_then(Value::as_u64).filter(|count| *count > 0).map(|count| count as usize)
}

fn is_on(of: &Map<String, Value>, field: &str) -> Option<bool> {
    of.get(field).and_then(Value::as_bool)
}

/// Python's `string.punctuation`.
fn punctuation() -> Vec<String> {
    (b'!'..=b'~').map(char::from).filter(char::is_ascii_punctuation).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_query_vector_counts_its_best_document_vector() {
        let (query, document) = ([1.0, 0.0, 0.0, 1.0], [0.6, 0.8, 1.0, 0.0]);
        assert!((max_sim(&query, &document, 2) - 1.8).abs() < 1e-6);
        assert_eq!(max_sim(&query, &[], 2), 0.0);
        assert_eq!(max_sim(&[], &document, 2), 0.0);
    }

    #[test]
    fn punctuation_is_pythons() {
        assert_eq!(punctuation().concat(), "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");
    }

    #[test]
    fn expansion_is_off_where_files_say_so() {
        let read = |transformer: Value, config: Value| {
            expansion(
                transformer.as_object().unwrap_or(&Map::new()),
                config.as_object().unwrap_or(&Map::new()),
            )
        };
        let none = serde_json::json!({});
        assert_eq!(read(none.clone(), none.clone()), None);
        assert_eq!(
            read(none.clone(), serde_json::json!({"do_query_expansion": false, "query_length": 8})),
            None
        );
        assert_eq!(
            read(serde_json::json!({"query_expansion": null}), serde_json::json!({"query_length": 8})),
            None
        );
        let on = read(none, serde_json::json!({"query_length": 8})).map(|expansion| expansion.tokens);
        assert_eq!(on, Some(8));
    }
}
