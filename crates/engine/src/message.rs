//! What crosses between the front, which knows text, and the loop, which knows tokens.
//!
//! Invariant: plain serializable values. Today they cross a channel; a child process can stand on
//! the other side without a change here.

use serde::{Deserialize, Serialize};

use crate::{Failure, FinishReason, Sampling};

/// Which job, for as long as the engine lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// A request in tokens: all the loop needs to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Names it in every message.
    pub id: JobId,
    /// At least one token, all below the vocabulary's size.
    pub prompt: Vec<u32>,
    /// At least one.
    pub max_new_tokens: usize,
    /// How tokens are drawn; the seed is settled.
    pub sampling: Sampling,
    /// Tokens that end it, sorted.
    pub stop_tokens: Vec<u32>,
    /// As in [`crate::Request::logprobs`].
    pub logprobs: Option<usize>,
    /// As in [`crate::Request::prompt_logprobs`].
    pub prompt_logprobs: Option<usize>,
    /// As in [`crate::Request::priority`].
    pub priority: i32,
    /// Seconds from its arrival.
    pub timeout_s: Option<f64>,
    /// Only jobs of equal salt share blocks.
    pub cache_salt: u64,
    /// Whose it is.
    pub tenant: u64,
}

/// What the front tells the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Queue a job.
    Submit(Box<Job>),
    /// End a job. Unknown ones are fine: the last token and the goodbye may cross.
    Cancel(JobId),
    /// End everything and return.
    Stop,
}

/// What the loop tells the front of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Which job.
    pub job: JobId,
    /// What happened to it.
    pub news: News,
}

/// What happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum News {
    /// Its first step was launched.
    Started {
        /// Tokens found in the prefix index.
        cached_tokens: usize,
    },
    /// Log-probabilities of consecutive tokens of its prompt. They come in order and in pieces, and again
    /// when the sequence starts over.
    Prompt {
        /// Which token of the prompt the first of them is; never zero, because nothing precedes that one.
        first: usize,
        /// The tokens.
        scored: Vec<Scored>,
    },
    /// A token was drawn.
    Token(Scored),
    /// It is over.
    Finished(FinishReason),
    /// It could not go on.
    Failed(Failure),
}

/// A token, and how likely it was where that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: Option<f32>,
    /// The likeliest tokens there and their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}
