//! Statistics of the engine: gauges, counters and the learned cost model.
//!
//! Invariant: plain serializable values. Counters of a restarted engine process start at zero; `plus_totals` carries them
//! on.

use omnibus_core::CostModel;
pub use omnibus_core::Stats as SchedulerStats;
use serde::{Deserialize, Serialize};

/// A session, by its id in the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStats {
    /// Its id in the engine.
    pub session: u128,
    /// Leading tokens that its next request would find cached.
    pub tokens: usize,
    /// Blocks kept for it, over all layer groups.
    pub blocks: usize,
    /// Seconds since it was last used.
    pub idle_s: f64,
}

/// Gauges and counters. Those named `…_total` only grow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The engine's process id; 0 before its first report.
    pub process: u32,
    /// The scheduler: sequences, blocks, prefix cache.
    pub scheduler: SchedulerStats,
    /// The disk cache; zero without `--cache-dir`.
    pub disk: DiskStats,
    /// Blocks swapped to host memory and back.
    pub swap: SwapStats,
    /// Grammars of structured output.
    pub grammar: GrammarStats,
    /// Pictures: encoding, and the features that are kept.
    pub media: MediaStats,
    /// Bytes MLX has in use.
    pub active_memory_bytes: u64,
    /// Peak of that.
    pub peak_memory_bytes: u64,
    /// Bytes in MLX's buffer cache.
    pub cache_memory_bytes: u64,
    /// Restarts of the engine process.
    pub engine_restarts_total: u64,
    /// Failed loads of the model after the first successful one.
    pub engine_load_failures_total: u64,
    /// Steps completed.
    pub steps_total: u64,
    /// Steps that failed as a whole.
    pub failed_steps_total: u64,
    /// Sequences that ended, for any reason.
    pub finished_total: u64,
    /// Seconds the loop spent planning steps, building their graphs and taking in results: the host's share.
    pub host_seconds_total: f64,
    /// Of those, seconds in the scheduler: planning, allocating, committing.
    pub plan_seconds_total: f64,
    /// Seconds it spent dispatching graphs to MLX. On the CPU this includes most of the computation.
    pub dispatch_seconds_total: f64,
    /// Seconds it spent waiting for results.
    pub wait_seconds_total: f64,
    /// How a GPU's work is launched; zero on a CPU.
    pub launches: LaunchStats,
    /// Estimated seconds until half of the queue has been served. At least one.
    pub retry_after_s: u64,
    /// The learned model of step times.
    pub cost_model: CostModel,
}

impl Stats {
    /// These statistics with an earlier engine process's totals added.
    pub(crate) fn plus_totals(&self, before: &Self) -> Self {
        Self {
            engine_restarts_total: self.engine_restarts_total + before.engine_restarts_total,
            engine_load_failures_total: self.engine_load_failures_total + before.engine_load_failures_total,
            steps_total: self.steps_total + before.steps_total,
            failed_steps_total: self.failed_steps_total + before.failed_steps_total,
            finished_total: self.finished_total + before.finished_total,
            host_seconds_total: self.host_seconds_total + before.host_seconds_total,
            plan_seconds_total: self.plan_seconds_total + before.plan_seconds_total,
            dispatch_seconds_total: self.dispatch_seconds_total + before.dispatch_seconds_total,
            wait_seconds_total: self.wait_seconds_total + before.wait_seconds_total,
            scheduler: self.scheduler.plus_totals(&before.scheduler),
            disk: self.disk.plus_totals(&before.disk),
            swap: self.swap.plus_totals(&before.swap),
            launches: self.launches.plus_totals(&before.launches),
            grammar: self.grammar.plus_totals(&before.grammar),
            media: self.media.plus_totals(&before.media),
            ..self.clone()
        }
    }
}

/// Statistics of the disk cache. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStats {
    /// Files.
    pub files: u64,
    /// Bytes of all files, those of other models included.
    pub bytes: u64,
    /// Blocks read and used.
    pub read_blocks_total: u64,
    /// Blocks written.
    pub written_blocks_total: u64,
    /// Blocks not written because the writer was behind or the disk refused them.
    pub dropped_blocks_total: u64,
    /// Files removed because they were corrupt, truncated or foreign.
    pub rejected_files_total: u64,
    /// Files removed to stay within the limit.
    pub evicted_files_total: u64,
}

impl DiskStats {
    /// These statistics with an earlier engine process's totals added.
    pub(crate) fn plus_totals(&self, before: &Self) -> Self {
        Self {
            read_blocks_total: self.read_blocks_total + before.read_blocks_total,
            written_blocks_total: self.written_blocks_total + before.written_blocks_total,
            dropped_blocks_total: self.dropped_blocks_total + before.dropped_blocks_total,
            rejected_files_total: self.rejected_files_total + before.rejected_files_total,
            evicted_files_total: self.evicted_files_total + before.evicted_files_total,
            ..*self
        }
    }
}

