//! What the engine says about itself.

use omnibus_core::{CacheMisses, CostModel, GroupStats};
use serde::{Deserialize, Serialize};

use crate::{DiskStats, MemoryPlan, SwapStats};

/// One model that can be asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The name it is listed under.
    pub id: String,
    /// Other names it answers to.
    pub aliases: Vec<String>,
    /// Its `model_type`.
    pub architecture: String,
    /// How its weights are packed, as `4-bit`; `None` when they are not.
    pub quantization: Option<String>,
    /// Longest sequence it was trained for, in tokens.
    pub context_length: usize,
    /// Longest sequence that is served, in tokens.
    pub max_model_len: usize,
    /// Tokens it knows.
    pub vocab_size: usize,
    /// Where its memory goes.
    pub memory: MemoryPlan,
    /// Its weights are in memory.
    pub loaded: bool,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    /// It waits for its first step.
    Queued,
    /// Its first step was launched.
    Running,
}

/// One request that is not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestInfo {
    /// As it was submitted.
    pub id: String,
    /// The model that answers it.
    pub model: String,
    /// Where it is.
    pub state: RequestState,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens drawn so far.
    pub generated_tokens: usize,
    /// Seconds since it was submitted.
    pub age_s: f64,
}

/// Whether steps are happening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Steps happen, or there is nothing to do.
    pub alive: bool,
    /// In words.
    pub detail: String,
}

/// A conversation whose blocks are kept between its turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// [`crate::Request::session_id`].
    pub id: String,
    /// Leading tokens that its next turn would find.
    pub tokens: usize,
    /// Blocks that are kept for it, over all layer groups.
    pub blocks: usize,
    /// Seconds since it was last used.
    pub idle_s: f64,
}

/// A session by its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSeen {
    /// Names it in the loop.
    pub session: u64,
    /// Leading tokens that its next turn would find.
    pub tokens: usize,
    /// Blocks that are kept for it, over all layer groups.
    pub blocks: usize,
    /// Seconds since it was last used.
    pub idle_s: f64,
}

/// Gauges and counters. Those named `…_total` only ever grow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The process that computes; 0 before it has said so.
    pub process: u32,
    /// Requests that wait for their first step.
    pub queued: usize,
    /// Requests that hold blocks.
    pub running: usize,
    /// Blocks held by some sequence, over all layer groups.
    pub kv_blocks_used: usize,
    /// Blocks kept only because they may be used again.
    pub kv_blocks_cached: usize,
    /// Blocks there are.
    pub kv_blocks_total: usize,
    /// What is kept on disk; nothing without `--cache-dir`.
    pub disk: DiskStats,
    /// What moved to the host's memory and back.
    pub swap: SwapStats,
    /// Bytes MLX has in use.
    pub active_memory_bytes: u64,
    /// The most it ever had.
    pub peak_memory_bytes: u64,
    /// Bytes MLX keeps for reuse.
    pub cache_memory_bytes: u64,
    /// Times the engine's process was started again.
    pub engine_restarts_total: u64,
    /// Times its model could not be loaded, since it first was.
    pub engine_load_failures_total: u64,
    /// Steps done.
    pub steps_total: u64,
    /// Steps that failed as a whole.
    pub failed_steps_total: u64,
    /// Sequences sent back to the queue for their blocks.
    pub preemptions_total: u64,
    /// Of those, sequences whose blocks were to be copied out.
    pub swap_preemptions_total: u64,
    /// Prompt tokens that were found computed.
    pub cached_tokens_total: u64,
    /// Tokens computed, those computed again included.
    pub computed_tokens_total: u64,
    /// Prompts that were not found as far as they could have been, by reason.
    pub prefix_misses: CacheMisses,
    /// Sequences that began in the middle of a block, whose beginning was copied.
    pub partial_copies_total: u64,
    /// Copies of recurrent states that were kept for others to start from.
    pub checkpoints_total: u64,
    /// Sessions whose blocks are kept.
    pub sessions_kept: usize,
    /// Each layer group's blocks, in the model's order.
    pub groups: Vec<GroupStats>,
    /// Sessions, as they were when they were last asked for.
    pub sessions: Vec<SessionSeen>,
    /// How often they were asked for.
    pub session_looks_total: u64,
    /// Sequences that ended, for whatever reason.
    pub finished_total: u64,
    /// Tokens drawn.
    pub generated_tokens_total: u64,
    /// Time the loop spent planning steps and building their graphs, in seconds: the host's own share.
    pub host_seconds_total: f64,
    /// Time it spent handing graphs to MLX, in seconds. On the CPU this includes most of the computing.
    pub dispatch_seconds_total: f64,
    /// Time it spent waiting for results, in seconds.
    pub wait_seconds_total: f64,
    /// Sequences that changed from the pool that reads prompts to the one that is answered.
    pub handovers_total: u64,
    /// Seconds in which half of those that wait will have been served, as far as can be told. At least one.
    pub retry_after_s: u64,
    /// How long steps take, as learned so far.
    pub cost_model: CostModel,
}

impl Stats {
    /// These, of an engine that was started after another had ended: totals go on, the rest is as it is.
    pub(crate) fn after(&self, before: &Self) -> Self {
        Self {
            engine_restarts_total: self.engine_restarts_total + before.engine_restarts_total,
            engine_load_failures_total: self.engine_load_failures_total + before.engine_load_failures_total,
            steps_total: self.steps_total + before.steps_total,
            failed_steps_total: self.failed_steps_total + before.failed_steps_total,
            preemptions_total: self.preemptions_total + before.preemptions_total,
            swap_preemptions_total: self.swap_preemptions_total + before.swap_preemptions_total,
            cached_tokens_total: self.cached_tokens_total + before.cached_tokens_total,
            prefix_misses: self.prefix_misses.plus(before.prefix_misses),
            partial_copies_total: self.partial_copies_total + before.partial_copies_total,
            checkpoints_total: self.checkpoints_total + before.checkpoints_total,
            session_looks_total: self.session_looks_total + before.session_looks_total,
            computed_tokens_total: self.computed_tokens_total + before.computed_tokens_total,
            handovers_total: self.handovers_total + before.handovers_total,
            finished_total: self.finished_total + before.finished_total,
            generated_tokens_total: self.generated_tokens_total + before.generated_tokens_total,
            host_seconds_total: self.host_seconds_total + before.host_seconds_total,
            dispatch_seconds_total: self.dispatch_seconds_total + before.dispatch_seconds_total,
            wait_seconds_total: self.wait_seconds_total + before.wait_seconds_total,
            disk: self.disk.after(&before.disk),
            swap: self.swap.after(&before.swap),
            ..self.clone()
        }
    }
}
