//! `POST /v1/completions`: OpenAI's fields and our extensions.

use omnibus_engine::LOGPROB_TOKEN_IDS_MAX;
use serde::Serialize;
use serde_json::Value;

use super::fields::{Field, Fields, honoured, refused, token_ids, type_error};
use super::gateway;
use super::generation::{self, Generation, Streaming};
use super::kv_transfer::KvTransferParams;
use super::logprobs::{PromptLogprobs, TextLogprobs, alternatives};
use super::structured;
use super::timings::{PromptProgress, Timings};
use super::usage::Usage;
use crate::error::ApiError;

/// Fields, besides [`generation::FIELDS`].
pub const FIELDS: &[Field] = &[
    honoured("prompt", "a string, a list of token ids, or a list of several of either"),
    honoured("echo", "returns the prompt before the completion"),
    honoured(
        "logprobs",
        "how many of the most likely tokens to report, at most `--max-logprobs`, besides the token itself",
    ),
    honoured(
        "logprob_token_ids",
        "at most 128 tokens whose log-probabilities are in `top_logprobs` of each generated token, besides the most likely ones; sets `logprobs` to 0 when that is absent",
    ),
    honoured(
        "best_of",
        "generates as many completions and returns the `n` whose tokens are the most likely on average; not with `stream`",
    ),
    honoured("suffix", "the text after the completion, for models with tokens for it"),
    refused("messages", "use `prompt`, or `/v1/chat/completions`"),
    refused("max_completion_tokens", "use `max_tokens`"),
    refused("tools", "use `/v1/chat/completions`"),
];

/// Most prompts of one request.
pub const PROMPTS_MAX: usize = 128;
/// Most choices of one request.
pub const CHOICES_MAX: usize = 1024;

/// A request body, read and validated.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The fields that chat completions have as well.
    pub generation: Generation,
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// Whether the prompt is returned before the completion.
    pub echo: Echo,
    /// How many alternatives to report per token; `None` reports no log-probabilities.
    pub logprobs: Option<usize>,
    /// Tokens whose log-probabilities are reported at each generated token.
    pub logprob_token_ids: Vec<u32>,
    /// What comes after the completion.
    pub suffix: Option<String>,
    /// How many completions are generated for each prompt, if more than are returned.
    pub best_of: Option<usize>,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// To be tokenized.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// Whether the prompt is returned before the completion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Echo {
    /// The completion alone.
    #[default]
    Omit,
    /// The prompt, then the completion.
    Include,
}

impl CompletionRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields =
            Fields::open(body, "", &[FIELDS, generation::FIELDS, gateway::FIELDS, structured::FIELDS])?;
        let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
        let prompt = fields.value("prompt");
        let prompts = prompts(fields.required("prompt", prompt)?)?;
        if suffix.is_some() && prompts.iter().any(|prompt| matches!(prompt, Prompt::Tokens(_))) {
            return Err(ApiError::invalid("suffix", "`suffix` needs a `prompt` of text"));
        }
        let logprob_token_ids = logprob_token_ids(&mut fields)?;
        let named = (!logprob_token_ids.is_empty()).then_some(0);
        let request = Self {
            generation: Generation::read(&mut fields)?,
            prompts,
            echo: if fields.flag("echo")?.unwrap_or(false) { Echo::Include } else { Echo::Omit },
            logprobs: alternatives(&mut fields, "logprobs")?.or(named),
            logprob_token_ids,
            suffix,
            best_of: fields.count("best_of", (1, generation::N_MAX))?,
        };
        fields.finish();
        check_choices(&request)?;
        Ok(request)
    }
}

fn logprob_token_ids(fields: &mut Fields) -> Result<Vec<u32>, ApiError> {
    let at = "logprob_token_ids";
    let list = fields.list(at)?.unwrap_or_default();
    if list.len() > LOGPROB_TOKEN_IDS_MAX {
        let message = format!("`{at}` must have at most {LOGPROB_TOKEN_IDS_MAX} entries");
        return Err(ApiError::invalid(at, message));
    }
    token_ids(at, &list)
}

fn check_choices(request: &CompletionRequest) -> Result<(), ApiError> {
    let echoes = request.echo == Echo::Include;
    if request.generation.prompt_logprobs.is_some() && echoes && request.logprobs.is_some() {
        let message = "`prompt_logprobs` does not go with `echo` and `logprobs`, which report the same";
        return Err(ApiError::invalid("prompt_logprobs", message));
    }
    if request.generation.truncate_prompt.is_some() && (echoes || request.suffix.is_some()) {
        let message = "`truncate_prompt_tokens` does not go with `echo` and `suffix`";
        return Err(ApiError::invalid("truncate_prompt_tokens", message));
    }
    let n = request.generation.n;
    let best_of = request.best_of.unwrap_or(n);
    if best_of < n {
        return Err(ApiError::invalid("best_of", "`best_of` must be at least `n`"));
    }
    if best_of > n && request.generation.streaming != Streaming::Off {
        return Err(ApiError::invalid("best_of", "`best_of` above `n` cannot be streamed"));
    }
    if best_of * request.prompts.len() > CHOICES_MAX {
        let field = if best_of > n { "best_of" } else { "n" };
        let message = format!("`{field}` times the number of prompts must be at most {CHOICES_MAX}");
        return Err(ApiError::invalid(field, message));
    }
    Ok(())
}

fn prompts(value: Value) -> Result<Vec<Prompt>, ApiError> {
    let list = match value {
        Value::String(text) => return Ok(vec![Prompt::Text(text)]),
        Value::Array(list) => list,
        other => return Err(type_error("prompt", "a string or a list", &other)),
    };
    if list.is_empty() {
        return Err(ApiError::invalid("prompt", "`prompt` must not be empty"));
    }
    if list.iter().all(Value::is_number) {
        return Ok(vec![Prompt::Tokens(token_ids("prompt", &list)?)]);
    }
    if list.len() > PROMPTS_MAX {
        return Err(ApiError::invalid("prompt", format!("`prompt` must have at most {PROMPTS_MAX} entries")));
    }
    list.into_iter().enumerate().map(|(index, value)| prompt(&format!("prompt[{index}]"), value)).collect()
}

fn prompt(at: &str, value: Value) -> Result<Prompt, ApiError> {
    match value {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(list) if list.is_empty() => {
            Err(ApiError::invalid(at, format!("`{at}` must not be empty")))
        }
        Value::Array(list) => token_ids(at, &list).map(Prompt::Tokens),
        other => Err(type_error(at, "a string or a list of token ids", &other)),
    }
}

/// A full response, or one chunk of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct Completion {
    /// `cmpl-…`
    pub id: String,
    /// `text_completion`
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The requested model.
    pub model: String,
    /// Prompt by prompt, `n` for each.
    pub choices: Vec<Choice>,
    /// Absent in streams without `include_usage`; with it, null in all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// The server's version.
    pub system_fingerprint: &'static str,
    /// Times, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// For the server that decodes, in a response to a request for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_transfer_params: Option<KvTransferParams>,
    /// How much of the prompt is computed, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<PromptProgress>,
}

/// One choice, or a delta of one.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// Prompt by prompt, `n` for each.
    pub index: usize,
    /// The new text.
    pub text: String,
    /// When requested.
    pub logprobs: Option<TextLogprobs>,
    /// Set in the last chunk of the choice.
    pub finish_reason: Option<&'static str>,
    /// The ids of the new tokens, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// The ids of the prompt's tokens, when requested, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Log-probabilities of the prompt's tokens, when requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
}
