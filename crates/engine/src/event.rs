//! What a request's stream carries.
//!
//! Invariant: a stream is [`Event::Started`] at most once, then any number of deltas, then exactly
//! one [`Event::Finished`] or [`Event::Failed`].

pub use omnibus_text::CallEnding;
use serde::{Deserialize, Serialize};

use crate::alignment::AlignedTokens;
use crate::energy::EnergyUsage;
use crate::error::Failure;
use crate::hidden::HiddenStates;
use crate::speculation::DraftUsage;
use crate::token_logits::TokenLogits;

/// One item of a request's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The first step that includes the request was launched.
    Started {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the prompt whose keys and values were cached.
        cached_tokens: usize,
    },
    /// How much of the prompt is computed, where that was requested: before each chunk of it but the first.
    Progress {
        /// Tokens of the prompt that are computed or were cached.
        processed_tokens: usize,
    },
    /// More tokens of the prompt, when their log-probabilities were requested: all of them, in order and
    /// in chunks, before the first delta.
    Prompt(Vec<TokenInfo>),
    /// What tokens of the prompt attend to in a sound, where that was requested: in chunks, before the first delta. The
    /// chunks of a sequence that was computed again come again.
    Alignment(AlignedTokens),
    /// Hidden states of the prompt, where they were requested: in chunks, in order. The chunks of a sequence that was
    /// computed again come again.
    Hidden(HiddenStates),
    /// Logits of the tokens that the request named, behind its prompt.
    TokenLogits(TokenLogits),
    /// More of the generated message. The text may be empty when there are tokens: text is held back while
    /// it may be an incomplete character or the start of a stop string.
    Delta {
        /// The new part of the message.
        delta: Delta,
        /// Tokens since the last delta, with log-probabilities when requested.
        tokens: Vec<TokenInfo>,
    },
    /// The last event of a request that succeeded.
    Finished {
        /// Why.
        reason: FinishReason,
        /// The stop string or token id that ended it, when one did.
        matched: Option<StopMatch>,
        /// Token counts.
        usage: Usage,
    },
    /// The last event of a request that failed.
    Failed(Failure),
}

/// A typed part of a generated message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delta {
    /// Text outside of reasoning and tool calls.
    Text(String),
    /// Reasoning text.
    Reasoning(String),
    /// The start of a tool call.
    ToolCallStart {
        /// The id that the tool's result refers to.
        id: String,
        /// The function's name.
        name: String,
    },
    /// More of the arguments of the last started tool call: a part of a JSON text.
    ToolCallArguments(String),
    /// The end of the last started tool call.
    ToolCallEnd(CallEnding),
}

impl Delta {
    /// The delta's text, whatever its type; empty at the start and end of a tool call.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Reasoning(text) | Self::ToolCallArguments(text) => text,
            Self::ToolCallStart { .. } | Self::ToolCallEnd(_) => "",
        }
    }
}

/// A token and its log-probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Index into the vocabulary.
    pub id: u32,
    /// The token's own bytes; not always whole characters.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability before temperature and filters; `None` if not requested,
    /// and for the first token of a prompt.
    pub logprob: Option<f32>,
    /// The most likely tokens at this position, best first.
    pub top: Vec<Candidate>,
}

/// One of the most likely tokens at a position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Index into the vocabulary.
    pub id: u32,
    /// The token's own bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// `max_new_tokens` or the context.
    Length,
    /// The client or the server cancelled it.
    Cancelled,
}

/// What stopped a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopMatch {
    /// One of the request's stop strings.
    String(String),
    /// An end token.
    Token(u32),
}

/// A request's token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt whose keys and values were cached.
    pub cached_tokens: usize,
    /// Tokens generated, the one that stopped it included.
    pub completion_tokens: usize,
    /// Generated tokens that belong to the reasoning.
    pub reasoning_tokens: usize,
    /// Draft tokens.
    pub drafts: DraftUsage,
    /// Media of the prompt.
    pub media: MediaUsage,
    /// What its steps used; `None` where no sensor counts it.
    pub energy: Option<EnergyUsage>,
}

/// What a request's media took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaUsage {
    /// Of images and videos.
    pub images: EncoderUsage,
    /// Of audio.
    pub audio: EncoderUsage,
}

/// What those media of a request took that go through one encoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncoderUsage {
    /// Tokens of the prompt that stand for them.
    pub tokens: usize,
    /// Images or windows of sound that were encoded for it; the others were cached.
    pub encoded: usize,
    /// Milliseconds spent on that.
    pub encode_ms: u64,
}

impl std::ops::AddAssign for EncoderUsage {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.encoded += other.encoded;
        self.encode_ms += other.encode_ms;
    }
}
