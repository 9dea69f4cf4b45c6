//! Settings of a scheduler: memory, limits and policy.

use omnibus_kv::{CacheKind, FloatType, KvCacheSpec, KvFormat};
use serde::{Deserialize, Serialize};

use crate::drafting::DraftPolicy;
use crate::padding::Padding;
use crate::request::Tick;
use crate::step_time::StepTime;

/// Layers that share one pool of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGroup {
    /// What the layers cache, and how many bytes a block takes.
    pub spec: KvCacheSpec,
    /// Blocks in the pool; of a state group, slots. At least one.
    pub blocks: u32,
}

impl CacheGroup {
    /// A group of this kind with one float32 element per token or slot, for simulations that only count blocks.
    pub fn of_kind(kind: CacheKind, blocks: u32) -> Self {
        let spec = KvCacheSpec { kind, format: KvFormat::Float(FloatType::F32), elements: 1 };
        Self { spec, blocks }
    }

    /// What is cached.
    pub fn kind(&self) -> CacheKind {
        self.spec.kind
    }
}

/// The most that one step may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLimits {
    /// Sequences in a step. At least one.
    pub sequences: usize,
    /// Tokens computed in a step. At least one.
    pub tokens: usize,
}

/// The scheduling policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Schedule {
    /// By slack, within a learned step time: prefill chunks leave decodes on time, and no tenant with many requests
    /// delays the others.
    #[default]
    Fair,
    /// First come, first served: continuous batching with chunked prefill, decode first.
    Fcfs,
    /// A batch at a time: the next begins when the last one has ended.
    Static,
    /// A pool of sequences in prefill and a pool of sequences in decode, in separate steps.
    Split,
}

/// Parameters of the policies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tuning {
    /// Of [`Schedule::Fair`].
    pub targets: LatencyTargets,
    /// Of [`Schedule::Static`].
    pub batch: StaticBatch,
    /// Of [`Schedule::Split`].
    pub stages: StageLimits,
    /// Of all schedules.
    pub drafts: DraftPolicy,
    /// How long a step with prefill may take. `None`: as long as its tokens take.
    #[serde(default)]
    pub step_time: Option<StepTime>,
    /// Rows that fill a step up cost as much as others.
    #[serde(default)]
    pub padding: Padding,
}

/// When a batch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticBatch {
    /// When this many wait. At least one.
    pub sequences: usize,
    /// Or when the first of them has waited this long.
    pub wait: Tick,
}

impl Default for StaticBatch {
    fn default() -> Self {
        Self { sequences: 8, wait: 50_000 }
    }
}

/// Sequences in each pool. At least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLimits {
    /// In prefill, or waiting for a place in decode.
    pub prefill: usize,
    /// In decode.
    pub decode: usize,
}

impl Default for StageLimits {
    fn default() -> Self {
        Self { prefill: 4, decode: 64 }
    }
}

/// Latency targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencyTargets {
    /// From arrival to the first token. Without it, two seconds. A prompt that takes longer than half of this to
    /// read gets twice what it takes.
    pub ttft: Option<Tick>,
    /// From one token to the next. Without it, four times what a step that only decodes takes, and at least a
    /// twentieth of a second.
    pub tpot: Option<Tick>,
}

/// Prefix caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PrefixCache {
    /// Full blocks stay cached until they are evicted, and so do checkpoints of states (at
    /// [`crate::Request::boundaries`] and at the prompt's end) in slots that no sequence needs.
    #[default]
    On,
    /// Every sequence computes all its tokens.
    Off,
}

/// Whether changes of the prefix cache are kept for [`crate::Scheduler::take_cache_events`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CacheEvents {
    /// They are not.
    #[default]
    Ignored,
    /// They are, until they are taken.
    Kept,
}

/// What happens to the blocks of preempted sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PreemptionPolicy {
    /// Evicted blocks are computed again.
    Recompute,
    /// Blocks are offloaded and restored.
    Swap,
    /// Whichever is expected to take less time.
    #[default]
    Auto,
}

/// Whether blocks can be offloaded to host memory or a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Offload {
    /// There is none: lost blocks are recomputed.
    #[default]
    Unavailable,
    /// There is some.
    Available,
}

/// Where preempted sequences' blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SwapSettings {
    /// Swap or recompute.
    pub preemption: PreemptionPolicy,
    /// Whether there is memory to swap to.
    pub offload: Offload,
}

/// All settings of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Tokens per block. At least one.
    pub block_size: usize,
    /// At least one.
    pub groups: Vec<CacheGroup>,
    /// Sequences running at once, and so the most in a step.
    pub max_sequences: usize,
    /// Tokens computed in one step.
    pub max_step_tokens: usize,
    /// Online sequences waiting at once. A tenant that has less than its share of them may use a quarter more.
    pub max_queue: usize,
    /// Offline sequences waiting at once, with the shares of [`Self::max_queue`].
    pub max_offline_queue: usize,
    /// Tokens of a sequence, prompt and answer together.
    pub max_context: usize,
    /// Tokens of one of [`crate::Request::spans`], which a step may compute beyond `max_step_tokens`.
    pub max_span_tokens: usize,
    /// The policy.
    pub schedule: Schedule,
    /// Its parameters.
    pub tuning: Tuning,
    /// Prefix caching.
    pub prefix_cache: PrefixCache,
    /// Changes of the prefix cache.
    pub cache_events: CacheEvents,
    /// Time without a request after which the blocks of a [`crate::Request::session`] are unpinned.
    pub session_ttl: Tick,
    /// Offloading.
    pub swap: SwapSettings,
}

impl Settings {
    /// The limits of an undisturbed step.
    pub fn limits(&self) -> StepLimits {
        StepLimits { sequences: self.max_sequences, tokens: self.max_step_tokens }
    }

    /// True when blocks are shared between sequences.
    pub(crate) fn shares(&self) -> bool {
        self.prefix_cache == PrefixCache::On
    }

    /// True when a prefix can only end at a checkpoint of a state.
    pub(crate) fn keeps_states(&self) -> bool {
        self.shares() && self.groups.iter().any(|group| group.kind().is_state())
    }

    /// Panics on values that could never run anything.
    pub(crate) fn check(&self) {
        assert!(self.block_size > 0, "a block holds at least one token");
        assert!(!self.groups.is_empty(), "a model has at least one layer group");
        assert!(self.groups.iter().all(|group| group.blocks > 0), "every group has at least one block");
        assert!(
            self.groups.iter().all(|group| group.kind().is_valid()),
            "a window or a prefix has at least one token"
        );
        assert!(self.max_sequences > 0 && self.max_step_tokens > 0, "a step that may do nothing never ends");
        let Tuning { batch, stages, .. } = &self.tuning;
        assert!(batch.sequences > 0, "a batch has at least one sequence");
        assert!(stages.prefill > 0 && stages.decode > 0, "a pool has at least one sequence");
        let queues = [self.max_queue, self.max_offline_queue];
        assert!(!queues.contains(&0), "a sequence waits at least until the next plan");
    }
}
