//! What a request's stream carries, and how requests fail.
//!
//! Invariant: a stream is [`Event::Started`] at most once, then any number of deltas, then exactly
//! one [`Event::Finished`] or [`Event::Failed`].

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One thing to tell a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The first step that includes the request was launched.
    Started {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Of those, tokens whose keys and values were cached.
        cached_tokens: usize,
    },
    /// More tokens of the prompt, when their log-probabilities were asked for: all of them, in order and
    /// in pieces, before the first delta.
    Prompt(Vec<TokenInfo>),
    /// More of the answer. Either part may be empty: text is held back while it may be half a
    /// character or the start of a stop string.
    Delta {
        /// Text that is final.
        text: String,
        /// Tokens since the last delta, with log-probabilities where they were asked for.
        tokens: Vec<TokenInfo>,
    },
    /// The last event of a request that ended as it should.
    Finished {
        /// Why.
        reason: FinishReason,
        /// The stop string or token id that ended it, when one did.
        matched: Option<StopMatch>,
        /// What it cost.
        usage: Usage,
    },
    /// The last event of a request that could not go on.
    Failed(Failure),
}

/// A token and how likely it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Index into the vocabulary.
    pub id: u32,
    /// The token's own bytes; not always whole characters.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability before temperature and filters; `None` if not asked for,
    /// and for the first token of a prompt.
    pub logprob: Option<f32>,
    /// The likeliest tokens there, best first.
    pub top: Vec<Candidate>,
}

/// A token that could have been.
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
    /// Somebody asked for it.
    Cancelled,
}

/// What a generation stopped at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopMatch {
    /// One of the request's stop strings.
    String(String),
    /// An end token.
    Token(u32),
}

/// What a request cost, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, tokens whose keys and values were cached.
    pub cached_tokens: usize,
    /// Tokens generated, the one that stopped it included.
    pub completion_tokens: usize,
}

/// Why a request could not be served. The kinds are remedies: each tells the caller what to do.
#[derive(Debug, Clone, PartialEq, Error, Serialize, Deserialize)]
pub enum Failure {
    /// Change the request.
    #[error("{message}")]
    BadRequest {
        /// The field at fault, in the API's spelling.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// Ask for another model.
    #[error("the model `{model}` is not served here")]
    UnknownModel {
        /// As asked for.
        model: String,
    },
    /// Shorten the prompt or the answer.
    #[error("{message}")]
    TooLong {
        /// Names the sizes.
        message: String,
    },
    /// Come back later.
    #[error("the queue is full; retry in {retry_after_s} s")]
    Busy {
        /// An estimate from the queue as it is.
        retry_after_s: u64,
    },
    /// The request's own time limit passed.
    #[error("the request timed out after {after_s} s")]
    Timeout {
        /// The limit.
        after_s: f64,
    },
    /// The server is about to stop, or the engine is restarting.
    #[error("the server is not taking requests: {message}")]
    Unavailable {
        /// Why.
        message: String,
        /// When to try again, where that is known.
        retry_after_s: Option<u64>,
    },
    /// Ours to mend.
    #[error("the engine failed: {message}")]
    Engine {
        /// For the log and the bug report.
        message: String,
    },
}

impl Failure {
    /// Nobody knows for how long.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after_s: None }
    }

    /// A request that names its own mistake.
    pub fn bad_request(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::BadRequest { field: field.into(), message: message.into() }
    }
}
