//! vLLM's names of what we measure, for routers, autoscalers and boards that read them: `--metrics-compat vllm`.
//!
//! Invariant: these metrics stand beside ours and are never the only place of a number. Every series has the labels
//! `model_name` and `engine`, as vLLM's have; only `vllm:lora_requests_info` has neither.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use metrics::{counter, histogram};
use omnibus_engine::{DraftPosition, FinishReason, RequestInfo, RequestState, Stats, Usage};

use super::table::Kind;

/// The settings of these metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VllmMetrics {
    /// Tokens of a block of the KV cache.
    pub block_size: usize,
}

/// A metric by vLLM's name.
pub struct VllmRow {
    #[allow(missing_docs)]
    pub name: &'static str,
    #[allow(missing_docs)]
    pub kind: Kind,
    read: Read,
    /// One line without an end.
    pub help: &'static str,
}

/// Where its value comes from.
enum Read {
    /// The engine's statistics.
    Number(fn(&Stats) -> f64),
    /// The engine's statistics of each position of a draft, with a label for the position.
    Positions(fn(&DraftPosition) -> u64),
    /// Recorded where it happens.
    Recorded,
    /// Made of labels.
    Info,
}

const fn gauge(name: &'static str, read: fn(&Stats) -> f64, help: &'static str) -> VllmRow {
    VllmRow { name, kind: Kind::Gauge, read: Read::Number(read), help }
}

const fn counted(name: &'static str, read: fn(&Stats) -> f64, help: &'static str) -> VllmRow {
    VllmRow { name, kind: Kind::Counter, read: Read::Number(read), help }
}

const fn recorded(name: &'static str, kind: Kind, help: &'static str) -> VllmRow {
    VllmRow { name, kind, read: Read::Recorded, help }
}

const fn info(name: &'static str, help: &'static str) -> VllmRow {
    VllmRow { name, kind: Kind::Gauge, read: Read::Info, help }
}

/// All of them.
pub const VLLM: &[VllmRow] = &[
    gauge("vllm:num_requests_running", |stats| stats.scheduler.running as f64, "`omnibus_requests_running`"),
    gauge("vllm:num_requests_waiting", |stats| stats.scheduler.queued as f64, "`omnibus_requests_queued`"),
    gauge("vllm:kv_cache_usage_perc", blocks_in_use, "`omnibus_kv_blocks_used` / `omnibus_kv_blocks_total`"),
    gauge("vllm:gpu_cache_usage_perc", blocks_in_use, "its older name"),
    counted(
        "vllm:num_preemptions_total",
        |stats| stats.scheduler.preemptions_total as f64,
        "`omnibus_preemptions_total` of both kinds",
    ),
    counted(
        "vllm:spec_decode_num_drafts_total",
        |stats| stats.scheduler.drafts_total as f64,
        "`omnibus_drafts_total`",
    ),
    counted(
        "vllm:spec_decode_num_draft_tokens_total",
        |stats| stats.scheduler.draft_tokens_total as f64,
        "`omnibus_draft_tokens_total`",
    ),
    counted(
        "vllm:spec_decode_num_accepted_tokens_total",
        |stats| stats.scheduler.accepted_draft_tokens_total as f64,
        "`omnibus_accepted_draft_tokens_total`",
    ),
    VllmRow {
        name: "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        kind: Kind::Counter,
        read: Read::Positions(|position| position.accepted),
        help: "`omnibus_accepted_draft_tokens_per_position_total`, without the position that counts all later ones",
    },
    info("vllm:cache_config_info", "always 1; `block_size` and `num_gpu_blocks` are labels"),
    info(
        "vllm:lora_requests_info",
        "the time; `max_lora`, `running_lora_adapters` and `waiting_lora_adapters` are labels",
    ),
    recorded("vllm:prompt_tokens_total", Kind::Counter, "`omnibus_prompt_tokens_total`"),
    recorded("vllm:generation_tokens_total", Kind::Counter, "`omnibus_generated_tokens_total`"),
    recorded("vllm:prefix_cache_queries_total", Kind::Counter, "`omnibus_prompt_tokens_total`"),
    recorded("vllm:prefix_cache_hits_total", Kind::Counter, "`omnibus_cached_tokens_total`"),
    recorded(
        "vllm:request_success_total",
        Kind::Counter,
        "requests by `finished_reason`: stop, length or abort",
    ),
    recorded("vllm:time_to_first_token_seconds", Kind::Histogram, "`omnibus_ttft_seconds` of all APIs"),
    recorded("vllm:inter_token_latency_seconds", Kind::Histogram, "time between the parts of a stream"),
    recorded(
        "vllm:request_time_per_output_token_seconds",
        Kind::Histogram,
        "`omnibus_tpot_seconds` of all APIs",
    ),
    recorded("vllm:e2e_request_latency_seconds", Kind::Histogram, "`omnibus_e2e_seconds` of all APIs"),
    recorded("vllm:request_queue_time_seconds", Kind::Histogram, "`omnibus_queue_seconds` of all APIs"),
    recorded("vllm:request_prefill_time_seconds", Kind::Histogram, "from the first step to the first token"),
    recorded("vllm:request_decode_time_seconds", Kind::Histogram, "from the first token to the end"),
    recorded("vllm:request_inference_time_seconds", Kind::Histogram, "from the first step to the end"),
    recorded("vllm:request_prompt_tokens", Kind::Histogram, "tokens of a prompt"),
    recorded("vllm:request_generation_tokens", Kind::Histogram, "tokens generated for a request"),
];

