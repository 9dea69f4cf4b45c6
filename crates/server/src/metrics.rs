//! Prometheus metrics.
//!
//! Invariant: histograms and counters are recorded at their source; gauges are read from the engine at each scrape.

mod table;
pub mod vllm;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use metrics::{Label, counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use omnibus_engine::statistic::{Metric, Source, Statistic, Total};
use omnibus_engine::{Failure, SCHEDULER_STATISTICS, STATISTICS, Stats};

use crate::engine::Engine;
use crate::error::Failed;
use crate::keys::Keys;
use table::{Kind, RECORDED};
use vllm::{Snapshot, VllmMetrics};

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

fn describe() {
    let recorded = RECORDED.iter().map(|row| (row.kind, row.name, row.help));
    let engine = table::of_engine().map(|(kind, metric)| (kind, metric.name, metric.help));
    for (kind, name, help) in recorded.chain(engine) {
        match kind {
            Kind::Counter => metrics::describe_counter!(name, help),
            Kind::Gauge => metrics::describe_gauge!(name, help),
            Kind::Histogram => metrics::describe_histogram!(name, help),
        }
    }
}

/// Updates the engine's metrics and renders all, with those by vLLM's names where they are wanted.
pub fn scrape(
    handle: &PrometheusHandle,
    engine: &dyn Engine,
    keys: &Keys,
    vllm: Option<&VllmMetrics>,
) -> Result<String, Failure> {
    publish_models(engine)?;
    publish_keys(keys);
    gauge!("omnibus_engine_alive").set(if engine.health(None)?.alive { 1.0 } else { 0.0 });
    gauge!("omnibus_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    handle.run_upkeep();
    let ours = handle.render();
    Ok(match vllm {
        Some(vllm) => ours + &vllm_page(vllm, engine, &engine.stats(None)?),
        None => ours,
    })
}

/// Sets the statistics of each model. Where there are several, their names are labels, and so are the numbers of replicas.
fn publish_models(engine: &dyn Engine) -> Result<(), Failure> {
    let models = engine.models();
    let models: Vec<&str> =
        models.iter().filter(|model| model.adapter.is_none()).map(|model| model.id.as_str()).collect();
    if models.len() < 2 {
        publish_engine(engine, None)?;
    }
    for model in models.iter().filter(|_| models.len() > 1) {
        publish_engine(engine, Some(model))?;
    }
    for model in models {
        let Some(residence) = engine.residence(Some(model)) else { continue };
        let name = model.to_owned();
        let bytes = if residence.status == "unloaded" { 0 } else { residence.bytes };
        counter!("omnibus_model_loads_total", "model" => name.clone()).absolute(residence.loads);
        gauge!("omnibus_model_memory_bytes", "model" => name.clone()).set(bytes as f64);
        gauge!("omnibus_model_waiting_requests", "model" => name.clone()).set(residence.waiting as f64);
        gauge!("omnibus_model_active_requests", "model" => name).set(residence.active as f64);
    }
    Ok(())
}

fn publish_engine(engine: &dyn Engine, model: Option<&str>) -> Result<(), Failure> {
    let of_model = model.map(|model| Label::new("model", model.to_owned()));
    let replicas = engine.replica_stats(model)?;
    if replicas.len() < 2 {
        publish_statistics(engine.stats(model)?, of_model.as_slice());
        return Ok(());
    }
    for (replica, stats) in replicas.into_iter().enumerate() {
        let labels: Vec<Label> =
            of_model.iter().cloned().chain([Label::new("replica", replica.to_string())]).collect();
        publish_statistics(stats, &labels);
    }
    Ok(())
}

fn publish_statistics(mut stats: Stats, labels: &[Label]) {
    SCHEDULER_STATISTICS.iter().for_each(|row| publish(row, &mut stats.scheduler, labels));
    let counts_energy = stats.energy.source.is_some();
    let shown = STATISTICS.iter().filter(|row| counts_energy || !is_energy(row));
    shown.for_each(|row| publish(row, &mut stats, labels));
}

/// The part of the page that is read from the engine by vLLM's names.
fn vllm_page(vllm: &VllmMetrics, engine: &dyn Engine, stats: &Stats) -> String {
    let models = engine.models();
    let adapters = models.iter().filter(|model| model.adapter.is_some()).map(|model| model.id.clone());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    vllm.page(&Snapshot {
        model: models.first().map_or("", |model| model.id.as_str()),
        stats,
        requests: &engine.requests(),
        adapters: &adapters.collect(),
        now_s: now.as_secs_f64(),
    })
}

/// Sets the metrics of the keys that were used: a series for each of 100,000 keys would be the longest page of all.
fn publish_keys(keys: &Keys) {
    for key in keys.all() {
        let totals = key.account.totals();
        if key.name.is_empty() || !key.account.is_used() {
            continue;
        }
        let counters = [
            ("omnibus_key_requests_total", totals.requests),
            ("omnibus_key_limited_requests_total", totals.limited),
            ("omnibus_key_prompt_tokens_total", totals.prompt_tokens),
            ("omnibus_key_cached_tokens_total", totals.cached_tokens),
            ("omnibus_key_generated_tokens_total", totals.completion_tokens),
        ];
        for (name, count) in counters {
            counter!(name, "key" => key.name.clone()).absolute(count);
        }
        gauge!("omnibus_key_streams", "key" => key.name.clone()).set(totals.streams as f64);
    }
}

/// Whether it means nothing without a sensor.
fn is_energy(row: &Statistic<Stats>) -> bool {
    let name = row.metric.map_or("", |metric| metric.name);
    name.starts_with("omnibus_energy_") || name == "omnibus_power_watts"
}

/// Sets a statistic's metric, with these labels beside its own.
fn publish<S>(row: &Statistic<S>, stats: &mut S, labels: &[Label]) {
    let Some(Metric { name, label, .. }) = row.metric else { return };
    let own = label.map(|(label, value)| Label::from_static_parts(label, value));
    let labels: Vec<Label> = own.into_iter().chain(labels.iter().cloned()).collect();
    match row.source {
        Source::Total(field) => match field(stats) {
            Total::Count(count) => counter!(name, labels).absolute(*count),
            Total::Seconds(seconds) => gauge!(name, labels).set(*seconds),
        },
        Source::Derived(value) => counter!(name, labels).absolute(value(stats)),
        Source::Gauge(value) => gauge!(name, labels).set(value(stats)),
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
    tracing::info!(method, route, status, seconds = (seconds * 1e3).round() / 1e3, error, "response");
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
