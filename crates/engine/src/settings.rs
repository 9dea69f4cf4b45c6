//! What an engine is told when it starts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::fault::FaultPlan;

pub use crate::disk::DiskSettings;
pub use omnibus_core::{PreemptionPolicy, PrefixCache, Schedule, Tuning};

/// What an engine is told when it starts. The defaults suit one person on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Longest sequence, prompt and answer together, in tokens. `None` is what the model was trained
    /// for, or what its memory holds, whichever is less.
    pub max_model_len: Option<usize>,
    /// Sequences in one step.
    pub max_num_seqs: usize,
    /// Tokens computed in one step.
    pub max_num_batched_tokens: usize,
    /// Requests that wait; beyond them the answer is "try again later".
    pub max_queue: usize,
    /// Who goes first.
    pub schedule: Schedule,
    /// What it aims at.
    pub tuning: Tuning,
    /// Bytes for keys and values. `None` takes a share of what the machine has.
    pub kv_cache_memory: Option<u64>,
    /// Bytes of the host's memory for blocks of sequences that were preempted; they are taken when they are needed.
    /// `None` takes a share of what is free beside everything else.
    pub swap_space: Option<u64>,
    /// Whether those sequences' blocks are moved there, or computed again.
    pub preemption: PreemptionPolicy,
    /// Tokens of a block of keys and values.
    pub block_size: usize,
    /// Bits of a key's or value's element, 4 or 8. `None` keeps floats.
    pub kv_bits: Option<usize>,
    /// Most elements that share a scale, where `kv_bits` are set.
    pub kv_group_size: usize,
    /// Where `kv_bits` are set, the first so many tokens of a sequence still see floats.
    pub quantized_kv_start: usize,
    /// Positions that a token sees at most: the first four, and the last ones. `None` lets it see as many as the
    /// model was made for.
    pub max_kv_size: Option<usize>,
    /// Whether equal beginnings are computed once.
    pub prefix_cache: PrefixCache,
    /// Where blocks are kept that outlive the process.
    pub disk: Option<DiskSettings>,
    /// A computed prompt to go on from, or to make.
    pub prompt_cache: Option<PromptCacheFile>,
    /// Seconds without a request after which a session's blocks are as good as any others.
    pub session_ttl_s: f64,
    /// Where models run.
    pub device: DeviceChoice,
    /// Whether a step is launched while the one before it computes.
    pub async_scheduling: AsyncScheduling,
    /// Whether steps are taken before anybody waits for one.
    pub warm_up: WarmUp,
    /// Seeds the requests that bring no seed of their own.
    pub seed: u64,
    /// A chat template to use instead of the model's own.
    pub chat_template: Option<String>,
    /// Seconds after which a request that sets no limit of its own is given up.
    pub request_timeout_s: Option<f64>,
    /// Failures on order, for tests.
    #[doc(hidden)]
    pub faults: FaultPlan,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_model_len: None,
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            max_queue: 1024,
            schedule: Schedule::default(),
            tuning: Tuning::default(),
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
            prompt_cache: None,
            session_ttl_s: 3600.0,
            device: DeviceChoice::Auto,
            async_scheduling: AsyncScheduling::default(),
            warm_up: WarmUp::default(),
            seed: 0,
            chat_template: None,
            request_timeout_s: None,
            faults: FaultPlan::default(),
        }
    }
}

/// A file with a computed prompt, as mlx-lm writes and reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptCacheFile {
    /// Every prompt goes on from it.
    Read(PathBuf),
    /// The next prompt is written to it, once it is computed.
    Write(PathBuf),
}

/// Where models run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceChoice {
    /// The GPU if there is one.
    Auto,
    /// The GPU, or fail.
    Gpu,
    /// The CPU.
    Cpu,
}

/// Whether steps are taken when a model is loaded, before anybody waits for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum WarmUp {
    /// Never: the first answers wait, for no more than they need.
    #[default]
    Off,
    /// Where kernels are compiled when they are first met: on a GPU.
    Auto,
    /// Always.
    On,
}

/// Whether a step is launched while the one before it computes.
///
/// On the CPU it gains nothing, since launching takes as long as computing, and each token is told a step later. On a
/// GPU it needs kernels that write keys and values in place; without those it changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum AsyncScheduling {
    /// Each step is read before the next is planned.
    #[default]
    Off,
    /// Wherever the kernels allow it.
    On,
}
