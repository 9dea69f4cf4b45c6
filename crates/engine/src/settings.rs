//! An engine's settings.

use std::path::PathBuf;

use omnibus_grammar::GrammarLimits;
use omnibus_kv_events::EventSettings;
use omnibus_kv_peer::PeerSettings;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::fault::FaultPlan;
use crate::generation_config::GenerationConfig;
use crate::speculation::SpeculationSettings;

pub use omnibus_core::{DraftPolicy, PreemptionPolicy, PrefixCache, Schedule, Tuning};

/// [`Settings::max_logprobs`] without a setting: what OpenAI's API has.
pub(crate) const DEFAULT_MAX_LOGPROBS: usize = 20;

/// An engine's settings. The defaults suit a single user on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Longest sequence, prompt and answer together, in tokens. `None` is what the model was trained
    /// for, or what its memory holds, whichever is less.
    pub max_model_len: Option<usize>,
    /// What becomes of a longer one than the model was trained for.
    pub long_context: LongContext,
    /// Sequences in one step.
    pub max_num_seqs: usize,
    /// Tokens computed in one step. `None` is what suits the device, see [`Settings::step_tokens`].
    pub max_num_batched_tokens: Option<usize>,
    /// Most requests that wait; more are refused with [`crate::Failure::Busy`].
    pub max_queue: usize,
    /// Most alternatives whose log-probabilities are reported for a token; `usize::MAX` is the whole vocabulary.
    pub max_logprobs: usize,
    /// The scheduling policy.
    pub schedule: Schedule,
    /// The policy's targets.
    pub tuning: Tuning,
    /// Most bytes that weights, KV cache and scratch take together. `None` is what the device and the system have, on a
    /// Mac less what is left to other programs. More than the device has changes nothing.
    pub memory_limit: Option<u64>,
    /// What the system may not page out. Since macOS 15 on Metal only.
    pub wired_limit: WiredLimit,
    /// Most bytes of experts that are resident while the others stay in the checkpoint's files. `None`: all are resident.
    /// On a CPU only.
    pub expert_memory: Option<u64>,
    /// Bytes for keys and values. `None` takes a share of what the machine has.
    pub kv_cache_memory: Option<u64>,
    /// Bytes of host memory for the blocks of preempted sequences, allocated as needed. `None` takes a share of the
    /// free memory.
    pub swap_space: Option<u64>,
    /// Whether a preempted sequence's blocks are swapped out or recomputed.
    pub preemption: PreemptionPolicy,
    /// Tokens of a block of keys and values.
    pub block_size: usize,
    /// Bits of a key's or value's element, 4 or 8. `None` keeps floats.
    pub kv_bits: Option<usize>,
    /// Most elements that share a scale, where `kv_bits` are set.
    pub kv_group_size: usize,
    /// With `kv_bits`, the first tokens of a sequence whose keys and values stay floats.
    pub quantized_kv_start: usize,
    /// Most positions that a token attends to: the first four and the last ones. `None` is the model's own span.
    pub max_kv_size: Option<usize>,
    /// Whether equal prefixes are computed once.
    pub prefix_cache: PrefixCache,
    /// The disk cache; blocks in it outlive the process.
    pub disk: Option<DiskSettings>,
    /// What the server does for other replicas of its model, and they for it. `None`: nothing, unless there are peers.
    pub role: Option<ReplicaRole>,
    /// Other replicas, whose blocks are fetched.
    pub kv_peers: PeerSettings,
    /// Where it is published which blocks are cached and evicted; `None` publishes nothing.
    pub kv_events: Option<EventSettings>,
    /// The topic of these events; `None` names the address and the first served name, in vLLM's form.
    pub kv_events_topic: Option<String>,
    /// Bytes for the features of pictures.
    pub media_cache_memory: u64,
    /// Most bytes of the files of requests whose media are being decoded, of all together; more are refused with
    /// [`crate::Failure::Busy`].
    pub media_files_memory: u64,
    /// The program that decodes videos in formats without a library: a path, or a name on the search path. `None` refuses them.
    pub ffmpeg: Option<PathBuf>,
    /// A prompt cache file to read or to write.
    pub prompt_cache: Option<PromptCacheFile>,
    /// Seconds without a request after which a session's blocks may be evicted.
    pub session_ttl_s: f64,
    /// Processes that compute the model together, each a part of every layer.
    pub tensor_parallel_size: usize,
    /// Stages of the model, at least one: processes that compute some of the layers each, one after the other.
    pub pipeline_parallel_size: usize,
    /// The machines of these processes, one each; `None` where all are on this one.
    pub cluster: Option<Cluster>,
    /// Replicas of the model, at least one: processes that compute requests of their own, each the whole model.
    pub data_parallel_size: usize,
    /// The device that models run on.
    pub device: DeviceChoice,
    /// What products with quantized weights do with activations on a CPU.
    pub cpu_activations: CpuActivations,
    /// Whether a step is launched while the one before it computes.
    pub async_scheduling: AsyncScheduling,
    /// Whether kernels are warmed up at start.
    pub warm_up: WarmUp,
    /// Seeds the requests without a seed.
    pub seed: u64,
    /// Most bytes of named adapters where more are loaded while the engine runs, kept free of the KV cache. While one is
    /// loaded, the stacks before and after both count. `None` for no limit.
    pub adapter_memory: Option<u64>,
    /// The directory of an adapter that is merged into the weights.
    pub adapter: Option<PathBuf>,
    /// Adapters that are kept beside the weights: requests name them.
    pub adapters: Vec<NamedAdapter>,
    /// A chat template that replaces the model's own.
    pub chat_template: Option<String>,
    /// The name of the format of tool calls; `none` leaves them in the text. `None` is the model's own.
    pub tool_call_format: Option<String>,
    /// The name of the format of reasoning; `none` leaves it in the text. `None` is the model's own.
    pub reasoning_format: Option<String>,
    /// Which values the sampling parameters have that a request leaves out.
    pub generation_config: GenerationConfig,
    /// Most tokens of reasoning of requests without a limit of their own.
    pub reasoning_budget: Option<usize>,
    /// Time limit in seconds of requests without one.
    pub request_timeout_s: Option<f64>,
    /// Draft tokens.
    pub speculation: SpeculationSettings,
    /// What a request's grammar may cost.
    pub grammar_limits: GrammarLimits,
    /// Watts of the device at any time, in the place of an energy sensor.
    pub power_model_watts: Option<f64>,
    /// Injected faults, for tests.
    #[doc(hidden)]
    pub faults: FaultPlan,
}

