//! One load on one server, once: what a client measured, and what the server counted meanwhile.

use serde_json::Value;

use super::contender::Contender;
use super::generator;
use super::results::{Metric, Metrics};
use crate::bench::load;
use crate::bench::summary::{Percentiles, Summary, goodput};
use crate::error::Error;
use crate::server_client::ServerClient;
use crate::settings::load_kind::LoadKind;
use crate::settings::{BenchSettings, ClientSettings, Config};

/// What our server counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counters {
    cached_tokens: f64,
    accepted_drafts: f64,
    encoded_media: f64,
    joules: Option<f64>,
    peak_memory_bytes: f64,
}

/// Sends the load and reads the counters before and after.
pub async fn run(
    config: &Config,
    contender: &Contender,
    load: LoadKind,
    round: usize,
) -> Result<Metrics, Error> {
    let base = BenchSettings {
        url: contender.url.clone(),
        // Other prompts in each round: those of an earlier one are cached.
        seed: config.bench.seed.wrapping_add(1000 * round as u64 + load as u64),
        ..config.bench.clone()
    };
    let settings = generator::settings(load, &base);
    let before = counters(contender).await?;
    let run = load::measure(&settings, None).await?;
    let after = counters(contender).await?;
    let summary = Summary::of(&settings, &run);
    if let Some(failure) = &summary.first_failure {
        return Err(Error::failed(format!(
            "{}, {}: a request failed: {failure}",
            contender.name,
            load.name()
        )));
    }
    let mut metrics = of_client(&summary);
    metrics.insert(Metric::Goodput, goodput(&run, config.report.targets));
    if let (Some(before), Some(after)) = (before, after) {
        metrics.extend(of_server(before, after, &summary));
    }
    Ok(metrics)
}

fn of_client(summary: &Summary) -> Metrics {
    let spreads = [
        (summary.ttft_ms, [Metric::TtftP50, Metric::TtftP95, Metric::TtftP99]),
        (summary.tpot_ms, [Metric::TpotP50, Metric::TpotP95, Metric::TpotP99]),
        (summary.itl_ms, [Metric::ItlP50, Metric::ItlP95, Metric::ItlP99]),
        (summary.e2e_ms, [Metric::E2eP50, Metric::E2eP95, Metric::E2eP99]),
    ];
    let values = spreads
        .into_iter()
        .flat_map(|(Percentiles { p50, p95, p99, .. }, names)| names.into_iter().zip([p50, p95, p99]));
    values.chain([(Metric::OutputThroughput, summary.output_throughput)]).collect()
}

fn of_server(before: Counters, after: Counters, summary: &Summary) -> Metrics {
    let prompt = (summary.input_tokens as f64).max(1.0);
    let mut metrics = Metrics::from([
        (Metric::CachedShare, (after.cached_tokens - before.cached_tokens) / prompt),
        (Metric::AcceptedDrafts, after.accepted_drafts - before.accepted_drafts),
        (Metric::EncodedMedia, after.encoded_media - before.encoded_media),
        (Metric::PeakMemory, after.peak_memory_bytes),
    ]);
    // A server that has just started has reported no energy before.
    let joules = after.joules.map(|joules| joules - before.joules.unwrap_or_default());
    if let Some(joules) = joules.filter(|joules| *joules > 0.0) {
        metrics.insert(Metric::TokensPerJoule, summary.output_tokens as f64 / joules);
    }
    metrics
}

/// The counters of a server of ours; of a peer `None`.
async fn counters(contender: &Contender) -> Result<Option<Counters>, Error> {
    let Some(server) = &contender.own else { return Ok(None) };
    let client = ServerClient::new(&ClientSettings { url: Some(server.url.clone()), key: None })?;
    let status = client.get("/v1/status").await.map_err(Error::failed)?;
    Ok(Some(Counters::of(&status)))
}

impl Counters {
    fn of(status: &Value) -> Self {
        let number = |path: &str| status.pointer(path).and_then(Value::as_f64);
        let count = |name: &str| number(&format!("/engine/{name}")).unwrap_or_default();
        let millijoules = |phase: &str| number(&format!("/engine/energy/{phase}_millijoules_total"));
        let joules = millijoules("prompt").zip(millijoules("completion"));
        Self {
            cached_tokens: count("cached_tokens_total"),
            accepted_drafts: count("accepted_draft_tokens_total"),
            encoded_media: count("media/encoder_runs_total"),
            joules: joules.map(|(prompt, completion)| (prompt + completion) / 1e3),
            peak_memory_bytes: count("peak_memory_bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn energy_without_a_sensor_is_absent() {
        let status = json!({"engine": {"cached_tokens_total": 3, "energy": null}});
        let counters = Counters::of(&status);
        assert_eq!((counters.cached_tokens, counters.joules), (3.0, None));
        let energy = json!({"prompt_millijoules_total": 500, "completion_millijoules_total": 1500});
        assert_eq!(Counters::of(&json!({"engine": {"energy": energy}})).joules, Some(2.0));
    }
}
