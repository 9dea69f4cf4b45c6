//! The generation fields that chat and text completions share.

use std::collections::BTreeMap;

use omnibus_engine::SamplerKind;
use serde_json::Value;

use super::energy::ShownEnergy;
use super::fields::{Field, Fields, harmless, honoured, refused, token_ids, type_error};
use super::gateway;
use super::kv_transfer::{self, KvTransfer};
use super::logprobs::alternatives;
use super::samplers;
use super::structured::{self, StructuredOutput};
use crate::error::ApiError;

/// Fields that chat and text completions share.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("max_tokens", "most tokens to generate"),
    honoured(
        "temperature",
        "0 is greedy; when absent the model's own, else 1; applied before `top_k`, `top_p` and `min_p`",
    ),
    honoured(
        "dynatemp_range",
        "how far the temperature moves around `temperature` with the entropy; 0 when absent: not at all",
    ),
    honoured("dynatemp_exponent", "the power of the entropy that moves it; 1 when absent"),
    honoured("top_p", "nucleus sampling: keeps the smallest set of tokens with this total probability"),
    honoured("top_k", "keeps the k most likely tokens; 0 or -1 keeps all"),
    honoured("min_p", "keeps tokens at least this fraction as likely as the most likely one"),
    honoured("xtc_probability", "how often the most likely tokens are excluded; 0 when absent"),
    honoured(
        "xtc_threshold",
        "then, of the tokens above this probability all but the least likely one are, after the filters; 0.1 when absent",
    ),
    honoured(
        "top_n_sigma",
        "keeps logits within so many standard deviations of the largest; at most 0, as when absent, keeps all",
    ),
    honoured(
        "typical_p",
        "locally typical sampling: keeps the smallest set of tokens nearest to the entropy above this probability; 1 when absent",
    ),
    honoured(
        "dry_multiplier",
        "the penalty of tokens that would continue a repetition (\"don't repeat yourself\"); 0 when absent: none",
    ),
    honoured("dry_base", "how it grows with each token of the repetition; at least 1, 1.75 when absent"),
    honoured("dry_allowed_length", "shorter repetitions have no penalty; 2 when absent"),
    honoured(
        "dry_penalty_last_n",
        "how many of the last tokens, prompt included, are searched; -1, as when absent, is all, and 0 none",
    ),
    honoured(
        "dry_sequence_breakers",
        "texts that no repetition contains, at most 64 of 40 bytes; a line break, `:`, `\"` and `*` when absent",
    ),
    honoured(
        "samplers",
        "llama.cpp's: which of the samplers below are applied, in this order, each at most once; all in the table's order when absent or empty",
    ),
    honoured("repetition_penalty", "over the last `repetition_context_size` tokens, prompt included"),
    honoured("repetition_context_size", "20 when absent"),
    honoured("presence_penalty", "over the generated tokens"),
    honoured("frequency_penalty", "over the generated tokens"),
    honoured("logit_bias", "token ids to -100…100"),
    honoured(
        "bad_words",
        "vLLM's: at most 64 words whose tokens, with and without a space before them, are not generated; other tokens may spell them",
    ),
    honoured(
        "seed",
        "the same seed gives the same text, whatever else is in the batch; on GPUs tokens that are nearly equally likely may differ",
    ),
    honoured("n", "completions per prompt, at most 128"),
    honoured("stop", "a string or a list of at most 64"),
    honoured("stop_token_ids", "tokens that end the completion, besides the model's own end tokens"),
    honoured("ignore_eos", "generates past the model's end tokens"),
    honoured("min_tokens", "tokens before which nothing but a limit ends the completion; 0 when absent"),
    honoured("include_stop_str_in_output", "keeps the stop string in the text"),
    honoured("stream", "server-sent events"),
    honoured("stream_options", "`include_usage` and `continuous_usage_stats`"),
    honoured(
        "prompt_logprobs",
        "vLLM's: returns the log-probabilities of the prompt's tokens, and of so many of the most likely ones, at most `--max-logprobs`; not with `stream`",
    ),
    honoured(
        "truncate_prompt_tokens",
        "vLLM's: keeps so many of the prompt's last tokens; not with `echo`, `suffix`, tools and media",
    ),
    honoured(
        "return_token_ids",
        "vLLM's: returns the ids of the tokens as `token_ids`, and of the prompt's as `prompt_token_ids`",
    ),
    honoured(
        "return_tokens_as_token_ids",
        "vLLM's: true writes `token_id:…` for the texts of log-probabilities",
    ),
    honoured(
        "timings_per_token",
        "llama.cpp's: true adds `timings` to each chunk of a choice and to the response, where they are those of the first choice",
    ),
    honoured(
        "return_progress",
        "llama.cpp's: true adds chunks with `prompt_progress` to a stream while its prompt is computed",
    ),
    honoured(
        "include_energy",
        "ours: true adds `energy` to `usage`, in joules, where a sensor counts it; absent elsewhere",
    ),
    honoured(
        "kv_transfer_params",
        "vLLM's: a prompt that another server decodes or has computed; see [KV blocks of other servers](kv-peers.md)",
    ),
    honoured("priority", "higher is scheduled first; 0 when absent"),
    honoured("session_id", "pins the conversation's blocks between requests"),
    honoured("cache_salt", "shares cached prefixes only with requests that have the same salt"),
    honoured(
        "speculative",
        "`{\"enabled\": false}` switches draft tokens off, which changes the time of an answer alone",
    ),
    harmless("user", "a label for the operator"),
    harmless("metadata", "labels for stored responses; none are stored"),
    harmless("service_tier", "there is one service tier"),
    harmless("prompt_cache_key", "every prompt is looked up in the prefix cache; `session_id` pins one"),
    harmless("prompt_cache_options", "every prompt is looked up in the prefix cache"),
    harmless("prompt_cache_retention", "cached prefixes stay until they are evicted"),
    harmless("safety_identifier", "a label for the operator"),
    harmless("moderation", "this server judges no texts"),
    harmless("store", "nothing is stored, and no answer depends on it"),
    refused("logits_processors", "requests cannot carry code"),
    refused("use_beam_search", "beam search is not implemented"),
];

