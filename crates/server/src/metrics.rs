//! Prometheus metrics.
//!
//! Invariant: histograms and counters are recorded at their source; gauges are read from the engine at each scrape.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use omnibus_engine::{GrammarStats, MediaStats};

use crate::engine::Engine;
use crate::error::Failed;

/// Bucket bounds for durations, from a decode step to a long request.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
    500.0,
];
/// Bucket bounds for token counts, from one token to a long prompt.
const TOKENS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];
/// Interval at which recorded samples are aggregated.
pub const UPKEEP: Duration = Duration::from_secs(5);

/// Installs the metrics recorder of this process, once.
pub fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let buckets = [("_seconds", SECONDS), ("_tokens", TOKENS)];
            let builder = buckets.into_iter().fold(PrometheusBuilder::new(), |builder, (suffix, bounds)| {
                let matcher = Matcher::Suffix(suffix.into());
                builder.set_buckets_for_metric(matcher, bounds).unwrap_or_else(|_| PrometheusBuilder::new())
            });
            let recorder = builder.build_recorder();
            let handle = recorder.handle();
            if ::metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("another metrics recorder is installed; /metrics stays empty");
            }
            describe();
            handle
        })
        .clone()
}

/// Counters with their help.
const COUNTERS: &[(&str, &str)] = &[
    ("omnibus_requests_total", "generation requests by API and outcome"),
    ("omnibus_unknown_fields_total", "unknown fields, block types and tool types that were left out"),
    ("omnibus_http_requests_total", "HTTP requests by route, method and status"),
    ("omnibus_prompt_tokens_total", "prompt tokens"),
    ("omnibus_cached_tokens_total", "prompt tokens found in the prefix cache"),
    ("omnibus_generated_tokens_total", "tokens generated"),
    ("omnibus_transcribed_seconds_total", "seconds of recordings that were written down"),
    ("omnibus_steps_total", "engine steps"),
    ("omnibus_failed_steps_total", "engine steps that failed as a whole"),
    ("omnibus_preemptions_total", "preempted sequences, by kind: swap or recompute"),
    (
        "omnibus_forced_tokens_total",
        "generated tokens that were not sampled, because a grammar allows no other",
    ),
    ("omnibus_grammars_total", "requests whose grammar was compiled or found in the cache"),
    ("omnibus_grammar_cache_hits_total", "those whose grammar was found in the cache"),
    ("omnibus_grammars_refused_total", "requests refused because of their grammar"),
    ("omnibus_grammar_failures_total", "sequences that met a grammar limit while they ran"),
    ("omnibus_grammar_masks_total", "token masks computed"),
    ("omnibus_media_encoder_runs_total", "images encoded"),
    (
        "omnibus_media_hits_total",
        "images of admitted prompts that were not encoded, by kind: prefix, features or disk",
    ),
    (
        "omnibus_media_misses_total",
        "images of admitted prompts that were encoded, by reason: cold or evicted",
    ),
    ("omnibus_media_evictions_total", "images whose features were evicted"),
    ("omnibus_swap_out_blocks_total", "blocks swapped out of preempted sequences"),
    ("omnibus_swap_out_bytes_total", "bytes swapped out of preempted sequences"),
    ("omnibus_swap_in_blocks_total", "blocks swapped in"),
    ("omnibus_swap_in_bytes_total", "bytes swapped in"),
    (
        "omnibus_handovers_total",
        "sequences handed from the prefill pool to the decode pool (schedule `split`)",
    ),
    ("omnibus_prefix_hit_tokens_total", "prompt tokens found in the prefix cache, counted by the scheduler"),
    ("omnibus_prefix_misses_total", "prefix cache misses by reason"),
    ("omnibus_computed_tokens_total", "tokens computed, including recomputed ones"),
    ("omnibus_engine_restarts_total", "restarts of the engine process"),
    ("omnibus_engine_load_failures_total", "failed model loads of a restarted engine process"),
    ("omnibus_gpu_compiled_kernels_total", "our GPU kernels compiled, or loaded from the compiler's cache"),
    ("omnibus_gpu_step_graphs_total", "decode steps prepared as CUDA graphs, one for each shape of a step"),
    ("omnibus_disk_read_blocks_total", "blocks loaded from --cache-dir"),
    ("omnibus_disk_written_blocks_total", "blocks written to --cache-dir"),
    (
        "omnibus_disk_dropped_blocks_total",
        "blocks not written to --cache-dir because the writer was busy or the disk failed",
    ),
    (
        "omnibus_disk_rejected_files_total",
        "files of --cache-dir removed because they were corrupt, truncated or foreign",
    ),
    ("omnibus_disk_evicted_files_total", "files of --cache-dir evicted to stay within --cache-disk-limit"),
];

