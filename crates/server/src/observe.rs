//! Records the metrics of a request from its events, and charges its key.
//!
//! Invariant: events pass unchanged. A stream that is dropped before its last event counts as disconnected.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use metrics::{counter, histogram};
use omnibus_engine::{FinishReason, TranscriptionEvent, Usage};
use tracing::Span;

use crate::charge::Charge;
use crate::engine::Lease;
use crate::metrics::vllm::VllmRequest;
use crate::response::Event;
use crate::traces::GenerationTrace;

/// Events of a request, with its metrics recorded as they pass.
pub struct ObservedEvents {
    events: BoxStream<'static, Event>,
    metrics: RequestMetrics,
    charge: Option<Charge>,
    /// Until the last event was read.
    _lease: Lease,
    trace: Option<GenerationTrace>,
    span: Span,
}

impl ObservedEvents {
    /// Wraps the events of a request that was just submitted.
    pub fn new(events: BoxStream<'static, Event>, api: &'static str) -> Self {
        let (metrics, lease) = (RequestMetrics::new(api), Lease::default());
        Self { events, metrics, charge: None, _lease: lease, trace: None, span: Span::current() }
    }

    /// Records them by vLLM's names, too.
    pub fn with_vllm(mut self, request: Option<VllmRequest>) -> Self {
        self.metrics.vllm = request;
        self
    }

    /// Traces them.
    pub fn with_trace(self, trace: Option<GenerationTrace>) -> Self {
        Self { trace, ..self }
    }

    /// Keeps their model loaded.
    pub fn leasing(self, lease: Lease) -> Self {
        Self { _lease: lease, ..self }
    }

    /// Charges a key for them.
    pub fn charging(self, charge: Charge) -> Self {
        Self { charge: Some(charge), ..self }
    }
}

impl Stream for ObservedEvents {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let span = self.span.clone();
        let _entered = span.enter();
        let polled = self.events.poll_next_unpin(context);
        if let Poll::Ready(Some(event)) = &polled {
            self.metrics.observe(event);
            if let Some(charge) = &mut self.charge {
                charge.observe(event);
            }
            if let Some(trace) = &mut self.trace {
                trace.observe(event);
            }
        }
        polled
    }
}

struct RequestMetrics {
    api: &'static str,
    since: Instant,
    first: Option<Instant>,
    /// Seconds in the queue.
    queued: Option<f64>,
    outcome: Option<&'static str>,
    vllm: Option<VllmRequest>,
}

impl RequestMetrics {
    fn new(api: &'static str) -> Self {
        Self { api, since: Instant::now(), first: None, queued: None, outcome: None, vllm: None }
    }

    /// Records when the first output came.
    fn observe_first(&mut self) {
        if self.first.is_none() {
            self.first = Some(Instant::now());
            self.record("omnibus_ttft_seconds", self.since.elapsed().as_secs_f64());
        }
    }

    fn observe(&mut self, event: &Event) {
        if let Some(Err(error)) = event.end() {
            self.outcome = Some(error.code());
        }
        match event {
            Event::Engine(event) => self.observe_generation(event),
            Event::Speech(event) => self.observe_transcription(event),
            Event::Tool(_) | Event::Failed(_) => {}
        }
    }