/// Fields of `stream_options`.
pub const STREAM_OPTIONS: &[Field] = &[
    honoured("include_usage", "adds a last chunk with the usage"),
    honoured("continuous_usage_stats", "with `include_usage`: each chunk has the usage of its choice so far"),
    harmless("include_obfuscation", "chunks are not padded"),
];

/// Fields of `speculative`.
pub const SPECULATIVE: &[Field] = &[honoured("enabled", "false: no draft tokens; true when absent")];

/// Most completions of one prompt.
pub const N_MAX: usize = 128;
/// Upper limit of all fields that count tokens.
pub const TOKENS_MAX: usize = i32::MAX as usize;
/// Longest `session_id` or `cache_salt`, in bytes.
pub const LABEL_BYTES_MAX: usize = 256;

/// The shared fields, as sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Generation {
    /// A served name.
    pub model: Option<String>,
    /// `max_tokens`.
    pub max_tokens: Option<usize>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Stop conditions.
    pub stop: Stop,
    /// What the answer must match.
    pub structured: Option<StructuredOutput>,
    /// Completions per prompt.
    pub n: usize,
    /// Whether to stream.
    pub streaming: Streaming,
    /// Higher is scheduled first.
    pub priority: i32,
    /// Pins the conversation's blocks.
    pub session_id: Option<String>,
    /// Separates cached prefixes.
    pub cache_salt: Option<String>,
    /// `kv_transfer_params`.
    pub kv_transfer: KvTransfer,
    /// `speculative`.
    pub speculation: Speculation,
    /// How tokens are shown.
    pub tokens: TokenDisplay,
    /// `timings_per_token`.
    pub timings: ShownTimings,
    /// `return_progress`.
    pub progress: ShownProgress,
    /// `include_energy`.
    pub energy: ShownEnergy,
    /// How many alternatives to report per token of the prompt; `None` reports nothing about them.
    pub prompt_logprobs: Option<usize>,
    /// How many of the prompt's last tokens are kept.
    pub truncate_prompt: Option<usize>,
}