/// Gauges with their help.
const GAUGES: &[(&str, &str)] = &[
    ("omnibus_swap_used_bytes", "host memory used by swapped blocks"),
    (
        "omnibus_gpu_step_launches",
        "kernels and operations of the last decode step; 0 if it was not a CUDA graph",
    ),
    ("omnibus_swap_limit_bytes", "host memory available for swapped blocks"),
    ("omnibus_sessions", "sessions whose blocks are pinned"),
    ("omnibus_step_host_seconds_total", "host time spent planning and building steps"),
    ("omnibus_step_wait_seconds_total", "time spent waiting for step results"),
    ("omnibus_media_features", "images whose features are in memory"),
    ("omnibus_media_feature_bytes", "bytes of those"),
    ("omnibus_media_encode_seconds_total", "time spent encoding images"),
    ("omnibus_grammar_sequences", "running sequences with a grammar"),
    ("omnibus_grammar_compile_seconds_total", "time from arrival until grammars were compiled"),
    ("omnibus_grammar_mask_seconds_total", "time spent computing masks, on threads of their own"),
    ("omnibus_grammar_wait_seconds_total", "time the engine's loop waited for masks"),
    ("omnibus_grammar_accept_seconds_total", "time the engine's loop matched sampled tokens"),
    ("omnibus_requests_queued", "requests in the queue"),
    ("omnibus_requests_running", "requests running"),
    ("omnibus_kv_blocks_used", "KV blocks in use"),
    ("omnibus_kv_blocks_cached", "KV blocks that hold cached prefixes and can be evicted"),
    ("omnibus_kv_blocks_total", "KV blocks in total"),
    ("omnibus_disk_files", "blocks stored in --cache-dir, of all models"),
    ("omnibus_disk_bytes", "bytes stored in --cache-dir, of all models"),
    ("omnibus_memory_active_bytes", "memory of live arrays"),
    ("omnibus_memory_peak_bytes", "peak memory of live arrays"),
    ("omnibus_memory_cache_bytes", "memory kept by MLX's allocator for reuse"),
    (
        "omnibus_cost_model_error_ratio",
        "recent error of predicted step times, relative to the measured times",
    ),
    (
        "omnibus_move_cost_error_ratio",
        "recent error of predicted block transfer times, relative to the measured times",
    ),
    ("omnibus_engine_alive", "1 while the engine steps or is idle, else 0"),
    ("omnibus_build_info", "always 1; the version is a label"),
];

/// Histograms with their help.
const HISTOGRAMS: &[(&str, &str)] = &[
    ("omnibus_queue_seconds", "time from arrival to the first step"),
    ("omnibus_ttft_seconds", "time from arrival to the first token or text"),
    ("omnibus_tpot_seconds", "mean time between tokens of a request"),
    ("omnibus_e2e_seconds", "time from arrival to the end"),
    ("omnibus_http_request_seconds", "time from a request's headers to its response's headers"),
];

fn describe() {
    COUNTERS.iter().for_each(|(name, help)| metrics::describe_counter!(*name, *help));
    GAUGES.iter().for_each(|(name, help)| metrics::describe_gauge!(*name, *help));
    HISTOGRAMS.iter().for_each(|(name, help)| metrics::describe_histogram!(*name, *help));
}

