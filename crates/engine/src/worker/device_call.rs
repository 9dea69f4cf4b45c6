//! What the loop and the device say to each other: one call, one reply.
//!
//! Invariant: plain serializable values. Devices that get equal calls in the same order give equal replies and compute the
//! same bits, so calls can be recorded, played to another device, and sent to other processes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use omnibus_core::SequenceId;
use omnibus_kv::BlockId;
use omnibus_model::BlockImport;
use serde::{Deserialize, Serialize};

use super::drafting::DraftSegment;
use super::rows::PassRows;
use super::step_input::StepInput;
use crate::media::{EncoderPixels, JobMedia, MediaKey};
use crate::message::{JobUpdate, TokenLogprobs};
use crate::sampler::SamplingChanges;
use crate::stats::{ExpertStats, LaunchStats, MediaStats};

/// What computes: the model, its KV cache, the sampling state of all sequences, and the features of media.
pub(super) trait Device {
    /// Answers a call. After an error, a step is not trusted until [`DeviceCall::Reset`].
    fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply>;
}

impl Device for Box<dyn Device> {
    fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        self.as_mut().call(call)
    }
}

/// A call of the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum DeviceCall {
    /// Applies the changes of sampling state and builds the forward pass of a step. Replies [`DeviceReply::Done`]; a stage of
    /// several computes it, and replies [`DeviceReply::Pass`].
    Forward {
        /// Names the step in later calls.
        step: u64,
        /// The step in flight whose samples are tokens of this one, if any.
        after: Option<u64>,
        input: Box<StepInput>,
    },
    /// Gives a step of the first stage of several what the last one computed of it. Replies [`DeviceReply::Done`].
    Complete { step: u64, pass: Box<PassRows> },
    /// Starts a forward pass whose sampling has to wait. Replies [`DeviceReply::Done`].
    Dispatch { step: u64 },
    /// Applies more changes, builds the step's sampling and starts all of it. Replies [`DeviceReply::Done`].
    Sample { step: u64, changes: Box<SamplingChanges> },
    /// Waits for a step. Replies [`DeviceReply::Step`].
    Read { step: u64 },
    /// Computes draft tokens with the draft model or head, between steps. Replies [`DeviceReply::Drafts`]. After an error there
    /// is none any more.
    Draft { segments: Vec<DraftSegment>, read: DraftRead },
    /// Drops all steps and sequences and allocates the KV cache again, after a failure. Replies [`DeviceReply::Done`].
    Reset,
    /// The blocks of each layer group from the next reset on. Replies [`DeviceReply::Done`].
    SetBlocks(Vec<usize>),
    /// A call about blocks of the KV cache.
    Kv(KvCall),
    /// A call about features of media.
    Media(MediaCall),
    /// Loads the adapter in a directory, between steps. Replies [`DeviceReply::AdapterLoaded`].
    LoadAdapter(PathBuf),
    /// Unloads an adapter that no sequence uses. Replies [`DeviceReply::AdapterUnloaded`].
    UnloadAdapter(u128),
    /// Replies [`DeviceReply::Stats`].
    Stats,
}

/// When draft tokens are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DraftRead {
    Now,
    /// With the results of the next step, whose rows take them where they are: the device need not wait for the host between both.
    WithStep,
}

/// A call about blocks of the KV cache, outside of steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum KvCall {
    /// Waits for all launched steps. Replies [`DeviceReply::Done`].
    Finish,
    /// Reads blocks. Replies [`DeviceReply::Blocks`].
    Read(GroupBlocks),
    /// Starts copying blocks out, after the launched steps and before later ones. Replies [`DeviceReply::Done`].
    StartCopy(Vec<GroupBlocks>),
    /// Whether the copy is done. Replies [`DeviceReply::Flag`].
    IsCopied,
    /// Waits for the copy. Replies [`DeviceReply::Blocks`], in the order of the request.
    TakeCopy,
    /// Writes blocks that no sequence uses yet. Replies [`DeviceReply::Done`].
    Write { blocks: GroupBlocks, contents: Vec<Bytes> },
    /// Fills blocks that no sequence uses yet from the prompt cache file that was loaded. Replies [`DeviceReply::Done`].
    Fill(Vec<BlockImport>),
    /// Writes a prompt cache file. Replies [`DeviceReply::Done`].
    WriteFile {
        path: PathBuf,
        tokens: Vec<u32>,
        /// The blocks of each group.
        blocks: Vec<Vec<BlockId>>,
        metadata: BTreeMap<String, String>,
    },
}

