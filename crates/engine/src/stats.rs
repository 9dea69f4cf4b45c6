//! Statistics of the engine: gauges, counters and the learned cost model, and the table of their metrics.
//!
//! Invariant: plain serializable values. Counters of a restarted engine process start at zero; `plus_totals` carries them
//! on. Every number that only grows is a row of [`STATISTICS`] or of the scheduler's table.

use omnibus_core::CostModel;
use omnibus_core::statistic::Total::{Count, Seconds};
use omnibus_core::statistic::{Statistic, add_totals};
pub use omnibus_core::{STATISTICS as SCHEDULER_STATISTICS, Stats as SchedulerStats};
use omnibus_kv_events::PublisherStats;
use omnibus_kv_peer::PeerStats;
use serde::{Deserialize, Serialize};

use crate::buffer_count::BufferStats;
use crate::energy::EnergyStats;

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
    /// Blocks exchanged with other replicas.
    pub kv_transfer: KvTransferStats,
    /// KV events.
    pub kv_events: PublisherStats,
    /// Blocks swapped to host memory and back.
    pub swap: SwapStats,
    /// Grammars of structured output.
    pub grammar: GrammarStats,
    /// Pictures: encoding, and the features that are kept.
    pub media: MediaStats,
    /// Energy, where it is counted.
    pub energy: EnergyStats,
    /// Bytes MLX has in use.
    pub active_memory_bytes: u64,
    /// Peak of that.
    pub peak_memory_bytes: u64,
    /// Bytes in MLX's buffer cache.
    pub cache_memory_bytes: u64,
    /// Buffers of Metal's allocator.
    pub buffers: BufferStats,
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
    /// Seconds of `host_seconds_total` in the scheduler: planning, allocating, committing.
    pub plan_seconds_total: f64,
    /// Seconds it spent dispatching graphs to MLX. On the CPU this includes most of the computation.
    pub dispatch_seconds_total: f64,
    /// Seconds it spent waiting for results.
    pub wait_seconds_total: f64,
    /// How a GPU's work is launched; zero on a CPU.
    pub launches: LaunchStats,
    /// Experts that stay in files; zero without `--expert-memory`.
    pub experts: ExpertStats,
    /// Estimated seconds until half of the queue has been served. At least one.
    pub retry_after_s: u64,
    /// The learned model of step times.
    pub cost_model: CostModel,
}

impl Stats {
    /// These statistics with an earlier engine process's totals added.
    pub(crate) fn plus_totals(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        add_totals(STATISTICS, &mut sum, before);
        sum.scheduler = self.scheduler.plus_totals(&before.scheduler);
        sum
    }

    /// The statistics of two replicas together. What does not add up is that of the first one.
    pub(crate) fn beside(&self, other: &Self) -> Self {
        let mut sum = self.plus_totals(other);
        sum.scheduler = sum.scheduler.plus_gauges(&other.scheduler);
        sum.swap.used_bytes += other.swap.used_bytes;
        sum.swap.limit_bytes += other.swap.limit_bytes;
        sum.grammar.sequences += other.grammar.sequences;
        sum.media.entries += other.media.entries;
        sum.media.bytes += other.media.bytes;
        sum.media.limit_bytes += other.media.limit_bytes;
        sum.experts.resident_bytes += other.experts.resident_bytes;
        sum.experts.limit_bytes += other.experts.limit_bytes;
        sum.active_memory_bytes += other.active_memory_bytes;
        sum.peak_memory_bytes += other.peak_memory_bytes;
        sum.cache_memory_bytes += other.cache_memory_bytes;
        sum.buffers.count += other.buffers.count;
        sum.buffers.limit += other.buffers.limit;
        sum.retry_after_s = self.retry_after_s.min(other.retry_after_s);
        sum
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

/// Blocks exchanged with other replicas. Those named `…_total` only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvTransferStats {
    /// Blocks that other replicas read.
    pub served_blocks_total: u64,
    /// Bytes of those.
    pub served_bytes_total: u64,
    /// What was fetched of peers, and their state.
    pub fetch: PeerStats,
}

/// Experts whose weights stay in files. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertStats {
    /// Experts of a product whose weights were resident, or being read ahead.
    pub hits_total: u64,
    /// Experts of a product that had to be read for it.
    pub misses_total: u64,
    /// Experts that were read ahead.
    pub prefetches_total: u64,
    /// Of these, those that a product used before they were evicted.
    pub prefetch_hits_total: u64,
    /// Bytes read.
    pub read_bytes_total: u64,
    /// Bytes of resident experts.
    pub resident_bytes: u64,
    /// Most of these.
    pub limit_bytes: u64,
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

/// Statistics of grammars. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GrammarStats {
    /// Sequences with a grammar.
    pub sequences: u64,
    /// Requests whose grammar was compiled or found in the cache.
    pub compiled_total: u64,
    /// Requests whose grammar was found in the cache.
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
    /// Images of admitted prompts whose features were in memory.
    pub feature_hits_total: u64,
    /// Images of admitted prompts whose features were on disk.
    pub disk_hits_total: u64,
    /// Pictures that were encoded for the first time since the engine started.
    pub cold_misses_total: u64,
    /// Pictures that were encoded again, because their features had been evicted.
    pub evicted_misses_total: u64,
}

