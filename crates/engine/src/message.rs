//! Messages between the front, which knows text, and the engine loop, which knows tokens.
//!
//! Invariant: plain serializable values, because they cross a channel or a socket. The socket's format (postcard) names
//! no fields, so no field is skipped on one side only or of a type that needs a self-describing format.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use omnibus_core as core;
use omnibus_core::HeldBlocks;
use omnibus_grammar::{Grammar, Opening};
use omnibus_kv_peer::BlockName;
use serde::{Deserialize, Serialize};

use crate::alignment::{AlignedTokens, Alignment};
use crate::energy::EnergyUsage;
use crate::error::{Disconnected, Failure};
use crate::event::{FinishReason, MediaUsage};
use crate::hidden::{HiddenPositions, HiddenStates};
use crate::media::{EncoderPixels, JobMedia, MediaKey};
use crate::memory_plan::MemoryPlan;
use crate::memory_response::Response;
use crate::request::{ProgressReports, Sampling};
use crate::settings::NamedAdapter;
use crate::speculation::{DraftUsage, Speculation};
use crate::stats::{SessionStats, Stats};
use crate::step_record::StepRecord;
use crate::token_logits::TokenLogits;

/// Identifies a job for as long as the front lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// A request in tokens: all that the loop needs of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Identifies it in every message.
    pub id: JobId,
    /// What the scheduler gets, without a deadline. Its prompt ends with the tokens of the answer that an earlier engine
    /// process reported; the job resumes after them.
    pub request: core::Request,
    /// Tokens of the client's prompt, which come first in the request's.
    pub prompt: usize,
    /// How tokens are sampled; the seed is set.
    pub sampling: Sampling,
    /// Tokens that end it, sorted.
    pub stop_tokens: Vec<u32>,
    /// Tokens that `xtc` never excludes.
    pub xtc_kept: Vec<u32>,
    /// The tokens of each of its breakers of repetitions.
    pub dry_breakers: Vec<Vec<u32>>,
    /// None of the end tokens is sampled before its answer has so many tokens.
    pub min_tokens: usize,
    /// As in [`crate::Request::logprobs`].
    pub logprobs: Option<usize>,
    /// As in [`crate::Request::logprob_token_ids`].
    pub logprob_token_ids: Vec<u32>,
    /// As in [`crate::Request::prompt_logprobs`].
    pub prompt_logprobs: Option<usize>,
    /// As in [`crate::Request::logprob_start`].
    pub logprob_start: usize,
    /// As in [`crate::Request::alignment`].
    pub alignment: Option<Alignment>,
    /// As in [`crate::Request::hidden`].
    pub hidden: Option<HiddenPositions>,
    /// As in [`crate::Request::token_logits`].
    pub token_logits: Vec<u32>,
    /// As in [`crate::Request::unattended`].
    pub unattended: usize,
    /// What its answer must match.
    pub grammar: Option<JobGrammar>,
    /// Whether it may have draft tokens.
    pub speculation: Speculation,
    /// As in [`crate::Request::progress`].
    pub progress: ProgressReports,
    /// Tokens that its client expects in the answer.
    pub prediction: Vec<u32>,
    /// Pictures, videos and sounds of its prompt, in order.
    pub media: Vec<JobMedia>,
    /// Seconds from its arrival.
    pub timeout_s: Option<f64>,
}

/// What the answer of a job must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGrammar {
    /// The grammar.
    pub grammar: Grammar,
    /// Where in the answer it begins.
    pub opening: Opening,
    /// As in [`crate::StructuredOutput::field`].
    pub field: String,
}

/// From the front to the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Queue a job.
    Submit(Box<Job>),
    /// End a job. Unknown ids are ignored: the job's last report may cross this command.
    Cancel(JobId),
    /// What the encoder takes of a content of a job, which [requested](Report::requested_pixels) it. Unknown ids are ignored.
    Pixels(JobId, MediaKey, EncoderPixels),
    /// Reply with the sessions.
    ListSessions(QueryId),
    /// Load an adapter and reply with its id.
    LoadAdapter(QueryId, NamedAdapter),
    /// Unload an adapter by its id, once no job uses it.
    UnloadAdapter(u128),
    /// Reply with which blocks there are.
    FindBlocks(QueryId, BlockQuery),
    /// Reply with the first ones of these blocks.
    ReadBlocks(QueryId, BlockQuery),
    /// End a session. Unknown ids are ignored.
    DropSession(u128),
    /// Respond to the machine's memory pressure.
    MemoryPressure(Response),
    /// Record steps, and report which KV blocks jobs hold, for [`WATCH_TIME`](crate::step_record::WATCH_TIME).
    WatchSteps,
    /// End everything and return.
    Stop,
}