/// Tokens of a step on a CPU, unless a setting says otherwise.
const CPU_STEP_TOKENS: usize = 512;
/// Tokens of a step on a GPU, unless a setting says otherwise. An H200 takes 22 ms for 2048 tokens of a 0.6B model in
/// steps of 512, and 11 ms in one step.
const GPU_STEP_TOKENS: usize = 2048;

impl Settings {
    /// Tokens computed in one step.
    pub fn step_tokens(&self) -> usize {
        self.max_num_batched_tokens.unwrap_or(CPU_STEP_TOKENS)
    }

    /// These settings with what is left to the device decided: tokens of a step.
    pub(crate) fn on(&self, device: mlx::device::Device) -> Self {
        let default = match device {
            mlx::device::Device::Cpu => CPU_STEP_TOKENS,
            mlx::device::Device::Gpu => GPU_STEP_TOKENS,
        };
        let max_num_batched_tokens = Some(self.max_num_batched_tokens.unwrap_or(default));
        Self { max_num_batched_tokens, ..self.clone() }
    }
}

/// What becomes of sequences that are requested to be longer than the model was trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LongContext {
    /// The engine does not start.
    #[default]
    Refused,
    /// They are served; answers beyond that length are mostly nonsense.
    Allowed,
}

/// What of a GPU's memory the system may not page out while the model is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum WiredLimit {
    /// Nothing: with wired memory Macs have ended in kernel panics.
    #[default]
    Off,
    /// As many bytes as the weights take.
    Weights,
    /// So many bytes, at most what the system allows.
    Bytes(u64),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_model_len: None,
            long_context: LongContext::default(),
            max_num_seqs: 64,
            max_logprobs: DEFAULT_MAX_LOGPROBS,
            max_num_batched_tokens: None,
            max_queue: 1024,
            schedule: Schedule::default(),
            tuning: Tuning::default(),
            memory_limit: None,
            wired_limit: WiredLimit::default(),
            expert_memory: None,
            kv_cache_memory: None,
            swap_space: None,
            preemption: PreemptionPolicy::default(),
            block_size: 32,
            kv_bits: None,
            kv_group_size: 64,
            quantized_kv_start: 0,
            max_kv_size: None,
            prefix_cache: PrefixCache::default(),
            disk: None,
            role: None,
            kv_peers: PeerSettings::default(),
            kv_events: None,
            kv_events_topic: None,
            media_cache_memory: 256 << 20,
            media_files_memory: 512 << 20,
            ffmpeg: None,
            prompt_cache: None,
            session_ttl_s: 3600.0,
            tensor_parallel_size: 1,
            pipeline_parallel_size: 1,
            cluster: None,
            data_parallel_size: 1,
            device: DeviceChoice::Auto,
            cpu_activations: CpuActivations::default(),
            async_scheduling: AsyncScheduling::default(),
            warm_up: WarmUp::default(),
            seed: 0,
            adapter_memory: None,
            adapter: None,
            adapters: Vec::new(),
            chat_template: None,
            tool_call_format: None,
            reasoning_format: None,
            generation_config: GenerationConfig::default(),
            reasoning_budget: None,
            request_timeout_s: None,
            speculation: SpeculationSettings::default(),
            grammar_limits: GrammarLimits::default(),
            power_model_watts: None,
            faults: FaultPlan::default(),
        }
    }
}

