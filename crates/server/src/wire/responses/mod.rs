//! `POST /v1/responses`: the fields of OpenAI's Responses API.
//!
//! Invariant: unknown fields, item types and tool types are accepted, counted and logged, as clients send new ones at
//! any time. What is known must have its type.

pub mod client_items;
pub mod compaction;
pub mod conversations;
pub mod echo;
pub mod input_item;
pub mod item_ids;
pub mod items;
pub mod response;
pub mod tools;

use serde_json::{Map, Value};

use super::energy::ShownEnergy;
use super::fields::{Field, Fields, harmless, honoured, refused, type_error};
use super::mcp::{self, McpServer};
use super::structured::{Enforced, Grammar, StructuredOutput, Whitespace, json_schema};
use super::tool_choice::{self, Choice};
use super::tools::ParallelCalls;
use super::verbosity::{self, Verbosity};
use super::web_search::{self, Need, WebSearch};
use crate::error::ApiError;
use echo::Echo;
use input_item::InputItem;
use tools::ResponsesTool;

/// Fields of a request.
pub const FIELDS: &[Field] = &[
    honoured(
        "model",
        "a served name; any other is served by the loaded model, unless `--strict-model-names` is set",
    ),
    honoured("input", "a string or a list of items"),
    honoured("instructions", "a system message before the input; not taken over from `previous_response_id`"),
    honoured("previous_response_id", "continues a stored response"),
    honoured("store", "true, which is the default, keeps the response for `previous_response_id` and GET"),
    honoured(
        "background",
        "true answers at once; the response is fetched by its id. With `stream`, it outlives its connection",
    ),
    honoured("stream", "server-sent events with sequence numbers"),
    honoured("max_output_tokens", "most tokens to generate"),
    honoured("temperature", "0 is greedy; when absent the model's own, else 1"),
    honoured("top_p", "nucleus sampling"),
    honoured(
        "tools",
        "functions, custom tools and tools that the client runs; `web_search` where [a tool searches](mcp.md#web-search); \
         others that OpenAI's servers run are left out",
    ),
    honoured("tool_choice", "`auto`, `none`, `required`, `allowed_tools`, or the tool that must be called"),
    honoured("parallel_tool_calls", "false ends the response after its first call"),
    honoured("reasoning", "`effort`; `none` switches reasoning off"),
    honoured("text", "`format`: what the answer must match; `verbosity`"),
    honoured(
        "include",
        "`reasoning.encrypted_content` returns the reasoning for stateless clients, `message.output_text.logprobs` \
         the log-probabilities of the text, `web_search_call.action.sources` and `web_search_call.results` what searches \
         found; others are about tools that OpenAI's servers run",
    ),
    honoured(
        "top_logprobs",
        "how many of the most likely tokens to report, at most `--max-logprobs` (20), or -1 for all",
    ),
    honoured(
        "truncation",
        "`auto` leaves the oldest items out of an input that does not fit; with `disabled` it is refused",
    ),
    honoured("user", "a label for the operator, returned as sent"),
    honoured("safety_identifier", "a label for the operator, returned as sent"),
    honoured("prompt_cache_key", "returned as sent; every prompt is looked up in the prefix cache"),
    honoured(
        "max_tool_calls",
        "returned as sent; it limits calls that the server runs, and this server leaves all calls to the client",
    ),
    honoured("metadata", "labels of a stored response, returned as sent"),
    honoured(
        "include_energy",
        "ours: true adds `energy` to `usage`, in joules, where a sensor counts it; absent elsewhere",
    ),
    harmless("prompt_cache_retention", "cached prefixes stay until they are evicted"),
    harmless("service_tier", "there is one service tier"),
    harmless("client_metadata", "labels for the operator"),
    harmless("stream_options", "events are not padded"),
    harmless("prompt_cache_options", "every prompt is looked up in the prefix cache"),
    harmless("moderation", "this server judges no texts"),
    honoured(
        "conversation",
        "the id of a kept conversation, or an object with it: its items come before the input, and it gets the input and \
         the output of a response that has not failed",
    ),
    honoured(
        "generate",
        "false: the prompt is computed into the prefix cache, and the response has no output",
    ),
    refused("context_management", "use `truncation`, or compact with `POST /v1/responses/compact`"),
    refused("prompt", "use `input`"),
];

