//! A request: what every API lowers to.
//!
//! Invariant: plain serializable values, no wire formats. [`Request::validate`] checks a request before it is queued, so
//! the loop never gets an invalid one.

mod sampling;

use std::collections::BTreeSet;

use omnibus_core::Class;
use omnibus_grammar::{Grammar, GrammarError, GrammarLimits};
use omnibus_text::{Message, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::alignment::Alignment;
use crate::error::Failure;
use crate::hidden::HiddenPositions;
use crate::info::RequestOrigin;
use crate::media::MediaItem;
use crate::sampling_parameter::SamplingParameter;
use crate::speculation::Speculation;

pub use sampling::{BadWords, Dry, SAMPLERS, SamplerKind, SamplerName, Sampling};

/// One generation. `n` answers are `n` requests with their own ids and seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Unique among the requests that run; cancellation uses it.
    pub id: String,
    /// Where it comes from.
    pub origin: RequestOrigin,
    /// A served name; `None` is the default model.
    pub model: Option<String>,
    /// The prompt.
    pub input: Input,
    /// Most tokens to generate. `None` is the rest of the context. Zero only computes the prompt.
    pub max_new_tokens: Option<usize>,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Parameters that its client left out: the model's own values replace those of `sampling`, where it has any.
    pub unset: BTreeSet<SamplingParameter>,
    /// What stops the generation besides its limits.
    pub stop: Stop,
    /// How the generated text is read.
    pub output: OutputMode,
    /// Most tokens of reasoning; then its end is forced. `None` is the engine's setting.
    pub reasoning_budget: Option<usize>,
    /// Whether the answer must be calls of the tools of [`Chat`].
    pub tool_choice: ToolChoice,
    /// What the answer must match.
    pub structured: Option<StructuredOutput>,
    /// Whether tokens are reported without log-probabilities, too.
    pub tokens: ReportedTokens,
    /// `Some(n)` reports the log-probability of each token and of the `n` most likely ones.
    pub logprobs: Option<usize>,
    /// Tokens whose log-probabilities are reported at each place of the answer, beside the sampled one and the most likely ones.
    pub logprob_token_ids: Vec<u32>,
    /// `Some(n)` reports the same for the tokens of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// The first token of the prompt whose log-probability is reported. Blocks before it are shared with other requests.
    pub logprob_start: usize,
    /// Reports what the tokens of the prompt attend to in a sound.
    pub alignment: Option<Alignment>,
    /// Reports hidden states of the prompt. Only of requests that generate nothing.
    pub hidden: Option<HiddenPositions>,
    /// Reports the logits of these tokens behind the prompt. Only of requests that generate nothing.
    pub token_logits: Vec<u32>,
    /// How many of the prompt's last tokens no other attends to. Only of requests that generate nothing.
    pub unattended: usize,
    /// Whether it may have draft tokens.
    pub speculation: Speculation,
    /// Whether its stream says how much of the prompt is computed.
    pub progress: ProgressReports,
    /// What its client expects of the answer: draft tokens.
    pub prediction: Option<String>,
    /// Whether a client waits for it.
    pub class: Class,
    /// Higher runs first; 0 is the default.
    pub priority: i32,
    /// The client, for fairness and cache isolation. Empty is the anonymous tenant.
    pub tenant: String,
    /// Requests share cached prefixes only with requests of the same salt and tenant.
    pub cache_salt: Option<String>,
    /// What its blocks' hashes begin with, in place of tenant and salt: those of the replica that it is computed for.
    pub cache_namespace: Option<u128>,
    /// The conversation whose blocks are kept until its time to live ends.
    pub session_id: Option<String>,
    /// Time limit in seconds.
    pub timeout_s: Option<f64>,
}

impl Request {
    /// A request with default values.
    pub fn new(id: impl Into<String>, input: Input) -> Self {
        Self {
            id: id.into(),
            origin: RequestOrigin::default(),
            model: None,
            input,
            max_new_tokens: None,
            sampling: Sampling::default(),
            unset: BTreeSet::new(),
            stop: Stop::default(),
            output: OutputMode::default(),
            reasoning_budget: None,
            tool_choice: ToolChoice::default(),
            structured: None,
            tokens: ReportedTokens::default(),
            logprobs: None,
            logprob_token_ids: Vec::new(),
            prompt_logprobs: None,
            logprob_start: 0,
            alignment: None,
            hidden: None,
            token_logits: Vec::new(),
            unattended: 0,
            speculation: Speculation::default(),
            progress: ProgressReports::default(),
            prediction: None,
            class: Class::Online,
            priority: 0,
            tenant: String::new(),
            cache_salt: None,
            cache_namespace: None,
            session_id: None,
            timeout_s: None,
        }
    }