/// Updates the gauges from the engine and renders all metrics.
pub fn scrape(handle: &PrometheusHandle, engine: &dyn Engine) -> String {
    let stats = engine.stats();
    let gauges = [
        ("omnibus_requests_queued", stats.scheduler.queued as f64),
        ("omnibus_requests_running", stats.scheduler.running as f64),
        ("omnibus_kv_blocks_used", stats.scheduler.blocks().used as f64),
        ("omnibus_kv_blocks_cached", stats.scheduler.blocks().cached as f64),
        ("omnibus_kv_blocks_total", stats.scheduler.blocks().total as f64),
        ("omnibus_disk_files", stats.disk.files as f64),
        ("omnibus_disk_bytes", stats.disk.bytes as f64),
        ("omnibus_sessions", stats.scheduler.sessions as f64),
        ("omnibus_memory_active_bytes", stats.active_memory_bytes as f64),
        ("omnibus_memory_peak_bytes", stats.peak_memory_bytes as f64),
        ("omnibus_memory_cache_bytes", stats.cache_memory_bytes as f64),
        ("omnibus_cost_model_error_ratio", stats.cost_model.error_ratio()),
        ("omnibus_move_cost_error_ratio", stats.cost_model.transfers.error_ratio()),
        ("omnibus_swap_used_bytes", stats.swap.used_bytes as f64),
        ("omnibus_gpu_step_launches", stats.launches.step_launches as f64),
        ("omnibus_swap_limit_bytes", stats.swap.limit_bytes as f64),
        // The metrics crate's counters are integers, so these monotonic totals are gauges.
        ("omnibus_step_host_seconds_total", stats.host_seconds_total),
        ("omnibus_step_wait_seconds_total", stats.wait_seconds_total),
    ];
    for (name, value) in gauges {
        gauge!(name).set(value);
    }
    scrape_grammars(&stats.grammar);
    scrape_media(&stats.media);
    let counters = [
        ("omnibus_engine_restarts_total", stats.engine_restarts_total),
        ("omnibus_engine_load_failures_total", stats.engine_load_failures_total),
        ("omnibus_steps_total", stats.steps_total),
        ("omnibus_failed_steps_total", stats.failed_steps_total),
        ("omnibus_swap_out_blocks_total", stats.swap.out_blocks_total),
        ("omnibus_swap_out_bytes_total", stats.swap.out_bytes_total),
        ("omnibus_swap_in_blocks_total", stats.swap.in_blocks_total),
        ("omnibus_swap_in_bytes_total", stats.swap.in_bytes_total),
        ("omnibus_forced_tokens_total", stats.scheduler.forced_tokens_total),
        ("omnibus_handovers_total", stats.scheduler.handoffs_total),
        ("omnibus_computed_tokens_total", stats.scheduler.computed_tokens_total),
        ("omnibus_gpu_compiled_kernels_total", stats.launches.compiled_kernels_total),
        ("omnibus_gpu_step_graphs_total", stats.launches.step_graphs_total),
        ("omnibus_disk_read_blocks_total", stats.disk.read_blocks_total),
        ("omnibus_disk_written_blocks_total", stats.disk.written_blocks_total),
        ("omnibus_disk_dropped_blocks_total", stats.disk.dropped_blocks_total),
        ("omnibus_disk_rejected_files_total", stats.disk.rejected_files_total),
        ("omnibus_disk_evicted_files_total", stats.disk.evicted_files_total),
        ("omnibus_prefix_hit_tokens_total", stats.scheduler.cached_tokens_total),
    ];
    for (name, value) in counters {
        counter!(name).absolute(value);
    }
    for (reason, count) in stats.scheduler.misses.by_reason() {
        counter!("omnibus_prefix_misses_total", "reason" => reason).absolute(count);
    }
    let swapped = stats.scheduler.swap_preemptions_total;
    let recomputed = stats.scheduler.preemptions_total.saturating_sub(swapped);
    for (kind, count) in [("swap", swapped), ("recompute", recomputed)] {
        counter!("omnibus_preemptions_total", "kind" => kind).absolute(count);
    }
    gauge!("omnibus_engine_alive").set(if engine.health().alive { 1.0 } else { 0.0 });
    gauge!("omnibus_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    handle.run_upkeep();
    handle.render()
}

fn scrape_grammars(stats: &GrammarStats) {
    let gauges = [
        ("omnibus_grammar_sequences", stats.sequences as f64),
        ("omnibus_grammar_compile_seconds_total", stats.compile_seconds_total),
        ("omnibus_grammar_mask_seconds_total", stats.mask_seconds_total),
        ("omnibus_grammar_wait_seconds_total", stats.wait_seconds_total),
        ("omnibus_grammar_accept_seconds_total", stats.accept_seconds_total),
    ];
    for (name, value) in gauges {
        gauge!(name).set(value);
    }
    let counters = [
        ("omnibus_grammars_total", stats.compiled_total),
        ("omnibus_grammar_cache_hits_total", stats.cache_hits_total),
        ("omnibus_grammars_refused_total", stats.refused_total),
        ("omnibus_grammar_failures_total", stats.failed_total),
        ("omnibus_grammar_masks_total", stats.masks_total),
    ];
    for (name, value) in counters {
        counter!(name).absolute(value);
    }
}

fn scrape_media(stats: &MediaStats) {
    gauge!("omnibus_media_features").set(stats.entries as f64);
    gauge!("omnibus_media_feature_bytes").set(stats.bytes as f64);
    gauge!("omnibus_media_encode_seconds_total").set(stats.encode_seconds_total);
    counter!("omnibus_media_encoder_runs_total").absolute(stats.encoder_runs_total);
    counter!("omnibus_media_evictions_total").absolute(stats.evicted_total);
    let hits = [
        ("prefix", stats.prefix_hits_total),
        ("features", stats.feature_hits_total),
        ("disk", stats.disk_hits_total),
    ];
    for (kind, count) in hits {
        counter!("omnibus_media_hits_total", "kind" => kind).absolute(count);
    }
    for (reason, count) in [("cold", stats.cold_misses_total), ("evicted", stats.evicted_misses_total)] {
        counter!("omnibus_media_misses_total", "reason" => reason).absolute(count);
    }
}

/// Counts and logs a request.
pub async fn layer(request: Request, next: Next) -> Response {
    let since = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| "unmatched".into());
    let method = method_label(request.method().as_str());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let failed = response.extensions().get::<Failed>();
    let error = failed.and_then(|failed| failed.0.unlogged_message()).map(str::to_owned);
    let seconds = since.elapsed().as_secs_f64();
    tracing::info!(method, route, status, seconds, error, "response");
    histogram!("omnibus_http_request_seconds", "route" => route.clone()).record(seconds);
    let labels = [("route", route), ("method", method.into()), ("status", status.to_string())];
    counter!("omnibus_http_requests_total", &labels).increment(1);
    response
}

/// Unknown methods share one label, so that a client cannot grow the number of series.
fn method_label(method: &str) -> &'static str {
    const KNOWN: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.iter().copied().find(|known| *known == method).unwrap_or("other")
}