/// Identifies a query, for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueryId(pub u64);

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

    /// A sender that does not keep the engine alive.
    pub(crate) fn downgrade(&self) -> WeakCommandSender {
        WeakCommandSender(Arc::downgrade(&self.0))
    }
}

/// Sends commands as long as the engine has another sender.
#[derive(Clone)]
pub(crate) struct WeakCommandSender(Weak<dyn Fn(Command) -> Result<(), Disconnected> + Send + Sync>);

impl WeakCommandSender {
    pub(crate) fn send(&self, command: Command) -> Result<(), Disconnected> {
        self.0.upgrade().map(CommandSender).ok_or(Disconnected)?.send(command)
    }
}

/// From the loop to the front, after an iteration and before the first step of a job is launched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Updates of jobs, in order.
    pub jobs: Vec<JobReport>,
    /// Statistics, when they are due: on a timer, and when a job starts or ends.
    pub stats: Option<Box<StatsReport>>,
    /// Replies to queries.
    pub replies: Vec<QueryReply>,
    /// Contents of jobs that have to be encoded, and whose pixels or samples the loop does not have.
    pub requested_pixels: Vec<(JobId, MediaKey)>,
}

/// The loop's statistics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsReport {
    /// Gauges, and counters that start at zero with the process.
    pub stats: Stats,
    /// Steps completed since the last statistics.
    pub steps: Vec<StepStats>,
    /// Steps that were recorded for [`Command::WatchSteps`].
    pub watched: Vec<StepRecord>,
}

/// The reply to a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryReply {
    /// The query.
    pub query: QueryId,
    /// The answer.
    pub answer: Answer,
}

/// What a query is answered with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// All tenants' sessions, to [`Command::ListSessions`].
    Sessions(Vec<SessionStats>),
    /// The id of the adapter, or why it cannot be loaded, to [`Command::LoadAdapter`].
    Adapter(Result<u128, String>),
    /// To [`Command::FindBlocks`], one for each name, and to [`Command::ReadBlocks`], one for each of the leading names.
    Blocks(Result<Vec<StoredBlock>, BlocksRefused>),
}

/// Blocks that another replica requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockQuery {
    /// [`omnibus_kv_peer::Fingerprint::long`] of the other replica.
    pub fingerprint: String,
    /// The blocks.
    pub names: Vec<BlockName>,
}

/// Where a block is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredBlock {
    /// Nowhere.
    Absent,
    /// In memory or on disk.
    Present,
    /// Here: its header and its bytes.
    Record(Bytes),
    /// In a file of the disk cache, which holds its header and its bytes.
    File(PathBuf),
}

/// Why blocks are not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlocksRefused {
    /// The server's role is another one.
    NotServed,
    /// The blocks of the replica that asks are those of another model, format or size.
    OtherModel,
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
        /// What its media took.
        media: MediaUsage,
    },
    /// Another chunk of its prompt is about to be launched, where that was requested.
    Progress {
        /// Tokens before it.
        computed: usize,
    },
    /// Log-probabilities of consecutive tokens of its prompt. They come in order and in chunks, and again
    /// when the sequence is recomputed.
    Prompt {
        /// Position of the first of them; never zero, because the first token has no log-probability.
        first: usize,
        /// The tokens.
        tokens: Vec<TokenLogprobs>,
    },
    /// What tokens of its prompt attend to, in chunks, and again when the sequence is recomputed.
    Alignment(AlignedTokens),
    /// Hidden states of its prompt, in chunks, and again when the sequence is recomputed.
    Hidden(HiddenStates),
    /// Logits of the tokens that were named, behind its prompt, and again when the sequence is recomputed.
    TokenLogits(TokenLogits),
    /// A token was sampled.
    Token(TokenLogprobs),
    /// What became of its draft tokens, before it ends.
    Drafted(DraftUsage),
    /// What its steps used, before it ends.
    Energy(EnergyUsage),
    /// Which KV blocks it holds, for [`Command::WatchSteps`].
    Blocks(HeldBlocks),
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
    /// Token types that a prompt may have; at least one.
    pub(crate) token_types: usize,
    /// Whether it has logits of tokens.
    pub(crate) generates: bool,
    /// Whether it has the head of a masked language model.
    pub(crate) weighs_vocabulary: bool,
    pub(crate) hidden_size: usize,
    pub(crate) memory: MemoryPlan,
    /// Tokens of a prompt cache file that every prompt continues.
    pub(crate) prefix: Vec<u32>,
    /// Whether it has an encoder of pictures.
    pub(crate) reads_images: bool,
    /// Whether it has an encoder of audio.
    pub(crate) reads_audio: bool,
    /// The loaded ones of [`Settings::adapters`](crate::Settings::adapters), with their ids.
    pub(crate) adapters: Vec<NamedAdapter>,
}
