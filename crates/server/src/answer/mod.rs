//! What goes back to a client, made from events.
//!
//! Invariant: an answer knows its API's shape and nothing of HTTP; whether it is streamed or whole
//! is decided by [`reply`].

pub mod chat;
pub mod completions;
mod logprobs;
mod merge;
pub mod reply;
mod totals;

use omnibus_engine::{Event, FinishReason, TokenInfo};
use serde::Serialize;

pub use merge::{Merged, merge};

use crate::wire::usage::Usage;

/// What `system_fingerprint` says.
pub const FINGERPRINT: &str = concat!("omnibus-", env!("CARGO_PKG_VERSION"));

/// What all parts of an answer repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHeader {
    /// `chatcmpl-…` or `cmpl-…`
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// As asked for.
    pub model: String,
}

/// How many answers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choices {
    /// All of them.
    pub count: usize,
    /// To each prompt.
    pub per_prompt: usize,
}

/// An API's shape of an answer.
pub trait Answer: Send + 'static {
    /// A part of a streamed answer.
    type Chunk: Serialize;
    /// The answer as one object.
    type Whole: Serialize;

    /// Before the first event of a choice.
    fn opening(&mut self, choice: usize) -> Option<Self::Chunk>;
    /// For an event of a choice, unless a client need not know.
    fn more(&mut self, choice: usize, event: Event) -> Option<Self::Chunk>;
    /// The last chunk, when it was asked for.
    fn closing(&mut self, usage: Usage) -> Self::Chunk;
    /// Everything at once.
    fn whole(self, collected: Vec<Collected>, usage: Usage) -> Self::Whole;
}

/// All events of one choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Collected {
    /// The answer.
    pub text: String,
    /// Its tokens, where log-probabilities were asked for.
    pub tokens: Vec<TokenInfo>,
    /// The prompt's tokens, likewise.
    pub prompt: Vec<TokenInfo>,
    /// Why it ended.
    pub reason: Option<FinishReason>,
}

/// How OpenAI says why an answer ended. A cancelled one is new: only who cancels sees it.
fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
    }
}