/// How tokens are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenDisplay {
    /// Whether their ids are returned.
    pub ids: TokenIds,
    /// What stands for them in log-probabilities.
    pub names: TokenNames,
}

/// Whether the ids of tokens are returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TokenIds {
    /// They are not.
    #[default]
    Omit,
    /// They are.
    Return,
}

/// What stands for a token in log-probabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TokenNames {
    /// Its text.
    #[default]
    Texts,
    /// Its id, as `token_id:…`.
    Ids,
}

/// Whether times are returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShownTimings {
    /// They are not.
    #[default]
    Omit,
    /// They are.
    Include,
}

/// Whether a stream says how much of the prompt is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShownProgress {
    /// It does not.
    #[default]
    Omit,
    /// It does.
    Include,
}

/// Whether draft tokens are allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Speculation {
    /// Where the server has any.
    #[default]
    Allowed,
    /// Never.
    Off,
}

/// Sampling parameters; `None` keeps the default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampling {
    /// `temperature`.
    pub temperature: Option<f64>,
    /// `top_p`.
    pub top_p: Option<f64>,
    /// `top_k`, with -1 turned into 0.
    pub top_k: Option<usize>,
    /// `min_p`.
    pub min_p: Option<f64>,
    /// `dynatemp_range`.
    pub dynatemp_range: Option<f64>,
    /// `dynatemp_exponent`.
    pub dynatemp_exponent: Option<f64>,
    /// `top_n_sigma`.
    pub top_n_sigma: Option<f64>,
    /// `typical_p`.
    pub typical_p: Option<f64>,
    /// The fields of `dry`.
    pub dry: Dry,
    /// `samplers`.
    pub samplers: Vec<SamplerKind>,
    /// `xtc_probability`.
    pub xtc_probability: Option<f64>,
    /// `xtc_threshold`.
    pub xtc_threshold: Option<f64>,
    /// `repetition_penalty`.
    pub repetition_penalty: Option<f64>,
    /// `repetition_context_size`.
    pub repetition_context: Option<usize>,
    /// `presence_penalty`.
    pub presence_penalty: Option<f64>,
    /// `frequency_penalty`.
    pub frequency_penalty: Option<f64>,
    /// `logit_bias`.
    pub logit_bias: BTreeMap<u32, f64>,
    /// `bad_words`.
    pub bad_words: Vec<String>,
    /// `seed`, as its 64 bits.
    pub seed: Option<u64>,
}

/// The penalty of repetitions; `None` keeps the default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dry {
    /// `dry_multiplier`.
    pub multiplier: Option<f64>,
    /// `dry_base`.
    pub base: Option<f64>,
    /// `dry_allowed_length`.
    pub allowed_length: Option<usize>,
    /// `dry_penalty_last_n`, with -1 turned into the largest number.
    pub context: Option<usize>,
    /// `dry_sequence_breakers`.
    pub breakers: Option<Vec<String>>,
}

/// Stop conditions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stop {
    /// `stop`.
    pub strings: Vec<String>,
    /// `stop_token_ids`.
    pub token_ids: Vec<u32>,
    /// `ignore_eos`.
    pub ignore_eos: bool,
    /// `include_stop_str_in_output`.
    pub include: bool,
    /// `min_tokens`.
    pub min_tokens: usize,
}

/// `stream` and `stream_options`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Streaming {
    /// One JSON object at the end.
    #[default]
    Off,
    /// Server-sent events.
    On(StreamUsage),
}

/// Whether a stream ends with a usage chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamUsage {
    /// Without.
    Omit,
    /// With a usage chunk.
    Include,
    /// With the usage so far in each chunk, too.
    Continuous,
}

