//! `/metrics` against its page.

use std::collections::BTreeSet;

use omnibus_server::{Settings, VllmMetrics};

use super::client::{get, post};
use super::{server, server_with};

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// Metrics that a scripted engine without keys and batches does not record: it has no steps, no sensor of energy, no sound, no watch of memory and
/// no restart, and clients of chat completions cannot send unknown fields.
const NOT_SCRIPTED: &[&str] = &[
    "omnibus_batch_requests_total",
    "omnibus_batches_total",
    "omnibus_energy_millijoules_total",
    "omnibus_engine_memory_left_bytes",
    "omnibus_key_requests_total",
    "omnibus_key_limited_requests_total",
    "omnibus_key_prompt_tokens_total",
    "omnibus_key_cached_tokens_total",
    "omnibus_key_generated_tokens_total",
    "omnibus_key_streams",
    "omnibus_memory_pressure",
    "omnibus_model_active_requests",
    "omnibus_model_loads_total",
    "omnibus_model_memory_bytes",
    "omnibus_model_waiting_requests",
    "omnibus_power_watts",
    "omnibus_step_seconds",
    "omnibus_step_tokens",
    "omnibus_transcribed_seconds_total",
    "omnibus_unknown_fields_total",
];

/// Names and types of the page.
fn documented() -> BTreeSet<(&'static str, &'static str)> {
    let row = |line: &'static str| {
        let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1);
        Some((cells.next().filter(|name| name.starts_with("omnibus_"))?, cells.next()?))
    };
    PAGE.lines().filter_map(row).collect()
}

#[test]
fn every_metric_is_in_the_page_and_the_reverse() {
    let server = server();
    post(server.address, "/v1/chat/completions", r#"{"messages":[{"role":"user","content":"a b"}]}"#);
    let text = get(server.address, "/metrics").body;
    let helps: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let scraped: BTreeSet<(&str, &str)> = types.collect();
    let documented = documented();
    let ours = scraped.iter().filter(|(name, _)| name.starts_with("omnibus_"));
    for metric @ (name, _) in ours {
        assert!(documented.contains(metric) && helps.contains(name), "{metric:?} is in no table");
    }
    for metric @ (name, _) in &documented {
        assert!(scraped.contains(metric) || NOT_SCRIPTED.contains(name), "{metric:?} is in no scrape");
    }
}

#[test]
fn energy_is_absent_where_nothing_counts_it() {
    let server = server();
    let text = get(server.address, "/metrics").body;
    assert!(!text.contains("omnibus_energy_") && !text.contains("omnibus_power_"), "{text}");
    let status = get(server.address, "/v1/status").json();
    assert!(status["engine"]["energy"].is_null(), "{status}");
}

#[test]
fn vllms_names_stand_beside_ours_where_they_are_wanted() {
    let plain = server();
    assert!(!get(plain.address, "/metrics").body.contains("vllm:num_requests_running"));
    drop(plain);
    let vllm_metrics = Some(VllmMetrics { block_size: 16 });
    let server = server_with(Settings { vllm_metrics, ..Settings::default() });
    post(server.address, "/v1/chat/completions", r#"{"messages":[{"role":"user","content":"a b"}]}"#);
    let text = get(server.address, "/metrics").body;
    let names = PAGE.lines().filter_map(|line| line.strip_prefix("| `vllm:")?.split('`').next());
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("# TYPE vllm:{name} ")), "vllm:{name} is in no scrape");
    }
    let sizes =
        r#"vllm:cache_config_info{model_name="scripted",engine="0",block_size="16",num_gpu_blocks="0"} 1"#;
    assert!(text.lines().any(|line| line == sizes), "{text}");
    assert!(text.contains(
        r#"vllm:request_success_total{model_name="scripted",engine="0",finished_reason="length"} 1"#
    ));
}
