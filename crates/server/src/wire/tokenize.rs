//! `POST /tokenize` and `POST /detokenize`, in vLLM's shapes.

use serde::Serialize;
use serde_json::Value;

use super::chat::Conversation;
use super::fields::{Field, Fields, honoured, refused, token_ids};
use crate::error::ApiError;

/// What happens to the fields of `/tokenize`.
pub const FIELDS: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("prompt", "text; or `messages`"),
    honoured("messages", "a conversation; or `prompt`"),
    honoured("add_special_tokens", "true when absent with `prompt`, false with `messages`"),
    honoured("return_token_strs", "the text of each token as well"),
    honoured("add_generation_prompt", "true, or false with `continue_final_message`"),
    honoured("continue_final_message", "the last assistant message stays open"),
    honoured("tools", "given to the chat template"),
    honoured("tool_choice", "`none` or `auto`"),
    honoured("parallel_tool_calls", "only true, which is the default"),
    honoured("documents", "given to the chat template"),
    honoured("reasoning_effort", "given to the chat template"),
    honoured("chat_template_kwargs", "more variables for the chat template"),
    refused("chat_template", "templates come with the model or from the server's settings"),
];

/// What happens to the fields of `/detokenize`.
pub const DETOKENIZE: &[Field] = &[
    honoured("model", "a served name; absent is the default model"),
    honoured("tokens", "a list of token ids"),
];

/// What to tokenize.
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

/// Where the tokens come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Plain text.
    Prompt(String),
    /// A conversation, put into words by the chat template.
    Messages(Conversation),
}

/// Whether the tokenizer adds its special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// It does.
    Add,
    /// Only what the text says.
    Leave,
}

/// Whether the text of each token is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// It is.
    Return,
    /// Numbers are enough.
    Leave,
}

impl TokenizeRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS])?;
        let model = fields.text("model")?;
        let special = fields.flag("add_special_tokens")?;
        let strings = fields.flag("return_token_strs")?.unwrap_or(false);
        let source = source(&mut fields)?;
        fields.refuse_rest("does not go with `prompt`")?;
        let special = special.unwrap_or(matches!(source, Source::Prompt(_)));
        Ok(Self {
            model,
            source,
            special: if special { Special::Add } else { Special::Leave },
            strings: if strings { Strings::Return } else { Strings::Leave },
        })
    }
}

fn source(fields: &mut Fields) -> Result<Source, ApiError> {
    let Some(prompt) = fields.text("prompt")? else {
        return Conversation::read(fields).map(Source::Messages);
    };
    Ok(Source::Prompt(prompt))
}

/// What to turn into text.
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

/// The tokens of a text.
#[derive(Debug, Clone, Serialize)]
pub struct Tokenized {
    /// How many.
    pub count: usize,
    /// Most tokens of prompt and answer that this server takes.
    pub max_model_len: usize,
    /// Token ids.
    pub tokens: Vec<u32>,
    /// The text of each, when asked for.
    pub token_strs: Option<Vec<String>>,
}

/// The text of tokens.
#[derive(Debug, Clone, Serialize)]
pub struct Detokenized {
    /// The text.
    pub prompt: String,
}
