//! What Prometheus scrapes.
//!
//! Invariant: histograms and counters are recorded where things happen; gauges are read when scraped.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::engine::Engine;
use crate::error::Refused;
use crate::request_id::RequestId;

/// Upper bounds for durations, from a decode step to a patient client.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
    500.0,
];
/// Upper bounds for tokens, from one row to a long prompt.
const TOKENS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];
/// How often what was recorded is moved to where it is scraped from.
pub const UPKEEP: Duration = Duration::from_secs(5);

/// Installs the recorder of this process, once.
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
                tracing::warn!("another recorder of metrics is installed; /metrics stays empty");
            }
            describe();
            handle
        })
        .clone()
}

fn describe() {
    use metrics::{describe_counter as count, describe_gauge as level, describe_histogram as spread};
    count!("omnibus_requests_total", "generations by api and outcome");
    count!("omnibus_http_requests_total", "HTTP requests by route, method and status");
    count!("omnibus_prompt_tokens_total", "tokens of prompts");
    count!("omnibus_cached_tokens_total", "tokens of prompts that were cached");
    count!("omnibus_generated_tokens_total", "tokens generated");
    count!("omnibus_steps_total", "steps of the engine");
    count!("omnibus_failed_steps_total", "steps that failed as a whole");
    count!(
        "omnibus_preemptions_total",
        "sequences sent back to the queue for their blocks, by what becomes of those"
    );
    level!("omnibus_swap_used_bytes", "memory of the host that swapped blocks take");
    level!("omnibus_swap_limit_bytes", "memory of the host that they may take");
    count!("omnibus_swap_out_blocks_total", "blocks copied out for sequences sent back to the queue");
    count!("omnibus_swap_out_bytes_total", "bytes of those");
    count!("omnibus_swap_in_blocks_total", "blocks put back from the host's memory");
    count!("omnibus_swap_in_bytes_total", "bytes of those");
    count!(
        "omnibus_handovers_total",
        "sequences handed from the pool that reads prompts to the one that answers"
    );
    count!("omnibus_prefix_hit_tokens_total", "tokens found in the prefix index");
    count!("omnibus_prefix_misses_total", "prompts not found as far as they could have been, by reason");
    level!("omnibus_sessions", "conversations whose blocks are kept");
    count!("omnibus_computed_tokens_total", "tokens computed, those computed again included");
    count!("omnibus_engine_restarts_total", "times the engine's process was started again");
    count!("omnibus_engine_load_failures_total", "times the engine's process could not load its model again");
    level!("omnibus_step_host_seconds_total", "time spent planning and building steps");
    level!("omnibus_step_wait_seconds_total", "time spent waiting for the results of steps");
    level!("omnibus_requests_queued", "generations that wait");
    level!("omnibus_requests_running", "generations that run");
    level!("omnibus_kv_blocks_used", "blocks of keys and values in use");
    level!("omnibus_kv_blocks_cached", "blocks kept only because they may be used again");
    level!("omnibus_kv_blocks_total", "blocks of keys and values");
    level!("omnibus_disk_files", "blocks kept in --cache-dir, those of other models included");
    level!("omnibus_disk_bytes", "bytes of those");
    count!("omnibus_disk_read_blocks_total", "blocks read from --cache-dir and used");
    count!("omnibus_disk_written_blocks_total", "blocks written to --cache-dir");
    count!(
        "omnibus_disk_dropped_blocks_total",
        "blocks not written: the writer was behind, or the disk refused"
    );
    count!(
        "omnibus_disk_rejected_files_total",
        "files of --cache-dir removed as corrupt, cut short or foreign"
    );
    count!("omnibus_disk_evicted_files_total", "files of --cache-dir removed to stay within the limit");
    level!("omnibus_memory_active_bytes", "memory of arrays");
    level!("omnibus_memory_peak_bytes", "most memory of arrays so far");
    level!("omnibus_memory_cache_bytes", "memory kept for reuse");
    level!(
        "omnibus_cost_model_error_ratio",
        "how far off expected step times were lately, as a share of the time taken"
    );
    level!(
        "omnibus_move_cost_error_ratio",
        "how far off expected times of moving blocks were lately, as a share of the time taken"
    );
    level!("omnibus_engine_alive", "1 while the engine steps or has nothing to do");
    level!("omnibus_build_info", "the version, as a label");
    spread!("omnibus_queue_seconds", "from arrival to the first step");
    spread!("omnibus_ttft_seconds", "from arrival to the first text or token");
    spread!("omnibus_tpot_seconds", "between tokens, on average over a generation");
    spread!("omnibus_e2e_seconds", "from arrival to the end");
    spread!("omnibus_http_request_seconds", "from a request's head to its response's head");
}