impl Generation {
    /// Takes the shared fields out of a body.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        gateway::check(fields)?;
        let streaming = streaming(fields)?;
        Ok(Self {
            model: fields.text("model")?,
            max_tokens: fields.count("max_tokens", (0, TOKENS_MAX))?,
            sampling: Sampling::read(fields)?,
            stop: Stop::read(fields)?,
            structured: structured::read(fields)?,
            n: fields.count("n", (1, N_MAX))?.unwrap_or(1),
            streaming,
            prompt_logprobs: prompt_logprobs(fields, streaming)?,
            truncate_prompt: fields.count("truncate_prompt_tokens", (1, TOKENS_MAX))?,
            priority: priority(fields)?,
            session_id: label(fields, "session_id")?,
            cache_salt: label(fields, "cache_salt")?,
            kv_transfer: kv_transfer::read(fields)?,
            speculation: speculation(fields)?,
            tokens: TokenDisplay::read(fields)?,
            timings: match fields.flag("timings_per_token")? {
                Some(true) => ShownTimings::Include,
                Some(false) | None => ShownTimings::Omit,
            },
            progress: match fields.flag("return_progress")? {
                Some(true) if streaming != Streaming::Off => ShownProgress::Include,
                Some(_) | None => ShownProgress::Omit,
            },
            energy: ShownEnergy::read(fields)?,
        })
    }
}

impl TokenDisplay {
    fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        Ok(Self {
            ids: match fields.flag("return_token_ids")? {
                Some(true) => TokenIds::Return,
                Some(false) | None => TokenIds::Omit,
            },
            names: match fields.flag("return_tokens_as_token_ids")? {
                Some(true) => TokenNames::Ids,
                Some(false) | None => TokenNames::Texts,
            },
        })
    }
}

fn speculation(fields: &mut Fields) -> Result<Speculation, ApiError> {
    let Some(mut speculative) = fields.nested("speculative", SPECULATIVE)? else {
        return Ok(Speculation::Allowed);
    };
    Ok(match speculative.flag("enabled")? {
        Some(false) => Speculation::Off,
        Some(true) | None => Speculation::Allowed,
    })
}

impl Sampling {
    fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        Ok(Self {
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            top_k: count_or_all(fields, "top_k", 0)?,
            min_p: fields.number("min_p")?,
            dynatemp_range: fields.number("dynatemp_range")?,
            dynatemp_exponent: fields.number("dynatemp_exponent")?,
            top_n_sigma: fields.number("top_n_sigma")?,
            typical_p: fields.number("typical_p")?,
            dry: Dry::read(fields)?,
            samplers: samplers::read(fields)?,
            xtc_probability: fields.number("xtc_probability")?,
            xtc_threshold: fields.number("xtc_threshold")?,
            repetition_penalty: fields.number("repetition_penalty")?,
            repetition_context: fields.count("repetition_context_size", (0, TOKENS_MAX))?,
            presence_penalty: fields.number("presence_penalty")?,
            frequency_penalty: fields.number("frequency_penalty")?,
            logit_bias: logit_bias(fields)?,
            bad_words: texts(fields, "bad_words")?.unwrap_or_default(),
            seed: fields.integer("seed")?.map(|seed| seed as u64),
        })
    }
}

impl Dry {
    fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        Ok(Self {
            multiplier: fields.number("dry_multiplier")?,
            base: fields.number("dry_base")?,
            allowed_length: fields.count("dry_allowed_length", (0, TOKENS_MAX))?,
            context: count_or_all(fields, "dry_penalty_last_n", usize::MAX)?,
            breakers: texts(fields, "dry_sequence_breakers")?,
        })
    }
}

/// A list of strings.
fn texts(fields: &mut Fields, at: &str) -> Result<Option<Vec<String>>, ApiError> {
    let text = |(index, value): (usize, Value)| text_of(&format!("{at}[{index}]"), value);
    let texts = |list: Vec<Value>| list.into_iter().enumerate().map(text).collect();
    fields.list(at)?.map(texts).transpose()
}