const ENERGY: (&str, &str) = (
    "omnibus_energy_millijoules_total",
    "energy by phase: prompt, completion, or idle; absent where no sensor counts it",
);
const KV_PEER_FAILURES: (&str, &str) = (
    "omnibus_kv_peer_failures_total",
    "requests to --kv-peer that failed, by reason: unreachable, timeout, refused, other_model or invalid",
);
const MEDIA_HITS: (&str, &str) = (
    "omnibus_media_hits_total",
    "images of admitted prompts that were not encoded, by kind: prefix, features or disk",
);
const MEDIA_MISSES: (&str, &str) = (
    "omnibus_media_misses_total",
    "images of admitted prompts that were encoded, by reason: cold or evicted",
);

/// The engine's numbers, without the scheduler's.
pub const STATISTICS: &[Statistic<Stats>] = &[
    Statistic::total("omnibus_engine_restarts_total", "restarts of the engine process", |stats| {
        Count(&mut stats.engine_restarts_total)
    }),
    Statistic::total(
        "omnibus_engine_load_failures_total",
        "failed model loads of a restarted engine process",
        |stats| Count(&mut stats.engine_load_failures_total),
    ),
    Statistic::total("omnibus_steps_total", "engine steps", |stats| Count(&mut stats.steps_total)),
    Statistic::total("omnibus_failed_steps_total", "engine steps that failed as a whole", |stats| {
        Count(&mut stats.failed_steps_total)
    }),
    Statistic::total(
        "omnibus_step_host_seconds_total",
        "host time spent planning and building steps",
        |stats| Seconds(&mut stats.host_seconds_total),
    ),
    Statistic::total("omnibus_step_wait_seconds_total", "time spent waiting for step results", |stats| {
        Seconds(&mut stats.wait_seconds_total)
    }),
    Statistic::series(ENERGY, ("phase", "prompt"), |stats| Count(&mut stats.energy.prompt_millijoules_total)),
    Statistic::series(ENERGY, ("phase", "completion"), |stats| {
        Count(&mut stats.energy.completion_millijoules_total)
    }),
    Statistic::series(ENERGY, ("phase", "idle"), |stats| Count(&mut stats.energy.idle_millijoules_total)),
    Statistic::gauge(
        "omnibus_power_watts",
        "power of the device while it computed last; absent where no sensor counts it",
        |stats| stats.energy.watts,
    ),
    Statistic::sum(|stats| Count(&mut stats.finished_total)),
    Statistic::sum(|stats| Seconds(&mut stats.plan_seconds_total)),
    Statistic::sum(|stats| Seconds(&mut stats.dispatch_seconds_total)),
    Statistic::gauge("omnibus_memory_active_bytes", "memory of live arrays", |stats| {
        stats.active_memory_bytes as f64
    }),
    Statistic::gauge("omnibus_memory_peak_bytes", "peak memory of live arrays", |stats| {
        stats.peak_memory_bytes as f64
    }),
    Statistic::gauge("omnibus_memory_cache_bytes", "memory kept by MLX's allocator for reuse", |stats| {
        stats.cache_memory_bytes as f64
    }),
    Statistic::gauge(
        "omnibus_metal_buffers",
        "buffers of Metal's allocator, those kept for reuse included",
        |stats| stats.buffers.count as f64,
    ),
    Statistic::gauge("omnibus_metal_buffers_limit", "most buffers that the system allows", |stats| {
        stats.buffers.limit as f64
    }),
    Statistic::total(
        "omnibus_metal_buffer_cache_clears_total",
        "times that buffers kept for reuse were given back because there were too many",
        |stats| Count(&mut stats.buffers.cache_clears_total),
    ),
    Statistic::gauge(
        "omnibus_cost_model_error_ratio",
        "recent error of predicted step times, relative to the measured times",
        |stats| stats.cost_model.error_ratio(),
    ),
    Statistic::gauge(
        "omnibus_transfer_cost_error_ratio",
        "recent error of predicted block transfer times, relative to the measured times",
        |stats| stats.cost_model.transfers.error_ratio(),
    ),
    Statistic::total(
        "omnibus_gpu_compiled_kernels_total",
        "our GPU kernels compiled, or loaded from the compiler's cache",
        |stats| Count(&mut stats.launches.compiled_kernels_total),
    ),
    Statistic::total(
        "omnibus_gpu_step_graphs_total",
        "decode steps prepared as CUDA graphs, one for each shape of a step",
        |stats| Count(&mut stats.launches.step_graphs_total),
    ),
    Statistic::gauge(
        "omnibus_gpu_step_launches",
        "kernels and operations of the last decode step; 0 if it was not a CUDA graph",
        |stats| stats.launches.step_launches as f64,
    ),
    Statistic::total(
        "omnibus_expert_memory_hits_total",
        "experts of a product that were resident, with --expert-memory",
        |stats| Count(&mut stats.experts.hits_total),
    ),
    Statistic::total(
        "omnibus_expert_memory_misses_total",
        "experts of a product that were read from files, with --expert-memory",
        |stats| Count(&mut stats.experts.misses_total),
    ),
    Statistic::total(
        "omnibus_expert_memory_prefetches_total",
        "experts that were read ahead, with --expert-memory",
        |stats| Count(&mut stats.experts.prefetches_total),
    ),
    Statistic::total(
        "omnibus_expert_memory_prefetch_hits_total",
        "experts that were read ahead and used before they were evicted",
        |stats| Count(&mut stats.experts.prefetch_hits_total),
    ),
    Statistic::total(
        "omnibus_expert_memory_read_bytes_total",
        "bytes of experts read from files, or from the system's page cache",
        |stats| Count(&mut stats.experts.read_bytes_total),
    ),
    Statistic::gauge("omnibus_expert_memory_resident_bytes", "bytes of resident experts", |stats| {
        stats.experts.resident_bytes as f64
    }),
    Statistic::gauge("omnibus_expert_memory_limit_bytes", "--expert-memory", |stats| {
        stats.experts.limit_bytes as f64
    }),
    Statistic::gauge("omnibus_swap_used_bytes", "host memory used by swapped blocks", |stats| {
        stats.swap.used_bytes as f64
    }),
    Statistic::gauge("omnibus_swap_limit_bytes", "host memory available for swapped blocks", |stats| {
        stats.swap.limit_bytes as f64
    }),
    Statistic::total("omnibus_swap_out_blocks_total", "blocks swapped out of preempted sequences", |stats| {
        Count(&mut stats.swap.out_blocks_total)
    }),
    Statistic::total("omnibus_swap_out_bytes_total", "bytes swapped out of preempted sequences", |stats| {
        Count(&mut stats.swap.out_bytes_total)
    }),
    Statistic::total("omnibus_swap_in_blocks_total", "blocks swapped in", |stats| {
        Count(&mut stats.swap.in_blocks_total)
    }),
    Statistic::total("omnibus_swap_in_bytes_total", "bytes swapped in", |stats| {
        Count(&mut stats.swap.in_bytes_total)
    }),
    Statistic::gauge("omnibus_disk_files", "blocks stored in --cache-dir, of all models", |stats| {
        stats.disk.files as f64
    }),
    Statistic::gauge("omnibus_disk_bytes", "bytes stored in --cache-dir, of all models", |stats| {
        stats.disk.bytes as f64
    }),
    Statistic::total("omnibus_disk_read_blocks_total", "blocks loaded from --cache-dir", |stats| {
        Count(&mut stats.disk.read_blocks_total)
    }),
    Statistic::total("omnibus_disk_written_blocks_total", "blocks written to --cache-dir", |stats| {
        Count(&mut stats.disk.written_blocks_total)
    }),
    Statistic::total(
        "omnibus_disk_dropped_blocks_total",
        "blocks not written to --cache-dir because the writer was busy or the disk failed",
        |stats| Count(&mut stats.disk.dropped_blocks_total),
    ),
    Statistic::total(
        "omnibus_disk_rejected_files_total",
        "files of --cache-dir removed because they were corrupt, truncated or foreign",
        |stats| Count(&mut stats.disk.rejected_files_total),
    ),
    Statistic::total(
        "omnibus_disk_evicted_files_total",
        "files of --cache-dir evicted to stay within --cache-disk-limit",
        |stats| Count(&mut stats.disk.evicted_files_total),
    ),
    Statistic::total("omnibus_kv_peer_fetched_blocks_total", "blocks fetched of --kv-peer", |stats| {
        Count(&mut stats.kv_transfer.fetch.fetched_blocks_total)
    }),
    Statistic::total(
        "omnibus_kv_peer_prefills_total",
        "prompts that servers of --kv-peer computed",
        |stats| Count(&mut stats.kv_transfer.fetch.prefills_total),
    ),
    Statistic::total(
        "omnibus_kv_peer_prefill_tokens_total",
        "tokens of prompts that servers of --kv-peer computed",
        |stats| Count(&mut stats.kv_transfer.fetch.prefill_tokens_total),
    ),
    Statistic::total(
        "omnibus_kv_peer_fetched_bytes_total",
        "bytes of blocks fetched of --kv-peer",
        |stats| Count(&mut stats.kv_transfer.fetch.fetched_bytes_total),
    ),
    Statistic::series(KV_PEER_FAILURES, ("reason", "unreachable"), |stats| {
        Count(&mut stats.kv_transfer.fetch.failures.unreachable_total)
    }),
    Statistic::series(KV_PEER_FAILURES, ("reason", "timeout"), |stats| {
        Count(&mut stats.kv_transfer.fetch.failures.timeout_total)
    }),
    Statistic::series(KV_PEER_FAILURES, ("reason", "refused"), |stats| {
        Count(&mut stats.kv_transfer.fetch.failures.refused_total)
    }),
    Statistic::series(KV_PEER_FAILURES, ("reason", "other_model"), |stats| {
        Count(&mut stats.kv_transfer.fetch.failures.other_model_total)
    }),
    Statistic::series(KV_PEER_FAILURES, ("reason", "invalid"), |stats| {
        Count(&mut stats.kv_transfer.fetch.failures.invalid_total)
    }),
    Statistic::total("omnibus_kv_peer_served_blocks_total", "blocks that other replicas read", |stats| {
        Count(&mut stats.kv_transfer.served_blocks_total)
    }),
    Statistic::total(
        "omnibus_kv_peer_served_bytes_total",
        "bytes of blocks that other replicas read",
        |stats| Count(&mut stats.kv_transfer.served_bytes_total),
    ),
    Statistic::total(
        "omnibus_kv_events_published_total",
        "KV events given to the socket of --kv-events-endpoint",
        |stats| Count(&mut stats.kv_events.published_total),
    ),
    Statistic::total(
        "omnibus_kv_events_dropped_total",
        "KV events that found no room in the queue of --kv-events-endpoint",
        |stats| Count(&mut stats.kv_events.dropped_total),
    ),
    Statistic::gauge("omnibus_grammar_sequences", "running sequences with a grammar", |stats| {
        stats.grammar.sequences as f64
    }),
    Statistic::total(
        "omnibus_grammars_total",
        "requests whose grammar was compiled or found in the cache",
        |stats| Count(&mut stats.grammar.compiled_total),
    ),
    Statistic::total(
        "omnibus_grammar_cache_hits_total",
        "requests whose grammar was found in the cache",
        |stats| Count(&mut stats.grammar.cache_hits_total),
    ),
    Statistic::total(
        "omnibus_grammars_refused_total",
        "requests refused because of their grammar",
        |stats| Count(&mut stats.grammar.refused_total),
    ),
    Statistic::total(
        "omnibus_grammar_failures_total",
        "sequences that met a grammar limit while they ran",
        |stats| Count(&mut stats.grammar.failed_total),
    ),
    Statistic::total("omnibus_grammar_masks_total", "token masks computed", |stats| {
        Count(&mut stats.grammar.masks_total)
    }),
    Statistic::total(
        "omnibus_grammar_compile_seconds_total",
        "time from arrival until grammars were compiled",
        |stats| Seconds(&mut stats.grammar.compile_seconds_total),
    ),
    Statistic::total(
        "omnibus_grammar_mask_seconds_total",
        "time spent computing masks, on threads of their own",
        |stats| Seconds(&mut stats.grammar.mask_seconds_total),
    ),
    Statistic::total(
        "omnibus_grammar_wait_seconds_total",
        "time the engine's loop waited for masks",
        |stats| Seconds(&mut stats.grammar.wait_seconds_total),
    ),
    Statistic::total(
        "omnibus_grammar_accept_seconds_total",
        "time the engine's loop matched sampled tokens",
        |stats| Seconds(&mut stats.grammar.accept_seconds_total),
    ),
    Statistic::gauge("omnibus_media_features", "images whose features are in memory", |stats| {
        stats.media.entries as f64
    }),
    Statistic::gauge("omnibus_media_feature_bytes", "bytes of features in memory", |stats| {
        stats.media.bytes as f64
    }),
    Statistic::total("omnibus_media_encoder_runs_total", "images encoded", |stats| {
        Count(&mut stats.media.encoder_runs_total)
    }),
    Statistic::total("omnibus_media_encode_seconds_total", "time spent encoding images", |stats| {
        Seconds(&mut stats.media.encode_seconds_total)
    }),
    Statistic::total("omnibus_media_evictions_total", "images whose features were evicted", |stats| {
        Count(&mut stats.media.evicted_total)
    }),
    Statistic::series(MEDIA_HITS, ("kind", "prefix"), |stats| Count(&mut stats.media.prefix_hits_total)),
    Statistic::series(MEDIA_HITS, ("kind", "features"), |stats| Count(&mut stats.media.feature_hits_total)),
    Statistic::series(MEDIA_HITS, ("kind", "disk"), |stats| Count(&mut stats.media.disk_hits_total)),
    Statistic::series(MEDIA_MISSES, ("reason", "cold"), |stats| Count(&mut stats.media.cold_misses_total)),
    Statistic::series(MEDIA_MISSES, ("reason", "evicted"), |stats| {
        Count(&mut stats.media.evicted_misses_total)
    }),
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Sets every number that only grows to one, and counts them.
    fn set_totals(part: &mut Value, is_total: fn(&str) -> bool) -> usize {
        let Value::Object(fields) = part else { return 0 };
        let set = |(name, value): (&String, &mut Value)| match value {
            Value::Number(number) if is_total(name) => {
                *value = if number.is_f64() { 1.0.into() } else { 1.into() };
                1
            }
            // Every number of the reasons of misses only grows.
            _ if name == "prefix_misses" => set_totals(value, |_| true),
            _ => set_totals(value, is_total),
        };
        fields.iter_mut().map(set).sum()
    }

    fn sum_of(part: &Value) -> f64 {
        match part {
            Value::Number(number) => number.as_f64().unwrap(),
            Value::Object(fields) => fields.values().map(sum_of).sum(),
            _ => 0.0,
        }
    }

    #[test]
    fn every_number_that_only_grows_is_carried_over_a_restart() {
        let mut json = serde_json::to_value(Stats::default()).unwrap();
        let set = set_totals(&mut json, |name| name.ends_with("_total"));
        let stats: Stats = serde_json::from_value(json.clone()).unwrap();
        let sum = serde_json::to_value(stats.plus_totals(&stats)).unwrap();
        let rest = sum_of(&json) - set as f64;
        assert!(set > 40, "{json}");
        assert_eq!(sum_of(&sum), rest + 2.0 * set as f64, "{sum}");
    }
}