/// Fields of `conversation`.
pub const CONVERSATION: &[Field] = &[honoured("id", "`conv_…`")];

/// Fields of `reasoning`.
pub const REASONING: &[Field] = &[
    honoured("effort", "passed to the chat template; `none` switches reasoning off"),
    harmless("summary", "the summary is the reasoning itself"),
    harmless("context", "the chat template decides of which turns the model sees the reasoning"),
    harmless("generate_summary", "the older name of `summary`"),
    harmless("mode", "there is one way of reasoning here"),
];

/// Fields of `text`.
pub const TEXT: &[Field] = &[
    honoured(
        "format",
        "of type `text`, `json_object` or `json_schema`, with the `schema` that the answer matches",
    ),
    honoured("verbosity", "`low` and `high` are given to the model in the system message"),
];

/// The entry of `include` that returns reasoning to stateless clients.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";
/// The entry of `include` that returns log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";
/// Most tokens that a field may count.
const TOKENS_MAX: usize = i32::MAX as usize;

/// A request body, read and validated.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesRequest {
    /// The model's name, as sent.
    pub model: Option<String>,
    /// The new items of the conversation, as sent.
    pub input: Vec<Value>,
    /// `instructions`.
    pub instructions: Option<String>,
    /// The stored response that this one continues.
    pub previous: Option<String>,
    /// The conversation that this response belongs to.
    pub conversation: Option<String>,
    /// Whether there is output.
    pub generation: Generation,
    /// Whether the response is kept.
    pub storage: Storage,
    /// How the response is delivered.
    pub mode: Mode,
    /// `max_output_tokens`.
    pub max_output_tokens: Option<usize>,
    /// `temperature`.
    pub temperature: Option<f64>,
    /// `top_p`.
    pub top_p: Option<f64>,
    /// The tools, as sent.
    pub raw_tools: Vec<Value>,
    /// The tools.
    pub tools: Vec<ResponsesTool>,
    /// The MCP servers whose tools this server runs.
    pub mcp: Vec<McpServer>,
    /// The search of the web.
    pub search: Option<WebSearch>,
    /// What is shown of searches.
    pub search_details: SearchDetails,
    /// Which tools are called, and which may be. `None`: none may be.
    pub tool_choice: Option<Choice>,
    /// `text.format`.
    pub structured: Option<StructuredOutput>,
    /// `parallel_tool_calls`.
    pub parallel: ParallelCalls,
    /// `reasoning.effort`.
    pub effort: Option<String>,
    /// Whether reasoning is returned in a form that the client sends back.
    pub encrypted: EncryptedReasoning,
    /// How many alternatives to report per token of the text; `None` reports no log-probabilities.
    pub logprobs: Option<usize>,
    /// What becomes of an input that does not fit.
    pub truncation: Truncation,
    /// `text.verbosity`.
    pub verbosity: Verbosity,
    /// `metadata`.
    pub metadata: Map<String, Value>,
    /// `include_energy`.
    pub energy: ShownEnergy,
    /// What is repeated in the response.
    pub echo: Echo,
}

/// What becomes of an input that does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Truncation {
    /// It is refused.
    #[default]
    Disabled,
    /// Its oldest items are left out.
    Auto,
}

impl Truncation {
    /// Its name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Auto => "auto",
        }
    }
}

/// Whether a response has output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// It has.
    Full,
    /// Only its prompt is computed.
    Warmup,
}

/// Whether a response is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// It is.
    Keep,
    /// It is not.
    Discard,
}