fn blocks_in_use(stats: &Stats) -> f64 {
    let blocks = stats.scheduler.blocks();
    if blocks.total == 0 { 0.0 } else { blocks.used as f64 / blocks.total as f64 }
}

/// What the metrics that are read at a scrape are made of.
pub struct Snapshot<'a> {
    /// The name of the served model.
    pub model: &'a str,
    /// The engine's statistics.
    pub stats: &'a Stats,
    /// Unfinished requests.
    pub requests: &'a [RequestInfo],
    /// The names of adapters.
    pub adapters: &'a BTreeSet<String>,
    /// Seconds since 1970.
    pub now_s: f64,
}

impl VllmMetrics {
    /// Their part of the page.
    pub fn page(&self, of: &Snapshot<'_>) -> String {
        let mut page = String::new();
        let model = escaped(of.model);
        for row in VLLM {
            let series: Vec<(String, f64)> = match &row.read {
                Read::Recorded => continue,
                Read::Number(read) => vec![(labels(&model, ""), read(of.stats))],
                Read::Positions(read) => {
                    // The last one counts all later ones, too.
                    let exact =
                        of.stats.scheduler.draft_positions.split_last().map_or(&[][..], |(_, exact)| exact);
                    let series = |(at, position): (usize, &DraftPosition)| {
                        (labels(&model, &format!(",position=\"{at}\"")), read(position) as f64)
                    };
                    exact.iter().enumerate().map(series).collect()
                }
                Read::Info if row.name == "vllm:cache_config_info" => {
                    let blocks = of.stats.scheduler.blocks().total;
                    let sizes = format!(",block_size=\"{}\",num_gpu_blocks=\"{blocks}\"", self.block_size);
                    vec![(labels(&model, &sizes), 1.0)]
                }
                Read::Info => vec![(Self::adapters(of), of.now_s)],
            };
            let kind = if row.kind == Kind::Counter { "counter" } else { "gauge" };
            // Writing to a string does not fail.
            let _ = writeln!(page, "# HELP {} {}\n# TYPE {0} {kind}", row.name, row.help);
            for (labels, value) in series {
                let _ = writeln!(page, "{}{labels} {value}", row.name);
            }
        }
        page
    }

    /// The labels with the adapters of requests, by their state.
    fn adapters(of: &Snapshot<'_>) -> String {
        let names = |state: RequestState| {
            let requests = of.requests.iter().filter(|request| request.state == state);
            let names = requests.map(|request| &request.model).filter(|name| of.adapters.contains(*name));
            let names: BTreeSet<&str> = names.map(String::as_str).collect();
            escaped(&names.into_iter().collect::<Vec<_>>().join(","))
        };
        format!(
            "{{max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"}}",
            of.adapters.len(),
            names(RequestState::Running),
            names(RequestState::Queued)
        )
    }
}