/// Blocks of a layer group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupBlocks {
    pub(super) group: usize,
    pub(super) blocks: Vec<BlockId>,
}

/// A call about features of media, which are encoded in parts between steps and kept by key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum MediaCall {
    /// Whether features are in memory. Counts as a use. Replies [`DeviceReply::Flag`].
    Has(MediaKey),
    /// Whether the features of a medium are being read from disk. The first call starts that. Replies
    /// [`DeviceReply::Flag`].
    IsReading(JobMedia),
    /// Whether features are on disk, as far as is known. Replies [`DeviceReply::Flag`].
    IsStored(MediaKey),
    /// Whether any features are being read. Replies [`DeviceReply::Flag`].
    AwaitsDisk,
    /// The parts that encoding a medium has left: all, if it is not the one that is being encoded. Replies
    /// [`DeviceReply::Parts`].
    PartsLeft(EncoderInput),
    /// Computes the next parts of a medium; the last one makes its features. Replies [`DeviceReply::Done`].
    Encode { input: EncoderInput, parts: usize },
    /// Counts a medium of an admitted prompt that was not encoded for it. Replies [`DeviceReply::Done`].
    CountHit(MediaHit),
    /// Evicts the features that were not used for longest, until the limit of memory is kept, but none of these. Replies
    /// [`DeviceReply::Done`].
    Evict(Vec<MediaKey>),
}

/// A medium with what its encoder takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EncoderInput {
    /// Without its pixels.
    media: JobMedia,
    pixels: Option<EncoderPixels>,
}

impl EncoderInput {
    pub(super) fn of(media: &JobMedia) -> Self {
        Self { media: JobMedia { pixels: None, ..media.clone() }, pixels: media.pixels.clone() }
    }

    /// The medium with its pixels.
    pub(super) fn into_media(self) -> JobMedia {
        JobMedia { pixels: self.pixels, ..self.media }
    }
}

/// Parts of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EncodingParts {
    /// How many.
    pub(super) count: usize,
    /// What one costs: patches that pass through a layer.
    pub(super) units: u64,
}

/// Why a medium was not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MediaHit {
    /// It is inside the cached prefix, which needs no features.
    Prefix,
    /// Its features were in memory.
    Features,
}

/// The reply to a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum DeviceReply {
    Done,
    Pass(Box<PassRows>),
    Step(StepResult),
    Drafts(DraftResult),
    /// The bytes of each block, in the order of the call.
    Blocks(Vec<Bytes>),
    Flag(bool),
    Parts(EncodingParts),
    /// The adapter's id, or a line that names the file.
    AdapterLoaded(Result<u128, String>),
    AdapterUnloaded(Result<(), String>),
    Stats(DeviceStats),
}

/// The results of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StepResult {
    /// One for each sampled row, in order; `None` for a row that failed.
    pub(super) sampled: Vec<Option<TokenLogprobs>>,
    /// What was requested of prompts, by sequence.
    pub(super) prompts: Vec<(SequenceId, JobUpdate)>,
    /// Draft tokens that were not read before.
    pub(super) drafts: Vec<(SequenceId, Vec<u32>)>,
    /// Whether kernels or graphs were built since the step before was read. What a step takes then says nothing of others.
    pub(super) built: bool,
}

/// Draft tokens that were computed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DraftResult {
    /// Of each segment, in the order of the call; empty for those that are read with the next step.
    pub(super) tokens: Vec<Vec<u32>>,
    /// Whether kernels or graphs were built for them. What they took then says nothing of others.
    pub(super) built: bool,
}

/// Statistics of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DeviceStats {
    /// Time spent in dispatching graphs to MLX.
    pub(super) dispatching: Duration,
    /// How work is launched.
    pub(super) launches: LaunchStats,
    pub(super) experts: ExpertStats,
    pub(super) media: MediaStats,
}