/// How a response is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One JSON object at the end.
    Full,
    /// Server-sent events.
    Stream,
    /// Fetched later by its id.
    Background,
    /// Server-sent events, which go on without the client and can be read again.
    BackgroundStream,
}

/// Whether reasoning is returned in a form that the client sends back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptedReasoning {
    /// It is.
    Include,
    /// It is not.
    Omit,
}

impl ResponsesRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[FIELDS])?;
        let (format, verbosity) = text(&mut fields)?;
        let choice = fields.value("tool_choice");
        let echo = Echo::read(&mut fields, choice.as_ref(), format.as_ref())?;
        let structured = format.map(format_of).transpose()?.flatten();
        let include = include(&mut fields)?;
        let raw_tools = fields.list("tools")?.unwrap_or_default();
        let tool_choice = tool_choice::read(choice, !raw_tools.is_empty())?;
        let storage = match fields.flag("store")? {
            Some(false) => Storage::Discard,
            Some(true) | None => Storage::Keep,
        };
        let parallel = match fields.flag("parallel_tool_calls")? {
            Some(false) => ParallelCalls::Refuse,
            Some(true) | None => ParallelCalls::Allow,
        };
        Ok(Self {
            model: fields.text("model")?,
            input: input(&mut fields)?,
            instructions: fields.text("instructions")?,
            previous: fields.text("previous_response_id")?,
            conversation: conversation(&mut fields)?,
            generation: match fields.flag("generate")? {
                Some(false) => Generation::Warmup,
                Some(true) | None => Generation::Full,
            },
            mode: mode(&mut fields, storage)?,
            storage,
            max_output_tokens: fields.count("max_output_tokens", (1, TOKENS_MAX))?,
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            tools: tools::read(&raw_tools)?,
            mcp: mcp::read_all(&raw_tools)?,
            search: search(&raw_tools, tool_choice.as_ref())?,
            search_details: SearchDetails::of(&include),
            tool_choice,
            raw_tools,
            structured,
            parallel,
            effort: effort(&mut fields)?,
            encrypted: match include.iter().any(|entry| entry == ENCRYPTED_REASONING) {
                true => EncryptedReasoning::Include,
                false => EncryptedReasoning::Omit,
            },
            logprobs: logprobs(&include, echo.top_logprobs),
            truncation: truncation(&mut fields)?,
            verbosity,
            energy: ShownEnergy::read(&mut fields)?,
            echo,
            metadata: fields.object("metadata")?.unwrap_or_default(),
        })
    }

    /// The items of the input.
    pub fn items(input: &[Value]) -> Result<Vec<InputItem>, ApiError> {
        Self::items_at("input", input)
    }

    /// The items of a field.
    pub fn items_at(field: &str, input: &[Value]) -> Result<Vec<InputItem>, ApiError> {
        let call_ids = client_items::call_ids(input);
        let mut read = Vec::with_capacity(input.len());
        for (index, value) in input.iter().enumerate() {
            let mut item = items::item(value.clone(), &format!("{field}[{index}]"))?;
            if let Some(InputItem::Output { call_id, .. }) = &mut item
                && let Some(called) = call_ids.get(call_id)
            {
                call_id.clone_from(called);
            }
            read.extend(item);
        }
        Ok(read)
    }
}

/// What is shown of searches of the web, beside their queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchDetails {
    /// The addresses of the pages that were found.
    pub sources: bool,
    /// The pages.
    pub results: bool,
}

impl SearchDetails {
    fn of(include: &[String]) -> Self {
        let has = |name: &str| include.iter().any(|entry| entry == name);
        Self { sources: has("web_search_call.action.sources"), results: has("web_search_call.results") }
    }
}

fn search(tools: &[Value], choice: Option<&Choice>) -> Result<Option<WebSearch>, ApiError> {
    let need = Need::of(choice.and_then(|choice| choice.call.chosen()));
    Ok(web_search::of_responses(tools)?.map(|search| WebSearch { need, ..search }))
}

