//! The answers of Ollama's chats and completions: one line, or the lines of a stream.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::wire::logprobs::ChatLogprob;

/// One line, or the whole answer.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Line {
    /// As the request named it.
    pub model: String,
    /// RFC 3339.
    pub created_at: String,
    /// Of a chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// The text of a completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The reasoning of a completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Whether it is the last one.
    pub done: bool,
    /// Why it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_reason: Option<&'static str>,
    /// The tokens of prompt and answer, which a completion can continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<u32>>,
    /// When requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<ChatLogprob>>,
    /// Of the last line.
    #[serde(flatten)]
    pub counters: Option<Counters>,
}

/// What an answer took. Durations are in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// From the request to the end.
    pub total_duration: u64,
    /// From the request to the first step of its prompt: its time in the queue.
    pub load_duration: u64,
    /// Tokens of the prompt, cached ones included.
    pub prompt_eval_count: usize,
    /// From there to the first token.
    pub prompt_eval_duration: u64,
    /// Generated tokens.
    pub eval_count: usize,
    /// From there to the end.
    pub eval_duration: u64,
}

/// The assistant's message, or a part of it.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// `assistant`
    pub role: &'static str,
    /// May be empty.
    pub content: String,
    /// The reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Complete calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<Call>>,
}

impl Message {
    /// A message with this text.
    pub fn new(content: String) -> Self {
        Self { role: "assistant", content, thinking: None, tool_calls: None }
    }
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// What the result may refer to.
    pub id: String,
    /// The function and its arguments.
    pub function: Called,
}

/// The function of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Called {
    /// The call's place in the message.
    pub index: usize,
    /// The function's name.
    pub name: String,
    /// An object, never its text.
    pub arguments: Map<String, Value>,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorLine {
    /// What is wrong.
    pub error: String,
}