    /// The tools that may be called. Only a conversation has any.
    pub fn tools(&self) -> &[Tool] {
        match &self.input {
            Input::Chat(chat) => &chat.tools,
            Input::Text(_) | Input::Tokens(_) | Input::Infill { .. } => &[],
        }
    }

    /// Alternatives requested for each token of the answer, and of the prompt, with their fields.
    pub fn alternatives(&self) -> [(&'static str, usize); 2] {
        let of_answer = match self.input {
            Input::Chat(_) => "top_logprobs",
            Input::Text(_) | Input::Tokens(_) | Input::Infill { .. } => "logprobs",
        };
        [(of_answer, self.logprobs.unwrap_or(0)), ("prompt_logprobs", self.prompt_logprobs.unwrap_or(0))]
    }

    /// Fails where more than `most` alternatives are requested for a token.
    pub fn validate_logprobs(&self, most: usize) -> Result<(), Failure> {
        match self.alternatives().into_iter().find(|(_, count)| *count > most) {
            None => Ok(()),
            Some((field, _)) => {
                Err(Failure::bad_request(field, format!("must be at most {most} (--max-logprobs)")))
            }
        }
    }

    /// Fails with the first invalid field. Token ids and counts of alternatives are checked where the model is known.
    pub fn validate(&self) -> Result<(), Failure> {
        self.sampling.validate()?;
        self.stop.validate()?;
        let enough = self.max_new_tokens.is_none_or(|most| self.stop.min_tokens <= most);
        check(enough, "min_tokens", "must be at most max_tokens")?;
        let named = self.logprob_token_ids.len();
        check(named <= LOGPROB_TOKEN_IDS_MAX, "logprob_token_ids", "must have at most 128 entries")?;
        check(self.logprobs.is_some() || named == 0, "logprob_token_ids", "goes with log-probabilities")?;
        let computes = self.max_new_tokens == Some(0);
        check(computes || self.hidden.is_none(), "hidden", "is for requests with max_tokens 0")?;
        let has_none = self.token_logits.is_empty();
        check(computes || has_none, "token_logits", "is for requests with max_tokens 0")?;
        check(computes || self.unattended == 0, "unattended", "is for requests with max_tokens 0")?;
        if let Some(structured) = &self.structured {
            // The engine's own limits are checked where they are known.
            structured.validate(&GrammarLimits {
                bytes: usize::MAX,
                depth: DEPTH_MAX,
                ..GrammarLimits::default()
            })?;
        }
        let timeout = self.timeout_s.is_none_or(|seconds| seconds.is_finite() && seconds > 0.0);
        check(timeout, "timeout", "must be a positive number of seconds")
    }
}

/// Most tokens whose log-probabilities are reported by their ids.
pub const LOGPROB_TOKEN_IDS_MAX: usize = 128;
/// Most stop strings of one request.
pub const STOP_STRINGS_MAX: usize = 64;
/// Longest stop string, in bytes.
pub const STOP_STRING_BYTES_MAX: usize = 1024;
/// Most entries of `logit_bias`.
pub const LOGIT_BIAS_MAX: usize = 1024;

/// Deepest nesting of a grammar, whatever the settings say.
pub(crate) const DEPTH_MAX: usize = 500;

/// A prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "one per request, never in bulk")]
pub enum Input {
    /// A conversation, rendered by the model's chat template.
    Chat(Chat),
    /// Text, tokenized with the special tokens the tokenizer adds.
    Text(String),
    /// Tokens as they are.
    Tokens(Vec<u32>),
    /// The texts around the one to generate, for models with tokens for it.
    Infill {
        /// The text before it.
        prefix: String,
        /// The text after it.
        suffix: String,
        /// The names and texts of other files, which come before both.
        files: Vec<(String, String)>,
    },
}

/// A conversation, and what else its chat template is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chat {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The media that parts of the messages refer to by their index.
    pub media: Vec<MediaItem>,
    /// The tools that may be called, each with where the prompt shows it.
    pub tools: Vec<Tool>,
    /// Documents for retrieval templates.
    pub documents: Option<Value>,
    /// More variables for the template (`enable_thinking`, …).
    pub template_kwargs: Map<String, Value>,
    /// Which of several named templates; `None` lets tools and defaults decide.
    pub template: Option<String>,
    /// A template of the client's own, in place of the model's.
    pub own_template: Option<String>,
    /// How the prompt ends.
    pub end: PromptEnd,
}

