//! What crosses between the front, which knows text, and the loop, which knows tokens.
//!
//! Invariant: plain serializable values, because they cross a channel or a socket. The socket's format names no
//! fields, so no field is skipped or of a type that only a self-describing format can carry.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Failure, FinishReason, Sampling, Stats};

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
    /// Tokens of its answer that an earlier engine has told; fewer than `max_new_tokens`. It goes on after them.
    pub generated: Vec<u32>,
    /// At least one; those in `generated` count.
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
    /// The conversation it is a turn of.
    pub session: Option<u64>,
    /// One past the end of each message of the prompt, ascending.
    pub boundaries: Vec<usize>,
    /// Positions that an earlier turn of the conversation had, too.
    pub history: Range<usize>,
}

/// What the front tells the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Queue a job.
    Submit(Box<Job>),
    /// End a job. Unknown ones are fine: the last token and the goodbye may cross.
    Cancel(JobId),
    /// Say in the next report which sessions there are.
    LookAtSessions,
    /// End a session. Unknown ones are fine.
    DropSession(u64),
    /// End everything and return.
    Stop,
}

/// What the loop tells the front after each turn, and before it launches the first step of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What happened to jobs, in order.
    pub notes: Vec<Note>,
    /// Its numbers. Totals count from when it was started.
    pub stats: Stats,
    /// Steps done since the last report.
    pub steps: Vec<StepSeen>,
}

/// One step, for the histograms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepSeen {
    /// From its launch until it was read.
    pub seconds: f64,
    /// Tokens it computed.
    pub tokens: usize,
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
        /// The first token that is not what an earlier turn of the conversation had there.
        history_changed_at: Option<usize>,
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