/// An adapter that requests name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedAdapter {
    /// The name, as in [`crate::Request::model`].
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Its id, once it was loaded: an engine process that starts again loads the same content or none.
    #[doc(hidden)]
    pub loaded: Option<u128>,
}

impl NamedAdapter {
    /// An adapter that was not loaded yet.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), path: path.into(), loaded: None }
    }
}

/// What a server does for other replicas of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaRole {
    /// Other replicas read its blocks.
    Prefill,
    /// It fetches blocks of its peers, and has them compute prompts.
    Decode,
    /// Both.
    Both,
}

impl Settings {
    /// The role that was chosen; with peers and without a choice, both.
    fn effective_role(&self) -> Option<ReplicaRole> {
        self.role.or_else(|| (!self.kv_peers.urls.is_empty()).then_some(ReplicaRole::Both))
    }

    /// Whether other replicas may read blocks.
    pub(crate) fn serves_blocks(&self) -> bool {
        matches!(self.effective_role(), Some(ReplicaRole::Prefill | ReplicaRole::Both))
    }

    /// Whether blocks of peers are fetched.
    pub(crate) fn fetches_blocks(&self) -> bool {
        matches!(self.effective_role(), Some(ReplicaRole::Decode | ReplicaRole::Both))
            && !self.kv_peers.urls.is_empty()
    }

    /// Whether peers compute prompts.
    pub(crate) fn delegates_prefill(&self) -> bool {
        self.role == Some(ReplicaRole::Decode) && self.fetches_blocks()
    }
}

/// The disk cache: its directory and its size limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSettings {
    /// Created if missing. Servers and models may share it. Empty turns the disk cache off.
    pub directory: PathBuf,
    /// Most bytes of all files together; the least recently used are evicted first.
    pub limit_bytes: u64,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self { directory: PathBuf::new(), limit_bytes: 10_000_000_000 }
    }
}

/// A prompt cache file, as mlx-lm writes and reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptCacheFile {
    /// Every prompt continues it.
    Read(PathBuf),
    /// The next prompt is written to it once it is computed.
    Write(PathBuf),
}

/// The device that models run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceChoice {
    /// The GPU if there is one.
    Auto,
    /// The GPU; fails without one.
    Gpu,
    /// The CPU.
    Cpu,
}

/// What products with quantized weights do with activations on a CPU. Nothing changes on a GPU, nor where weights have
/// other than 4 or 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CpuActivations {
    /// Multiply them as they are.
    #[default]
    Exact,
    /// Round them to 8 bits in blocks of 32 elements. Products are computed by integer instructions.
    Int8,
}

/// Whether steps are run when a model is loaded, so that kernels are compiled before the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum WarmUp {
    /// Never.
    #[default]
    Off,
    /// Where kernels are compiled on first use: on a GPU.
    Auto,
    /// Always.
    On,
}

/// Whether a step is launched while the one before it computes.
///
/// On the CPU it gains nothing, since launching takes as long as computing, and each token is reported a step later.
/// On a GPU it needs kernels that write keys and values in place; without those it changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum AsyncScheduling {
    /// On a GPU, wherever the kernels allow it; not on a CPU.
    #[default]
    Auto,
    /// Each step is read before the next is planned.
    Off,
    /// Wherever the kernels allow it.
    On,
}