/// How the prompt of a conversation ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptEnd {
    /// With the start of an answer.
    #[default]
    Answer,
    /// Inside the last message, an assistant's, which is continued.
    OpenMessage,
    /// With the last message.
    Messages,
}

/// How the generated text is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum OutputMode {
    /// All of it is text.
    #[default]
    Text,
    /// It is an assistant's message, in the model's formats of reasoning and tool calls.
    Message {
        /// How many calls of the conversation's tools it may have. `None`: calls are text.
        calls: Option<CallLimit>,
    },
}

/// Whether the generated tokens are reported beside their text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedTokens {
    /// Only with log-probabilities.
    #[default]
    WithLogprobs,
    /// Always, but for end tokens.
    Always,
}

/// Whether a stream says how much of a prompt is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgressReports {
    /// It does not.
    #[default]
    Off,
    /// Before each chunk of the prompt but the first.
    On,
}

/// Whether an answer must be tool calls. Reasoning before them is free.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolChoice {
    /// As the model decides. Calls of tools with `strict` match their schemas.
    #[default]
    Auto,
    /// It is calls.
    Required,
    /// It is a call of this tool.
    Function(String),
}

/// How many tool calls a message may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallLimit {
    /// As many as the model writes.
    #[default]
    Any,
    /// One: it ends the message.
    One,
}

/// What an answer must match. Reasoning before the answer is free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StructuredOutput {
    /// The grammar.
    pub grammar: Grammar,
    /// The text at which the grammar begins, wherever the model writes it. `None`: it is the whole answer.
    pub marker: Option<String>,
    /// Whether the grammar begins after reasoning or with it.
    pub reasoning: ReasoningPlace,
    /// The field of the API that holds the grammar, for errors.
    pub field: String,
}

/// Where reasoning stands that comes before an answer with a grammar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReasoningPlace {
    /// Before what the grammar describes.
    #[default]
    Before,
    /// The grammar describes it.
    Inside,
}

impl StructuredOutput {
    /// The whole answer matches a grammar.
    pub fn new(grammar: Grammar, field: impl Into<String>) -> Self {
        Self { grammar, marker: None, reasoning: ReasoningPlace::Before, field: field.into() }
    }

    /// Checks what can be checked without a model.
    pub(crate) fn validate(&self, limits: &GrammarLimits) -> Result<(), Failure> {
        let checked = omnibus_grammar::check(&self.grammar, limits);
        checked.map(|_| ()).map_err(|error| refused(&self.field, &error))
    }
}

/// The failure of a request whose grammar is refused.
pub(crate) fn refused(field: &str, error: &GrammarError) -> Failure {
    let separator = if error.path.is_empty() || error.path.starts_with('[') { "" } else { "." };
    let at = format!("{field}{separator}{}", error.path);
    Failure::bad_request(&at, format!("`{at}`: {}", error.message))
}

/// What stops a generation besides its limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The text ends before the first of these.
    pub strings: Vec<String>,
    /// Tokens that stop it, besides the model's own end tokens.
    pub token_ids: Vec<u32>,
    /// Continue past the model's end tokens.
    pub ignore_eos: bool,
    /// Keep the stop string in the text.
    pub include: bool,
    /// Only a limit, or a grammar that can only end, stops it before it has so many tokens.
    pub min_tokens: usize,
}

impl Stop {
    fn validate(&self) -> Result<(), Failure> {
        check(self.strings.len() <= STOP_STRINGS_MAX, "stop", "must have at most 64 entries")?;
        check(self.strings.iter().all(|stop| !stop.is_empty()), "stop", "must not contain an empty string")?;
        let short = self.strings.iter().all(|stop| stop.len() <= STOP_STRING_BYTES_MAX);
        check(short, "stop", "entries must be at most 1024 bytes")?;
        check(self.token_ids.len() <= LOGIT_BIAS_MAX, "stop_token_ids", "must have at most 1024 entries")
    }
}

fn check(holds: bool, field: &str, message: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::bad_request(field, format!("{field} {message}"))) }
}
