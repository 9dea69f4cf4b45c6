//! Messages between the front, which knows text, and the engine loop, which knows tokens.
//!
//! Invariant: plain serializable values, because they cross a channel or a socket. The socket's format (postcard) names
//! no fields, so no field is skipped or of a type that needs a self-describing format.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Disconnected;
use crate::{Failure, FinishReason, MemoryPlan, Sampling, Stats};

/// Identifies a job for as long as the front lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// A request in tokens: all that the loop needs of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Identifies it in every message.
    pub id: JobId,
    /// At least one token, all below the vocabulary's size.
    pub prompt: Vec<u32>,
    /// Tokens of its answer that an earlier engine process reported; fewer than `max_new_tokens`. It resumes after them.
    pub generated: Vec<u32>,
    /// At least one; those in `generated` count.
    pub max_new_tokens: usize,
    /// How tokens are sampled; the seed is set.
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
    /// Its tenant.
    pub tenant: u64,
    /// Its conversation.
    pub session: Option<u64>,
    /// One past the end of each message of the prompt, ascending.
    pub boundaries: Vec<usize>,
    /// Positions of the prompt that an earlier request of the conversation had, too.
    pub history: Range<usize>,
}

/// From the front to the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Queue a job.
    Submit(Box<Job>),
    /// End a job. Unknown ids are ignored: the job's last report may cross this command.
    Cancel(JobId),
    /// Report the sessions.
    ListSessions,
    /// End a session. Unknown ids are ignored.
    DropSession(u64),
    /// End everything and return.
    Stop,
}

/// Sends commands to the loop, in this process or in the engine's own. Sending never blocks.
#[derive(Clone)]
pub(crate) struct CommandSender(Arc<dyn Fn(Command) -> Result<(), Disconnected> + Send + Sync>);

impl CommandSender {
    /// A sender that calls `send`.
    pub(crate) fn new(send: impl Fn(Command) -> Result<(), Disconnected> + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    pub(crate) fn send(&self, command: Command) -> Result<(), Disconnected> {
        (self.0)(command)
    }
}

/// From the loop to the front, after each iteration and before the first step of a job is launched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Updates of jobs, in order.
    pub jobs: Vec<JobReport>,
    /// The loop's statistics. Counters start at zero with the process.
    pub stats: Stats,
    /// Steps completed since the last report.
    pub steps: Vec<StepStats>,
}

/// Receives the loop's reports. Fails when the front is gone.
pub(crate) type ReportSender = Box<dyn FnMut(Report) -> Result<(), Disconnected> + Send>;

/// One step, for the histograms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepStats {
    /// From its launch until it was read.
    pub seconds: f64,
    /// Tokens it computed.
    pub tokens: usize,
}

/// An update of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// The job.
    pub job: JobId,
    /// What happened to it.
    pub update: JobUpdate,
}

/// What happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JobUpdate {
    /// Its first step is about to be launched.
    Started {
        /// Tokens found in the prefix cache.
        cached_tokens: usize,
        /// The first token that differs from what an earlier request of the conversation had there.
        history_changed_at: Option<usize>,
    },
    /// Log-probabilities of consecutive tokens of its prompt. They come in order and in chunks, and again
    /// when the sequence is recomputed.
    Prompt {
        /// Position of the first of them; never zero, because the first token has no log-probability.
        first: usize,
        /// The tokens.
        tokens: Vec<TokenLogprobs>,
    },
    /// A token was sampled.
    Token(TokenLogprobs),
    /// It has finished.
    Finished(FinishReason),
    /// It failed.
    Failed(Failure),
}

/// A token, with its log-probability where that was requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: Option<f32>,
    /// The most likely tokens at this position and their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// The loaded model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) architecture: String,
    pub(crate) quantization: Option<String>,
    pub(crate) context_length: usize,
    pub(crate) max_model_len: usize,
    pub(crate) vocab_size: usize,
    pub(crate) memory: MemoryPlan,
    /// Tokens of a prompt cache file that every prompt continues.
    pub(crate) prefix: Vec<u32>,
}