fn input(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    match fields.value("input") {
        None => Err(ApiError::invalid("input", "`input` is missing")),
        Some(Value::String(text)) => {
            Ok(vec![serde_json::json!({"type": "message", "role": "user", "content": text})])
        }
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(type_error("input", "a string or a list of items", &other)),
    }
}

fn conversation(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let at = "conversation";
    match fields.value(at) {
        None => Ok(None),
        Some(Value::String(id)) => Ok(Some(id)),
        Some(object @ Value::Object(_)) => {
            let mut inner = Fields::open(object, at, &[CONVERSATION])?;
            let id = inner.text("id")?;
            inner.required("id", id).map(Some)
        }
        Some(other) => Err(type_error(at, "a string or an object with an `id`", &other)),
    }
}

fn mode(fields: &mut Fields, storage: Storage) -> Result<Mode, ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let background = fields.flag("background")?.unwrap_or(false);
    match (stream, background, storage) {
        (_, true, Storage::Discard) => {
            Err(ApiError::invalid("background", "`background` needs `store` to be true"))
        }
        (true, true, _) => Ok(Mode::BackgroundStream),
        (true, false, _) => Ok(Mode::Stream),
        (false, true, _) => Ok(Mode::Background),
        (false, false, _) => Ok(Mode::Full),
    }
}

fn effort(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let Some(value) = fields.value("reasoning") else { return Ok(None) };
    Fields::tolerant(value, "reasoning", &[REASONING])?.text("effort")
}

fn include(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let entry = |(index, entry)| match entry {
        Value::String(entry) => Ok(entry),
        other => Err(type_error(&format!("include[{index}]"), "a string", &other)),
    };
    fields.list("include")?.unwrap_or_default().into_iter().enumerate().map(entry).collect()
}

/// Alternatives are reported where they or the log-probabilities are requested.
fn logprobs(include: &[String], top: Option<usize>) -> Option<usize> {
    match (include.iter().any(|entry| entry == LOGPROBS), top) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, top) => top.filter(|top| *top > 0),
    }
}

fn truncation(fields: &mut Fields) -> Result<Truncation, ApiError> {
    match fields.text("truncation")?.as_deref() {
        Some("auto") => Ok(Truncation::Auto),
        Some("disabled") | None => Ok(Truncation::Disabled),
        Some(other) => {
            let message = format!("`truncation` must be auto or disabled, not `{other}`");
            Err(ApiError::invalid("truncation", message))
        }
    }
}

fn text(fields: &mut Fields) -> Result<(Option<Map<String, Value>>, Verbosity), ApiError> {
    let Some(value) = fields.value("text") else { return Ok((None, Verbosity::default())) };
    let mut text = Fields::tolerant(value, "text", &[TEXT])?;
    let verbosity = verbosity::read(&mut text)?;
    Ok((text.object("format")?, verbosity))
}

fn format_of(mut format: Map<String, Value>) -> Result<Option<StructuredOutput>, ApiError> {
    let field = "text.format".to_owned();
    match format.get("type").and_then(Value::as_str) {
        None | Some("text") => Ok(None),
        Some("json_object") => Ok(Some(StructuredOutput { grammar: Grammar::JsonObject, field })),
        Some("json_schema") => match format.remove("schema") {
            Some(schema) => {
                let enforced = Enforced::of_strict(format.get("strict").and_then(Value::as_bool));
                json_schema(schema, (Whitespace::Usual, enforced), format!("{field}.schema")).map(Some)
            }
            None => Err(ApiError::invalid("text.format.schema", "`text.format.schema` is missing")),
        },
        Some(other) => {
            let message = format!("`{field}.type` must be text, json_object or json_schema, not `{other}`");
            Err(ApiError::unsupported("text.format.type", message))
        }
    }
}