/// Reads the gauges and prints everything.
pub fn scrape(handle: &PrometheusHandle, engine: &dyn Engine) -> String {
    let stats = engine.stats();
    let levels = [
        ("omnibus_requests_queued", stats.queued as f64),
        ("omnibus_requests_running", stats.running as f64),
        ("omnibus_kv_blocks_used", stats.kv_blocks_used as f64),
        ("omnibus_kv_blocks_cached", stats.kv_blocks_cached as f64),
        ("omnibus_kv_blocks_total", stats.kv_blocks_total as f64),
        ("omnibus_disk_files", stats.disk.files as f64),
        ("omnibus_disk_bytes", stats.disk.bytes as f64),
        ("omnibus_sessions", stats.sessions_kept as f64),
        ("omnibus_memory_active_bytes", stats.active_memory_bytes as f64),
        ("omnibus_memory_peak_bytes", stats.peak_memory_bytes as f64),
        ("omnibus_memory_cache_bytes", stats.cache_memory_bytes as f64),
        ("omnibus_cost_model_error_ratio", stats.cost_model.error_ratio()),
        ("omnibus_move_cost_error_ratio", stats.cost_model.transfers.error_ratio()),
        ("omnibus_swap_used_bytes", stats.swap.used_bytes as f64),
        ("omnibus_swap_limit_bytes", stats.swap.limit_bytes as f64),
        // Counters of the facade are whole numbers; these only ever grow all the same.
        ("omnibus_step_host_seconds_total", stats.host_seconds_total),
        ("omnibus_step_wait_seconds_total", stats.wait_seconds_total),
    ];
    for (name, value) in levels {
        gauge!(name).set(value);
    }
    let counts = [
        ("omnibus_engine_restarts_total", stats.engine_restarts_total),
        ("omnibus_engine_load_failures_total", stats.engine_load_failures_total),
        ("omnibus_steps_total", stats.steps_total),
        ("omnibus_failed_steps_total", stats.failed_steps_total),
        ("omnibus_swap_out_blocks_total", stats.swap.out_blocks_total),
        ("omnibus_swap_out_bytes_total", stats.swap.out_bytes_total),
        ("omnibus_swap_in_blocks_total", stats.swap.in_blocks_total),
        ("omnibus_swap_in_bytes_total", stats.swap.in_bytes_total),
        ("omnibus_handovers_total", stats.handovers_total),
        ("omnibus_computed_tokens_total", stats.computed_tokens_total),
        ("omnibus_disk_read_blocks_total", stats.disk.read_blocks_total),
        ("omnibus_disk_written_blocks_total", stats.disk.written_blocks_total),
        ("omnibus_disk_dropped_blocks_total", stats.disk.dropped_blocks_total),
        ("omnibus_disk_rejected_files_total", stats.disk.rejected_files_total),
        ("omnibus_disk_evicted_files_total", stats.disk.evicted_files_total),
        ("omnibus_prefix_hit_tokens_total", stats.cached_tokens_total),
    ];
    for (name, value) in counts {
        counter!(name).absolute(value);
    }
    for (reason, count) in stats.prefix_misses.by_reason() {
        counter!("omnibus_prefix_misses_total", "reason" => reason).absolute(count);
    }
    let swapped = stats.swap_preemptions_total;
    let recomputed = stats.preemptions_total.saturating_sub(swapped);
    for (kind, count) in [("swap", swapped), ("recompute", recomputed)] {
        counter!("omnibus_preemptions_total", "kind" => kind).absolute(count);
    }
    gauge!("omnibus_engine_alive").set(if engine.health().alive { 1.0 } else { 0.0 });
    gauge!("omnibus_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    handle.run_upkeep();
    handle.render()
}

/// Counts and logs a request.
pub async fn layer(request: Request, next: Next) -> Response {
    let since = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| "unmatched".into());
    let method = method_label(request.method().as_str());
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let why = response.extensions().get::<Refused>().map(|refused| refused.0.body().error.message);
    let seconds = since.elapsed().as_secs_f64();
    tracing::info!(id, method, route, status, seconds, why, "request");
    histogram!("omnibus_http_request_seconds", "route" => route.clone()).record(seconds);
    let labels = [("route", route), ("method", method.into()), ("status", status.to_string())];
    counter!("omnibus_http_requests_total", &labels).increment(1);
    response
}

/// Clients invent methods; labels are kept for ever.
fn method_label(method: &str) -> &'static str {
    const KNOWN: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.iter().copied().find(|known| *known == method).unwrap_or("other")
}