impl Stop {
    fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let strings = match fields.value("stop") {
            None => Vec::new(),
            Some(Value::String(stop)) => vec![stop],
            Some(Value::Array(list)) => {
                let text = |(index, value): (usize, Value)| text_of(&format!("stop[{index}]"), value);
                list.into_iter().enumerate().map(text).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(type_error("stop", "a string or a list of strings", &other)),
        };
        let token_ids = fields.list("stop_token_ids")?.unwrap_or_default();
        let untrimmed = fields.flag("no_stop_trim")?;
        Ok(Self {
            strings,
            token_ids: self::token_ids("stop_token_ids", &token_ids)?,
            ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
            include: fields.flag("include_stop_str_in_output")?.or(untrimmed).unwrap_or(false),
            min_tokens: fields.count("min_tokens", (0, TOKENS_MAX))?.unwrap_or(0),
        })
    }
}

fn text_of(at: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(type_error(at, "a string", &other)),
    }
}

/// A count, or -1 for `all`.
pub fn count_or_all(fields: &mut Fields, at: &str, all: usize) -> Result<Option<usize>, ApiError> {
    let Some(value) = fields.value(at) else { return Ok(None) };
    if value.as_i64() == Some(-1) {
        return Ok(Some(all));
    }
    let within = |k: u64| usize::try_from(k).ok().filter(|k| *k <= TOKENS_MAX);
    match value.as_u64().and_then(within) {
        Some(k) => Ok(Some(k)),
        None if value.is_number() => {
            Err(ApiError::invalid(at, format!("`{at}` must be -1 or an integer of at least 0, not {value}")))
        }
        None => Err(type_error(at, "an integer", &value)),
    }
}

fn logit_bias(fields: &mut Fields) -> Result<BTreeMap<u32, f64>, ApiError> {
    let entry = |(id, bias): (String, Value)| {
        let at = format!("logit_bias.{id}");
        let token = id.parse::<u32>().map_err(|_| {
            ApiError::invalid("logit_bias", format!("the key `{id}` of `logit_bias` is not a token id"))
        })?;
        let bias = bias.as_f64().ok_or_else(|| type_error(&at, "a number", &bias))?;
        Ok((token, bias))
    };
    fields.object("logit_bias")?.unwrap_or_default().into_iter().map(entry).collect()
}

fn streaming(fields: &mut Fields) -> Result<Streaming, ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let options = fields.nested("stream_options", STREAM_OPTIONS)?;
    if options.is_some() && !stream {
        return Err(ApiError::invalid("stream_options", "`stream_options` needs `stream` to be true"));
    }
    let (include, continuous) = match options {
        Some(mut options) => (
            options.flag("include_usage")?.unwrap_or(false),
            options.flag("continuous_usage_stats")?.unwrap_or(false),
        ),
        None => (false, false),
    };
    Ok(match (stream, include, continuous) {
        (false, ..) => Streaming::Off,
        (true, false, _) => Streaming::On(StreamUsage::Omit),
        (true, true, false) => Streaming::On(StreamUsage::Include),
        (true, true, true) => Streaming::On(StreamUsage::Continuous),
    })
}

fn prompt_logprobs(fields: &mut Fields, streaming: Streaming) -> Result<Option<usize>, ApiError> {
    let at = "prompt_logprobs";
    let count = alternatives(fields, at)?;
    if count.is_some() && streaming != Streaming::Off {
        return Err(ApiError::invalid(at, format!("`{at}` cannot be streamed")));
    }
    Ok(count)
}

fn priority(fields: &mut Fields) -> Result<i32, ApiError> {
    let priority = fields.integer("priority")?.unwrap_or(0);
    i32::try_from(priority)
        .map_err(|_| ApiError::invalid("priority", "`priority` must be an integer of 32 bits"))
}

fn label(fields: &mut Fields, name: &str) -> Result<Option<String>, ApiError> {
    let label = fields.text(name)?;
    match label {
        Some(label) if label.is_empty() || label.len() > LABEL_BYTES_MAX => {
            Err(ApiError::invalid(name, format!("`{name}` must have between 1 and {LABEL_BYTES_MAX} bytes")))
        }
        label => Ok(label),
    }
}
