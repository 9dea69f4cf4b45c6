//! `POST /tokenize` and `POST /detokenize`, as in vLLM.

use serde::Serialize;
use serde_json::Value;

use super::chat::Conversation;
use super::fields::{Field, Fields, honoured, token_ids};
use crate::error::ApiError;

/// Fields of `/tokenize`.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("prompt", "text; or `messages`"),
    honoured("messages", "a conversation; or `prompt`"),
    honoured("add_special_tokens", "true when absent with `prompt`, false with `messages`"),
    honoured("return_token_strs", "returns the text of each token as well"),
];

/// Fields of a conversation, of `/tokenize` and `/apply-template`.
pub const CONVERSATION: &[Field] = &[
    honoured("add_generation_prompt", "false leaves out the start of the answer"),
    honoured("continue_final_message", "leaves the last assistant message open"),
    honoured("tools", "passed to the chat template"),
    honoured("tool_choice", "`none` or `auto`"),
    honoured("parallel_tool_calls", "does not change the prompt"),
    honoured("documents", "passed to the chat template"),
    honoured("reasoning_effort", "passed to the chat template"),
    honoured("enable_thinking", "passed to the chat template"),
    honoured("chat_template_kwargs", "more variables for the chat template"),
    honoured(
        "chat_template",
        "the text of a template in place of the model's; with `--trust-request-chat-template`",
    ),
];

/// Fields of `/detokenize`.
pub const DETOKENIZE: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("tokens", "a list of token ids"),
];

/// A `/tokenize` request.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizeRequest {
    /// A served name.
    pub model: Option<String>,
    /// Text or messages.
    pub source: Source,
    /// `add_special_tokens`.
    pub special: Special,
    /// `return_token_strs`.
    pub strings: Strings,
}

/// The input to tokenize.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Plain text.
    Prompt(String),
    /// A conversation, rendered by the chat template.
    Messages(Box<Conversation>),
}

/// Whether the tokenizer adds its special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Special tokens are added.
    Add,
    /// Only special tokens in the text itself.
    Omit,
}

/// Whether to return the text of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// Returned.
    Return,
    /// Only token ids.
    Omit,
}

impl TokenizeRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS, CONVERSATION])?;
        let model = fields.text("model")?;
        let special = fields.flag("add_special_tokens")?;
        let strings = fields.flag("return_token_strs")?.unwrap_or(false);
        let source = source(&mut fields)?;
        fields.refuse_rest("does not go with `prompt`")?;
        let special = special.unwrap_or(matches!(source, Source::Prompt(_)));
        Ok(Self {
            model,
            source,
            special: if special { Special::Add } else { Special::Omit },
            strings: if strings { Strings::Return } else { Strings::Omit },
        })
    }
}

fn source(fields: &mut Fields) -> Result<Source, ApiError> {
    let Some(prompt) = fields.text("prompt")? else {
        return Conversation::read(fields).map(|conversation| Source::Messages(Box::new(conversation)));
    };
    Ok(Source::Prompt(prompt))
}

/// A `/detokenize` request.
#[derive(Debug, Clone, PartialEq)]
pub struct DetokenizeRequest {
    /// A served name.
    pub model: Option<String>,
    /// Token ids.
    pub tokens: Vec<u32>,
}

impl DetokenizeRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[DETOKENIZE])?;
        let model = fields.text("model")?;
        let tokens = fields.list("tokens")?;
        let tokens = token_ids("tokens", &fields.required("tokens", tokens)?)?;
        fields.finish();
        Ok(Self { model, tokens })
    }
}

/// A `/tokenize` response.
#[derive(Debug, Clone, Serialize)]
pub struct Tokenized {
    /// Number of tokens.
    pub count: usize,
    /// Most tokens of prompt and completion together that this server accepts.
    pub max_model_len: usize,
    /// Token ids.
    pub tokens: Vec<u32>,
    /// The text of each token, when requested.
    pub token_strs: Option<Vec<String>>,
}

/// A `/detokenize` response.
#[derive(Debug, Clone, Serialize)]
pub struct Detokenized {
    /// The text.
    pub prompt: String,
}
