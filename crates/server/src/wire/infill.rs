//! `POST /infill`, as in llama.cpp's server

use serde::Serialize;
use serde_json::Value;

use super::fields::{Field, Fields, harmless, honoured, type_error};
use super::generation::{self, Generation, TOKENS_MAX};
use super::timings::Timings;
use super::{gateway, structured};
use crate::error::ApiError;

/// Fields, besides [`generation::FIELDS`].
pub const FIELDS: &[Field] = &[
    honoured("input_prefix", "the text before the one to generate"),
    honoured("input_suffix", "the text after it"),
    honoured("input_extra", "other files before both: a list of `text` and `filename`"),
    honoured("prompt", "what the generated text begins with: it follows `input_prefix`"),
    honoured("n_predict", "llama.cpp's name of `max_tokens`; -1 is the rest of the context"),
    harmless("cache_prompt", "every prompt is looked up in the prefix cache"),
    harmless("id_slot", "there are no slots"),
    harmless("response_fields", "the response has all of its fields"),
    harmless("n_indent", "lines are not cut by their indentation"),
    harmless("t_max_prompt_ms", "the prompt is always computed whole"),
    harmless("t_max_predict_ms", "`n_predict` limits the text"),
];

/// Fields of an entry of `input_extra`.
pub const EXTRA: &[Field] =
    &[honoured("text", "the file's text"), honoured("filename", "its name; `tmp` when absent")];

/// Most files of `input_extra`.
const EXTRA_MAX: usize = 1024;
/// llama.cpp's sampler of infills, which chooses between texts by their ends. Clients always name it.
const INFILL_SAMPLER: &str = "infill";

/// A request body, read and validated.
#[derive(Debug, Clone, PartialEq)]
pub struct InfillRequest {
    /// The fields that completions have as well.
    pub generation: Generation,
    /// The text before the one to generate.
    pub prefix: String,
    /// The text after it.
    pub suffix: String,
    /// The names and texts of other files.
    pub files: Vec<(String, String)>,
}

impl InfillRequest {
    /// Reads a body.
    pub fn read(mut body: Value) -> Result<Self, ApiError> {
        if let Some(samplers) = body.get_mut("samplers").and_then(Value::as_array_mut) {
            samplers.retain(|name| name != INFILL_SAMPLER);
        }
        let mut fields =
            Fields::open(body, "", &[FIELDS, generation::FIELDS, gateway::FIELDS, structured::FIELDS])?;
        let (prefix, suffix) = (fields.text("input_prefix")?, fields.text("input_suffix")?);
        let prefix = fields.required("input_prefix", prefix)? + &fields.text("prompt")?.unwrap_or_default();
        let suffix = fields.required("input_suffix", suffix)?;
        let files = files(&mut fields)?;
        let predicted = generation::count_or_all(&mut fields, "n_predict", TOKENS_MAX)?;
        let mut generation = Generation::read(&mut fields)?;
        fields.finish();
        if generation.n > 1 {
            return Err(ApiError::invalid("n", "`n` must be 1: a response has one text"));
        }
        generation.max_tokens = generation.max_tokens.or(predicted.filter(|count| *count < TOKENS_MAX));
        Ok(Self { generation, prefix, suffix, files })
    }
}

fn files(fields: &mut Fields) -> Result<Vec<(String, String)>, ApiError> {
    let file = |(index, value): (usize, Value)| {
        let at = format!("input_extra[{index}]");
        if !value.is_object() {
            return Err(type_error(&at, "an object", &value));
        }
        let mut file = Fields::open(value, &at, &[EXTRA])?;
        let text = file.text("text")?;
        let text = file.required("text", text)?;
        Ok((file.text("filename")?.unwrap_or_else(|| "tmp".to_owned()), text))
    };
    let list = fields.list("input_extra")?.unwrap_or_default();
    if list.len() > EXTRA_MAX {
        let message = format!("`input_extra` must have at most {EXTRA_MAX} entries");
        return Err(ApiError::invalid("input_extra", message));
    }
    list.into_iter().enumerate().map(file).collect()
}

/// A full response, or the last chunk of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct Infilled {
    /// Always 0.
    pub index: usize,
    /// The generated text; empty in a stream, which had it.
    pub content: String,
    /// `true`
    pub stop: bool,
    /// `eos`, `word` or `limit`.
    pub stop_type: &'static str,
    /// The stop string that ended it, if one did.
    pub stopping_word: String,
    /// The model.
    pub model: String,
    /// Tokens generated.
    pub tokens_predicted: usize,
    /// Tokens of the prompt.
    pub tokens_evaluated: usize,
    /// `false`: prompts are never cut.
    pub truncated: bool,
    /// How long it took.
    pub timings: Timings,
}

/// A chunk of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct InfillChunk {
    /// Always 0.
    pub index: usize,
    /// The new text.
    pub content: String,
    /// `false`
    pub stop: bool,
}