fn labels(model: &str, more: &str) -> String {
    format!("{{model_name=\"{model}\",engine=\"0\"{more}}}")
}

/// A label's value in Prometheus' text format.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Records the metrics of one request.
pub struct VllmRequest {
    model: Arc<str>,
    submitted: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl VllmRequest {
    /// A request of the served model that was just submitted.
    pub fn new(model: Arc<str>) -> Self {
        Self { model, submitted: Instant::now(), started: None, first: None, last: None }
    }

    /// Lets the counters begin at zero.
    pub fn register(model: &str) {
        for name in [
            "vllm:prompt_tokens_total",
            "vllm:generation_tokens_total",
            "vllm:prefix_cache_queries_total",
            "vllm:prefix_cache_hits_total",
        ] {
            counter!(name, "model_name" => model.to_owned(), "engine" => "0").increment(0);
        }
        for reason in ["stop", "length", "abort"] {
            let labels = [("model_name", model), ("engine", "0"), ("finished_reason", reason)];
            let labels = labels.map(|(name, value)| (name, value.to_owned()));
            counter!("vllm:request_success_total", &labels).increment(0);
        }
    }

    /// Its first step was launched.
    pub fn start(&mut self, now: Instant) {
        self.started = Some(now);
        self.record("vllm:request_queue_time_seconds", Some(self.submitted), now);
    }

    /// A part of its answer came.
    pub fn part(&mut self, now: Instant) {
        match self.last {
            None => self.record("vllm:time_to_first_token_seconds", Some(self.submitted), now),
            last => self.record("vllm:inter_token_latency_seconds", last, now),
        }
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// It has ended.
    pub fn finish(&self, reason: FinishReason, usage: &Usage, now: Instant) {
        let reason = match reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "abort",
        };
        let labels = [("model_name", &*self.model), ("engine", "0"), ("finished_reason", reason)];
        let labels = labels.map(|(name, value)| (name, value.to_owned()));
        counter!("vllm:request_success_total", &labels).increment(1);
        for (name, count) in [
            ("vllm:prompt_tokens_total", usage.prompt_tokens),
            ("vllm:generation_tokens_total", usage.completion_tokens),
            ("vllm:prefix_cache_queries_total", usage.prompt_tokens),
            ("vllm:prefix_cache_hits_total", usage.cached_tokens),
        ] {
            counter!(name, "model_name" => Arc::clone(&self.model), "engine" => "0").increment(count as u64);
        }
        self.record("vllm:e2e_request_latency_seconds", Some(self.submitted), now);
        self.record("vllm:request_inference_time_seconds", self.started, now);
        self.record("vllm:request_decode_time_seconds", self.first, now);
        if let Some(first) = self.first {
            self.record("vllm:request_prefill_time_seconds", self.started, first);
            if usage.completion_tokens > 1 {
                let seconds = now.duration_since(first).as_secs_f64() / (usage.completion_tokens - 1) as f64;
                self.add("vllm:request_time_per_output_token_seconds", seconds);
            }
        }
        self.add("vllm:request_prompt_tokens", usage.prompt_tokens as f64);
        self.add("vllm:request_generation_tokens", usage.completion_tokens as f64);
    }

    fn record(&self, name: &'static str, since: Option<Instant>, now: Instant) {
        if let Some(since) = since {
            self.add(name, now.saturating_duration_since(since).as_secs_f64());
        }
    }

    fn add(&self, name: &'static str, value: f64) {
        histogram!(name, "model_name" => Arc::clone(&self.model), "engine" => "0").record(value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use omnibus_engine::{GroupStats, RequestOrigin};

    use super::*;

    fn request(model: &str, state: RequestState) -> RequestInfo {
        RequestInfo {
            id: "r".to_owned(),
            tenant: String::new(),
            origin: RequestOrigin::default(),
            model: model.to_owned(),
            state,
            prompt_tokens: 1,
            generated_tokens: 0,
            age_s: 0.0,
            deadline_s: None,
            blocks: None,
        }
    }

    fn stats() -> Stats {
        let mut stats = Stats::default();
        stats.scheduler.running = 3;
        stats.scheduler.queued = 2;
        stats.scheduler.groups = vec![GroupStats { used: 25, total: 100, ..GroupStats::default() }];
        stats.scheduler.drafts_total = 7;
        stats.scheduler.draft_positions[1] = DraftPosition { verified: 6, accepted: 5 };
        stats.scheduler.draft_positions[7] = DraftPosition { verified: 9, accepted: 9 };
        stats
    }

    #[test]
    fn the_page_has_what_routers_and_autoscalers_read() {
        let requests = [
            request("french", RequestState::Running),
            request("french", RequestState::Running),
            request("base", RequestState::Running),
            request("poems", RequestState::Queued),
        ];
        let adapters = ["french", "poems"].map(str::to_owned).into();
        let (stats, settings) = (stats(), VllmMetrics { block_size: 32 });
        let snapshot =
            Snapshot { model: "a\"b", stats: &stats, requests: &requests, adapters: &adapters, now_s: 5.5 };
        let page = settings.page(&snapshot);
        for line in [
            r#"vllm:num_requests_running{model_name="a\"b",engine="0"} 3"#,
            r#"vllm:num_requests_waiting{model_name="a\"b",engine="0"} 2"#,
            r#"vllm:kv_cache_usage_perc{model_name="a\"b",engine="0"} 0.25"#,
            r#"vllm:gpu_cache_usage_perc{model_name="a\"b",engine="0"} 0.25"#,
            r#"vllm:cache_config_info{model_name="a\"b",engine="0",block_size="32",num_gpu_blocks="100"} 1"#,
            r#"vllm:lora_requests_info{max_lora="2",running_lora_adapters="french",waiting_lora_adapters="poems"} 5.5"#,
            r#"vllm:spec_decode_num_drafts_total{model_name="a\"b",engine="0"} 7"#,
            r#"vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="a\"b",engine="0",position="1"} 5"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
        assert!(!page.contains(r#"position="7""#), "the last position counts later ones");
        assert_eq!(page.matches("# TYPE vllm:num_requests_running gauge").count(), 1);
    }

    #[test]
    fn a_request_is_recorded_by_vllms_names() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            VllmRequest::register("m");
            let mut request = VllmRequest::new("m".into());
            let at = |ms| request_time(&request, ms);
            let times = [at(10), at(30), at(40), at(70)];
            request.start(times[0]);
            request.part(times[1]);
            request.part(times[2]);
            let usage =
                Usage { prompt_tokens: 9, cached_tokens: 4, completion_tokens: 5, ..Usage::default() };
            request.finish(FinishReason::Length, &usage, times[3]);
        });
        let page = handle.render();
        for line in [
            r#"vllm:prefix_cache_queries_total{model_name="m",engine="0"} 9"#,
            r#"vllm:prefix_cache_hits_total{model_name="m",engine="0"} 4"#,
            r#"vllm:request_success_total{model_name="m",engine="0",finished_reason="length"} 1"#,
            r#"vllm:request_success_total{model_name="m",engine="0",finished_reason="abort"} 0"#,
            r#"vllm:time_to_first_token_seconds_sum{model_name="m",engine="0"} 0.03"#,
            r#"vllm:inter_token_latency_seconds_sum{model_name="m",engine="0"} 0.01"#,
            r#"vllm:request_prefill_time_seconds_sum{model_name="m",engine="0"} 0.02"#,
            r#"vllm:request_time_per_output_token_seconds_sum{model_name="m",engine="0"} 0.01"#,
            r#"vllm:e2e_request_latency_seconds_count{model_name="m",engine="0"} 1"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
        let recorded = VLLM.iter().filter(|row| matches!(row.read, Read::Recorded));
        recorded.for_each(|row| {
            assert!(page.contains(&format!("# TYPE {} ", row.name)), "{} in {page}", row.name)
        });
    }

    fn request_time(request: &VllmRequest, ms: u64) -> Instant {
        request.submitted + Duration::from_millis(ms)
    }
}