    fn observe_generation(&mut self, event: &omnibus_engine::Event) {
        use omnibus_engine::Event;
        if let Some(vllm) = &mut self.vllm {
            match event {
                Event::Started { .. } => vllm.start(Instant::now()),
                Event::Delta { .. } => vllm.part(Instant::now()),
                Event::Finished { reason, usage, .. } => vllm.finish(*reason, usage, Instant::now()),
                Event::Prompt(_)
                | Event::Progress { .. }
                | Event::Alignment(_)
                | Event::Hidden(_)
                | Event::TokenLogits(_)
                | Event::Failed(_) => {}
            }
        }
        match event {
            Event::Started { .. } => {
                let seconds = self.since.elapsed().as_secs_f64();
                self.queued = Some(seconds);
                self.record("omnibus_queue_seconds", seconds);
            }
            Event::Delta { .. } => self.observe_first(),
            Event::Finished { reason, usage, .. } => self.finish(*reason, usage),
            Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. }
            | Event::Failed(_) => {}
        }
    }

    fn observe_transcription(&mut self, event: &TranscriptionEvent) {
        match event {
            TranscriptionEvent::Segment(_) => self.observe_first(),
            TranscriptionEvent::Finished(summary) => {
                self.outcome = Some("stop");
                self.record("omnibus_e2e_seconds", self.since.elapsed().as_secs_f64());
                counter!("omnibus_transcribed_seconds_total").increment(summary.duration_s.ceil() as u64);
            }
            TranscriptionEvent::Failed(_) => {}
        }
    }

    fn finish(&mut self, reason: FinishReason, usage: &Usage) {
        self.outcome = Some(match reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        });
        counter!("omnibus_prompt_tokens_total").increment(usage.prompt_tokens as u64);
        counter!("omnibus_cached_tokens_total").increment(usage.cached_tokens as u64);
        counter!("omnibus_generated_tokens_total").increment(usage.completion_tokens as u64);
        let seconds = self.since.elapsed().as_secs_f64();
        let Usage { prompt_tokens, cached_tokens, completion_tokens: generated_tokens, .. } = *usage;
        let ttft = self.first.map(|first| first.duration_since(self.since).as_secs_f64());
        tracing::info!(
            outcome = self.outcome,
            prompt_tokens,
            cached_tokens,
            generated_tokens,
            queue_s = self.queued.map(milliseconds),
            ttft_s = ttft.map(milliseconds),
            total_s = milliseconds(seconds),
            "generation"
        );
        self.record("omnibus_e2e_seconds", seconds);
        if let (Some(first), 2..) = (self.first, usage.completion_tokens) {
            self.record(
                "omnibus_tpot_seconds",
                first.elapsed().as_secs_f64() / (usage.completion_tokens - 1) as f64,
            );
        }
    }

    fn record(&self, name: &'static str, seconds: f64) {
        histogram!(name, "api" => self.api).record(seconds);
    }
}

/// Seconds, to the millisecond.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or("disconnected");
        counter!("omnibus_requests_total", "api" => self.api, "outcome" => outcome).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::Body;
    use axum::http::Request;
    use axum::routing::get;
    use futures::stream;
    use omnibus_engine::{Failure, SpeechSummary};
    use tower::ServiceExt as _;

    use super::*;
    use crate::error::ApiError;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What the server logs for a response with this error, after these events.
    fn logged(error: ApiError, events: Vec<Event>) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let answer = move || async move {
            ObservedEvents::new(stream::iter(events).boxed(), "test").collect::<Vec<_>>().await;
            Err::<(), _>(error)
        };
        let app =
            Router::new().route("/", get(answer)).layer(axum::middleware::from_fn(crate::metrics::layer));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tracing::subscriber::with_default(subscriber, || {
            runtime.block_on(app.oneshot(Request::new(Body::empty()))).unwrap();
        });
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_transcription_that_is_dropped_counts_as_disconnected() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let summary = SpeechSummary { language: None, duration_s: 1.5, usage: Usage::default() };
        metrics::with_local_recorder(&recorder, || {
            let events =
                || stream::iter([Event::Speech(TranscriptionEvent::Finished(summary.clone()))]).boxed();
            drop(ObservedEvents::new(events(), "dropped"));
            let all = ObservedEvents::new(events(), "whole").collect::<Vec<_>>();
            assert_eq!(futures::executor::block_on(all).len(), 1);
        });
        let text = handle.render();
        for line in [
            r#"omnibus_requests_total{api="dropped",outcome="disconnected"} 1"#,
            r#"omnibus_requests_total{api="whole",outcome="stop"} 1"#,
            r#"omnibus_e2e_seconds_count{api="whole"} 1"#,
            "omnibus_transcribed_seconds_total 2",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn only_the_engine_logs_why_a_generation_failed() {
        let failure = Failure::Engine { message: "out of memory".into() };
        let events = vec![Event::Engine(omnibus_engine::Event::Failed(failure.clone()))];
        let log = logged(ApiError::of_generation(failure), events);
        assert!(log.contains("status=500") && !log.contains("out of memory"), "{log}");
    }

    #[test]
    fn a_refusal_is_logged_once_with_its_response() {
        let log = logged(ApiError::invalid("seed", "no such seed"), Vec::new());
        assert_eq!(log.matches("no such seed").count(), 1, "{log}");
    }
}