/// How a GPU's work is launched. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchStats {
    /// Kernels that were compiled, or loaded from the compiler's cache: flat once every shape has occurred.
    pub compiled_kernels_total: u64,
    /// Graphs of decode steps that were built.
    pub step_graphs_total: u64,
    /// Kernels and operations of the last decode step; 0 if it was not a graph.
    pub step_launches: u64,
}

impl LaunchStats {
    /// These statistics with an earlier engine process's totals added.
    pub(crate) fn plus_totals(&self, before: &Self) -> Self {
        Self {
            compiled_kernels_total: self.compiled_kernels_total + before.compiled_kernels_total,
            step_graphs_total: self.step_graphs_total + before.step_graphs_total,
            ..*self
        }
    }
}

/// Statistics of swapping blocks to host memory. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapStats {
    /// Bytes of host memory in use for blocks.
    pub used_bytes: u64,
    /// The limit of that.
    pub limit_bytes: u64,
    /// Blocks copied out for preempted sequences.
    pub out_blocks_total: u64,
    /// Bytes of those.
    pub out_bytes_total: u64,
    /// Blocks restored from host memory.
    pub in_blocks_total: u64,
    /// Bytes of those.
    pub in_bytes_total: u64,
}

impl SwapStats {
    /// These statistics with an earlier engine process's totals added.
    pub(crate) fn plus_totals(&self, before: &Self) -> Self {
        Self {
            out_blocks_total: self.out_blocks_total + before.out_blocks_total,
            out_bytes_total: self.out_bytes_total + before.out_bytes_total,
            in_blocks_total: self.in_blocks_total + before.in_blocks_total,
            in_bytes_total: self.in_bytes_total + before.in_bytes_total,
            ..*self
        }
    }
}

/// Statistics of grammars. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GrammarStats {
    /// Sequences with a grammar.
    pub sequences: u64,
    /// Requests whose grammar was compiled or found in the cache.
    pub compiled_total: u64,
    /// Those of them that were found in the cache.
    pub cache_hits_total: u64,
    /// Requests that were refused because of their grammar.
    pub refused_total: u64,
    /// Sequences that failed because a limit was met while they ran.
    pub failed_total: u64,
    /// Seconds from a request's arrival until its grammar was compiled.
    pub compile_seconds_total: f64,
    /// Masks computed.
    pub masks_total: u64,
    /// Seconds that they took, on threads of their own.
    pub mask_seconds_total: f64,
    /// Seconds that the loop waited for them.
    pub wait_seconds_total: f64,
    /// Seconds that the loop spent on matching sampled tokens.
    pub accept_seconds_total: f64,
}

impl GrammarStats {
    /// These statistics with an earlier engine process's totals added.
    pub(crate) fn plus_totals(&self, before: &Self) -> Self {
        Self {
            sequences: self.sequences,
            compiled_total: self.compiled_total + before.compiled_total,
            cache_hits_total: self.cache_hits_total + before.cache_hits_total,
            refused_total: self.refused_total + before.refused_total,
            failed_total: self.failed_total + before.failed_total,
            compile_seconds_total: self.compile_seconds_total + before.compile_seconds_total,
            masks_total: self.masks_total + before.masks_total,
            mask_seconds_total: self.mask_seconds_total + before.mask_seconds_total,
            wait_seconds_total: self.wait_seconds_total + before.wait_seconds_total,
            accept_seconds_total: self.accept_seconds_total + before.accept_seconds_total,
        }
    }
}

/// Statistics of pictures. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MediaStats {
    /// Pictures whose features are in memory.
    pub entries: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// The limit of that.
    pub limit_bytes: u64,
    /// Features evicted to stay within the limit.
    pub evicted_total: u64,
    /// Runs of the encoder, one for each picture that was encoded.
    pub encoder_runs_total: u64,
    /// Seconds spent on those.
    pub encode_seconds_total: f64,
    /// Pictures of admitted prompts that were in the cached prefix, and needed no features.
    pub prefix_hits_total: u64,
    /// Those whose features were in memory.
    pub feature_hits_total: u64,
    /// Those whose features were on disk.
    pub disk_hits_total: u64,
    /// Pictures that were encoded for the first time since the engine started.
    pub cold_misses_total: u64,
    /// Pictures that were encoded again, because their features had been evicted.
    pub evicted_misses_total: u64,
}

impl MediaStats {
    /// These statistics with an earlier engine process's totals added.
    pub(crate) fn plus_totals(&self, before: &Self) -> Self {
        Self {
            evicted_total: self.evicted_total + before.evicted_total,
            encoder_runs_total: self.encoder_runs_total + before.encoder_runs_total,
            encode_seconds_total: self.encode_seconds_total + before.encode_seconds_total,
            prefix_hits_total: self.prefix_hits_total + before.prefix_hits_total,
            feature_hits_total: self.feature_hits_total + before.feature_hits_total,
            disk_hits_total: self.disk_hits_total + before.disk_hits_total,
            cold_misses_total: self.cold_misses_total + before.cold_misses_total,
            evicted_misses_total: self.evicted_misses_total + before.evicted_misses_total,
            ..*self
        }
    }
}
